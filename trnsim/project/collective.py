# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""One collective on an idle machine, as nccom-test and nccl-tests measure them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.asked import checked
from trnsim.errors import LowerError, MachineError, ProjectError, WorkloadError
from trnsim.job import tell_device, texts_of, whole_numbers_of

if TYPE_CHECKING:
    from trnsim import _core


@dataclass(frozen=True)
class CollectiveRow:
    """One size.

    Attributes:
        size_bytes: of the buffer: all_gather and gather count the whole result, reduce_scatter,
            scatter and all_to_all the whole input of a rank, as nccl-tests does.
        time_us: from the last arrival to the end.
        algbw_GBps, busbw_GBps: size over time, and times the factor of nccl-tests (1 GB = 1e9 B).
        algorithm: what was chosen, or forced.
        in_steps: it was simulated as messages between neighbours.
        contention_loss: the share of the time that would not be there if every transfer had its
            links for itself.
        time_interval_us: lowest and highest, by the confidence of the machine's figures; None where
            nobody asked for it.
        relieved_us: the time with one thing of the network twice as fast, or free, by what it is;
            pairs of things that lie one behind the other or side by side stand beside each alone.
        relieved_algorithm: what is chosen then, where that is another one.
        fault_loss: the share of the time that would not be there without the faults; None where
            none were given.
    """

    size_bytes: int
    time_us: float
    algbw_GBps: float
    busbw_GBps: float
    algorithm: str
    contention_loss: float
    time_interval_us: tuple[float, float] | None
    in_steps: bool = False
    relieved_us: Mapping[str, float] = field(default_factory=dict)
    relieved_algorithm: Mapping[str, str] = field(default_factory=dict)
    fault_loss: float | None = None


@dataclass(frozen=True)
class Collective:
    """A collective over all ranks of a job, at one or more sizes.

    Attributes:
        interval_basis: what the rows' intervals rest on; None where they have none.
        not_used: figures that were set and that no collective depends on.
        overrides, faults, routing, collectives: as they were given.
    """

    machine: str
    op: str
    ranks: int
    chips: int
    rows: tuple[CollectiveRow, ...]
    interval_basis: str | None = "inputs (unvalidated)"
    not_used: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    routing: str = "uniform"
    collectives: str = "fluid"

    @property
    def limits(self) -> dict[str, float]:
        """What of the network would help the largest size: the share of its time that goes, most
        first. What is not in it is no limit there."""
        row = self.rows[-1]
        shares = {what: 1 - us / row.time_us for what, us in row.relieved_us.items()}
        helps = {what: share for what, share in shares.items() if share > 0}
        return dict(sorted(helps.items(), key=lambda item: -item[1]))

    @property
    def no_limits(self) -> tuple[str, ...]:
        """What of the network would help no size."""
        return tuple(
            what
            for what in self.rows[0].relieved_us
            if all(row.relieved_us[what] >= row.time_us for row in self.rows)
        )

    @property
    def mean_busbw_GBps(self) -> float:
        """Mean of the rows' bus bandwidths."""
        return sum(row.busbw_GBps for row in self.rows) / len(self.rows)

    def __str__(self) -> str:
        return "\n".join("  ".join(cells) for cells in (header_of(self), *cells_of(self)))


# Kinds of figures, as csrc/project groups them, that the time of a collective alone depends on.
TRANSFERS = ("links", "collective latency", "collective efficiency")

LARGEST_SHARE = (1 << 63) - 1  # of a rank's, in a routing
ZIPF_UNIT = 1 << 40  # the share of the most popular rank, before rounding

LARGEST_SIZE = (1 << 53) - 1  # of a buffer, in bytes: 8 PiB and it would not be exact

_HEADER = (
    "size(B)", "count(elems)", "type", "time(us)", "algbw(GB/s)", "busbw(GB/s)", "algorithm",
    "lost to contention",
)  # fmt: skip


def header_of(done: Collective) -> list[str]:
    """Names of the columns of `cells_of`."""
    faults = ["lost to faults"] if done.faults else []
    return [*_HEADER, *faults, *(["interval(us)"] if done.interval_basis else [])]


