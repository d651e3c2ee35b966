# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The nodes of a Chakra trace as the records of a Workload."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trnsim import _core
from trnsim.errors import WorkloadError
from trnsim.workload.chakra_nodes import Comm, Comp, Node, Trace

# workload.h: RecordKind and MarkerKind, in their order.
_OP, _CALL, _WAIT, _HOST_READ, _EVENT_RECORD, _EVENT_WAIT, _MARKER = range(7)
_OPTIMIZER_BEGIN, _OPTIMIZER_END = 0, 1
_TEMPORARY = 7
_FIELDS = (
    "signature", "module", "sequence_nr", "uses_begin", "uses_count", "stream", "region",
    "payload", "value", "kind", "phase", "no_grad", "fallback_read",
)  # fmt: skip


def records_of(
    trace: Trace, ranks: Sequence[int], world: int, roles: int, dtype: str
) -> _core.Workload:
    """The Workload of a role: the trace of its first rank, and the ranks that do the same."""
    return _Records(trace, dtype).workload(ranks, world, roles)


def _codes(column: str) -> dict[str, int]:
    return {name: i for i, name in enumerate(_core.workload_enum_names()[column])}


class _Records:
    def __init__(self, trace: Trace, dtype: str) -> None:
        self.trace, self.dtype = trace, dtype
        self.records: list[dict[str, int]] = []
        self.uses: list[int] = []
        self.storages: list[int] = []  # bytes
        self.born: list[int] = []
        self.signatures: dict[str, int] = {}
        self.modules = {"": 0}
        self.regions: dict[tuple[int, str], int] = {}
        self.calls: list[tuple[Comm, int]] = []  # with the index of its batch
        self.phases, self.kinds = _codes("records.phase"), _codes("calls.kind")
        self.dtypes = _codes("calls.dtype")
        self.storage_of: list[int] = []  # by node: what it leaves, -1 for nothing
        self.call_of: dict[int, int] = {}
        self.waited: set[tuple[int, int]] = set()  # (stream, node)
        self.in_optimizer = False

    def workload(self, ranks: Sequence[int], world: int, roles: int) -> _core.Workload:
        self._check_dtype()
        events = self._events()
        for place, node in enumerate(self.trace.nodes):
            self._mark(node)
            self._wait(node, events)
            self._add(place, node)
            if place in events:
                self._record(node, kind=_EVENT_RECORD, payload=place)
        if self.in_optimizer:
            self._record(None, kind=_MARKER, payload=_OPTIMIZER_END, value=1)
        return self._made(ranks, world, roles)

    def _check_dtype(self) -> None:
        if self.dtype not in self.dtypes:
            raise WorkloadError(
                f"there is no dtype '{self.dtype}': name one of torch's, as bfloat16 or float32"
            )

    def _events(self) -> set[int]:
        """Ops that something on another stream waits for."""
        nodes = self.trace.nodes
        return {
            dep for node in nodes for dep in (*node.data_deps, *node.ctrl_deps)
            if isinstance(nodes[dep].what, Comp) and nodes[dep].stream != node.stream
        }  # fmt: skip

    def _record(self, node: Node | None, **fields: int) -> None:
        record = dict.fromkeys(_FIELDS, 0) | {
            "signature": -1, "sequence_nr": -1, "uses_begin": len(self.uses), "region": -1,
            "payload": -1, "value": -1, "phase": self.phases["other"],
        }  # fmt: skip
        if node is not None:
            if node.phase not in self.phases:
                raise WorkloadError(
                    f"'{self.trace.path}', node '{node.name}': there is no phase '{node.phase}'; "
                    f"use {', '.join(self.phases)}"
                )
            record |= {"stream": node.stream, "phase": self.phases[node.phase]}
            record["module"] = self.modules.setdefault(node.module, len(self.modules))
            if node.region is not None:
                record["region"] = self.regions.setdefault(node.region, len(self.regions))
        self.records.append(record | fields)

    def _mark(self, node: Node) -> None:
        is_optimizer = node.phase == "optimizer"
        if is_optimizer == self.in_optimizer:
            return
        self.in_optimizer = is_optimizer
        kind = _OPTIMIZER_BEGIN if is_optimizer else _OPTIMIZER_END
        self._record(None, kind=_MARKER, payload=kind, value=1)

    def _wait(self, node: Node, events: set[int]) -> None:
        """Before a node: its stream waits for calls, and for ops of other streams."""
        waits = node.ctrl_deps if self.trace.is_ours else (*node.data_deps, *node.ctrl_deps)
        for dep in sorted(set(waits)):
            if (node.stream, dep) in self.waited or node.what is None:
                continue
            if dep in self.call_of:
                self._record(node, kind=_WAIT, payload=self.call_of[dep])
            elif dep in events and self.trace.nodes[dep].stream != node.stream:
                self._record(node, kind=_EVENT_WAIT, payload=dep)
            else:
                continue
            self.waited.add((node.stream, dep))

    def _storage(self, count: int) -> int:
        self.storages.append(count)
        self.born.append(len(self.records))
        return len(self.storages) - 1

    def _add(self, place: int, node: Node) -> None:
        reads = [self.storage_of[dep] for dep in node.data_deps if self.storage_of[dep] >= 0]
        if node.what is None:
            count = 0 if node.waits_for_all else len(reads)
            self._record(node, kind=_HOST_READ, uses_count=count)
            self.uses += reads[:count]
            self.storage_of.append(-1)
            return
        if isinstance(node.what, Comp):
            written = self._storage(node.what.output_bytes)
            text = self._signature(node.name, node.what, reads, written)
            fields = {"kind": _OP}
        else:
            is_sent = node.what.kind == "send"
            written = -1 if is_sent else self._storage(node.what.whole_bytes or 0)
            text = f"chakra::{node.what.kind}({self._slots(reads)}) -> ("
            text += ")" if is_sent else f"out0: uint8[{self.storages[written]}])"
            batch = -1 if node.what.batch is None else self.call_of.get(node.what.batch, -1)
            if node.what.batch == place:
                batch = len(self.calls)
            self.call_of[place] = len(self.calls)
            fields = {"kind": _CALL, "payload": len(self.calls)}
            self.calls.append((node.what, batch))
        uses = reads + [written] * (written >= 0)
        index = self.signatures.setdefault(text, len(self.signatures))
        self._record(node, signature=index, uses_count=len(uses), **fields)
        self.uses += uses
        self.storage_of.append(written)

    def _slots(self, reads: Sequence[int]) -> str:
        return ", ".join(f"deps#{i}: uint8[{self.storages[at]}]" for i, at in enumerate(reads))

    def _signature(self, name: str, what: Comp, reads: Sequence[int], written: int) -> str:
        op = re.sub(r"[^\w:.+ -]", "_", name.removeprefix("chakra::")).strip() or "comp"
        given = f"cost_given=true, cost_read_bytes={what.read_bytes}"
        given += f", cost_write_bytes={what.write_bytes}"
        if what.flops:
            dtype = what.dtype or self.dtype
            given += f', cost_flops={what.flops}, cost_dtype="{dtype}"'
        slots = self._slots(reads)
        slots += ", " if slots else ""
        return f"chakra::{op}({slots}{given}) -> (out0: uint8[{self.storages[written]}])"

    def _notes(self) -> list[str]:
        notes = [
            "Chakra trace: ops are costed by their FLOPs and bytes alone, at the machine's rates",
            "Chakra trace: what memory is held is not in it, so the peak of memory says nothing",
        ]
        for what, count in self.trace.counts.items():
            said = f" (taken to be {self.dtype})" if "dtype" in what else ""
            notes.append(f"Chakra trace: {count} {what}{said}")
        return notes

    def _slots_of_groups(self, world: int) -> tuple[list[int], dict[str, str]]:
        """The slot of each of the trace's groups, and all slots' names and ranks. Slot 0 is the
        world."""
        everybody = tuple(range(world))
        given = [slot for slot in self.trace.slots if slot is not None]
        slots: list[int] = []
        for members, slot in zip(self.trace.groups, self.trace.slots, strict=True):
            if slot is None or not 0 <= slot < 4096 or given.count(slot) > 1:
                taken = {*given, *slots}
                slot = 0 if members == everybody and 0 not in taken else 1
                while slot in taken:
                    slot += 1
            slots.append(slot)
        groups = {}
        for slot in range(max(slots, default=0) + 1):
            members = self.trace.groups[slots.index(slot)] if slot in slots else everybody
            groups[f"group {slot}" if slot else ""] = _core.pattern_of_ranks(list(members))
        return slots, groups

    def _made(self, ranks: Sequence[int], world: int, roles: int) -> _core.Workload:
        import numpy as np

        def array(values: Any, dtype: Any = np.int64) -> Any:
            return np.array(list(values), dtype)

        slot_of, groups = self._slots_of_groups(world)
        calls = [call for call, _ in self.calls]
        for call in calls:
            if call.dtype not in self.dtypes:
                raise WorkloadError(f"'{self.trace.path}': a call has no dtype '{call.dtype}'")
        peers = [call.peer if call.root is None else call.root for call in calls]
        facts = {
            "role": f"rank{ranks[0]}", "rank": ranks[0], "world_size": world,
            "ranks_per_server": world, "mode": "phantom", "seed": 0, "unknown_reads": 0,
            "parameter_count": self.trace.parameter_count, "notes": self._notes(),
        }  # fmt: skip
        if roles > 1:
            facts["ranks"] = _core.pattern_of_ranks(list(ranks))
        parts = {"splits": [call.splits for call in calls]}
        if any(call.received for call in calls):
            parts["received"] = [call.received for call in calls]
        return _core.Workload.from_columns({
            "records": {key: array(each[key] for each in self.records) for key in _FIELDS},
            "uses": {"storage": array(self.uses), "version": array([1] * len(self.uses))},
            "calls": {
                "kind": array(self.kinds[call.kind] for call in calls),
                "group": array(slot_of[call.group] for call in calls),
                "bytes": array(call.whole_bytes for call in calls),
                "peer": array(-1 if peer is None else peer for peer in peers),
                "tag": array(call.tag for call in calls),
                "async": array((call.is_async for call in calls), bool),
                "dtype": array(self.dtypes[call.dtype] for call in calls),
                "batch": array(batch for _, batch in self.calls),
            }
            | {f"{name}_offsets": array(np.cumsum([0, *map(len, each)]))
               for name, each in parts.items()}
            | {f"{name}_values": array(size for sizes in each for size in sizes)
               for name, each in parts.items()},
            "storages": {
                "bytes": array(self.storages), "born": array(self.born),
                "died": array([-1] * len(self.storages)),
                "kind": array([_TEMPORARY] * len(self.storages)),
            },
            "allocations": {key: array([]) for key in ("record", "storage", "stream")}
            | {"is_free": array([], bool)},
            "signatures": {"text": list(self.signatures)},
            "modules": {"path": list(self.modules)},
            "regions": {"description": [name for _, name in self.regions]},
            "groups": {"name": list(groups), "ranks": list(groups.values())},
            "facts": facts,
        })  # fmt: skip
