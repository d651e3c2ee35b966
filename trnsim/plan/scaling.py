# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A script or a model at several sizes: how much of a chip is left when there are more of them,
and why."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.asked import checked
from trnsim.errors import MachineError, PlanError
from trnsim.job import (
    LARGEST_COUNT,
    check_asked,
    check_script,
    make_job,
    texts_of,
    whole_numbers_of,
)
from trnsim.origin import Origin, command_of
from trnsim.plan.kept import Kept, write_document
from trnsim.plan.layouts import Space
from trnsim.plan.model_runs import (
    ModelRuns,
    batches_of,
    check_for_model,
    check_for_script,
    named_model,
)
from trnsim.plan.progress import Teller
from trnsim.plan.script_runs import Outcome, Reported, RunOptions, ScriptRuns, Target, targets_of
from trnsim.plan.shown import Shown
from trnsim.plan.sizes import nearest_legal, parse_sizes
from trnsim.pool import kept_workers

if TYPE_CHECKING:
    from trnsim.recipes.models import Model

SHARE = "{share}"
SMALLEST_GROWTH = 0.005  # of the step: what grew by less stops nothing
SAME_WORK = 1e-6


@dataclass(frozen=True)
class Point(Reported):
    """One size.

    Attributes:
        chips: of the run; the asked count where the machine has none near it.
        document: of `trnsim run --json`; None where there is none.
        reason: why there is none.
        seconds_to_simulate: that the run took, when it ran.
        reused: kept from an earlier call.
    """

    chips: int
    document: Mapping[str, Any] | None
    reason: str = ""
    seconds_to_simulate: float | None = None
    reused: bool = False