def cells_of(done: Collective) -> list[list[str]]:
    """The rows as text; elements are bytes, as in nccom-test when no type is given."""
    return [_cells(row, done.collectives == "step") for row in done.rows]


def _cells(row: CollectiveRow, step_mode: bool) -> list[str]:
    how = " in steps" if row.in_steps else " as a fluid" if step_mode else ""
    cells = [
        str(row.size_bytes), str(row.size_bytes), "uint8", f"{row.time_us:.2f}",
        f"{row.algbw_GBps:.2f}", f"{row.busbw_GBps:.2f}", row.algorithm + how,
        f"{100 * row.contention_loss:.1f} %",
    ]  # fmt: skip
    if row.fault_loss is not None:
        cells.append(f"{100 * row.fault_loss:.1f} %")
    if row.time_interval_us is not None:
        cells.append("{:.2f} to {:.2f}".format(*row.time_interval_us))
    return cells


@checked(
    LowerError, machine=MachineError, chips=MachineError, ranks=MachineError,
    ranks_per_chip=MachineError, overrides=MachineError, routing=WorkloadError,
    faults=ProjectError,
)  # fmt: skip
def collective(
    op: str,
    machine: str | _core.Machine = "trn2",
    *,
    sizes: Iterable[int] = (32 << 20,),
    chips: int | None = None,
    ranks: int | None = None,
    ranks_per_chip: int | None = None,
    algorithm: str = "",
    routing: Iterable[int] | str = "uniform",
    overrides: Iterable[str] | Mapping[str, Any] = (),
    faults: Iterable[str] = (),
    collectives: str = "fluid",
    interval: bool = True,
) -> Collective:
    """Simulates one collective over all ranks of a machine, alone, at each size.

    Args:
        op: "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
            "scatter", "all_to_all" or "sendrecv" (each to the next), or nccom-test's "allr",
            "allg", "redsct".
        machine: a preset's name, the path of a machine file, or a Machine.
        sizes: bytes, as CollectiveRow.size_bytes.
        chips, ranks, ranks_per_chip: size of the job.
        algorithm: forces one; "" chooses by size, as the machine's library does.
        routing: of an all_to_all, what each rank gets from every rank: "uniform"; "zipf:S", as the
            experts of a layer do whose k-th most popular one gets 1 / k^S (rank 0 the most);
            the path of a file with a whole number for each rank; or those numbers.
        overrides: figures of the machine to change, as "key=value" or a mapping.
        faults: as of trnsim.project, but always from the start.
        collectives: "fluid", or "step": rings and halvings as messages between neighbours; other
            algorithms stay as they are. The time is that of the last rank.
        interval: simulate again with the machine's figures at their bounds, and with one thing of
            the network twice as fast at a time; False: rows have no interval and no relieved_us.

    Raises:
        MachineError: an unknown machine, counts that it cannot hold, wrong overrides, a link that
            it does not have, or faults that cut it apart.
        ProjectError: a fault that cannot be read, or that begins later.
        LowerError: an unknown op, an algorithm that does not suit (the message lists those that
            do), wrong sizes, a single rank, a routing over others, or no such collectives.
        WorkloadError: a routing that cannot be read.
    """
    from trnsim import _core
    from trnsim.job import is_step_mode, make_job
    from trnsim.project.progress import watch

    if not isinstance(overrides, Mapping):
        overrides = texts_of(MachineError, "overrides", overrides)
    sizes = whole_numbers_of(LowerError, "sizes", sizes, 1, LARGEST_SIZE)
    faults = texts_of(ProjectError, "faults", faults)
    name = _core.collective_name(op)
    step_mode = is_step_mode(collectives)
    counts = {"chips": chips, "ranks": ranks, "ranks_per_chip": ranks_per_chip}
    job = make_job(machine, **counts, overrides=overrides)
    place = job.placement
    shares = shares_of(routing, place.ranks)
    request = (name, sizes, job.machine, place, algorithm, shares)
    with watch(counter := _core.ProjectProgress(), "simulating"):
        runs = _core.run_collective(*request, faults, step_mode, interval, counter)
        healthy = _core.run_collective(*request, [], step_mode, False, counter) if faults else None
    tell_device(runs[0].engine)
    return Collective(
        job.machine.name, name, place.ranks, place.chips,
        _rows(name, place.ranks, runs, healthy, interval),
        interval_basis=Collective.interval_basis if interval else None,
        not_used=tuple(key for key in _keys(overrides) if _is_no_figure_of_transfers(key)),
        overrides=tuple(_assignments(overrides)), faults=tuple(faults), collectives=collectives,
        routing=routing if isinstance(routing, str) else f"of {len(shares)} shares",
    )  # fmt: skip


