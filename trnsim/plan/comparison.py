# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Runs beside each other: run files, or one job on several machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.asked import checked
from trnsim.errors import PlanError, TrnSimError
from trnsim.job import check_asked, check_script, texts_of
from trnsim.origin import Origin, command_of
from trnsim.plan.kept import Kept
from trnsim.plan.layouts import Space
from trnsim.plan.model_runs import (
    ModelRuns,
    check_for_model,
    check_for_script,
    named_model,
)
from trnsim.plan.progress import Teller
from trnsim.plan.script_runs import Outcome, Reported, RunOptions, ScriptRuns, Target, targets_of
from trnsim.plan.shown import Shown
from trnsim.plan.sizes import EqualCount, equal_counts
from trnsim.pool import kept_workers

if TYPE_CHECKING:
    from trnsim.recipes.models import Model
    from trnsim.workload import RunFile


@dataclass(frozen=True)
class ComparisonRow(Reported):
    """One run.

    Attributes:
        label: the run file's path, or the machine as it was named.
        machine, stack: of the run; stack None for none.
        chips: that were asked for; None where no count of the machine is equal.
        document: of `trnsim run --json`; None where there is none.
        reason: why there is none.
        ideal_chips, chips_off: the count that would be exactly equal to the first machine's, and by
            which share of it `chips` is more; None for run files.
        seconds: that the run took.
        sources: of the price and the power of a chip, as (value and unit, confidence, source), by
            "price" and "power"; without what is not known, and for run files empty.
        power_is_of_chip: whether the power of a chip is known without its share of the server.
    """

    label: str
    machine: str
    stack: str | None
    chips: int | None
    document: Mapping[str, Any] | None
    reason: str = ""
    ideal_chips: float | None = None
    chips_off: float | None = None
    seconds: float | None = None
    sources: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    power_is_of_chip: bool = False

    @property
    def exposed_communication_s(self) -> float | None:
        """Of the step, mean over ranks."""
        return (
            None if self.document is None else self.document["breakdown_s"]["exposed_communication"]
        )

    def usd_per_million(self, what: str) -> float | None:
        """Dollars for a million "tokens" or "samples"; None where something is not known."""
        return _ratio(self.figure("cost_usd_per_step"), self.in_a_step(what), 1e6)

    def joules_per(self, what: str) -> float | None:
        """Energy of one of the "tokens" or "samples"; None where something is not known."""
        return _ratio(self.figure("energy_j_per_step"), self.in_a_step(what), 1.0)

    def carbon_kg_per_million(self, what: str) -> float | None:
        """Kilograms of CO2 for a million "tokens" or "samples"; None where it is not known."""
        return _ratio(self.figure("carbon_kg_per_step"), self.in_a_step(what), 1e6)

    @property
    def usd_per_hour(self) -> float | None:
        """Of all chips in use."""
        return _ratio(self.figure("cost_usd_per_step"), self.figure("step_time_s"), 3600.0)

    @property
    def watts(self) -> float | None:
        """Of all chips in use."""
        return _ratio(self.figure("energy_j_per_step"), self.figure("step_time_s"), 1.0)

    @property
    def is_calibrated(self) -> bool | None:
        """Whether the interval holds our error on published steps of this chip; None without a
        run."""
        basis = self.figure("interval_basis")
        return None if basis is None else basis == "inputs+validated"


def _ratio(numerator: float | None, denominator: float | None, times: float) -> float | None:
    return None if numerator is None or not denominator else times * numerator / denominator