@dataclass(frozen=True)
class Stop:
    """The part of the step whose share grew most between the first and the last point.

    Attributes:
        part: of the breakdown; None where no part but compute grew by half a percent of the step.
        group: of exposed communication, the process group that grew most; else None.
        first_share, last_share: of the whole part in the step, over all groups.
        limited_by: the bottleneck of the last point.
        groups: of exposed communication, (first, last) share of each process group alone in the
            step; the one that grew most first.
    """

    part: str | None
    group: str | None
    first_share: float | None
    last_share: float | None
    limited_by: str
    groups: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Scaling(Shown):
    """Points by ascending size.

    Attributes:
        machine, stack: of every point.
        strong: samples of a step that all ranks share out; None for weak scaling, in which the
            script itself says what each rank does, and a model's batch grows with the chips.
        rounded: asked sizes that the machine cannot be cut to, and the points that stand for them.
        model: that was given by name; None for a script.
        origin: the script and its arguments, or the model's dimensions.
    """

    points: tuple[Point, ...]
    machine: str
    stack: str | None = None
    strong: int | None = None
    rounded: Mapping[int, int] = field(default_factory=dict)
    model: str | None = None
    origin: Origin = field(default_factory=Origin)

    @property
    def ran(self) -> list[Point]:
        """The points that have a run."""
        return [point for point in self.points if point.document is not None]

    @property
    def basis(self) -> str:
        """What efficiency compares: "tokens" or "samples" a second and chip, or "step time" where
        some run knows neither."""
        for what in ("tokens", "samples"):
            if self.ran and all(point.in_a_step(what) is not None for point in self.ran):
                return what
        return "step time"

    def efficiency(self, point: Point) -> float | None:
        """Throughput of a chip, as a share of that at the first point.

        By step time a rank's work is taken to be the same at every size (weak scaling), or that of
        all ranks together (strong scaling).
        """
        if point.document is None or not point.figure("step_time_s"):
            return None
        first, basis = self.ran[0], self.basis
        if basis != "step time":
            rates = [each.figure(f"{basis}_per_s") / each.chips for each in (point, first)]
            return rates[0] / rates[1]
        ratio = first.figure("step_time_s") / point.figure("step_time_s")
        return ratio if self.strong is None else ratio * first.chips / point.chips

    @property
    def stop(self) -> Stop | None:
        """What stops the scaling; None with less than two points."""
        if len(self.ran) < 2:
            return None
        first, last = self.ran[0], self.ran[-1]
        before, after = _shares(first, "breakdown_s"), _shares(last, "breakdown_s")
        growth = {part: after[part] - before[part] for part in after if part != "compute"}
        part = max(growth, key=lambda name: growth[name])
        limited_by = last.figure("bottleneck")
        if growth[part] < SMALLEST_GROWTH:
            return Stop(None, None, None, None, limited_by)
        groups = {}
        if part == "exposed_communication":
            old, new = _shares(first, "exposed_by_group"), _shares(last, "exposed_by_group")
            ends = {name: (old.get(name, 0.0), new.get(name, 0.0)) for name in {**old, **new}}
            groups = dict(sorted(ends.items(), key=lambda end: end[1][0] - end[1][1]))
        group = next(iter(groups), None)
        return Stop(part, group, before[part], after[part], limited_by, groups)

    @property
    def notes(self) -> list[str]:
        """What a reader has to know before using the efficiency."""
        notes = []
        if self.ran and self.basis == "step time":
            work = "a rank's work" if self.strong is None else "the work of all ranks together"
            notes.append(
                "the runs do not know their tokens or samples: efficiency is by step time and "
                f"takes {work} to be the same at every size (--tokens-per-rank says it)"
            )
        elif self.ran and self.strong is not None:
            notes += self._other_totals(self.strong)
        if self.model is not None and self.strong is None:
            notes += self._other_shares()
        if self.rounded:
            listed = ", ".join(f"{size} -> {count}" for size, count in self.rounded.items())
            notes.append(f"rounded to what {self.machine} can be cut to: {listed}")
        return notes

    def _other_totals(self, total: int) -> list[str]:
        """Where the steps do not hold the same work, or other work than was asked for."""
        counted = "samples" if self.ran[0].in_a_step("samples") is not None else self.basis
        sizes = [size for point in self.ran if (size := point.in_a_step(counted)) is not None]
        low, high = min(sizes), max(sizes)
        if high > low * (1 + SAME_WORK):
            sizes_text = f"a step has {low:,.0f} to {high:,.0f} {counted}, by size"
            return [f"{sizes_text}: the total is not the same everywhere: no strong scaling"]
        if counted == "samples" and abs(low - total) > total * SAME_WORK:
            how = "say how many ranks work on the same ones (--replica)"
            return [f"a step has {low:,.0f} samples, not {total}: {how}"]
        return []

    def _other_shares(self) -> list[str]:
        """Where a model's batch is not in proportion to the chips."""
        shares = [size / point.chips for point in self.ran if (size := point.in_a_step("samples"))]
        if not shares or max(shares) <= min(shares) * (1 + SAME_WORK):
            return []
        ends = f"{min(shares):.4g} to {max(shares):.4g}"
        return [f"a step has {ends} sequences a chip, by size: whole ones, not quite in proportion"]

    def to_dict(self) -> dict[str, Any]:
        """The document of `trnsim scale --json`. A point without a run has every key, null, and its
        reason."""
        stop = self.stop
        return {
            "machine": self.machine,
            "stack": self.stack,
            "model": self.model,
            "origin": self.origin.to_dict(),
            "scaling": "weak" if self.strong is None else "strong",
            "total": self.strong,
            "efficiency_basis": self.basis if self.ran else None,
            "rounded": [{"asked": size, "chips": count} for size, count in self.rounded.items()],
            "points": [self._point(point) for point in self.points],
            "stop": None if stop is None else vars(stop),
            "notes": self.notes,
        }

    def _point(self, point: Point) -> dict[str, Any]:
        copied = (
            "ranks", "step_time_s", "step_time_interval_s", "interval_basis", "breakdown_s",
            "exposed_by_group", "bottleneck", "mfu", "memory_peak_bytes", "memory_capacity_bytes",
            "fits", "tokens_per_s", "samples_per_s", "cost_usd_per_step", "energy_j_per_step",
            "energy_site_j_per_step", "carbon_kg_per_step",
            "workload_hash", "timeline_hash", "guesses",
        )  # fmt: skip
        if self.model is not None:
            copied = (*copied, "chips_used", "layout")
        figures = {name: point.figure(name) for name in copied}
        if point.document is None:
            figures["guesses"] = [{"name": "point", "value": "no run", "effect": point.reason}]
        return {
            "chips": point.chips,
            **figures,
            "efficiency": self.efficiency(point),
            "seconds_to_simulate": point.seconds_to_simulate,
            "reused": point.reused,
            "reason": point.reason or None,
        }

    def __str__(self) -> str:
        from trnsim.report.plan import scaling_text

        return scaling_text(self)


