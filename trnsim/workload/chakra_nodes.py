# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The nodes of one Chakra trace: read, put in an order in which they can run, and placed."""

from __future__ import annotations

import heapq
import io
import itertools
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trnsim.errors import WorkloadError
from trnsim.workload import chakra_schema as schema

_MOST = 1 << 62


@dataclass(frozen=True)
class Comp:
    """An op: FLOPs of a dtype ("" where the trace does not say), and bytes."""

    flops: int
    dtype: str
    read_bytes: int
    write_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Comm:
    """A call. bytes as a Workload's Call counts them; None until the group is known."""

    kind: str
    own_bytes: int
    whole_bytes: int | None
    pg_name: str
    involved: tuple[bool, ...] = ()
    root: int | None = None
    peer: int | None = None
    tag: int = 0
    dtype: str = "uint8"
    is_async: bool = True
    splits: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    batch: int | None = None  # a node of the trace
    slot: int | None = None  # of the group in a Workload, where the trace says it
    group: int = -1  # index in Trace.groups


@dataclass(frozen=True)
class Node:
    """A node that is kept; dependences are places in Trace.nodes, earlier ones."""

    name: str
    what: Comp | Comm | None  # None: a wait of the host
    data_deps: tuple[int, ...]
    ctrl_deps: tuple[int, ...]
    stream: int = 0
    phase: str = "other"
    module: str = ""
    region: tuple[int, str] | None = None
    waits_for_all: bool = False