@dataclass(frozen=True)
class Comparison(Shown):
    """Rows in the order in which they were asked for.

    Attributes:
        equal: what is equal on all machines: "chips", "dollars", "watts" or "peak"; None for run
            files.
        asked_chips: the count that the first machine was asked for; None for run files.
        model: that was given by name; None for a script or a run file.
        origin: the one job's script and arguments, or model; empty for run files beside each other.
    """

    rows: tuple[ComparisonRow, ...]
    equal: str | None = None
    asked_chips: int | None = None
    model: str | None = None
    origin: Origin = field(default_factory=Origin)

    @property
    def base(self) -> ComparisonRow | None:
        """The first row that has a run: what the others are compared with."""
        return next((row for row in self.rows if row.document is not None), None)

    @property
    def with_less_power(self) -> list[ComparisonRow]:
        """Rows whose power is of the chip alone, where another's holds a share of the server."""
        known = [row for row in self.rows if "power" in row.sources]
        alone = [row for row in known if row.power_is_of_chip]
        return alone if len(alone) < len(known) else []

    @property
    def unit(self) -> str | None:
        """ "tokens" where a run knows them, else "samples", else None."""
        for what in ("tokens", "samples"):
            if any(row.figure(f"{what}_per_s") is not None for row in self.rows):
                return what
        return None

    def change(self, row: ComparisonRow, figure: str) -> float | None:
        """By which share a figure is more than the base's; None where one is not known."""
        base = self.base
        if base is None or row is base:
            return None
        mine, its = row.figure(figure), base.figure(figure)
        return None if mine is None or not its else mine / its - 1

    def slower(self, share: float | Fraction) -> list[ComparisonRow]:
        """The rows whose step takes more than `share` (0.02: 2 %) longer than the base's."""
        base = self.base
        if base is None:
            return []
        most_ps = base.figure("step_time_ps") * (1 + Fraction(share))
        return [row for row in self.rows if row.document and row.figure("step_time_ps") > most_ps]

    def to_dict(self) -> dict[str, Any]:
        """The document of `trnsim compare --json`: rows as of `trnsim run --json`, with more keys.

        A row without a run has every key, null, and its reason.
        """
        return {
            "rows": [self._row(row) for row in self.rows],
            "equal": self.equal,
            "asked_chips": self.asked_chips,
            "model": self.model,
            "origin": self.origin.to_dict(),
            "base": None if self.base is None else self.base.label,
            "unit": self.unit,
        }

    def _row(self, row: ComparisonRow) -> dict[str, Any]:
        from trnsim.report.json import PROMISED

        document: dict[str, Any] = dict(row.document or dict.fromkeys(PROMISED))
        if row.document is None:
            guess = {"name": "row", "value": "no run", "effect": row.reason}
            document |= {"machine": row.machine, "chips": row.chips, "guesses": [guess]}
        return document | {
            "label": row.label,
            "stack": row.stack,
            "reason": row.reason or None,
            "ideal_chips": row.ideal_chips,
            "chips_off": row.chips_off,
            "seconds_to_simulate": row.seconds,
            "calibrated": row.is_calibrated,
            "step_time_change": self.change(row, "step_time_s"),
            "tokens_per_s_change": self.change(row, "tokens_per_s"),
            "exposed_communication_s": row.exposed_communication_s,
            "usd_per_hour": row.usd_per_hour,
            "watts": row.watts,
            "sources": {
                what: dict(zip(("value", "confidence", "source"), found, strict=True))
                for what, found in row.sources.items()
            },
            "power_is_of_chip": row.power_is_of_chip,
            "usd_per_million_tokens": row.usd_per_million("tokens"),
            "joules_per_token": row.joules_per("tokens"),
            "usd_per_million_samples": row.usd_per_million("samples"),
            "joules_per_sample": row.joules_per("samples"),
            "carbon_kg_per_million_tokens": row.carbon_kg_per_million("tokens"),
            "carbon_kg_per_million_samples": row.carbon_kg_per_million("samples"),
        }

    def __str__(self) -> str:
        from trnsim.report.plan import comparison_text

        return comparison_text(self)


