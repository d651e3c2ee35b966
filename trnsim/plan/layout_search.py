# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Every layout of a model on so many chips: the fastest, and what memory and money buy.

Layouts are taken in the order of their bounds (`bounds`). One whose bound is no better than what is
known cannot be among the answers, and is not simulated: no answer depends on that, only the time
that it takes. A bound that proves to be above its step is said.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.asked import checked
from trnsim.errors import PlanError, TrnSimError
from trnsim.job import LARGEST_COUNT, check_asked, whole_numbers_of
from trnsim.origin import Origin
from trnsim.plan.bounds import (
    Bound,
    Kind,
    alone,
    bound_of,
    kind_of,
    layer_by_peak,
    model_of_kind,
)
from trnsim.plan.kept import Kept, key_of
from trnsim.plan.layouts import (
    Candidate,
    Refused,
    Space,
    candidates,
    check_has_experts,
    nearest_that_work,
    styles_of,
)
from trnsim.plan.script_runs import RunOptions, targets_of
from trnsim.plan.shown import Shown
from trnsim.plan.sizes import nearest_legal
from trnsim.plan.trials import Layer, Trial, Where, measure_layer, step_of, try_layout
from trnsim.pool import check_jobs, worker_pool

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.recipes.models import Model

SLOWER_BY = 0.1
INTERVALS = 3
# Of a bound. A layer in the middle of a pipeline may hide a little more of its messages behind
# another micro-batch than one by itself does, and allocators round: up to 0.6 % in 119 layouts of
# Llama 3 405B.
MARGIN = 0.02


@dataclass(frozen=True)
class Found:
    """A layout that was simulated."""

    candidate: Candidate
    trial: Trial
    bound: Bound

    @property
    def chip_seconds(self) -> float:
        """Chips times step time: what money goes with."""
        return self.candidate.chips * self.trial.step_time_s

    @property
    def fits(self) -> bool:
        """Whether a rank has the memory."""
        return self.trial.memory_peak_bytes <= self.trial.memory_capacity_bytes

    def order(self) -> tuple[Any, ...]:
        """The fastest first; of equal ones that with less memory."""
        layout = self.candidate.layout
        degrees = (layout.tp, layout.pp, layout.vp, layout.cp, layout.ep, layout.micro_batch)
        return (self.trial.step_time_s, self.trial.memory_peak_bytes, self.candidate.chips,
                *degrees, layout.zero, str(layout.recompute), layout.offload_layers)  # fmt: skip


@dataclass
class Counts:
    """How many layouts came to which end.

    Attributes:
        layouts: that the rules allow.
        simulated: of them; too_large: cannot fit into memory by their bound; not_better: cannot be
            among the answers by it; failed: the machine cannot run them.
        layers: measured by themselves, for bounds.
    """

    layouts: int = 0
    simulated: int = 0
    too_large: int = 0
    not_better: int = 0
    failed: int = 0
    layers: int = 0


@dataclass(frozen=True)
class Search(Shown):
    """What a search found.

    Attributes:
        asked_chips: that were asked for; chips: the nearest that the machine can be cut to.
        best: the fastest layouts that fit, in order.
        front: of layouts that fit, and take up to `slower_by` longer than the fastest, those that
            no other beats in time, memory and chip-seconds at once; the fastest first.
        counts, refused: of the others; failed: reasons by layout.
        wrong_bounds: layouts whose step or memory was below their bound: what was left out because
            of bounds is then not proven.
    """

    model: Model
    where: Where
    asked_chips: tuple[int, ...]
    chips: tuple[int, ...]
    space: Space
    slower_by: float
    best: tuple[Found, ...]
    front: tuple[Found, ...]
    simulated: tuple[Found, ...]
    counts: Counts
    refused: Refused
    failed: tuple[tuple[Candidate, str], ...] = ()
    wrong_bounds: tuple[Found, ...] = ()

    @checked(PlanError)
    def save(self, path: str | os.PathLike[str], found: Found) -> None:
        """Writes the step of a layout as a run file on its machine, for every other verb.

        Raises:
            WorkloadError: it cannot be written.
        """
        layout = found.candidate.layout
        step = step_of(self.where, self.model, layout, found.candidate.style)
        step.origin = Origin((), self.model.to_dict(), asdict(layout))
        step.save(path)

    def tokens_per_s(self, found: Found) -> float:
        """Of all chips."""
        return self.space.global_batch * self.space.sequence / found.trial.step_time_s

    def to_dict(self) -> dict[str, Any]:
        """The document of `trnsim search --json`."""
        from trnsim.report.search import search_document

        return search_document(self)

    def __str__(self) -> str:
        from trnsim.report.search import search_text

        return search_text(self)