@dataclass(frozen=True)
class Trace:
    """A rank's trace."""

    path: Path
    nodes: tuple[Node, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    slots: tuple[int | None, ...] = ()  # of the groups
    own_groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    parameter_count: int = 0
    is_ours: bool = False  # its ctrl_deps are all that streams wait for
    counts: Mapping[str, int] = field(default_factory=dict)  # what was left out or taken to be

    def placed(
        self, rank: int, world: int, groups: Mapping[str, tuple[int, ...]], dims: tuple[int, ...]
    ) -> Trace:
        """The same with the groups of its calls, in the order of their first use."""
        known: dict[Any, int] = {}
        members: list[tuple[int, ...]] = []
        slots: list[int | None] = []
        nodes = []
        for node in self.nodes:
            if not isinstance(node.what, Comm):
                nodes.append(node)
                continue
            key = (node.what.pg_name, node.what.involved)
            if key not in known:
                known[key] = len(members)
                slots.append(node.what.slot)
                members.append(
                    _group_of(self, node, rank, world, {**self.own_groups, **groups}, dims)
                )
            nodes.append(replace(node, what=_in_group(self, node, known[key], members, rank)))
        return replace(self, nodes=tuple(nodes), groups=tuple(members), slots=tuple(slots))

    def what_it_does(self, rank: int) -> Any:
        """Equal for ranks that do the same, but for where they are."""
        shapes = tuple(tuple(member - group[0] for member in group) for group in self.groups)
        return (
            self.parameter_count, shapes, self.slots,
            tuple(replace(node, what=_anywhere(self, node.what, rank)) for node in self.nodes),
        )  # fmt: skip


def _anywhere(trace: Trace, what: Any, rank: int) -> Any:
    if not isinstance(what, Comm):
        return what
    group = trace.groups[what.group]
    peer, root = what.peer, what.root
    if peer is not None:
        peer = (group.index(peer) - group.index(rank)) % len(group)
    if root is not None:
        root = group.index(root)
    return replace(what, pg_name="", peer=peer, root=root)


def _group_of(
    trace: Trace, node: Node, rank: int, world: int, groups: Mapping[str, tuple[int, ...]],
    dims: tuple[int, ...],
) -> tuple[int, ...]:  # fmt: skip
    what = node.what
    assert isinstance(what, Comm)
    if what.pg_name not in ("", "0"):
        if what.pg_name not in groups:
            raise _refused(
                trace, node, f"its pg_name '{what.pg_name}' is not known",
                f"give the file of groups, as {trace.path.name.split('.')[0]}.json beside it",
            )  # fmt: skip
        members = groups[what.pg_name]
        if len(set(members)) < max(1, len(members)) or not set(members) <= set(range(world)):
            raise _refused(
                trace, node, f"its group is of ranks {members[:8]}",
                f"name each rank once, from 0 to {world - 1}",
            )  # fmt: skip
        return members
    if all(what.involved):
        return tuple(range(world))
    counted = 1
    for size in dims:
        counted *= size
    if counted != world or len(what.involved) < len(dims):
        raise _refused(
            trace, node, f"its involved_dim {list(what.involved)} counts dimensions of a network "
            "that the trace does not hold", f"give dims=, sizes whose product is {world}",
        )  # fmt: skip
    strides = [1, *itertools.accumulate(dims, lambda a, b: a * b)]
    ranges = []
    for size, stride, is_in in zip(dims, strides, what.involved, strict=False):
        own = rank // stride % size
        ranges.append([stride * at for at in (range(size) if is_in else [own])])
    return tuple(sorted(map(sum, itertools.product(*ranges))))


def _in_group(
    trace: Trace, node: Node, slot: int, members: list[tuple[int, ...]], rank: int
) -> Comm:
    what, group = node.what, members[slot]
    assert isinstance(what, Comm)
    whole = what.whole_bytes
    if whole is None:
        grows = what.kind in ("all_gather", "gather", "scatter")
        whole = what.own_bytes * len(group) if grows else what.own_bytes
    root = what.root
    if what.kind in ("broadcast", "reduce", "gather", "scatter") and root is None:
        root = group[0]
    for name, other in (("peer", what.peer), ("root", root)):
        if other is not None and other not in group:
            raise _refused(trace, node, f"its {name} {other} is not in its group", "correct it")
    if what.peer == rank:
        raise _refused(trace, node, "it is a message to itself", "correct comm_src or comm_dst")
    for name, parts in (("splits", what.splits), ("received parts", what.received)):
        if parts and len(parts) != len(group):
            raise _refused(trace, node, f"it has {len(parts)} {name}", f"give {len(group)}")
    return replace(what, group=slot, whole_bytes=whole, root=root)


def _refused(trace: Trace, node: Any, why: str, fix: str) -> WorkloadError:
    return WorkloadError(f"'{trace.path}', node '{node.name}': {why}; {fix}")


def read_trace(path: Path, content: bytes) -> Trace:
    """The nodes of a file, in an order in which they can run; raises WorkloadError."""
    made = schema.messages(WorkloadError)
    from google.protobuf.message import DecodeError

    try:
        file = io.BytesIO(content)
        head = next(schema.decode(made.GlobalMetadata, file), None)
        if head is None:
            raise ValueError("it is empty")
        nodes = list(schema.decode(made.Node, file))
    except (DecodeError, ValueError) as error:
        raise WorkloadError(f"'{path}' is no Chakra trace: {error}") from None
    facts = {attribute.name: schema.value_of(attribute) for attribute in head.attr}
    return _Reader(path, nodes, facts).trace()


class _Reader:
    def __init__(self, path: Path, nodes: list[Any], facts: Mapping[str, Any]) -> None:
        self.bare = Trace(path, ())
        self.messages, self.facts = nodes, facts
        self.counts: Counter[str] = Counter()
        self.groups: dict[str, tuple[int, ...]] = {}
        self.kept: list[Node] = []
        self.stands_for: dict[int, tuple[int, ...]] = {}  # of node ids, places in kept
        self.place: dict[int, int] = {}

    def trace(self) -> Trace:
        for message in self._in_order():
            attributes = {each.name: schema.value_of(each) for each in message.attr}
            data = self._resolved(message.data_deps)
            ctrl = self._resolved(message.ctrl_deps)
            what = self._what(message, attributes)
            if what is False:
                self.stands_for[message.id] = tuple(sorted({*data, *ctrl}))
                continue
            self.stands_for[message.id] = (len(self.kept),)
            self.kept.append(self._node(message, what, attributes, data, ctrl))
        return Trace(
            self.bare.path, tuple(self.kept), (), (), self.groups,
            int(self.facts.get("parameter_count") or 0), "trnsim_role" in self.facts,
            dict(self.counts),
        )  # fmt: skip

    def _in_order(self) -> list[Any]:
        """As the file has them, but for those that wait for later ones."""
        at = {message.id: i for i, message in enumerate(self.messages)}
        if len(at) < len(self.messages):
            raise WorkloadError(f"'{self.bare.path}' has two nodes of one id: number them")
        waits, readers = [], [[] for _ in self.messages]
        for i, message in enumerate(self.messages):
            deps = {*message.data_deps, *message.ctrl_deps}
            waits.append(len(deps))
            for dep in deps:
                if dep not in at:
                    raise self._refusal(message, f"it waits for node {dep}, which is not there")
                readers[at[dep]].append(i)
        ready = [i for i, count in enumerate(waits) if count == 0]
        order = []
        while ready:
            i = heapq.heappop(ready)
            order.append(self.messages[i])
            for reader in readers[i]:
                waits[reader] -= 1
                if waits[reader] == 0:
                    heapq.heappush(ready, reader)
        if len(order) < len(self.messages):
            left = next(m for i, m in enumerate(self.messages) if waits[i] > 0)
            raise self._refusal(left, "it waits for itself, by way of its dependences")
        return order

    def _resolved(self, ids: Any) -> tuple[int, ...]:
        return tuple(sorted({place for each in ids for place in self.stands_for[each]}))

    def _refusal(self, message: Any, why: str, fix: str = "correct the trace") -> WorkloadError:
        return _refused(self.bare, message, why, fix)

    def _what(self, message: Any, attributes: Mapping[str, Any]) -> Any:
        """False where only what it waits for matters."""
        kind = message.type
        if attributes.get("host_read"):
            return None
        if kind == schema.METADATA:
            self._read_groups(message)
            return False
        if kind == 0:
            return False
        if kind == schema.COMP:
            return self._comp(message, attributes)
        if kind in (schema.SEND, schema.RECV, schema.COLL):
            return self._comm(message, attributes)
        name = schema.NODE_TYPES[kind] if kind < len(schema.NODE_TYPES) else f"type {kind}"
        raise self._refusal(
            message, f"{name} is not represented: no memory outside of the chip is modelled",
            "leave such nodes out, or make them nodes that compute",
        )  # fmt: skip

    def _comp(self, message: Any, attributes: Mapping[str, Any]) -> Comp | bool:
        if attributes.get("is_cpu_op"):
            self.counts["CPU nodes without time"] += 1
            return False
        total = self._count(message, attributes, "tensor_size")
        flops = self._count(message, attributes, "num_ops")
        if total is None and flops is None:
            raise self._refusal(
                message, "it has neither num_ops nor tensor_size, and a duration alone is of the "
                "machine that it was measured on", "give both",
            )  # fmt: skip
        total, flops, dtype = total or 0, flops or 0, attributes.get("flops_dtype")
        read = self._count(message, attributes, "read_bytes")
        write = self._count(message, attributes, "write_bytes")
        if dtype == "":
            flops = 0
        if read is None and write is None:
            self.counts["nodes whose bytes are all read"] += 1
        if read is None:
            read = max(0, total - (write or 0))
        if flops == 0 and read == 0 and not write and dtype is None:
            self.counts["nodes of no FLOPs and no bytes"] += 1
            return False
        if dtype is None and flops:
            self.counts["nodes of a dtype that is not said"] += 1
        output = self._count(message, attributes, "output_bytes")
        return Comp(flops, dtype or "", read, write or 0, total if output is None else output)

    def _comm(self, message: Any, attributes: Mapping[str, Any]) -> Comm:
        size = self._count(message, attributes, "comm_size")
        if size is None:
            raise self._refusal(message, "it has no comm_size", "give it, in bytes")
        same: dict[str, Any] = {
            "pg_name": str(attributes.get("pg_name") or ""), "slot": attributes.get("group_slot"),
            "dtype": attributes.get("dtype") or "uint8", "batch": attributes.get("batch"),
            "is_async": bool(attributes.get("is_async", True)),
        }  # fmt: skip
        if message.type == schema.COLL:
            code = attributes.get("comm_type")
            if code not in schema.COLLECTIVES:
                raise self._refusal(message, f"its comm_type is {code}", "give one from 0 to 9")
            whole = self._count(message, attributes, "whole_bytes")
            dims = attributes.get("involved_dim")
            return Comm(
                schema.COLLECTIVES[code], size, whole, root=attributes.get("root"),
                involved=tuple(map(bool, dims)) if isinstance(dims, list) else (),
                splits=tuple(attributes.get("splits") or ()),
                received=tuple(attributes.get("received") or ()), **same,
            )  # fmt: skip
        key = "comm_dst" if message.type == schema.SEND else "comm_src"
        if attributes.get(key) is None:
            raise self._refusal(message, f"it has no {key}", "name the rank at the other end")
        kind = "send" if message.type == schema.SEND else "recv"
        tag = int(attributes.get("comm_tag") or 0)
        return Comm(kind, size, size, peer=int(attributes[key]), tag=tag, **same)

    def _count(self, message: Any, attributes: Mapping[str, Any], key: str) -> int | None:
        value = attributes.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
            raise self._refusal(message, f"its {key} is {value!r}", "give a whole number")
        if not 0 <= value <= _MOST:
            raise self._refusal(message, f"its {key} is {value}", "use 0 to 2^62")
        return int(value)

    def _read_groups(self, message: Any) -> None:
        """PyTorch's record of its process groups: a list of objects, written as a text."""
        text = message.inputs.values
        begin, end = text.find("[{"), text.rfind("}]")
        if begin < 0 or end < 0:
            return
        try:
            for group in json.loads(text[begin : end + 2]):
                if ranks := tuple(group["ranks"]):
                    self.groups[str(group["pg_name"])] = ranks
        except (ValueError, KeyError, TypeError):
            raise self._refusal(message, "its process groups cannot be read") from None

    def _node(
        self, message: Any, what: Any, attributes: Mapping[str, Any], data: tuple[int, ...],
        ctrl: tuple[int, ...],
    ) -> Node:  # fmt: skip
        if isinstance(what, Comm) and what.batch is not None:
            first = self.stands_for.get(int(what.batch))
            if first is None:
                raise self._refusal(
                    message, f"its batch begins with node {what.batch}, a later one"
                )
            what = replace(what, batch=first[0])
        region = attributes.get("region")
        return Node(
            message.name, what, data, ctrl, int(attributes.get("stream") or 0),
            attributes.get("phase") or "other", attributes.get("module") or "",
            None if region is None else (int(region), attributes.get("region_name") or ""),
            bool(attributes.get("waits_for_all")),
        )  # fmt: skip
