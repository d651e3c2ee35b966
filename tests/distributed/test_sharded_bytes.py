# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""One transformer over 64 ranks in each way: bytes and messages by hand, torch's own tracker."""

from __future__ import annotations

import gc
import json

import command
import parallel
import pytest
import torch
import torch.distributed as dist
from held import alive, groups_of, last_step, markers, messages
from jobs import job, records_of
from parallel import LAYERS, LENGTH, OF_ALL, OF_LAYER, OF_NORMS, OF_ROOT, WIDTH, WORDS
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import trnsim

RANKS = 64
# Elements of parameters that a rank holds, of which 1/64 (1/8) is all but the norms, which tensor
# parallelism repeats.
HELD = {
    "plain": OF_ALL,
    "fsdp2": OF_ALL / 64,
    "hsdp": OF_ALL / 8,
    "tp": (OF_ALL - OF_NORMS) / 64 + OF_NORMS,
    "sp": (OF_ALL - OF_NORMS) / 64 + OF_NORMS,
    "fsdp2 x sp": (OF_ALL - OF_NORMS) / 64 + OF_NORMS / 8,
}
ONE = parallel.BATCH * LENGTH * WIDTH * 4  # bytes of an activation as wide as the model


def captured(style: str, steps: int = 3):
    with job(RANKS, "phantom") as holder:
        model = parallel.build(style, RANKS)
        if style == "plain":
            model = DistributedDataParallel(model)
        parallel.train(model, steps, foreach=style != "tp")
        del model
        gc.collect()
    return holder.workload


@pytest.fixture(scope="module")
def workloads():
    return {style: captured(style) for style in HELD}


@pytest.mark.parametrize("style", HELD)
def test_a_rank_holds_what_arithmetic_says(workloads, style):
    workload = workloads[style]
    bytes_of = alive(workload, markers(workload, "optimizer_begin")[-1])
    held = 4 * HELD[style]
    assert bytes_of["parameter"] == pytest.approx(held, rel=0.02)
    # DTensor computes the gradient of the divided embedding whole and keeps a view of it.
    extra = 4 * WORDS * WIDTH * 63 / 64 if style in ("tp", "sp") else 0
    assert bytes_of["gradient"] == pytest.approx(held + extra, rel=0.02)
    assert bytes_of["optimizer_state"] == pytest.approx(2 * held, rel=0.02)
    assert workload.parameter_count == OF_ALL


@pytest.mark.parametrize("style", ["plain", "fsdp2", "hsdp"])
def test_activations_of_whole_sequences_are_as_by_hand(workloads, style):
    # A layer keeps the input and the result of each norm, queries, keys, values, the result of the
    # attention and, four times as wide, the input and the result of the GELU: 16 activations; of a
    # norm two numbers a token, of the attention one a head and token. Behind the layers: the last
    # norm's input and result, and the probabilities.
    tokens = parallel.BATCH * LENGTH
    of_layer = 16 * ONE + tokens * 4 * (2 * 2 + parallel.HEADS)
    expected = LAYERS * of_layer + 2 * ONE + tokens * 4 * (2 + WORDS)
    workload = workloads[style]
    begin, _ = last_step(workload)
    rows = records_of(workload)
    backward = next(i for i in range(begin, len(rows)) if rows[i]["phase"] == "backward")
    assert alive(workload, backward)["activation"] == pytest.approx(expected, rel=0.02)


