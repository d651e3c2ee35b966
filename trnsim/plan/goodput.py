# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A long run of a step: what failures and checkpoints cost, how long it takes, and what it costs.

The model and its derivation are in csrc/project/goodput.h.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnsim.asked import checked
from trnsim.errors import PlanError
from trnsim.plan import goodput_inputs as inputs
from trnsim.plan.goodput_inputs import GoodputOptions, Input, Interval
from trnsim.plan.shown import Shown

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.project import Projection
    from trnsim.workload import RunFile

LARGEST = 2**53
DAY_S = 86_400.0
HOUR_S = 3_600.0


@dataclass(frozen=True)
class Training:
    """The run that was asked for. Each interval is (value, low, high).

    Attributes:
        tokens, steps: of the run; tokens None where steps were asked for.
        days: of wall time: the mean, with the interval of all inputs and of chance.
        days_by_chance: 5th, 50th and 95th percentile of the runs that were drawn.
        days_without: the steps alone, without failures and checkpoints.
        failures: expected interruptions.
        usd, usd_of_instances: dollars, and in whole rented instances; None where no price is known.
        mwh: energy of servers and, where a PUE is known, the site; None where no power is known.
        mwh_of_chips: of the packages alone. tonnes_co2: where a grid intensity was given.
    """

    tokens: int | None
    steps: int
    days: Interval
    days_by_chance: Interval
    days_without: float
    failures: float
    usd: Interval | None
    usd_of_instances: float | None
    mwh: Interval | None
    mwh_of_chips: float | None
    tonnes_co2: Interval | None


@dataclass(frozen=True)
class DataLoading:
    """What the job reads. bytes_per_s: of all servers; None where it is not known.
    has_bytes_per_s: of one server's front end; None where it is not known."""

    bytes_per_s: float | None
    servers: int
    has_bytes_per_s: float | None
    source: str

    @property
    def per_server_bytes_per_s(self) -> float | None:
        """Spread evenly."""
        return None if self.bytes_per_s is None else self.bytes_per_s / self.servers

    @property
    def share(self) -> float | None:
        """Of the front end."""
        if self.per_server_bytes_per_s is None or self.has_bytes_per_s is None:
            return None
        return self.per_server_bytes_per_s / self.has_bytes_per_s


@dataclass(frozen=True)
class Goodput(Shown):
    """What a run keeps of its time.

    Attributes:
        projection: of the step.
        estimate: of csrc/project/goodput.h.
        options: that were asked for.
        inputs: what it rests on, each with its bounds and source.
        size: of a checkpoint; None where its times were given. load: of it in a restart.
        training: None where neither tokens nor steps were asked for.
        data: what the job reads.
        spare_chips: that stand by, and are paid for.
        failures_by_part: of the job, an hour, as published for another job; empty where the rate
            was given.
        notes: what a reader has to know.
    """

    projection: Projection
    estimate: _core.GoodputEstimate
    options: GoodputOptions
    inputs: tuple[Input, ...]
    size: Input | None
    load: Input | None
    training: Training | None
    data: DataLoading
    spare_chips: int
    failures_by_part: dict[str, float]
    notes: tuple[str, ...]

    @property
    def goodput(self) -> Interval:
        """Kept work over wall time: (value, low, high)."""
        value, low, high = self.estimate.goodput
        return value, low, high

    @property
    def every_steps(self) -> int:
        """Steps between checkpoints."""
        return self.estimate.every

    @property
    def every_s(self) -> float:
        """Work between checkpoints, in seconds."""
        return self.estimate.every * self.projection.step_time_s

    def input(self, name: str) -> Input:
        """The input of that name."""
        return next(one for one in self.inputs if one.name == name)

    def to_dict(self) -> dict[str, Any]:
        """The document of `trnsim goodput --json`."""
        from trnsim.report.goodput import to_json

        return to_json(self)

    def __str__(self) -> str:
        from trnsim.report.goodput import goodput_text

        return goodput_text(self)