@checked(PlanError)
def compare(
    what: str | os.PathLike[str] | Model | Sequence[str | os.PathLike[str]],
    *,
    machines: Iterable[str] = (),
    chips: int | None = None,
    equal: str = "chips",
    arguments: Iterable[str] = (),
    is_module: bool = False,
    space: Space | None = None,
    options: RunOptions | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
) -> Comparison:
    """Compares run files, each on its own machine; or one job on several machines.

    A script runs anew for each machine, in a process of its own (`trnsim run --json`), on as many
    ranks as the chips hold. A run file is projected on each, and keeps its ranks. A model trains on
    each, a step of the same sequences, in the layout given or in the fastest that fits there. What
    a machine cannot take is a row with the reason.

    Args:
        what: run files to compare with the first of them; or, with machines, one script, one run
            file or one model: a Model, a preset's name or the path of a config.json. A file that
            exists goes before a name.
        machines: names or files of machines, each with a stack after a colon where it runs under
            one ("h100:megatron").
        chips: of the first machine; each count is rounded to one that its machine can be cut to.
            None: as many as the run file's.
        equal: what the others have as much of as the first: "chips", "dollars" an hour, "watts" or
            "peak" (published dense BF16 FLOP/s).
        arguments, is_module: of the script.
        space: of a model, the step's sequences and the layouts to try on each machine, or the one.
        options: what is asked of every run; of a run file only tokens_per_rank, samples_per_rank,
            overrides, stack, step, collectives and ranks_per_chip hold; of a model only overrides,
            stack and ranks_per_chip.
        out: of a script or a model, a folder that keeps its runs, which then do not run again.
        jobs: of a model, processes of a search; None: one a core.

    Raises:
        PlanError: a request that makes no sense, or a figure of the first machine that is not
            known; a name of neither a script nor a model; a stack that trains nothing.
        MachineError: an unknown machine, stack or figure; figures of a run file's own machine that
            have changed since.
        WorkloadError: no run file.
        CaptureError: no such script.
    """
    options = options or RunOptions()
    machines, arguments = texts_of(PlanError, "machines", machines), [*arguments]
    check_asked(PlanError, chips=chips)
    if chips == 0:
        raise PlanError("a comparison on 0 chips has no step: use at least 1")
    from trnsim.recipes.models import Model

    paths = [what] if isinstance(what, (str, os.PathLike, Model)) else [*what]
    if machines:
        if len(paths) != 1:
            raise PlanError("several runs on several machines: give one script or one run file")
        if (model := named_model(paths[0], is_module)) is not None:
            trained = _Trained(model, space, options, out, jobs)
            return trained.compare(machines, arguments, chips, equal)
        check_for_script(space)
        job = _Job(os.fspath(paths[0]), arguments, is_module, options, out)
        return job.compare(machines, chips, equal)
    if isinstance(what, Model):
        raise PlanError("a model has no machines to be compared on: give machines")
    if arguments or is_module or chips is not None or out is not None or space is not None:
        raise PlanError("run files take no arguments, and a script needs --machines: give them")
    if not paths:
        raise PlanError("no run file: give two or more")
    return _compare_files([os.fspath(path) for path in paths])


def _compare_files(paths: Sequence[str]) -> Comparison:
    import trnsim
    from trnsim.machine import stack_of
    from trnsim.workload import is_run_file, load_run

    if len(paths) == 1:
        what = "a run file" if is_run_file(paths[0]) else "no run file"
        raise PlanError(
            f"'{paths[0]}' alone, which is {what}, has nothing to be compared with: give two run "
            "files or more, or --machines"
        )
    runs = [load_run(path) for path in paths]  # all are read before one is projected
    rows = []
    for path, run in zip(paths, runs, strict=True):
        try:
            projection = trnsim.project(run)
        except TrnSimError as error:
            raise type(error)(f"{path}: {error}") from None
        rows.append(ComparisonRow(
            path, projection.machine.name, stack_of(projection.machine), projection.figures.chips,
            projection.to_dict(),
        ))  # fmt: skip
    return Comparison(tuple(rows))


def _asked(
    targets: Sequence[Target],
    chips: int | None,
    equal: str,
    out: str | os.PathLike[str] | None,
) -> tuple[list[EqualCount], Teller, Kept | None]:
    """The count of each machine, who tells how far it is, and where runs are kept."""
    if chips is None:
        raise PlanError("no count of chips: give the first machine's, as --chips 64")
    counts = equal_counts([target.machine for target in targets], chips, equal)
    teller = Teller(sum(count.chips is not None for count in counts))
    return counts, teller, None if out is None else Kept(Path(out) / "runs")


@dataclass(frozen=True)
class _Trained:
    """One model for several machines."""

    model: Model
    space: Space | None
    options: RunOptions
    out: str | os.PathLike[str] | None
    jobs: int | None

    @kept_workers()
    def compare(
        self, machines: Sequence[str], arguments: list[str], chips: int | None, equal: str
    ) -> Comparison:
        targets = targets_of(machines, self.options)
        check_for_model(self.model, self.space, self.options, arguments, targets)
        counts, teller, kept = _asked(targets, chips, equal, self.out)
        space = self.space or Space()
        compared = [
            (target, count.chips)
            for target, count in zip(targets, counts, strict=True)
            if count.chips is not None
        ]
        runs = ModelRuns(
            self.model, space, self.options, self.out, kept, teller, self.jobs, compared
        )
        rows = _rows(targets, counts, lambda *of: runs.run(*of, space.global_batch))
        origin = Origin(model=self.model.to_dict())
        return Comparison(rows, equal, chips, self.model.name or "model", origin)


