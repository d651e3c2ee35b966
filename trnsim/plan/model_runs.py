# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Training steps of a model that is named, wherever they are asked for: the reference program in
the layout that is given, or in the fastest that a search finds there."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.errors import PlanError, RecipeError, TrnSimError
from trnsim.plan.kept import Kept, key_of
from trnsim.plan.layout_search import Search, model_of, search
from trnsim.plan.layouts import (
    Candidate,
    Refused,
    Space,
    candidates,
    check_has_experts,
    nearest_that_work,
    styles_of,
)
from trnsim.plan.progress import Teller
from trnsim.plan.script_runs import Outcome, RunOptions, Target
from trnsim.plan.shared_batches import Place, batches_for_all
from trnsim.plan.trials import Where, step_of
from trnsim.pool import check_jobs
from trnsim.recipes.lengths import at_length, simulated_lengths
from trnsim.recipes.skew import hottest_share
from trnsim.report import words

if TYPE_CHECKING:
    from trnsim.recipes.models import Model

_OF_MODELS = ("ranks_per_chip", "overrides", "stack")
# Figures of a step that grow with its micro-batches.
_GROWING = ("step_time_s", "model_flops")
_OF_PARTS = ("breakdown_s", "exposed_by_group")


def named_model(what: str | os.PathLike[str] | Model, is_module: bool = False) -> Model | None:
    """The model that is meant: a Model, a preset's name, or a config.json of Hugging Face or its
    folder. None where a script or a run file is meant: a file that exists, or a name like one.

    Raises:
        PlanError: a name of neither a script nor a model; the nearest models.
        RecipeError: a config.json that cannot be read.
    """
    from trnsim.recipes.hugging_face import is_config
    from trnsim.recipes.models import Model

    if isinstance(what, Model) or (not is_module and is_config(what)):
        return model_of(what)
    text, path = os.fspath(what), Path(what)
    is_path = os.path.exists(path) or path.suffix in (".py", ".trnsim") or path.name != text
    if is_module or is_path:
        return None
    try:
        return Model.preset(text)
    except RecipeError as error:
        raise PlanError(
            f"no script '{text}', and {error} (a script: its path, as train.py, or -m MODULE)"
        ) from None


def check_for_model(
    model: Model, space: Space | None, options: RunOptions, arguments: list[str],
    targets: list[Target],
) -> None:  # fmt: skip
    """Raises PlanError where something is asked for that only a script has, or that the model has
    not."""
    check_has_experts(model, space)
    if arguments:
        raise PlanError(f"a model takes no arguments, and was given {arguments[0]}: leave them out")
    for name, value in vars(RunOptions()).items():
        if name not in _OF_MODELS and getattr(options, name) != value:
            option = "--" + name.replace("_", "-")
            raise PlanError(f"{option} is for a script, not for a model by name: leave it out")
    for target in targets:
        styles_of(target.stack)


def check_for_script(space: Space | None) -> None:
    """Raises PlanError where a layout is asked for, which a script itself decides."""
    if space is not None:
        raise PlanError(
            "a script decides its own layout: leave out --tp, --global-batch and the like, or give "
            "a model's name in its place"
        )


@dataclass(frozen=True)
class ModelRuns:
    """Trains one model wherever it is asked for.

    Attributes:
        space: layouts to try; where it leaves one, that one is taken, whether it fits or not.
        folder: keeps what a search simulated; None for nowhere.
        kept: where documents are kept for the next time; None for nowhere.
        teller: says on stderr how far we are.
        jobs: processes of a search; None: one a core, as far as the memory goes.
        compared: machine and chips of every row, which all train on one step.
    """

    model: Model
    space: Space
    options: RunOptions
    folder: str | os.PathLike[str] | None
    kept: Kept | None
    teller: Teller
    jobs: int | None = None
    compared: Sequence[tuple[Target, int]] = ()

    def __post_init__(self) -> None:
        check_jobs(self.jobs)

    def run(self, target: Target, chips: int, global_batch: int) -> Outcome:
        """The outcome of a step of so many sequences on so many chips; what rules or the machine
        refuse, or does not fit in any layout, is a reason.

        The document is that of `trnsim run --json`, with `layout`: its degrees, the style of its
        program, who chose it (`chosen_by`: "request" or "search"), and of how many; where experts
        are skewed, `hottest_over_mean`: tokens of the expert parallel rank with most over the mean.
        """
        space = replace(self.space, global_batch=global_batch, styles=styles_of(target.stack))
        where = Where.of(target, self.options.ranks_per_chip)
        name, key = f"{target.label.replace('/', '_')}-{chips}", ""
        if self.kept is not None:
            key = key_of(model=repr(self.model), space=repr(space), where=repr(where))
            saved = self.kept.find(name, key)
            if saved is not None:
                self.teller.skip()
                return Outcome(saved["document"], "", saved["seconds"], reused=True)
        began = time.monotonic()
        with self.teller.running(f"{target.label} on {chips} chips"):
            try:
                chosen, of = self._choose(target, where, chips, space)
                document = _document(where, self.model, chosen, chips)
            except TrnSimError as error:
                return Outcome(None, str(error), time.monotonic() - began)
        seconds = time.monotonic() - began
        document["layout"] = _described(self.model, chosen, of)
        if self.kept is not None:
            self.kept.keep(name, key, (), {"seconds": seconds, "document": document})
        return Outcome(document, "", seconds)

    def _choose(
        self, target: Target, where: Where, chips: int, space: Space
    ) -> tuple[Candidate, int]:
        """The layout, and among how many it is the fastest that fits."""
        refused, per_chip = Refused(), where.ranks_per_chip
        allowed = candidates(self.model, target.machine, chips, per_chip, space, refused)
        if not allowed:
            works = nearest_that_work(self.model, target.machine, chips, per_chip, space)
            near = f"; near it works: {works}" if works else ""
            why = refused.why(self._batches_for_all(target, where, chips, space))
            raise PlanError(f"no layout: {why}{near}")
        if len(allowed) == 1:
            return allowed[0], 1
        options = RunOptions(
            overrides=target.overrides, stack=target.stack, ranks_per_chip=per_chip
        )
        done = search(
            self.model, machine=target.name, chips=chips, space=space, options=options, top=1,
            slower_by=0.0, intervals=0, jobs=self.jobs, out=self.folder,
        )  # fmt: skip
        if done.best:
            return done.best[0].candidate, len(allowed)
        raise PlanError(_none_fits(done, len(allowed)))

    def _batches_for_all(self, target: Target, where: Where, chips: int, space: Space) -> str:
        """What to use where only the batch is in the way; "" where that is not so. The others of a
        comparison keep their chips, which are equal to this one's, and have to suit it too."""
        mine = Place(target.machine, chips, where.ranks_per_chip, space)
        if len(self.compared) < 2 or not mine.units(self.model):
            return ""
        places = [
            Place(one.machine, count, Where.of(one, self.options.ranks_per_chip).ranks_per_chip,
                  replace(space, styles=styles_of(one.stack)))
            for one, count in self.compared
        ]  # fmt: skip
        found = batches_for_all(self.model, places, space.global_batch)
        if not found:
            return ""
        listed = " or ".join(f"{batch:,}" for batch in found)
        return f"global_batch {listed}, which suits every machine here"