@dataclass
class _Answers:
    """What is known so far, and whether a bound can still matter."""

    top: int
    slower_by: float
    found: list[Found] = field(default_factory=list)  # that fit, in order

    def add(self, one: Found) -> None:
        if one.fits:
            self.found.append(one)
            self.found.sort(key=Found.order)

    def can_matter(self, bound: Bound, chips: int) -> bool:
        """Whether a layout with that bound may be one of the best, or of the front."""
        if len(self.found) < self.top:
            return True
        if bound.seconds <= self.found[self.top - 1].trial.step_time_s:
            return True
        if bound.seconds > self.found[0].trial.step_time_s * (1 + self.slower_by):
            return False
        return not any(
            one.trial.step_time_s < bound.seconds
            and one.trial.memory_peak_bytes <= bound.memory_bytes
            and one.chip_seconds <= bound.seconds * chips
            for one in self.found
        )

    def front(self) -> list[Found]:
        """Layouts that none beats in all three."""
        if not self.found:
            return []
        most = self.found[0].trial.step_time_s * (1 + self.slower_by)
        front: list[Found] = []
        for one in self.found:
            is_beaten = any(
                other.trial.memory_peak_bytes <= one.trial.memory_peak_bytes
                and other.chip_seconds <= one.chip_seconds
                for other in front
            )
            if one.trial.step_time_s <= most and not is_beaten:
                front.append(one)
        return front


# What a process takes: for itself, and for each chip of the machine (393,216 add 1.1 GB).
_BYTES_OF_PROCESS, _BYTES_OF_CHIP = 1_000_000_000, 3_000


