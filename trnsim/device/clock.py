# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Simulated time of events while a script is being captured.

An event completes when the ops before it on its stream have, and the events that this stream waited
for. Their ends come from the timeline of everything recorded so far, lowered for the machine as one
step, with this rank alone: a collective waits for nobody and shares no link, and counts nothing.
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
    ends = _record_ends_ps(workload, machine, ranks_per_chip, len(rows["kind"]))
    stream_ps: dict[int, int] = {}
    times: dict[int, int] = {}
    columns = (rows[name].tolist() for name in ("kind", "stream", "payload"))
    for index, (kind, stream, payload) in enumerate(zip(*columns, strict=True)):
        if kinds[kind] == "event_record":
            times[payload] = stream_ps.get(stream, 0)
        elif kinds[kind] == "event_wait":
            stream_ps[stream] = max(stream_ps.get(stream, 0), times.get(payload, 0))
        elif ends[index]:
            stream_ps[stream] = max(stream_ps.get(stream, 0), ends[index])
    return times


def _record_ends_ps(
    workload: _core.Workload, machine: _core.Machine, ranks_per_chip: int, count: int
) -> list[int]:
    """The end of each record's op on this rank's engines; 0 for records without one."""
    from trnsim import _core

    alone = _as_one_step(workload)
    place = _core.make_placement(machine, 1, 0, ranks_per_chip)
    program = _core.lower_step(alone, alone.choose_step(), machine, place, "", "")
    system = _core.make_system(program, machine, _core.make_topology(machine, 1), place, 1)
    timeline = _core.simulate_step(
        system, _core.Engine.bulk, _core.Backend.cpp, False, True, True, None
    )
    ends = [0] * count
    op_ends: dict[int, int] = {}
    for op, end in zip(program.tasks["op"].tolist(), timeline.rank_ends_ps(0), strict=True):
        op_ends[op] = max(op_ends.get(op, 0), int(end))
    for index, op in enumerate(program.ops):
        for record in op["records"]:
            ends[record] = max(ends[record], op_ends.get(index, 0))
    return ends


def _as_one_step(workload: _core.Workload) -> _core.Workload:
    """The same records as one step of one rank: no step ends, nothing is outside, no calls."""
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