def _none_fits(done: Search, allowed: int) -> str:
    """What was the least that is known to be too much, and what helps."""
    from trnsim.report.search import named

    least = min(done.simulated, key=lambda one: one.trial.memory_peak_bytes, default=None)
    why = "all by their parameters, gradients, moments and activations alone"
    if least is not None:
        taken = words.size(least.trial.memory_peak_bytes)
        why = f"the least that was simulated takes {taken} ({named(least.candidate)})"
    elif done.failed:
        candidate, reason = done.failed[0]
        why = f"{len(done.failed):,} failed: {named(candidate)}: {reason}"
    return (
        f"none of {allowed:,} layouts fits into a rank's memory, {why}: use more chips, or another "
        "tp, pp or recompute"
    )


def _described(model: Model, chosen: Candidate, of: int) -> dict[str, Any]:
    layout = {name: value for name, value in asdict(chosen.layout).items() if name != "notes"}
    if chosen.layout.expert_skew:
        layout["hottest_over_mean"] = hottest_share(model, chosen.layout)
    by = "search" if of > 1 else "request"
    return {**layout, "style": chosen.style.name, "chosen_by": by, "allowed": of}


def _document(where: Where, model: Model, chosen: Candidate, chips: int) -> dict[str, Any]:
    """The document of the layout's step with its interval; of very many micro-batches, by two
    shorter steps."""
    layout, style = chosen.layout, chosen.style
    lengths = simulated_lengths(model, layout)
    done = [
        step_of(where, model, length, style, interval=length is lengths[-1]).to_dict()
        for length in lengths
    ]
    document = done[-1]
    if len(done) > 1:
        rates = {"tokens": layout.global_batch * layout.sequence, "samples": layout.global_batch}

        def whole(figures: list[float]) -> float:
            return at_length(figures, lengths, layout)

        document = _of_whole_step(done, whole, rates)
        listed = " and ".join(str(length.micro_batches) for length in lengths)
        document["guesses"] = [*document["guesses"], {
            "name": "micro-batches", "value": layout.micro_batches,
            "effect": f"the step is on the line through steps of {listed}; hashes and top ops are "
            f"of the one of {lengths[-1].micro_batches}",
        }]  # fmt: skip
    return {**document, "chips": chips}


def _of_whole_step(
    done: list[dict[str, Any]], whole: Any, in_a_step: Mapping[str, int]
) -> dict[str, Any]:
    """The document of the longer of two steps, with the figures of one that is longer still."""
    last = dict(done[-1])
    for name in _GROWING:
        if last[name] is not None:
            last[name] = type(last[name])(whole([each[name] for each in done]))
    for name in _OF_PARTS:
        last[name] = {key: whole([each[name].get(key, 0.0) for each in done]) for key in last[name]}
    seconds, before = last["step_time_s"], done[-1]["step_time_s"]
    times = seconds / before
    last["engine_busy"] = {
        key: whole([each["engine_busy"].get(key, 0.0) * each["step_time_s"] for each in done])
        / seconds
        for key in last["engine_busy"]
    }  # fmt: skip
    flops = [each["model_flops"] for each in done]
    for name in ("mfu", "mfu_causal"):
        if last[name] is not None and all(flops):
            last[name] *= last["model_flops"] / flops[-1] / times
    last["step_time_ps"] = round(seconds * 1e12)
    last["breakdown_ps"] = {key: round(value * 1e12) for key, value in last["breakdown_s"].items()}
    last["step_time_interval_s"] = [end * times for end in last["step_time_interval_s"]]
    last["interval_inputs"] = [
        {**each, **{key: each[key] * times for key in each if key.endswith("_s")}}
        for each in last["interval_inputs"]
    ]
    for name, value in last.items():  # dollars, joules and CO2, which go by the time
        if "_per_step" in name and value is not None:
            last[name] = [e * times for e in value] if isinstance(value, list) else value * times
    return last | {f"{what}_per_s": count / seconds for what, count in in_a_step.items()}


def batches_of(first: int, sizes: list[int]) -> dict[int, int]:
    """Sequences of a step at each size, in proportion to `first` at the smallest; whole ones."""
    least = min(sizes)
    return {size: max(1, math.floor(first * size / least + 0.5)) for size in sizes}
