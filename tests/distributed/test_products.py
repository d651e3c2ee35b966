# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Products of parallel styles over 64 ranks: FSDP2 with context parallelism, with tensor and
context parallelism, and with sequence and pipeline parallelism; HSDP with sequence parallelism; DDP
with sequence and pipeline parallelism. Bytes by hand, torch's own tracker, who shares data."""

from __future__ import annotations

import gc
import json

import command
import parallel
import pipelines
import products
import pytest
from held import alive, groups_of, kept_for_backward, markers
from jobs import job
from parallel import HEADS, LAYERS, LENGTH, OF_ALL, OF_LAYER, OF_NORMS, WIDTH, WORDS
from products import CONTEXT, MICRO_BATCHES, REPLICAS, TENSOR

import trnsim

RANKS = 64
TOKENS = parallel.BATCH * LENGTH


@pytest.fixture(scope="module")
def workloads():
    """By the names that tracked.py has for them."""
    found = {}
    for style, train in (
        ("fsdp2 x cp", products.train_context),
        ("fsdp2 x tp x cp", products.train_tensor_context),
        ("hsdp x tp", products.train_hybrid),
    ):
        with job(RANKS, "phantom") as holder:
            train(3)
            gc.collect()
        found[style] = holder.workload
    # In one process the streams of a rank have other numbers than those of the next: not compared.
    for name, by_copies in (("stage", False), ("copied stage", True)):
        train = lambda rank, _, by_copies=by_copies: products.train_stage(rank, 3, by_copies)
        stages = pipelines.capture(train, RANKS, checked=0)
        found |= {f"{name} {i}": stage for i, stage in enumerate(stages)}
    return found


def of_stage(outside: int, norms: int, shared_by: int = REPLICAS) -> float:
    """Elements that a rank holds of a layer, matrices outside of it, and norms: tensor parallelism
    repeats these."""
    matrices = OF_LAYER - 2 * 2 * WIDTH + outside
    return matrices / (shared_by * TENSOR) + norms * 2 * WIDTH / shared_by


HELD = {
    "fsdp2 x cp": OF_ALL / RANKS,
    "stage 0": of_stage(WORDS * WIDTH, norms=2),
    "stage 1": of_stage(WORDS * WIDTH, norms=3),
    "copied stage 0": of_stage(WORDS * WIDTH, norms=2, shared_by=1),
    "copied stage 1": of_stage(WORDS * WIDTH, norms=3, shared_by=1),
    "fsdp2 x tp x cp": (OF_ALL - OF_NORMS) / RANKS + OF_NORMS / (RANKS / TENSOR),
    "hsdp x tp": (OF_ALL - OF_NORMS) / (2 * TENSOR) + OF_NORMS / 2,
}


@pytest.mark.parametrize("style", HELD)
def test_a_rank_holds_what_arithmetic_says(workloads, style):
    workload = workloads[style]
    bytes_of = alive(workload, markers(workload, "optimizer_begin")[-1])
    held = 4 * HELD[style]
    assert bytes_of["parameter"] == pytest.approx(held, rel=0.02)
    assert bytes_of["gradient"] == pytest.approx(held, rel=0.02)
    assert bytes_of["optimizer_state"] == pytest.approx(2 * held, rel=0.02)


def test_context_parallelism_keeps_its_part_of_each_sequence(workloads):
    # Of test_sharded_bytes.py's 16 activations a layer and what is behind the layers, an eighth;
    # and one more: the merged attention is laid out by heads, and `flatten` copies it.
    one = TOKENS * WIDTH * 4
    whole = LAYERS * (17 * one + TOKENS * 4 * (2 * 2 + HEADS)) + 2 * one + TOKENS * 4 * (2 + WORDS)
    assert kept_for_backward(workloads["fsdp2 x cp"]) == pytest.approx(whole / CONTEXT, rel=0.02)


def test_tensor_and_context_parallelism_keep_a_part_of_a_part(workloads):
    # Of a layer whole in width the inputs and results of both norms; in parts queries, keys,
    # values, the attention's result twice, as above, and input and result of the GELU. Behind the
    # layers the last norm's input and result, and the probabilities.
    tokens = TOKENS // 4
    one = tokens * WIDTH * 4
    layer = 4 * one + 13 * one / TENSOR + tokens * 4 * (2 * 2 + HEADS / TENSOR)
    whole = LAYERS * layer + 2 * one + tokens * 4 * (2 + WORDS)
    assert kept_for_backward(workloads["fsdp2 x tp x cp"]) == pytest.approx(whole, rel=0.02)


