# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Process groups of any size in this process, in both modes."""

from __future__ import annotations

import contextlib
import gc
import itertools

import torch.distributed as dist

from trnsim import _core
from trnsim.capture.script import start_capture, stop_capture
from trnsim.capture.world import World


@contextlib.contextmanager
def job(world_size: int, mode: str, rank: int = 0, ranks_per_server: int | None = None):
    """A capture of one rank in a world that has its default process group."""
    gc.collect()
    start_capture(World(rank, world_size, ranks_per_server), mode)
    holder = Job()
    try:
        dist.init_process_group()
        yield holder
    finally:
        holder.workload = stop_capture()
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()


class Job:
    """Hands out the Workload once the job has ended."""

    workload = None


def _rows(table: dict, names: dict[str, list[str]]) -> list[dict]:
    columns = {
        name: [names[name][code] for code in column] if name in names else column.tolist()
        for name, column in table.items()
        if not name.startswith(("splits_", "received_"))
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def records_of(workload) -> list[dict]:
    """The records as dictionaries, with kinds and phases by name, and modules by path."""
    enums = _core.workload_enum_names()
    tables = workload.to_columns()
    words = {"kind": enums["records.kind"], "phase": enums["records.phase"]}
    rows = _rows(tables["records"], words)
    for row in rows:
        row["path"] = workload.modules[row["module"]]
        row["op"] = ""
        if row["signature"] >= 0:
            row["op"] = tables["signatures"]["text"][row["signature"]].split("(")[0]
    return rows


def parts_of(workload, name: str) -> list[list[int]]:
    """Bytes to ("splits") or from ("received") each member, of every call of the table."""
    calls = workload.to_columns()["calls"]
    if f"{name}_offsets" not in calls:
        return [[] for _ in calls["kind"]]
    offsets, values = (calls[f"{name}_{what}"].tolist() for what in ("offsets", "values"))
    return [values[begin:end] for begin, end in itertools.pairwise(offsets)]


def calls_of(workload) -> list[tuple[dict, dict]]:
    """Each call's record and the call itself, in the order of their issue."""
    enums = _core.workload_enum_names()
    tables = workload.to_columns()["calls"]
    calls = _rows(tables, {"kind": enums["calls.kind"], "dtype": enums["calls.dtype"]})
    return [(row, calls[row["payload"]]) for row in records_of(workload) if row["kind"] == "call"]