@checked(PlanError)
def goodput(
    run: RunFile | str | os.PathLike[str],
    machine: str | os.PathLike[str] | _core.Machine | None = None,
    *,
    tokens: int | None = None,
    steps: int | None = None,
    options: GoodputOptions | None = None,
    chips: int | None = None,
    ranks_per_chip: int | None = None,
    step: int | None = None,
    overrides: Iterable[str] = (),
    stack: str | None = None,
    tokens_per_step: int | None = None,
    samples_per_step: int | None = None,
    collectives: str | None = None,
) -> Goodput:
    """What a long run of a run file's step keeps of its time, and how long and dear it is.

    Args:
        run: a run file's path, or what `load_run` makes of it.
        tokens, steps: of the run, one of them; None: only shares of the time.
        options: failures, checkpoints, restarts, spares, data and the site.
        machine, chips, ranks_per_chip, step, overrides, stack, tokens_per_step, samples_per_step,
            collectives: as of `trnsim.project`.

    Raises:
        PlanError: options that make no sense, or something that nobody knows and has to be given.
        ProjectError: a job that hardly keeps anything.
        MachineError, WorkloadError, LowerError, SimulateError: as of `trnsim.project`.
    """
    import trnsim
    from trnsim.workload import RunFile, load_run

    options = options or GoodputOptions()
    options.check()
    for name, count in (("tokens", tokens), ("steps", steps)):
        if count is not None and not 1 <= count <= LARGEST:
            raise PlanError(f"--{name} {count}: use 1 to {LARGEST}")
    if tokens is not None and steps is not None:
        raise PlanError("--tokens and --steps say the same: give one of them")
    loaded = run if isinstance(run, RunFile) else load_run(run)
    _refuse_early(loaded, machine, options)
    projection = trnsim.project(
        loaded, machine, chips=chips, ranks_per_chip=ranks_per_chip, step=step, overrides=overrides,
        stack=stack, tokens_per_step=tokens_per_step, samples_per_step=samples_per_step,
        collectives=collectives, advise=False, top=0,
    )  # fmt: skip
    return goodput_of(projection, tokens, steps, options)


def _refuse_early(
    run: RunFile, machine: str | os.PathLike[str] | _core.Machine | None, options: GoodputOptions
) -> None:
    """Raises PlanError where the way to storage is needed and not known: no long projection."""
    from trnsim import _core
    from trnsim import machine as machines

    found = machine or run.manifest["machine"] or "trn2"
    if not isinstance(found, _core.Machine):
        found = machines.load(os.fspath(found))
    is_timed = options.upload_s is not None or (options.synchronous and options.blocking_s)
    if not is_timed or options.restart_minutes is None:
        inputs.check_path(found, options)


def goodput_of(
    projection: Projection, tokens: int | None, steps: int | None, options: GoodputOptions
) -> Goodput:
    """The same of a projection that is there; arguments as of `goodput`, and checked."""
    if not projection.figures.step_ps:
        raise PlanError(
            "the step takes no time, so there is no long run of it: run a training step"
        )
    count = steps if tokens is None else _steps_of(projection, tokens)
    if options.spares is not None and count is None:
        raise PlanError("spares are drawn run by run: give --tokens or --steps")
    machine = projection.machine
    rate = inputs.failure_rate(machine, projection.figures.chips_used, options)
    paths = inputs.paths_of(projection, options)
    size = _size(projection, options)
    unknown = Input("checkpoint", 0.0, 0.0, 0.0, "bytes", "given", "")
    blocking, upload = inputs.checkpoint_times(size or unknown, paths, options)
    restart, load = inputs.restart(projection, size or unknown, paths, options)
    estimate = _estimate(projection, (rate, restart, blocking, upload), count, options)
    unit = inputs.spare_unit_chips(machine)
    spare_chips = unit * (options.spares or 0)
    ways = [paths.server] if size is not None and paths.server is not None else []
    used = [rate, *([size, paths.host_link] if size is not None else []), *ways, blocking, upload,
            restart]  # fmt: skip
    training = None
    if count is not None:
        training = _training(projection, estimate, tokens, count, spare_chips, options)
    data = _data(projection, paths.servers, options)
    return Goodput(
        projection, estimate, options, tuple(used), size, load, training,
        data, spare_chips,
        inputs.failures_by_part(machine, rate),
        tuple(_notes(projection, estimate, paths, upload, data, unit, options)),
    )  # fmt: skip


def _steps_of(projection: Projection, tokens: int) -> int:
    per_s = projection.figures.tokens_per_s
    if per_s is None:
        raise PlanError(
            "the run does not know the tokens of its step: give them (--tokens-per-step), or "
            "--steps in place of --tokens"
        )
    return math.ceil(tokens / max(1, round(per_s * projection.step_time_s)))


def _size(projection: Projection, options: GoodputOptions) -> Input | None:
    """Of a checkpoint; None where everything that depends on it was measured."""
    return None if options.is_measured else inputs.checkpoint_bytes(projection, options)


def _estimate(
    projection: Projection, used: tuple[Input, ...], count: int | None, options: GoodputOptions
) -> _core.GoodputEstimate:
    from trnsim import _core

    rate, restart, blocking, upload = used
    step_s = projection.step_time_s
    every = 0
    if options.every_minutes is not None:
        every = max(1, round(60 * options.every_minutes / step_s))
    spares = None
    if options.spares is not None and options.repair_hours is not None:
        spares = (options.spares, HOUR_S * options.repair_hours, inputs.replaced_share())
    return _core.estimate_goodput(
        step_s=(step_s, *projection.step_time_interval_s),
        failures_per_s=rate.in_("1/s", 1 / HOUR_S).triple, restart_s=restart.triple,
        blocking_s=blocking.triple, upload_s=upload.triple, every=every, steps=count or 0,
        spares=spares, runs=options.draws, seed=options.seed,
    )  # fmt: skip