def test_copies_of_sequence_parallelism_keep_parts_of_their_own_samples(workloads):
    one = TOKENS * WIDTH * 4
    layer = 2 * one + 14 * one / TENSOR + TOKENS * 4 * (2 * 2 + HEADS) / TENSOR
    head = one / TENSOR + one + TOKENS * 4 * 2 / TENSOR + TOKENS * WORDS * 4
    kept = kept_for_backward(workloads["hsdp x tp"])
    assert kept == pytest.approx(LAYERS * layer + head, rel=0.02)


@pytest.mark.parametrize(
    ("styles", "copies"),
    [
        (["fsdp2 x cp"], 8),
        (["fsdp2 x tp x cp"], 2),  # under names that say nothing
        (["hsdp x tp"], 8),  # the same
        (["stage 0", "stage 1"], REPLICAS),
        (["copied stage 0", "copied stage 1"], REPLICAS),
    ],
)
def test_samples_and_flops_are_those_of_all_copies(workloads, styles, copies):
    roles = [workloads[style] for style in styles]
    found = trnsim.project(roles[0] if len(roles) == 1 else roles, "trn2-ultra", chips=RANKS)
    assert found.samples_per_s * found.step_time_s == pytest.approx(copies * parallel.BATCH)
    assert found.tokens_per_s * found.step_time_s == pytest.approx(copies * TOKENS)
    # 6 a matrix element and token, and of attention 4 a head's width, query and key, thrice. The
    # embedding multiplies nothing.
    matrices = OF_ALL - OF_NORMS - WORDS * WIDTH
    attention = 3 * 4 * LAYERS * LENGTH * WIDTH
    assert found.model_flops == pytest.approx(copies * TOKENS * (6 * matrices + attention))
    causal = copies * TOKENS * (6 * matrices + attention / 2)
    assert found.mfu_causal / found.mfu == pytest.approx(causal / found.model_flops)
    assert sum(role.parameter_count for role in roles) == OF_ALL


def test_stages_keep_their_part_of_the_micro_batches_in_flight(workloads):
    # Of a layer, the inputs of attention and feed-forward whole, and a part of 14: both norms'
    # inputs, queries, keys, values, the attention's result, four times as wide the input and the
    # result of the GELU; two numbers a token of each norm, one a head of the attention.
    tokens = TOKENS // MICRO_BATCHES
    one = tokens * WIDTH * 4
    part = one / TENSOR
    layer = 2 * one + 14 * part + tokens * 4 * (2 * 2 + HEADS) / TENSOR
    # Buffers for what the other stage sends, one a micro-batch, are there all the time.
    # Stage 0 has two micro-batches in flight, and keeps its output of each.
    first = 2 * (layer + part) + MICRO_BATCHES * part
    for name in ("stage 0", "copied stage 0"):
        assert kept_for_backward(workloads[name]) == pytest.approx(first, rel=0.02), name
    # Stage 1 has one, whose input is such a buffer; the last norm's input, and its result whole;
    # logits and probabilities.
    head = part + one + tokens * 4 * 2 / TENSOR + 2 * tokens * WORDS * 4
    last = layer + head + (MICRO_BATCHES - 1) * part
    for name in ("stage 1", "copied stage 1"):
        assert kept_for_backward(workloads[name]) == pytest.approx(last, rel=0.02), name


def test_each_stage_is_a_role_of_half_of_the_ranks(workloads):
    assert [workloads[f"stage {i}"].played_by for i in range(2)] == ["0..31", "32..63"]
    names = {group["name"]: group["ranks"] for group in groups_of(workloads["stage 1"])}
    assert names["mesh_dp"] == "start 32 axes 8x4"
    assert names["mesh_tp"] == "32..39"
    assert names["mesh_pp"] == "start 0 axes 32x2"


def test_the_peak_is_that_of_torchs_own_tracker(workloads):
    tracker = command.ROOT / "tests" / "helpers" / "tracked.py"
    done = command.interpreter(tracker, "fsdp2 x cp")
    assert done.returncode == 0, done.stderr
    peak = json.loads(done.stdout.splitlines()[-1])["fsdp2 x cp"]
    workload = workloads["fsdp2 x cp"]
    workload.classify_storages()
    assert workload.replay_allocations().requested_bytes == pytest.approx(peak, rel=0.02)
