# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Values after each collective when all ranks hold what this one holds, in both modes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from jobs import calls_of, job, parts_of

import trnsim.device  # noqa: F401
from trnsim import _torch

SIZES = [1, 2, 64, 65_536]


def on_device(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).to("trn")


@pytest.mark.parametrize("size", SIZES)
def test_a_sum_over_all_ranks_is_the_value_times_their_number(mode, size):
    with job(size, mode):
        tensor = on_device([1.0, -2.0])
        dist.all_reduce(tensor)
        assert tensor.tolist() == [1.0 * size, -2.0 * size]


@pytest.mark.parametrize("op", ["AVG", "MAX", "MIN"])
def test_averages_and_extremes_of_equal_values_are_the_value(mode, op):
    with job(64, mode):
        tensor = on_device([3.0, -4.0])
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        assert tensor.tolist() == [3.0, -4.0]


@pytest.mark.parametrize(
    "dtype, values, expected",
    [
        (
            torch.bfloat16,
            [1.5, 3e38, float("inf")],
            [6.0, torch.finfo(torch.bfloat16).max, float("inf")],
        ),
        (torch.float16, [1.5, 60000.0, float("inf")], [6.0, 65504.0, float("inf")]),
        (torch.float8_e4m3fn, [1.5, 400.0, -400.0], [6.0, 448.0, -448.0]),
        (torch.float8_e5m2, [1.5, 50000.0, float("inf")], [6.0, 57344.0, float("inf")]),
    ],
)
def test_sums_of_narrow_floats_saturate(dtype, values, expected):
    with job(4, "compute"):
        tensor = torch.tensor(values).to(dtype).to("trn")
        dist.all_reduce(tensor)
        assert tensor.cpu().float().tolist() == expected


def test_groups_keep_their_descriptions():
    with job(64, "phantom") as held:
        rows = dist.new_group(list(range(8)), group_desc="rows")
        mesh = dist.init_device_mesh("trn", (8, 8), mesh_dim_names=("dp", "tp"))
        for group in (rows, mesh["dp"].get_group(), mesh["tp"].get_group()):
            dist.all_reduce(on_device([1.0]), group=group)
    called = {held.workload.groups[call["group"]][0] for _, call in calls_of(held.workload)}
    assert {"rows", "mesh_dp", "mesh_tp"} <= called


def test_a_product_is_a_power(mode):
    with job(3, mode):
        tensor = on_device([2, -3], torch.int64)
        dist.all_reduce(tensor, dist.ReduceOp.PRODUCT)
        assert tensor.tolist() == [8, -27]


def test_exclusive_or_of_an_even_number_of_equal_values_is_zero(mode):
    with job(2, mode):
        tensor = on_device([5], torch.int32)
        dist.all_reduce(tensor, dist.ReduceOp.BXOR)
        assert tensor.tolist() == [0]


def test_a_sum_of_booleans_is_their_or(mode):
    with job(4, mode):
        tensor = on_device([True, False], torch.bool)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [True, False]


@pytest.mark.parametrize(
    "dtype, value, expected",
    [
        (torch.float16, 60_000.0, 65_504.0),
        (torch.float16, -60_000.0, -65_504.0),
        (torch.float16, float("inf"), float("inf")),
        (torch.int16, 30_000, 32_767),
        (torch.int16, -30_000, -32_768),
        (torch.int64, 2**62, 2**63 - 1),
    ],
)
def test_sums_saturate_where_the_type_ends_and_keep_infinities(mode, dtype, value, expected):
    with job(64, mode):
        tensor = on_device([value, 1], dtype)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [expected, 64]


@pytest.mark.parametrize("root, expected", [(0, [8.0]), (3, [2.0])])
def test_a_reduction_arrives_at_its_root_only(mode, root, expected):
    with job(4, mode):
        tensor = on_device([2.0])
        dist.reduce(tensor, root)
        assert tensor.tolist() == expected


def test_a_broadcast_leaves_the_value(mode):
    with job(8, mode):
        tensor = on_device([7.0])
        dist.broadcast(tensor, 5)
        assert tensor.tolist() == [7.0]


@pytest.mark.parametrize("size", [1, 4, 4096])
def test_gathering_into_one_tensor_repeats_the_value(mode, size):
    with job(size, mode):
        output = torch.empty(2 * size, device="trn")
        dist.all_gather_into_tensor(output, on_device([1.0, 2.0]))
        assert output.tolist() == [1.0, 2.0] * size


def test_gathers_and_scatters_in_place_read_a_slice_of_what_they_write(mode):
    with job(4, mode, rank=1):
        output = on_device([0.0, 1.0, 2.0, 3.0])
        dist.all_gather_into_tensor(output, output[1:2])
        assert output.tolist() == [1.0] * 4
        whole = on_device([0.0, 1.0, 2.0, 3.0])
        dist.reduce_scatter_tensor(whole[1:2], whole)
        assert whole[1].item() == 4.0