def _shares(point: Point, figure: str) -> dict[str, float]:
    step_s = point.figure("step_time_s") or 1.0
    return {name: seconds / step_s for name, seconds in point.figure(figure).items()}


@checked(PlanError)
@kept_workers()
def scale(
    script: str | os.PathLike[str] | Model,
    *,
    machine: str = "trn2",
    chips: str | Iterable[int] = "1..16",
    points: int | None = None,
    strong: int | None = None,
    replica: int = 1,
    arguments: Iterable[str] = (),
    is_module: bool = False,
    space: Space | None = None,
    options: RunOptions | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
) -> Scaling:
    """Runs a script at several sizes, each anew in a process of its own (`trnsim run --json`); or
    trains a model at each, in the layout given or in the fastest that fits.

    Args:
        script: a Python file's path, or with is_module a module's name; or a model: a Model, a
            preset's name, or a config.json's path. A file that exists goes before a name.
        machine: a preset's name or a machine file's path, with its stack after a colon.
        chips: "64..400000" (64, doublings, and 400000), "64,256,1024", or the numbers; each is
            rounded to the nearest count that the machine can be cut to.
        points: of a range, how many sizes, each the same factor apart.
        strong: samples of a step of all ranks together; "{share}" in the arguments becomes what
            each rank does of them. None: weak scaling, the script as it is.
        replica: ranks that work on the same samples (tensor, pipeline, context degrees multiplied).
        arguments: of the script.
        space: of a model, layouts to try at each size, or the one. Its global_batch is of the
            smallest size, and grows with the chips; one sequence a chip where it is not given.
        options: what is asked of every run; of a model's only overrides, stack and ranks_per_chip.
        out: a folder that keeps every point, which then does not run again, and scaling.json.
        jobs: of a model, processes of a search; None: one a core.

    Raises:
        PlanError: a request that makes no sense; a name of neither a script nor a model.
        MachineError: an unknown machine, stack or figure.
        CaptureError: no such script.
        ReportError: out cannot be written to.
    """
    options, sizes = options or RunOptions(), _sizes(chips, points)
    model = named_model(script, is_module)
    arguments = texts_of(PlanError, "arguments", arguments)
    if model is None:
        check_for_script(space)
        _check_strong(strong, replica, arguments)
        check_script(os.fspath(script), is_module)
    (target,) = targets_of([machine], options)
    cut = {size: _legal(target, size) for size in sizes}
    counts = sorted(set(cut.values()))
    teller = Teller(len(counts))
    kept = None if out is None else Kept(Path(out) / "points")
    if model is not None:
        check_for_model(model, space, options, arguments, [target])
        batches = _batches(space, strong, replica, counts)
        trained = ModelRuns(model, space or Space(), options, out, kept, teller, jobs)
        outcomes = [trained.run(target, count, batches[count]) for count in counts]
        origin = Origin(model=model.to_dict())
    else:
        runs = ScriptRuns(os.fspath(script), is_module, options, kept, teller)
        outcomes = [_run(runs, target, each, arguments, strong, replica) for each in counts]
        origin = Origin(command_of(script, is_module, arguments))
    made = [_point_of(*each) for each in zip(counts, outcomes, strict=True)]
    rounded = {size: count for size, count in cut.items() if size != count}
    name = None if model is None else model.name or "model"
    done = Scaling(tuple(made), target.machine.name, target.stack, strong, rounded, name, origin)
    if out is not None:
        write_document(Path(out) / "scaling.json", done.to_dict())
    return done