def _rows(
    name: str,
    ranks: int,
    runs: Iterable[_core.CollectiveRun],
    healthy: Iterable[_core.CollectiveRun] | None,
    interval: bool,
) -> tuple[CollectiveRow, ...]:
    from trnsim import _core

    numerator, denominator = _core.bus_factor(name, ranks)
    rows = tuple(_row(run, numerator / denominator, interval) for run in runs)
    if healthy is None:
        return rows
    return tuple(
        replace(row, fault_loss=1 - run.time_ps / 1e6 / row.time_us)
        for row, run in zip(rows, healthy, strict=True)
    )


def shares_of(routing: str | Iterable[int], ranks: int) -> list[int]:
    """What each rank gets, in whole numbers; none of them where all get alike."""
    if not isinstance(routing, str):
        shares = whole_numbers_of(WorkloadError, "routing", routing, 0, LARGEST_SHARE)
    elif routing == "uniform":
        return []
    elif routing.partition(":")[0] == "zipf":
        shares = _zipf(routing, ranks)
    else:
        shares = whole_numbers_of(
            WorkloadError, f"routing '{routing}'", _read(routing), 0, LARGEST_SHARE
        )
    if len(shares) != ranks:
        raise LowerError(
            f"a routing over {len(shares)} ranks does not fit {ranks}: give one number for each "
            "rank"
        )
    return shares


def _zipf(routing: str, ranks: int) -> list[int]:
    try:
        power = float(routing.partition(":")[2])
    except ValueError:
        power = math.nan
    if not 0 <= power <= 16:
        raise WorkloadError(f"'{routing}' is no routing: write zipf:1.2, up to zipf:16")
    return [round(ZIPF_UNIT / (k + 1) ** power) for k in range(ranks)]


def _read(path: str) -> list[int]:
    try:
        return [int(word) for word in Path(path).read_text(encoding="utf-8").split()]
    except OSError as error:
        raise WorkloadError(
            f"'{path}' is no routing: give uniform, zipf:S or a file ({error.strerror})"
        ) from None
    except ValueError as error:  # also of what is no text
        why = " ".join(str(error).split())
        raise WorkloadError(
            f"'{path}' is no routing: a whole number for each rank ({why})"
        ) from None


def _assignments(overrides: Iterable[str] | Mapping[str, Any]) -> list[str]:
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{key}={value}" for key, value in overrides.items()]


def _keys(overrides: Iterable[str] | Mapping[str, Any]) -> list[str]:
    return [assignment.split("=")[0].strip() for assignment in overrides]


def _is_no_figure_of_transfers(key: str) -> bool:
    """Of engines, memories or the host; what is no input of time at all may be a count."""
    from trnsim import _core

    return _core.input_group_of(key) not in ("", *TRANSFERS)


def _row(run: _core.CollectiveRun, bus_factor: float, interval: bool) -> CollectiveRow:
    algbw = 1000 * run.bytes / run.time_ps  # bytes per ps = 1000 GB/s
    loss = (run.time_ps - run.uncontended_ps) / run.time_ps
    return CollectiveRow(
        run.bytes, run.time_ps / 1e6, algbw, algbw * bus_factor, run.algorithm, loss,
        (run.low_ps / 1e6, run.high_ps / 1e6) if interval else None, run.in_steps,
        {what: time_ps / 1e6 for what, time_ps, _ in run.reliefs},
        {what: then for what, _, then in run.reliefs if then != run.algorithm},
    )  # fmt: skip
