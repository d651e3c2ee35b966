# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Simulated time of events while a script is being captured.

An event completes when the ops before it on its stream have, and the events that this stream waited
for; on a stream that was idle, when the host has come to it, which has launched all ops before and
waited where it waits. The ends come from the timeline of everything recorded so far, lowered for
the machine as one step, with this rank alone: a collective waits for nobody and shares no link, and
counts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _C, properties

if TYPE_CHECKING:
    from trnsim import _core


def install(machine: _core.Machine, ranks_per_chip: int = 0) -> None:
    """Events tell simulated time on `machine` from here on, and the device's properties are its.

    0 ranks per chip are the machine's own number.
    """
    _C.set_event_clock(EventClock(machine, ranks_per_chip))
    properties.describe(machine, ranks_per_chip)


def remove() -> None:
    """Back to the host's clock, and to the properties of the default machine."""
    _C.set_event_clock(None)
    properties.describe(None)


class EventClock:
    """clock(event_id) -> picoseconds, kept until an event is asked for that is newer."""

    def __init__(self, machine: _core.Machine, ranks_per_chip: int = 0) -> None:
        self.machine, self.ranks_per_chip = machine, ranks_per_chip
        self._times_ps: dict[int, int] = {}

    def __call__(self, event_id: int) -> int:
        if event_id not in self._times_ps:
            from trnsim import _core
            from trnsim.lower.custom import with_given_costs

            recorded = with_given_costs(_core.Workload.from_capsule(_C.snapshot_recording()))
            self._times_ps = event_times_ps(recorded, self.machine, self.ranks_per_chip)
        return self._times_ps[event_id]


def event_times_ps(
    workload: _core.Workload, machine: _core.Machine, ranks_per_chip: int
) -> dict[int, int]:
    """When each event of the Workload completes, in picoseconds from its first record."""
    from trnsim import _core

    kinds = _core.workload_enum_names()["records.kind"]
    rows = workload.to_columns()["records"]
    ends, launches = _record_ends_ps(workload, machine, ranks_per_chip, len(rows["kind"]))
    host_ps = 0
    stream_ps: dict[int, int] = {}
    times: dict[int, int] = {}
    columns = (rows[name].tolist() for name in ("kind", "stream", "payload", "uses_count"))
    for index, (kind, stream, payload, uses) in enumerate(zip(*columns, strict=True)):
        host_ps = max(host_ps, launches[index])
        if kinds[kind] == "event_record":
            times[payload] = max(stream_ps.get(stream, 0), host_ps)
        elif kinds[kind] == "event_wait":
            stream_ps[stream] = max(stream_ps.get(stream, 0), times.get(payload, 0))
        elif kinds[kind] == "host_read":
            waits_for = stream_ps.values() if uses == 0 else [stream_ps.get(stream, 0)]
            host_ps = max([host_ps, *waits_for])
        elif ends[index]:
            stream_ps[stream] = max(stream_ps.get(stream, 0), ends[index])
    return times


def _record_ends_ps(
    workload: _core.Workload, machine: _core.Machine, ranks_per_chip: int, count: int
) -> tuple[list[int], list[int]]:
    """Of each record's op, the end on this rank's engines and that of its launch; 0 where none."""
    from trnsim import _core

    alone = _without_steps(workload)
    place = _core.make_placement(machine, 1, 0, ranks_per_chip)
    program = _core.lower_step(alone, alone.all_as_one_step(), machine, place, "", "")
    system = _core.make_system(program, machine, _core.make_topology(machine, 1), place, 1)
    timeline = _core.simulate_step(
        system, _core.Engine.bulk, _core.Backend.cpp, False, True, True, None
    )
    ends, launches = [0] * count, [0] * count
    op_ends: dict[int, int] = {}
    op_launches: dict[int, int] = {}
    tasks = (program.tasks["op"].tolist(), program.tasks["kind"], timeline.rank_ends_ps(0))
    for op, kind, end in zip(*tasks, strict=True):
        op_ends[op] = max(op_ends.get(op, 0), int(end))
        if kind == "launch":
            op_launches[op] = max(op_launches.get(op, 0), int(end))
    for index, op in enumerate(program.ops):
        for record in op["records"]:
            ends[record] = max(ends[record], op_ends.get(index, 0))
            launches[record] = max(launches[record], op_launches.get(index, 0))
    return ends, launches


def _without_steps(workload: _core.Workload) -> _core.Workload:
    """The same records of one rank: nothing says that a step ends or is outside, no calls."""
    from trnsim import _core

    names = _core.workload_enum_names()
    kinds, markers = names["records.kind"], names["markers.kind"]
    tables = workload.to_columns()
    rows = {name: column.copy() for name, column in tables["records"].items()}
    for kind in ("marker", "call", "wait"):
        chosen = rows["kind"] == kinds.index(kind)
        rows["kind"][chosen] = kinds.index("marker")
        rows["payload"][chosen] = markers.index("forward_begin")
        rows["signature"][chosen] = -1
    rows["no_grad"][:] = 0
    return _core.Workload.from_columns({**tables, "records": rows})