def test_gathering_into_a_list_repeats_the_value(mode):
    with job(4, mode):
        outputs = [torch.empty(2, device="trn") for _ in range(4)]
        dist.all_gather(outputs, on_device([1.0, 2.0]))
        assert [output.tolist() for output in outputs] == [[1.0, 2.0]] * 4


def test_a_gather_reaches_its_root(mode):
    with job(3, mode):
        outputs = [torch.zeros(1, device="trn") for _ in range(3)]
        dist.gather(on_device([5.0]), outputs, dst=0)
        assert [output.item() for output in outputs] == [5.0] * 3
        dist.gather(on_device([5.0]), None, dst=1)


def test_a_scatter_gives_this_rank_its_part(mode):
    with job(3, mode, rank=1):
        output = torch.zeros(1, device="trn")
        dist.scatter(output, [on_device([float(i)]) for i in range(3)], src=1)
        assert output.tolist() == [1.0]


def test_what_another_rank_scatters_is_not_known_and_said():
    with job(3, "compute", rank=1) as held:
        output = torch.ones(1, device="trn")
        dist.scatter(output, None, src=0)
        assert output.tolist() == [0.0]
    assert any("rank 0 scatters reads as zeros" in note for note in held.workload.notes)


@pytest.mark.parametrize("factor", [2.0, torch.tensor([2.0])])
def test_a_sum_with_a_factor_multiplies_by_it(mode, factor):
    with job(4, mode):
        tensor = on_device([1.0, -2.0])
        made = factor.to("trn") if isinstance(factor, torch.Tensor) else factor
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(made))
        assert tensor.tolist() == [8.0, -16.0]


def test_a_sum_with_an_unknown_factor_is_unknown():
    with job(4, "phantom"):
        factor = torch.randn(300, 300, device="trn").sum()
        assert not _torch.is_known(factor)
        tensor = on_device([1.0, -2.0])
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        assert not _torch.is_known(tensor)


def test_reduce_scatter_keeps_this_ranks_slice_of_the_sum(mode):
    with job(4, mode, rank=2):
        output = torch.empty(1, device="trn")
        dist.reduce_scatter_tensor(output, on_device([0.0, 1.0, 2.0, 3.0]))
        assert output.tolist() == [8.0]
        dist.reduce_scatter(output, [on_device([float(i)]) for i in range(4)])
        assert output.tolist() == [8.0]


def test_all_to_all_gives_every_peers_copy_of_this_ranks_chunk(mode):
    with job(4, mode, rank=1):
        output = torch.empty(4, device="trn")
        dist.all_to_all_single(output, on_device([0.0, 1.0, 2.0, 3.0]))
        assert output.tolist() == [1.0] * 4
        outputs = [torch.empty(1, device="trn") for _ in range(4)]
        dist.all_to_all(outputs, [on_device([float(i)]) for i in range(4)])
        assert [output.item() for output in outputs] == [1.0] * 4


def test_uneven_all_to_all_takes_this_ranks_chunk_from_each_peer(mode):
    with job(2, mode, rank=1):
        output = torch.empty(4, device="trn")
        dist.all_to_all_single(output, on_device([0.0, 1.0, 2.0]), [2, 2], [1, 2])
        assert output.tolist() == [1.0, 2.0, 1.0, 2.0]
        # Splits that contradict identical ranks: the chunk is repeated and cut to fit.
        output = torch.empty(4, device="trn")
        dist.all_to_all_single(output, on_device([0.0, 1.0, 2.0]), [3, 1], [1, 2])
        assert output.tolist() == [1.0, 2.0, 1.0, 1.0]


def test_parts_of_an_uneven_all_to_all_are_recorded_both_ways(mode):
    """In bytes; what is even both ways has none, and what is received stands beside what is sent
    wherever one of them is uneven."""
    with job(2, mode, rank=1) as holder:
        rows = lambda count: torch.empty(count, 3, device="trn")
        dist.all_to_all_single(rows(4), rows(4))
        dist.all_to_all_single(rows(4), rows(4), [2, 2], [2, 2])
        dist.all_to_all_single(rows(6), rows(4), [3, 3], [1, 3])  # there
        dist.all_to_all_single(rows(4), rows(6), [1, 3], [3, 3])  # and back
        dist.all_to_all([rows(1), rows(3)], [rows(3), rows(3)])
        dist.all_to_all([rows(0), rows(5)], [rows(5), rows(0)])
    row = 3 * 4
    assert parts_of(holder.workload, "splits") == [
        [], [], [row, 3 * row], [], [], [5 * row, 0]
    ]  # fmt: skip
    assert parts_of(holder.workload, "received") == [
        [], [], [3 * row, 3 * row], [row, 3 * row], [row, 3 * row], [0, 5 * row]
    ]  # fmt: skip


