# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Chakra traces: out and in gives the same calls, bytes, dependences, and step; what cannot be
represented is refused or said."""

import json

import command
import pytest
import small_workload

import trnsim
from trnsim import _core
from trnsim.errors import ProjectError, WorkloadError
from trnsim.workload import chakra_schema as schema
from trnsim.workload import from_chakra

pytest.importorskip("google.protobuf", reason="Chakra traces need protobuf: trnsim[report]")
QUICK = {"advise": False, "interval": False}
MESSAGES = schema.messages(WorkloadError)
GROUPS = {"rows": "0..1", "columns": "0,2"}
ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL = 1, 2, 3, 7
STEPS = {
    "data parallel": small_workload.train(world_size=4),
    "one chip": small_workload.train(),
    "groups": small_workload.step_of_calls(
        4, GROUPS, [
            (small_workload.ALL_REDUCE, 1 << 20, "rows"), (ALL_GATHER, 1 << 22, "columns"),
            (REDUCE_SCATTER, 1 << 22, ""), (ALL_TO_ALL, 1 << 21, "rows"),
            (BROADCAST, 1 << 20, "rows", 1), (small_workload.SEND, 1 << 16, "", 1, 7),
            (small_workload.RECV, 1 << 16, "", 3, 7),
        ],
    ),
}  # fmt: skip


def calls_of(projection):
    return [(call["kind"], call["group"], call["bytes"], call["peer"], call["algorithm"])
            for call in projection.program.calls]  # fmt: skip


def deps_of(projection):
    nodes = _core.chakra_graph(projection.run, 0).nodes
    return [(n.kind, n.stream, n.phase, n.data_deps, n.ctrl_deps) for n in nodes]


def costs_of(projection):
    nodes = _core.chakra_graph(projection.run, 0).nodes
    return [(n.flops, n.read_bytes, n.write_bytes, n.output_bytes, n.dtype) for n in nodes]


@pytest.mark.parametrize("machine", ["trn2", "h100"])
@pytest.mark.parametrize("name", STEPS)
def test_out_and_in_gives_the_same_step(tmp_path, name, machine):
    first = trnsim.project(STEPS[name], machine, **QUICK)
    first.write_chakra(tmp_path / "first")
    second = trnsim.project(from_chakra(tmp_path / "first"), machine, **QUICK)
    assert calls_of(second) == calls_of(first)
    assert deps_of(second) == deps_of(first)
    assert costs_of(second) == costs_of(first)
    # Its ops are costed by FLOPs and bytes: from here on nothing is lost.
    second.write_chakra(tmp_path / "second")
    third = trnsim.project(from_chakra(tmp_path / "second"), machine, **QUICK)
    assert third.figures.step_ps == second.figures.step_ps > 0
    assert third.figures.timeline_hash == second.figures.timeline_hash


def test_stages_of_a_pipeline_come_back_as_their_roles(tmp_path):
    first = trnsim.project(two_stages(), "trn2", **QUICK)
    first.write_chakra(tmp_path)
    back = from_chakra(tmp_path / "trace")
    assert [w.played_by for w in back] == ["0..1", "2..3"]
    again = trnsim.project(back, "trn2", **QUICK)
    again.write_chakra(tmp_path / "again")
    third = trnsim.project(from_chakra(tmp_path / "again"), "trn2", **QUICK)
    assert third.figures.timeline_hash == again.figures.timeline_hash
    assert calls_of(again) == calls_of(first)


def two_stages():
    """Ranks 0 and 1 send to 2 and 3, each two ranks on."""
    roles = []
    for rank, (kind, peer, ranks) in {
        0: (small_workload.SEND, 2, "0..1"), 2: (small_workload.RECV, 0, "2..3")
    }.items():  # fmt: skip
        calls = [(kind, 1 << 20, "pipe", peer, 0)]
        workload = small_workload.step_of_calls(4, {"pipe": "0,2"}, calls)
        workload.rank, workload.role, workload.played_by = rank, f"rank{rank}", ranks
        roles.append(workload)
    return roles


def test_a_trace_says_what_astra_sim_reads(tmp_path):
    done = trnsim.project(STEPS["groups"], "trn2", **QUICK).write_chakra(tmp_path, "step")
    assert [path.name for path in done.traces] == [f"step.{rank}.et" for rank in range(4)]
    groups = json.loads(done.groups.read_text())
    assert sorted(groups.values()) == [[0, 1], [0, 2], [1, 3], [2, 3]]
    for rank, path in enumerate(done.traces):
        with open(path, "rb") as file:
            head = next(schema.decode(MESSAGES.GlobalMetadata, file))
            nodes = list(schema.decode(MESSAGES.Node, file))
        assert head.version and len({node.id for node in nodes}) == len(nodes)
        seen = {}
        for node in nodes:
            at = {a.name: (a.WhichOneof("value"), schema.value_of(a)) for a in node.attr}
            assert at["is_cpu_op"][0] == "bool_val"
            assert all(dep < node.id for dep in (*node.data_deps, *node.ctrl_deps))
            if node.type == schema.COMP:
                assert at["num_ops"][0] == "int64_val" and at["num_ops"][1] > 0
                assert at["tensor_size"][0] == "uint64_val" and at["tensor_size"][1] > 0
                continue
            assert at["comm_size"][0] == "int64_val"
            seen[node.name] = {key: value for key, (_, value) in at.items()}
            if (name := at["pg_name"][1]) != "0":
                assert rank in groups[name]
        # of an all_gather what a rank gives, of a reduce_scatter what it has
        assert seen["all_gather"]["comm_size"] * 2 == 1 << 22 == seen["reduce_scatter"]["comm_size"]
        assert seen["all_gather"]["comm_type"] == 2 and seen["all_reduce"]["comm_type"] == 0
        assert seen["broadcast"]["root"] == rank // 2 * 2 + 1
        assert (seen["send"]["comm_src"], seen["send"]["comm_dst"]) == (rank, (rank + 1) % 4)
        assert (seen["recv"]["comm_src"], seen["recv"]["comm_dst"]) == ((rank - 1) % 4, rank)


# --- traces of others ----------------------------------------------------------------------------


def attribute(name, **value):
    return MESSAGES.AttributeProto(name=name, **value)


def comp(node_id, flops=10**9, size=10**6, **deps):
    attr = [attribute("num_ops", int64_val=flops), attribute("tensor_size", uint64_val=size)]
    return MESSAGES.Node(id=node_id, name="matmul", type=schema.COMP, attr=attr, **deps)


def reduce(node_id, *more, size=1 << 20, **deps):
    attr = [attribute("comm_type", int64_val=0), attribute("comm_size", int64_val=size), *more]
    return MESSAGES.Node(id=node_id, name="grads", type=schema.COLL, attr=attr, **deps)


def write(folder, *nodes, ranks=4):
    for rank in range(ranks):
        chunks = map(schema.encode, [MESSAGES.GlobalMetadata(version="0.0.4"), *nodes])
        (folder / f"other.{rank}.et").write_bytes(b"".join(chunks))
    return folder


def test_a_foreign_trace_is_costed_by_its_flops_and_bytes(tmp_path):
    # out of order, with a node that only hands on what it waits for
    process = MESSAGES.Node(id=9, name="process_group:init", type=schema.METADATA, data_deps=[1])
    write(tmp_path, reduce(2, data_deps=[9]), process, comp(1, 10**12, 10**6))
    (workload,) = from_chakra(tmp_path)
    projection = trnsim.project(workload, "trn2", **QUICK)
    nodes = _core.chakra_graph(projection.run, 0).nodes
    assert [(n.name, n.data_deps) for n in nodes] == [("chakra::matmul", []), ("all_reduce", [0])]
    assert projection.figures.ranks == 4
    peak = 667e12  # dense bfloat16 of a chip; the products are at least as long
    assert nodes[0].end_ps - nodes[0].start_ps >= 10**12 / peak * 1e12
    # nothing of the collective hides behind what it waits for
    assert nodes[1].start_ps >= nodes[0].end_ps
    guesses = " ".join(map(str, projection.figures.guesses))
    assert "bfloat16" in guesses and "memory" in guesses


def test_dimensions_of_a_network_become_groups(tmp_path):
    dims = attribute("involved_dim", bool_list={"values": [False, True]})
    write(tmp_path, reduce(0, dims))
    with pytest.raises(WorkloadError, match=r"involved_dim \[False, True\].*give dims="):
        from_chakra(tmp_path)
    (workload,) = from_chakra(tmp_path, dims=(2, 2))
    assert _core.ranks_of_pattern(dict(workload.groups)["group 1"]) == [0, 2]


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (MESSAGES.Node(id=0, name="x", type=schema.COMP, duration_micros=3), "neither num_ops"),
        (MESSAGES.Node(id=0, name="x", type=schema.MEM_LOAD), "MEM_LOAD_NODE is not represented"),
        (MESSAGES.Node(id=0, name="x", type=schema.COLL), "it has no comm_size"),
        (comp(0, data_deps=[5]), "it waits for node 5, which is not there"),
        (comp(0, data_deps=[0]), "it waits for itself"),
        (comp(0, flops=-1), "its num_ops is -1"),
        (reduce(0, attribute("comm_type", int64_val=77)), "its comm_type is 77"),
        (reduce(0, attribute("pg_name", string_val="3")), "its pg_name '3' is not known"),
    ],
)
def test_what_cannot_be_represented_is_refused(tmp_path, node, why):
    with pytest.raises(WorkloadError, match=why):
        from_chakra(write(tmp_path, node))


def test_files_that_are_missing_or_damaged_are_refused(tmp_path):
    with pytest.raises(WorkloadError, match="no Chakra traces"):
        from_chakra(tmp_path)
    write(tmp_path, comp(0))
    (tmp_path / "other.3.et").write_bytes(b"\x07no such thing")
    with pytest.raises(WorkloadError, match="is no Chakra trace"):
        from_chakra(tmp_path)
    (tmp_path / "other.2.et").unlink()
    with pytest.raises(WorkloadError, match="none of rank 2"):
        from_chakra(tmp_path)


def test_groups_that_overlap_are_refused(tmp_path):
    write(tmp_path, reduce(0, attribute("pg_name", string_val="1")), ranks=3)
    (tmp_path / "other.json").write_text(json.dumps({"1": [0, 1]}))
    with pytest.raises(WorkloadError, match="rank 2 calls on a group of ranks 0, 1"):
        from_chakra(tmp_path)


def test_the_command_line_takes_and_leaves_traces(tmp_path):
    write(tmp_path, comp(0), reduce(1, data_deps=[0]))
    with pytest.raises(ProjectError, match="names no machine"):
        trnsim.project(tmp_path)
    done = command.trnsim("project", tmp_path / "other", "--machine", "trn2", "--chakra", "out",
                          "--json", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0 and json.loads(done.stdout)["step_time_s"] > 0, done.stderr
    assert "4 Chakra traces" in done.stderr and len(list((tmp_path / "out").iterdir())) == 5