def _point_of(chips: int, found: Outcome) -> Point:
    return Point(chips, found.document, found.reason, found.seconds, found.reused)


def _batches(
    space: Space | None, strong: int | None, replica: int, counts: list[int]
) -> dict[int, int]:
    """A model's sequences of a step at each size."""
    check_asked(PlanError, strong=strong)
    if replica != 1:
        raise PlanError(f"--replica {replica} is for a script: a model's layout says it")
    has_batch = space is not None and space.has_own_batch
    if strong is None:
        first = space.global_batch if space is not None and has_batch else counts[0]
        return batches_of(first, counts)
    if strong < 1:
        raise PlanError("--strong 0 shares out nothing: give the sequences of a step")
    if has_batch:
        raise PlanError(
            "--global-batch is a step's at the smallest size, --strong a step's at every size: "
            "give one of them"
        )
    return dict.fromkeys(counts, strong)


def _sizes(chips: str | Iterable[int], points: int | None) -> list[int]:
    if isinstance(chips, str):
        return parse_sizes(chips, points)
    if points is not None:
        raise PlanError(f"points {points} needs a range: write chips='64..1024'")
    sizes = sorted(set(whole_numbers_of(PlanError, "chips", chips, 1, LARGEST_COUNT)))
    if not sizes:
        raise PlanError("chips has no size: list at least one")
    return sizes


def _check_strong(strong: int | None, replica: int, arguments: list[str]) -> None:
    check_asked(PlanError, replica=replica)
    if replica < 1 or (replica > 1 and strong is None):
        raise PlanError(
            f"--replica {replica} says who shares out a total: give --strong, and 1 or more"
        )
    is_used = any(SHARE in word for word in arguments)
    if strong is None:
        if is_used:
            raise PlanError(
                f"'{SHARE}' in the script's arguments has no total to be a share of: give --strong"
            )
        return
    check_asked(PlanError, strong=strong)
    if strong < 1:
        raise PlanError("--strong 0 shares out nothing: give the samples of a step of all ranks")
    if not is_used:
        raise PlanError(
            f"--strong {strong} changes nothing: write {SHARE} in the script's arguments where a "
            f"rank's share of the samples belongs, as -- --batch-size {SHARE}"
        )


def _legal(target: Target, size: int) -> int:
    """The count to run; one that the machine cannot hold stays, and is refused in its turn."""
    try:
        return nearest_legal(target.machine, size)
    except MachineError:
        return size


def _run(
    runs: ScriptRuns,
    target: Target,
    chips: int,
    arguments: list[str],
    strong: int | None,
    replica: int,
) -> Outcome:
    if strong is not None:
        try:
            job = make_job(target.machine, chips=chips, ranks_per_chip=runs.options.ranks_per_chip)
        except MachineError as error:
            runs.teller.skip()
            return Outcome(None, str(error))
        ranks = job.placement.ranks
        if ranks % replica or strong % (ranks // replica):
            runs.teller.skip()
            of_how_many = f" in replicas of {replica}" if replica > 1 else ""
            return Outcome(None, f"{strong} samples do not divide over {ranks} ranks{of_how_many}")
        share = str(strong // (ranks // replica))
        arguments = [word.replace(SHARE, share) for word in arguments]
    return _checked(runs.run(target, chips, arguments), chips)


def _checked(outcome: Outcome, chips: int) -> Outcome:
    """A script that is not distributed has no size to scale."""
    if outcome.document is None or outcome.document["chips_used"] == chips:
        return outcome
    used = outcome.document["chips_used"]
    return Outcome(
        None,
        f"{used} of {chips} chips used: the script is not distributed at this size",
        outcome.seconds,
        outcome.reused,
    )