def test_what_another_rank_sends_is_zero_in_compute_mode_and_unknown_in_phantom_mode(mode):
    with job(2, mode) as holder:
        tensor = on_device([9.0])
        dist.send(tensor, 1)
        dist.recv(tensor, 1)
        value = tensor.item()
        assert mode == "phantom" or value == 0.0
    assert any("point-to-point" in note for note in holder.workload.notes)
    assert (holder.workload.unknown_reads == 1) == (mode == "phantom")


def test_coalesced_collectives_are_one_message(mode):
    with job(4, mode) as holder:
        first, second = on_device([1.0]), on_device([2.0])
        with dist._coalescing_manager():
            dist.all_reduce(first)
            dist.all_reduce(second)
        assert (first.item(), second.item()) == (4.0, 8.0)
    assert holder.workload.call_count == 1


def test_batches_of_messages_give_handles(mode):
    with job(4, mode) as holder:
        sent, received = on_device([1.0]), torch.empty(1, device="trn")
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent, 1), dist.P2POp(dist.irecv, received, 3)]
        )
        for work in works:
            work.wait()
    assert holder.workload.call_count == 2


def test_a_subgroup_counts_its_own_ranks(mode):
    with job(64, mode, rank=9) as holder:
        group = dist.new_group(list(range(1, 64, 8)))
        assert (dist.get_world_size(group), dist.get_rank(group)) == (8, 1)
        tensor = on_device([1.0])
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [8.0]
        assert dist.new_group([0, 1]) == dist.GroupMember.NON_GROUP_MEMBER
    assert [ranks for _, ranks in holder.workload.groups] == ["0..63", "start 1 axes 8x8"]


def test_objects_travel_between_identical_ranks(mode):
    with job(4, mode):
        objects = [None] * 4
        dist.all_gather_object(objects, {"rank": dist.get_rank()})
        assert objects == [{"rank": 0}] * 4
        payload = ["hello"]
        dist.broadcast_object_list(payload, src=0)
        assert payload == ["hello"]


def test_barriers_and_stores_do_not_wait_for_ranks_that_do_not_run(mode):
    with job(400_000, mode):
        dist.barrier()
        store = dist.distributed_c10d._get_default_store()
        assert store.add("arrived", 1) == 400_000
        store.set("key", "value")
        assert store.get("key") == b"value"
        with pytest.raises(RuntimeError, match="was never set by the captured rank"):
            store.get("of another rank")


def test_functional_collectives_work(mode):
    import torch.distributed._functional_collectives as functional

    with job(4, mode):
        result = functional.all_reduce(on_device([1.0]), "sum", dist.group.WORLD)
        assert result.tolist() == [4.0]


def test_a_device_mesh_has_groups_by_its_axes(mode):
    from torch.distributed.device_mesh import init_device_mesh

    with job(64, mode):
        mesh = init_device_mesh("trn", (8, 8), mesh_dim_names=("dp", "tp"))
        tensor = on_device([1.0])
        dist.all_reduce(tensor, group=mesh.get_group("tp"))
        assert tensor.tolist() == [8.0]


def test_large_unknown_values_stay_unknown_and_are_still_recorded():
    with job(8, "phantom") as holder:
        tensor = torch.empty(1 << 20, device="trn")
        dist.all_reduce(tensor)
        output = torch.empty(8 << 20, device="trn")
        dist.all_gather_into_tensor(output, tensor)
    calls = [call for _, call in calls_of(holder.workload)]
    assert [(call["kind"], call["bytes"]) for call in calls] == [
        ("all_reduce", 4 << 20),
        ("all_gather", 32 << 20),
    ]


def test_gloo_beside_the_device_serves_the_cpu_and_refuses_the_device():
    with job(4, "phantom"):
        group = dist.new_group(backend="gloo")
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [4.0]
        with pytest.raises(RuntimeError, match="gloo serves CPU tensors only; write"):
            dist.all_reduce(tensor.to("trn"), group=group)


def test_other_backends_are_refused_with_what_to_write():
    from trnsim.capture.script import start_capture, stop_capture
    from trnsim.capture.world import World
    from trnsim.errors import CaptureError

    start_capture(World(0, 2), "phantom")
    try:
        with pytest.raises(CaptureError, match="'nccl' cannot drive trn: write init_process_group"):
            dist.init_process_group("nccl")
    finally:
        stop_capture()


@pytest.mark.parametrize("backend", [None, "trn", "cpu:gloo,trn:trn"])
def test_the_usual_ways_to_ask_for_the_backend_work(backend):
    from trnsim.capture.script import start_capture, stop_capture
    from trnsim.capture.world import World

    start_capture(World(3, 16, 8), "phantom")
    try:
        dist.init_process_group(backend)
        assert (dist.get_rank(), dist.get_world_size()) == (3, 16)
        tensor = on_device([1.0])
        dist.all_reduce(tensor)
        assert tensor.tolist() == [16.0]
        dist.destroy_process_group()
    finally:
        stop_capture()