def _times(interval: Interval, low: float, value: float, high: float) -> Interval:
    return interval[0] * value, interval[1] * low, interval[2] * high


def _scaled(interval: Interval, factor: float) -> Interval:
    return _times(interval, factor, factor, factor)


def _training(
    projection: Projection, estimate: _core.GoodputEstimate, tokens: int | None, count: int,
    spare_chips: int, options: GoodputOptions,
) -> Training:  # fmt: skip
    p, machine = projection.figures, projection.machine
    value, low, high = estimate.wall_s
    wall: Interval = (value, low, high)
    p5, p50, p95 = estimate.drawn_s
    chips = p.chips_used + spare_chips  # spares are paid for, and taken to draw as much
    usd = of_instances = mwh = of_chips = co2 = None
    if p.price_usd_per_chip_hour is not None:
        usd = _scaled(wall, p.price_usd_per_chip_hour * chips / HOUR_S)
        if p.instance_chips:
            rented = -(-chips // p.instance_chips) * p.instance_chips
            of_instances = usd[0] * rented / chips
    if machine.power_per_chip_w is not None:
        factor = inputs.pue(machine, options)
        times = (1.0, 1.0, 1.0) if factor is None else (factor.low, factor.value, factor.high)
        watts = inputs.watts_per_chip(machine) or 0.0
        mwh = _times(_scaled(wall, watts * chips / HOUR_S / 1e6), *times)
        if machine.power_package_w is not None:
            of_chips = value * machine.power_package_w * chips / HOUR_S / 1e6
        grid = inputs.grid_kg_per_kwh(machine, options)
        if grid is not None:
            co2 = _scaled(mwh, grid)
    return Training(
        tokens, count, _scaled(wall, 1 / DAY_S), (p5 / DAY_S, p50 / DAY_S, p95 / DAY_S),
        count * projection.step_time_s / DAY_S, estimate.failures, usd, of_instances, mwh, of_chips,
        co2,
    )  # fmt: skip


def _data(projection: Projection, servers: int, options: GoodputOptions) -> DataLoading:
    p = projection.figures
    end = inputs.front_end(projection.machine)
    has = None if end is None else end.value
    if options.bytes_per_sample is not None and p.samples_per_s is not None:
        read, source = p.samples_per_s * options.bytes_per_sample, "--bytes-per-sample"
    elif p.tokens_per_s is not None and options.bytes_per_sample is None:
        of_token = inputs.bytes_per_token(options)
        read = p.tokens_per_s * of_token.value
        source = f"{of_token.value:g} bytes a token, {of_token.confidence}: {of_token.source}"
    else:
        return DataLoading(None, servers, has, "the run knows neither its tokens nor its samples")
    return DataLoading(read, servers, has, source)


def price_date(projection: Projection) -> str | None:
    """Of the price, "2026-09-25" or "2026-05", where its source has one."""
    figure = next((f for f in projection.machine.figures if f.key == "price.per_chip_hour"), None)
    dates = [] if figure is None else re.findall(r"\b20\d\d-\d\d(?:-\d\d)?\b", figure.source)
    return dates[-1] if dates else None


def _notes(
    projection: Projection, estimate: _core.GoodputEstimate, paths: inputs.Paths, upload: Input,
    data: DataLoading, unit: int, options: GoodputOptions,
) -> list[str]:  # fmt: skip
    notes, p = [], projection.figures
    if p.chips_used < p.chips:
        notes.append(
            f"{p.chips_used:,} of {p.chips:,} chips used: the script is not distributed; the "
            "others cost nothing here"
        )
    if not projection.fits:
        notes.append("the step DOES NOT FIT the memory of a rank: see trnsim project")
    if upload.value > estimate.every * projection.step_time_s:
        notes.append(
            "the upload takes longer than the work between two checkpoints: the job waits for it"
        )
    if data.share is not None and data.share > 1:
        notes.append("data loading needs more than the front end of its servers has")
    uses_path = options.upload_s is None and paths.server is not None
    if uses_path and paths.store is None and paths.writers_bytes_per_s is not None:
        total = paths.writers_bytes_per_s / 1e9
        notes.append(
            f"the storage is taken to keep up with all servers ({paths.servers:,}), "
            f"{total:,.0f} GB/s together: --store-gb-per-s gives what it takes"
        )
    if options.spares is None:
        notes.append(
            "a working server is taken to stand by after every failure: --spares and "
            "--repair-hours give how many do"
        )
    else:
        share = inputs.replaced_share()
        notes.append(
            f"spares: {options.spares} of {unit} chips; {100 * share:.0f} % of the failures take "
            f"one out of service for {options.repair_hours:g} h, as many as were of hardware in "
            "Llama 3's table; spares cost and draw as much as the others, and every goodput, of "
            "other intervals between checkpoints and of inputs at their bounds too, holds the "
            "waiting for repairs"
        )
    notes.append(
        "the step is device work alone: no data loading, logging, evaluation or planned stops; all "
        "chips stop at a failure"
    )
    return notes