def test_gradients_that_wait_for_a_later_reduction_are_whole():
    with job(RANKS, "phantom") as holder:
        model = parallel.build("fsdp2", RANKS)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ids, targets = parallel.batch()
        for _ in range(2):
            for is_last in (False, True):
                model.set_requires_gradient_sync(is_last)
                logits = model(ids).flatten(0, 1)
                nn.functional.cross_entropy(logits, targets.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        del model, optimizer, ids, targets, logits
        gc.collect()
    waiting = alive(holder.workload, markers(holder.workload, "forward_begin")[3])
    assert waiting["gradient"] == 4 * OF_ALL


def test_data_parallel_reduces_every_gradient_once(workloads):
    found = messages(workloads["plain"])
    assert set(found) == {"all_reduce 0"}
    assert sum(found["all_reduce 0"]) == 4 * OF_ALL


def test_fsdp2_gathers_layers_twice_and_reduces_every_gradient(workloads):
    found = messages(workloads["fsdp2"])
    assert set(found) == {"all_gather 0", "reduce_scatter 0"}
    layer, root = 4 * OF_LAYER, 4 * OF_ROOT
    # What is around the layers is gathered once: it is needed last in forward, first in backward.
    assert sorted(found["all_gather 0"]) == sorted([root, *[layer] * LAYERS * 2])
    assert sorted(found["reduce_scatter 0"]) == sorted([root, *[layer] * LAYERS])


def test_hybrid_sharding_adds_the_reduction_between_copies(workloads):
    workload = workloads["hsdp"]
    found = messages(workload)
    names = {group["name"]: i for i, group in enumerate(groups_of(workload))}
    shard, replicate = names["mesh_dp_shard"], names["mesh_dp_replicate"]
    assert sum(found[f"all_gather {shard}"]) == 4 * (OF_ROOT + 2 * LAYERS * OF_LAYER)
    assert sum(found[f"reduce_scatter {shard}"]) == 4 * OF_ALL
    assert sum(found[f"all_reduce {replicate}"]) == 4 * OF_ALL // 8
    assert len(found) == 3


def test_groups_are_strides_not_lists(workloads):
    names = {group["name"]: group["ranks"] for group in groups_of(workloads["hsdp"])}
    assert names["mesh_dp_shard"] == "0..7"
    assert names["mesh_dp_replicate"] == "start 0 axes 8x8"
    names = {group["name"]: group["ranks"] for group in groups_of(workloads["sp"])}
    assert names == {"mesh_tp": "0..63"}  # the world, by the name that the mesh gives it


def test_sequence_parallel_gathers_and_scatters_around_matrices(workloads):
    found = messages(workloads["sp"])
    logits = parallel.BATCH * LENGTH * WORDS * 4
    # Forward: gathered before attention and feed-forward of each layer and before the head, whose
    # logits are gathered, too; scattered after each of these halves and the embedding. Backward is
    # the other way round, and the gathered logits need nothing.
    half = 2 * LAYERS + 1
    assert sorted(found["all_gather 0"]) == sorted([ONE] * 2 * half + [logits])
    assert sorted(found["reduce_scatter 0"]) == [ONE] * 2 * half
    # DTensor leaves the norms' gradients as sums over the sequence that are still to be made, and
    # makes them wherever AdamW reads a gradient: for the mean once, for the square twice.
    assert set(found) == {"all_gather 0", "reduce_scatter 0"}
    sums = messages(workloads["sp"], ("optimizer",))
    assert sums == {"all_reduce 0": [4 * WIDTH] * 3 * (2 * LAYERS + 1) * 2}


def test_plain_tensor_parallel_reduces_activations(workloads):
    found = messages(workloads["tp"])
    # Forward: after each half and the embedding. Backward: of what each matrix made of its input,
    # where columns are divided: queries, keys, values and `up` of each layer, and the head.
    assert found["all_reduce 0"] == [ONE] * (2 * LAYERS + 1 + 4 * LAYERS + 1)
    assert set(found) == {"all_reduce 0", "all_gather 0"}


def test_both_at_once_are_each_of_them_on_its_axis(workloads):
    workload = workloads["fsdp2 x sp"]
    found = messages(workload)
    names = {group["name"]: i for i, group in enumerate(groups_of(workload))}
    tp, dp = names["mesh_tp"], names["mesh_dp"]
    parts = (OF_ALL - OF_NORMS) / 8 + OF_NORMS  # of parameters between which the columns divide
    assert sum(found[f"reduce_scatter {dp}"]) == pytest.approx(4 * parts, rel=0.001)
    assert found[f"reduce_scatter {tp}"] == [ONE] * 2 * (2 * LAYERS + 1)


@pytest.fixture(scope="module")
def tracked():
    done = command.interpreter(command.ROOT / "tests" / "helpers" / "tracked.py", *HELD)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("style", HELD)
def test_the_peak_is_that_of_torchs_own_tracker(workloads, tracked, style):
    workload = workloads[style]
    if style == "plain":  # the tracker does not see DistributedDataParallel's buckets
        with job(RANKS, "phantom") as holder:
            model = parallel.build(style, RANKS)
            parallel.train(model, 2, foreach=True)
            del model
        workload = holder.workload
    workload.classify_storages()
    peak = workload.replay_allocations()
    assert peak.requested_bytes == pytest.approx(tracked[style], rel=0.02)


def test_a_step_is_timed_by_kind_and_group(workloads):
    # All ranks: the same FLOPs where all have data of their own; 1/64 where all share one batch.
    figures = {
        style: trnsim.project(workload, "trn2-ultra", chips=64, advise=False, interval=False)
        for style, workload in workloads.items()
    }
    flops = {style: each.figures.model_flops for style, each in figures.items()}
    assert flops["fsdp2"] == flops["hsdp"] == flops["plain"]
    assert flops["sp"] * 64 == flops["tp"] * 64 == flops["fsdp2 x sp"] * 8 == flops["plain"]
    exposed = {style: each.to_dict()["exposed_by_group"] for style, each in figures.items()}
    assert set(exposed["plain"]) == set(exposed["fsdp2"]) == {"world"}
    assert set(exposed["hsdp"]) == {"mesh_dp_shard", "mesh_dp_replicate"}
    assert set(exposed["sp"]) == {"mesh_tp"}
    assert set(exposed["fsdp2 x sp"]) == {"mesh_dp", "mesh_tp"}
    samples = {
        style: each.to_dict()["samples_per_s"] * each.to_dict()["step_time_s"]
        for style, each in figures.items()
    }
    assert samples == pytest.approx(
        {"plain": 512, "fsdp2": 512, "hsdp": 512, "tp": 8, "sp": 8, "fsdp2 x sp": 64}
    )


def test_a_linear_layer_over_eight_ranks_costs_an_eighth():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    def flops(shared: bool) -> float:
        with job(8, "phantom") as holder, torch.device("trn"):
            layer = nn.Linear(1024, 4096, bias=False)
            if shared:
                parallelize_module(layer, init_device_mesh("trn", (8,)), ColwiseParallel())
            with torch.no_grad():
                layer(torch.empty(256, 1024))
            held = sum(p.to_local().numel() if shared else p.numel() for p in layer.parameters())
        assert held == 4096 * 1024 // (8 if shared else 1)
        projection = trnsim.project(holder.workload, "trn2", chips=8, advise=False, interval=False)
        return projection.figures.model_flops / 8  # of a chip

    assert flops(shared=False) == 2 * 256 * 1024 * 4096
    assert flops(shared=True) == flops(shared=False) / 8


def test_a_head_that_is_gathered_by_hand_counts_once():
    """As where a loss in parts calls it for each: FSDP2 shows other parameters then."""
    with job(4, "phantom") as holder:
        with torch.device("trn"):
            body, head = nn.Linear(8, 8), nn.Linear(8, 4, bias=False)
        fully_shard(body)
        fully_shard(head)
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
        for _ in range(2):
            hidden = body(torch.ones(2, 8, device="trn"))
            head.unshard()
            head(hidden).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        del body, head, optimizer
        gc.collect()
    workload = holder.workload
    assert workload.parameter_count == (8 * 8 + 8) + 8 * 4
    held = alive(workload, markers(workload, "optimizer_begin")[-1])
    assert held["parameter"] == 4 * ((8 * 8 + 8) + 8 * 4) / 4


def test_ranks_with_experts_of_their_own_have_data_of_their_own():
    """The experts' gradients, most of the bytes, are reduced by nobody."""
    with job(8, "phantom") as holder:
        with torch.device("trn"):
            body, expert = nn.Linear(64, 64), nn.Linear(64, 1024)
        optimizer = torch.optim.SGD([*body.parameters(), *expert.parameters()], lr=0.1)
        for _ in range(3):
            hidden = all_to_all_single_autograd(
                body(torch.ones(16, 64, device="trn")), None, None, dist.group.WORLD
            )
            expert(hidden).sum().backward()
            for parameter in body.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
        del body, expert, optimizer, hidden, parameter
        gc.collect()
    projection = trnsim.project(holder.workload, "h100", chips=8, advise=False, interval=False)
    found = projection.to_dict()
    assert found["samples_per_s"] * found["step_time_s"] == pytest.approx(8 * 16)


@pytest.mark.parametrize(
    ("names", "unused"),
    [
        (("replica", "shard", "tp"), None),  # one of the two names says nothing
        (("replicate", "shard", "tp"), "dp"),  # a mesh of all ranks, of which two share their data
        (("outer", "inner", "tp"), None),
        (("replica", "shard", "model"), None),
    ],
)
def test_gradients_say_who_has_data_where_names_of_meshes_do_not(names, unused):
    with job(8, "phantom") as holder:
        if unused:
            init_device_mesh("trn", (8,), mesh_dim_names=(unused,))
        mesh = init_device_mesh("trn", (2, 2, 2), mesh_dim_names=names)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to("trn")
        parallelize_module(model, mesh[names[2]], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh[names[:2]])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        for _ in range(3):
            model(torch.ones(16, 64, device="trn")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        del model, optimizer
        gc.collect()
    projection = trnsim.project(holder.workload, "h100", chips=8, advise=False, interval=False)
    found = projection.to_dict()
    assert found["samples_per_s"] * found["step_time_s"] == pytest.approx(4 * 16)