def _jobs_for(chips: int) -> int:
    """One process a core, as far as the memory of this computer goes."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = free // (_BYTES_OF_PROCESS + _BYTES_OF_CHIP * chips)
    return max(1, min(os.cpu_count() or 1, most))


class _Searcher:
    """Simulates what can matter, the lowest bound first."""

    def __init__(
        self, where: Where, machine: Any, model: Model, answers: _Answers, kept: Kept | None,
        prune: bool, tell: Callable[[_Searcher], None],
    ) -> None:  # fmt: skip
        self.where, self.model, self.answers, self.kept = where, model, answers, kept
        self.prune, self.tell = prune, tell
        self.most_bytes = machine.rank_memory_bytes(where.ranks_per_chip)
        self.legal = set(machine.legal_chip_counts)
        self.peak = max(machine.published_flops.values()) / where.ranks_per_chip
        self.kinds = sorted({kind_of(model, layer) for layer in range(model.layers)})
        self.counts = Counts()
        self.failed: list[tuple[Candidate, str]] = []
        self.simulated: list[Found] = []
        self.wrong: list[Found] = []
        self.layers: dict[tuple[Any, ...], Layer | None] = {}  # None: cannot be measured
        self.waiting: dict[tuple[Any, ...], list[tuple[Candidate, int]]] = {}
        self.heap: list[tuple[float, int, Candidate, Bound, bool]] = []

    def run(self, layouts: list[Candidate], pool: ProcessPoolExecutor, jobs: int) -> None:
        """Simulates what can matter of the layouts."""
        self.counts.layouts = len(layouts)
        for number, candidate in enumerate(layouts):
            self._put(candidate, number, is_measured=False)
        running: dict[Future[Any], tuple[Any, ...]] = {}
        while self.heap or running:
            while self.heap and len(running) < jobs:
                begun = self._next(pool)
                if begun is not None:
                    running[begun[0]] = begun[1]
            if not running:
                continue
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda each: running[each][1]):
                what, number, *rest = running.pop(future)
                (self._measured if what == "layer" else self._tried)(future, number, *rest)
            self.tell(self)

    # --- bounds ----------------------------------------------------------------------------------

    def _put(self, candidate: Candidate, number: int, is_measured: bool) -> None:
        model, layout = self.model, candidate.layout
        seconds = {kind: layer_by_peak(model, layout, kind, self.peak) for kind in self.kinds}
        activations: dict[Kind, int] | None = None
        if is_measured:
            of_kind = {kind: self.layers[self._key(candidate, kind)] for kind in self.kinds}
            measured = {kind: layer for kind, layer in of_kind.items() if layer is not None}
            seconds |= {kind: max(seconds[kind], layer.seconds) for kind, layer in measured.items()}
            activations = {kind: 0 for kind in self.kinds}
            activations |= {kind: layer.activation_bytes for kind, layer in measured.items()}
        bound = bound_of(model, candidate, seconds, activations)
        bound = Bound(bound.seconds * (1 - MARGIN), bound.memory_bytes * (1 - MARGIN))
        if self.prune and bound.memory_bytes > self.most_bytes:
            self.counts.too_large += 1
            return
        heapq.heappush(self.heap, (bound.seconds, number, candidate, bound, is_measured))

    def _key(self, candidate: Candidate, kind: Kind) -> tuple[Any, ...]:
        return alone(candidate.layout, kind), candidate.style, kind

    def _next(self, pool: ProcessPoolExecutor) -> tuple[Future[Any], tuple[Any, ...]] | None:
        """Takes the lowest bound and does what is to be done next with it: nothing, a measurement
        of its layers, or a simulation. What was begun, if something was."""
        _, number, candidate, bound, is_measured = heapq.heappop(self.heap)
        if self.prune and not self.answers.can_matter(bound, candidate.chips):
            self.counts.not_better += 1
            return None
        if self.prune and not is_measured:
            keys = [self._key(candidate, kind) for kind in self.kinds]
            missing = [key for key in keys if key not in self.layers]
            if not missing:
                self._put(candidate, number, is_measured=True)
                return None
            key = missing[0]
            self.waiting.setdefault(key, []).append((candidate, number))
            if len(self.waiting[key]) > 1:  # somebody measures it
                return None
            return self._begin_layer(pool, key)
        kept = self._kept(candidate)
        if kept is not None:
            self._keep(candidate, bound, kept)
            return None
        trial = pool.submit(try_layout, self.where, self.model, candidate.layout, candidate.style)
        return trial, ("trial", number, candidate, bound)

    def _begin_layer(
        self, pool: ProcessPoolExecutor, key: tuple[Any, ...]
    ) -> tuple[Future[Any], tuple[Any, ...]] | None:
        layout, style, kind = key
        chips, rest = divmod(layout.world if layout else 0, self.where.ranks_per_chip)
        if rest or chips not in self.legal:
            self._end_layer(key, None)
            return None
        model = model_of_kind(self.model, kind)
        layer = pool.submit(measure_layer, self.where, model, layout, style)
        return layer, ("layer", self.waiting[key][0][1], key)

    def _measured(self, future: Future[Layer], _: int, key: tuple[Any, ...]) -> None:
        self.counts.layers += 1
        try:
            self._end_layer(key, future.result())
        except TrnSimError:  # the layouts themselves say why
            self._end_layer(key, None)

    def _end_layer(self, key: tuple[Any, ...], layer: Layer | None) -> None:
        self.layers[key] = layer
        for candidate, number in self.waiting.pop(key, []):
            is_last = all(self._key(candidate, kind) in self.layers for kind in self.kinds)
            self._put(candidate, number, is_measured=is_last)

    # --- simulations -----------------------------------------------------------------------------

    def _tried(self, future: Future[Trial], _: int, candidate: Candidate, bound: Bound) -> None:
        try:
            trial = future.result()
        except TrnSimError as error:
            self.counts.failed += 1
            self.failed.append((candidate, str(error)))
            return
        if self.kept is not None:
            self.kept.keep("layout", self._key_of(candidate), (), {"trial": trial.to_dict()})
        self._keep(candidate, bound, trial)

    def _keep(self, candidate: Candidate, bound: Bound, trial: Trial) -> None:
        self.counts.simulated += 1
        found = Found(candidate, trial, bound)
        self.simulated.append(found)
        if self.prune and (
            trial.step_time_s < bound.seconds or trial.memory_peak_bytes < bound.memory_bytes
        ):
            self.wrong.append(found)
        self.answers.add(found)

    def _key_of(self, candidate: Candidate) -> str:
        return key_of(
            layout=repr((self.model, candidate.layout, candidate.style)), where=repr(self.where)
        )

    def _kept(self, candidate: Candidate) -> Trial | None:
        if self.kept is None:
            return None
        saved = self.kept.find("layout", self._key_of(candidate))
        return None if saved is None else Trial(**saved["trial"])


@checked(PlanError)
def search(
    model: Model | str | os.PathLike[str],
    *,
    machine: str = "trn2",
    chips: int | Iterable[int] = 16,
    space: Space | None = None,
    options: RunOptions | None = None,
    top: int = 10,
    slower_by: float = SLOWER_BY,
    intervals: int = INTERVALS,
    prune: bool = True,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    tell: Callable[[_Searcher], None] = lambda _: None,
) -> Search:
    """Simulates the layouts of a model that can be the fastest, or on the front.

    Args:
        model: what is trained: a Model, a preset's name, or a path of a config.json.
        machine: a name or a machine file, with a stack after a colon where it runs under one.
        chips: numbers of chips, each rounded to what the machine can be cut to; data parallelism
            takes what the other degrees leave.
        space: what is tried; its styles are those of the stack's programs.
        options: of these overrides, stack and ranks_per_chip hold.
        top: how many of the fastest to find.
        slower_by: how much longer than the fastest a layout of the front may take.
        intervals: how many of the fastest are simulated with their interval, which takes as long as
            some thirty others.
        prune: leave out what cannot be among the answers by its bounds; False simulates all.
        jobs: processes; None: one a core, as far as the memory goes.
        out: a folder that keeps what was simulated, which then is not simulated again.
        tell: called after every simulation, with what has `counts`, `answers` and `heap`.

    Raises:
        PlanError: no layout is allowed: the rule that forbids it, and what works.
        RecipeError: no such model.
        MachineError: an unknown machine, stack or figure, or more chips than the machine has.
    """
    if top < 1:
        raise PlanError(f"top {top}: use 1 or more")
    if not 0 <= slower_by < math.inf:
        raise PlanError(f"slower_by {slower_by:g}: use 0 or more")
    check_asked(PlanError, intervals=intervals)
    check_jobs(jobs)
    options = options or RunOptions()
    (target,) = targets_of([machine], options)
    model = model_of(model)
    where = Where.of(target, options.ranks_per_chip)
    space = replace(space or Space(), styles=styles_of(target.stack))
    check_has_experts(model, space)
    asked = _sizes(chips)
    counts = sorted({nearest_legal(target.machine, count) for count in asked})
    layouts, refused = _all_layouts(model, target.machine, counts, where.ranks_per_chip, space)
    answers = _Answers(top, slower_by)
    kept = None if out is None else Kept(Path(out) / "layouts")
    jobs = jobs or _jobs_for(counts[-1])
    with worker_pool(jobs) as pool:
        searcher = _Searcher(where, target.machine, model, answers, kept, prune, tell)
        searcher.run(layouts, pool, jobs)
        best, front = answers.found[:top], answers.front()
        whole = _with_intervals(pool, where, model, best[:intervals])
    return Search(
        model, where, tuple(asked), tuple(counts), space, slower_by,
        tuple(whole.get(one.order(), one) for one in best),
        tuple(whole.get(one.order(), one) for one in front),
        tuple(sorted(searcher.simulated, key=Found.order)),
        searcher.counts, refused, tuple(searcher.failed), tuple(searcher.wrong),
    )  # fmt: skip


def _all_layouts(
    model: Model, machine: _core.Machine, counts: list[int], ranks_per_chip: int, space: Space
) -> tuple[list[Candidate], Refused]:
    """Of every count of chips, and what the rules refuse; PlanError where nothing is left."""
    layouts: list[Candidate] = []
    refused = Refused()
    for count in counts:
        layouts += candidates(model, machine, count, ranks_per_chip, space, refused)
    if not layouts:
        works = nearest_that_work(model, machine, counts[-1], ranks_per_chip, space)
        near = f"; near it works: {works}" if works else ""
        raise PlanError(f"no layout of {model.name or 'the model'}: {refused.why()}{near}")
    return layouts, refused


def _with_intervals(
    pool: ProcessPoolExecutor, where: Where, model: Model, several: list[Found]
) -> dict[tuple[Any, ...], Found]:
    """The same with their intervals, by their order."""
    trials = [
        pool.submit(try_layout, where, model, one.candidate.layout, one.candidate.style, True)
        for one in several
    ]
    return {
        one.order(): replace(one, trial=trial.result())
        for one, trial in zip(several, trials, strict=True)
    }


def model_of(model: Model | str | os.PathLike[str]) -> Model:
    """A preset by its name, or the model of a config.json or of its folder."""
    from trnsim.recipes.hugging_face import is_config
    from trnsim.recipes.models import Model

    if isinstance(model, Model):
        return model
    return Model.from_hf_config(model) if is_config(model) else Model.preset(os.fspath(model))


def _sizes(chips: int | Iterable[int]) -> list[int]:
    numbers = chips if isinstance(chips, Iterable) else [chips]
    sizes = sorted(set(whole_numbers_of(PlanError, "chips", numbers, 1, LARGEST_COUNT)))
    if not sizes:
        raise PlanError("chips has no size: list at least one")
    return sizes
