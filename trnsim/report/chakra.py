# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A step as Chakra execution traces, one a rank, as ASTRA-sim and other simulators run them.

`NAME.RANK.et` are the traces and `NAME.json` the process groups (ASTRA-sim's
--comm-group-configuration): a pg_name is a key of it, and "0" stands for all ranks. What the schema
has no word for stands in attributes that others leave alone, and trnsim.workload.from_chakra reads.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.errors import ReportError
from trnsim.files import make_folder, write_whole
from trnsim.report.words import size
from trnsim.workload import chakra_schema as schema

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.project import Projection

MAX_BYTES = 8 * 10**9
_COMM_TYPE = {name: code for code, name in reversed(schema.COLLECTIVES.items())}
_ASTRA_SIM = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}


@dataclass
class ChakraFiles:
    """What was written: the traces by rank, the file of groups, and what they leave out."""

    traces: list[Path]
    groups: Path
    lines: list[str] = field(default_factory=list)


def write_chakra(
    projection: Projection, directory: str | os.PathLike[str], name: str = "trace"
) -> ChakraFiles:
    """Writes NAME.RANK.et for every rank of the job, and NAME.json, into `directory`.

    Args:
        projection: of trnsim.project.
        directory: made when it is not there.
        name: what all files begin with.

    Raises:
        ReportError: no protobuf, collectives that are simulated step by step, more bytes than
            MAX_BYTES, or a path that cannot be written.
    """
    from trnsim import _core

    folder = Path(directory)
    run = projection.run
    made = schema.messages(ReportError)
    graphs = [_core.chakra_graph(run, role) for role in range(len(projection.workloads))]
    roles = [_Role(projection, i, graph, made) for i, graph in enumerate(graphs)]
    ranks = _ranks_of_roles(projection)
    expected = sum(role.byte_count * len(of) for role, of in zip(roles, ranks, strict=True))
    if expected > MAX_BYTES:
        raise ReportError(
            f"the Chakra traces of {sum(map(len, ranks))} ranks would take {size(expected)}, more "
            f"than {size(MAX_BYTES)}: run the script on fewer chips"
        )
    make_folder(folder, ReportError)
    groups = _Groups(_core.job_groups(run), sum(map(len, ranks)))
    traces = {}
    for role, of in zip(roles, ranks, strict=True):
        for rank in of:
            traces[rank] = folder / f"{name}.{rank}.et"
            write_whole(
                traces[rank],
                lambda part, role=role, rank=rank: _write(part, role.chunks(rank, groups)),
                ReportError,
            )
    text = json.dumps(groups.numbered) + "\n"
    write_whole(folder / f"{name}.json", lambda part: part.write_text(text), ReportError)
    done = ChakraFiles([traces[rank] for rank in sorted(traces)], folder / f"{name}.json")
    done.lines = _lines(done, roles)
    return done


def _write(path: Path, chunks: Iterator[bytes]) -> None:
    with open(path, "wb") as file:
        file.writelines(chunks)


def _ranks_of_roles(projection: Projection) -> list[list[int]]:
    from trnsim import _core

    workloads = projection.workloads
    if len(workloads) == 1:
        return [list(range(workloads[0].world_size))]
    return [_core.ranks_of_pattern(workload.played_by) for workload in workloads]


class _Groups:
    """The process groups of all ranks, by the number that stands for one in the traces."""

    def __init__(self, groups: _core.JobGroups, world_size: int) -> None:
        self.members, self._of_slot = groups.members, groups.of_slot
        self.numbered: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}
        known: dict[tuple[tuple[int, ...], str], str] = {}
        has_world = False
        for at in sorted({at for slots in groups.of_slot for at in slots if at >= 0}):
            key = (tuple(groups.members[at]), groups.names[at])
            if key not in known:
                is_world = not has_world and key[0] == tuple(range(world_size))
                has_world |= is_world
                known[key] = "0" if is_world else str(len(self.numbered) + 1)
                if not is_world:
                    self.numbered[known[key]] = list(key[0])
            self._names[at] = known[key]

    def of(self, rank: int, slot: int) -> tuple[str, list[int]]:
        """Its pg_name, and its ranks in group order."""
        at = self._of_slot[rank][slot]
        return self._names[at], self.members[at]