@dataclass(frozen=True)
class _Job:
    """One script or run file for several machines."""

    path: str
    arguments: list[str]
    is_module: bool
    options: RunOptions
    out: str | os.PathLike[str] | None

    def compare(self, machines: Sequence[str], chips: int | None, equal: str) -> Comparison:
        from trnsim.workload import is_run_file, load_run

        targets = targets_of(machines, self.options)
        run = None
        if not self.is_module and is_run_file(self.path):
            self._check_for_run_file()
            run = load_run(self.path)
            chips = chips or run.manifest["options"].get("chips") or run.workload.world_size
        else:
            check_script(self.path, self.is_module)
        counts, teller, kept = _asked(targets, chips, equal, self.out)
        script = ScriptRuns(self.path, self.is_module, self.options, kept, teller)

        def outcome_of(target: Target, count: int) -> Outcome:
            if run is not None:
                return self._project(run, target, count)
            return script.run(target, count, self.arguments)

        if run is not None:
            origin = Origin.of(run.manifest)
        else:
            origin = Origin(command_of(self.path, self.is_module, self.arguments))
        return Comparison(_rows(targets, counts, outcome_of), equal, chips, None, origin)

    def _check_for_run_file(self) -> None:
        """Raises PlanError where something is asked for that only a script can do."""
        if self.arguments:
            raise PlanError(f"'{self.path}' is a run file, which takes no arguments: give none")
        if self.out is not None:
            raise PlanError("a run file is only projected, and nothing of it kept: leave out --out")
        of_script = ("max_roles", "check_ranks", "cuda", "stop_after_step")
        for name in of_script:
            if getattr(self.options, name) != getattr(RunOptions(), name):
                option = "--" + name.replace("_", "-")
                raise PlanError(f"{option} is for a script, not for a run file: leave it out")

    def _project(self, run: RunFile, target: Target, chips: int) -> Outcome:
        import trnsim

        options, ranks = self.options, run.workload.world_size
        per_rank = (options.tokens_per_rank, options.samples_per_rank)
        tokens, samples = (None if each is None else each * ranks for each in per_rank)
        try:
            projection = trnsim.project(
                run, target.machine, chips=chips, ranks_per_chip=options.ranks_per_chip,
                step=options.step, collectives=options.collectives, tokens_per_step=tokens,
                samples_per_step=samples,
            )  # fmt: skip
        except TrnSimError as error:
            return Outcome(None, str(error))
        return Outcome(projection.to_dict())


_SOURCED = {"price.per_chip_hour": "price", "power.per_chip": "power"}


def _rows(
    targets: Sequence[Target],
    counts: Sequence[EqualCount],
    outcome_of: Callable[[Target, int], Outcome],
) -> tuple[ComparisonRow, ...]:
    rows = []
    for target, count in zip(targets, counts, strict=True):
        outcome = Outcome(None, count.reason)
        if count.chips is not None:
            outcome = outcome_of(target, count.chips)
        rows.append(_row(target, count, outcome))
    return tuple(rows)


def _row(target: Target, count: EqualCount, outcome: Outcome) -> ComparisonRow:
    machine = target.machine
    known = {"price": machine.price_usd_per_chip_hour, "power": machine.power_per_chip_w}
    sources = {
        _SOURCED[figure.key]: (f"{figure.value} {figure.unit}", figure.confidence, figure.source)
        for figure in machine.figures
        if figure.key in _SOURCED and known[_SOURCED[figure.key]] is not None
    }
    watts, package = machine.power_per_chip_w, machine.power_package_w
    is_of_chip = watts is not None and package is not None and watts <= package
    return ComparisonRow(
        target.label, machine.name, target.stack, count.chips, outcome.document, outcome.reason,
        count.ideal, count.off, outcome.seconds, sources, is_of_chip,
    )  # fmt: skip