class _Role:
    """The nodes of a role: bytes where they are the same for all ranks, else how to make them."""

    def __init__(
        self, projection: Projection, role: int, graph: _core.ChakraGraph, made: Any
    ) -> None:
        self.graph, self.made = graph, made
        self.workload = projection.workloads[role]
        columns = self.workload.to_columns()
        self.calls, self.modules = columns["calls"], columns["modules"]["path"]
        self.regions = columns["regions"]["description"]
        self.kinds = _names("calls.kind")
        self.dtypes = _names("calls.dtype")
        self.groups = columns["groups"]["ranks"]
        self.first_of_batch: dict[int, int] = {}
        head = made.GlobalMetadata(version=schema.VERSION)
        self._add(
            head, trnsim_role=self.workload.role, machine=projection.machine.name,
            workload_hash=self.workload.hash, step_ps=int(projection.figures.step_ps),
            parameter_count=self.workload.parameter_count,
        )  # fmt: skip
        self.parts: list[bytes | tuple[Any, int]] = [schema.encode(head)]
        for i, node in enumerate(graph.nodes):
            message = self._node(i, node)
            self.parts.append((message, node.call) if node.call >= 0 else schema.encode(message))
        self.byte_count = sum(
            len(part) if isinstance(part, bytes) else part[0].ByteSize() + 16 for part in self.parts
        )

    def _add(self, message: Any, **values: Any) -> None:
        for name, value in values.items():
            attribute = self.made.AttributeProto(name=name)
            if isinstance(value, bool):
                attribute.bool_val = value
            elif isinstance(value, str):
                attribute.string_val = value
            elif isinstance(value, list):
                attribute.int64_list.values.extend(value)
            else:
                attribute.int64_val = value
            message.attr.append(attribute)

    def _node(self, i: int, node: _core.ChakraNode) -> Any:
        kind = schema.COMP
        if node.call >= 0:
            kind = {"send": schema.SEND, "recv": schema.RECV}.get(node.name, schema.COLL)
        message = self.made.Node(
            id=i, name=node.name, type=kind, data_deps=node.data_deps, ctrl_deps=node.ctrl_deps,
            start_time_micros=node.start_ps // 10**6,
            duration_micros=round((node.end_ps - node.start_ps) / 10**6),
        )  # fmt: skip
        self._add(message, is_cpu_op=node.kind == "host_read")
        if node.kind == "comp":
            total = node.read_bytes + node.write_bytes
            # Neither is 0: a roofline divides by them.
            self._add(message, num_ops=max(node.flops, 1))
            message.attr.append(
                self.made.AttributeProto(name="tensor_size", uint64_val=max(total, 1))
            )
            self._add(
                message, flops_dtype=node.dtype if node.flops else "", read_bytes=node.read_bytes,
                write_bytes=node.write_bytes, output_bytes=node.output_bytes,
            )  # fmt: skip
        elif node.kind == "host_read":
            self._add(message, host_read=True, waits_for_all=node.waits_for_all)
        else:
            self._add_call(message, i, node.call)
        self._add(
            message, stream=node.stream, phase=node.phase, module=self.modules[node.module],
            start_ps=node.start_ps, duration_ps=node.end_ps - node.start_ps,
        )  # fmt: skip
        if node.region >= 0:
            self._add(message, region=node.region, region_name=self.regions[node.region])
        return message

    def _add_call(self, message: Any, i: int, call: int) -> None:
        """What is the same for all ranks of the role."""
        from trnsim import _core

        calls = self.calls
        kind, whole = self.kinds[calls["kind"][call]], int(calls["bytes"][call])
        dtype, batch = self.dtypes[calls["dtype"][call]], int(calls["batch"][call])
        members = len(_core.ranks_of_pattern(self.groups[calls["group"][call]]))
        own = whole
        if kind in ("all_gather", "gather", "scatter"):
            own = -(-whole // members)
        if kind in _COMM_TYPE:
            self._add(message, comm_type=_COMM_TYPE[kind], comm_size=own, whole_bytes=whole)
        else:
            self._add(message, comm_size=whole)
            message.attr.append(
                self.made.AttributeProto(name="comm_tag", int32_val=int(calls["tag"][call]))
            )
            if batch >= 0:
                self._add(message, batch=self.first_of_batch.setdefault(batch, i))
        self._add(message, group_slot=int(calls["group"][call]))
        self._add(message, dtype=dtype, is_async=bool(calls["async"][call]))
        for parts in ("splits", "received"):
            if listed := _parts_of(calls, parts, call):
                self._add(message, **{parts: listed})

    def chunks(self, rank: int, groups: _Groups) -> Iterator[bytes]:
        """The trace of a rank."""
        for part in self.parts:
            if isinstance(part, bytes):
                yield part
                continue
            template, call = part
            message = self.made.Node()
            message.CopyFrom(template)
            self._add_place(message, rank, call, groups)
            yield schema.encode(message)

    def _add_place(self, message: Any, rank: int, call: int, groups: _Groups) -> None:
        """The call's group, and its root or its peer, who is as far around the group as that of
        the captured rank."""
        from trnsim import _core

        slot, peer = int(self.calls["group"][call]), int(self.calls["peer"][call])
        name, members = groups.of(rank, slot)
        self._add(message, pg_name=name)
        if peer < 0:
            return
        captured = _core.ranks_of_pattern(self.groups[slot])
        at = captured.index(peer)
        if message.type == schema.COLL:
            pairs = {"root": members[at]}
        else:
            shift = at - captured.index(self.workload.rank)
            other = members[(members.index(rank) + shift) % len(members)]
            ends = (rank, other) if message.type == schema.SEND else (other, rank)
            pairs = {"comm_src": ends[0], "comm_dst": ends[1]}
        for key, value in pairs.items():
            message.attr.append(self.made.AttributeProto(name=key, int32_val=value))


def _parts_of(calls: Any, name: str, call: int) -> list[int]:
    """Bytes to, or from, each member of an uneven call."""
    if f"{name}_offsets" not in calls:
        return []
    begin, end = calls[f"{name}_offsets"][call : call + 2]
    return [int(size) for size in calls[f"{name}_values"][begin:end]]


def _names(column: str) -> list[str]:
    from trnsim import _core

    return _core.workload_enum_names()[column]


def _lines(done: ChakraFiles, roles: list[_Role]) -> list[str]:
    """What was written, and what of the run is not in it."""
    nodes = [node for role in roles for node in role.graph.nodes]
    kinds = Counter(node.kind for node in nodes)
    lines = [
        f"{done.traces[0]} and on: {len(done.traces)} Chakra traces of {len(roles)} roles, "
        + f"{kinds['comp']} ops, {kinds['call']} calls; groups in {done.groups}",
        "not in a Chakra trace: tensors' lives (memory), shapes of products, launches",
    ]
    if cycles := sum(role.graph.ops_of_cycles for role in roles):
        lines.append(
            f"{cycles} ops take cycles of vector, scalar or gpsimd engines: their FLOPs and bytes "
            "alone are in it"
        )
    if kinds["host_read"]:
        lines.append(f"{kinds['host_read']} waits of the host are CPU nodes without work")
    others = Counter(node.name for node in nodes if node.kind == "call" and node.name in _COMM_TYPE)
    if refused := [f"{n} {name}" for name, n in others.items() if name not in _ASTRA_SIM]:
        lines.append(f"ASTRA-sim runs no {', '.join(refused)}")
    if uneven := sum(
        any(_parts_of(role.calls, parts, node.call) for parts in ("splits", "received"))
        for role in roles for node in role.graph.nodes if node.call >= 0
    ):  # fmt: skip
        lines.append(f"{uneven} uneven all_to_all calls: others see their sum alone")
    return lines
