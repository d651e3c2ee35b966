# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Llama 3.1 405B in three layouts, beside arithmetic by hand: memory to 2 %, payloads exactly.

A payload is a message's or a collective's bytes before its algorithm: what an all-gather gives each
rank, what a reduce-scatter takes from it, what a rank sends or receives.
"""

import functools
import re
from collections import Counter

import pytest

import trnsim
from trnsim.recipes import Layout, Model, capture

L, H, F, Q, KV, D, V = 126, 16384, 53248, 128, 8, 128, 128256  # layers, widths, heads, vocabulary
S = 8192  # tokens of a sequence; a micro-batch is one
BF16, FP32, MOMENTS = 2, 4, 8
STREAM = S * H * BF16  # bytes of the residual stream of a micro-batch, over all of its ranks

PIPELINE = Layout(tp=8, pp=16, dp=128, global_batch=2048, sequence=S)
INTERLEAVED = Layout(tp=16, pp=4, vp=8, dp=8, global_batch=64, sequence=S)
SHARDED = Layout(tp=8, dp=16, zero=3, global_batch=32, sequence=S, recompute="full")


def layer(tp: int) -> int:
    """Parameters of a layer on a rank: queries, keys and values, the product of attention's output,
    gate, up and down, each divided over tp; two norms, which are not. Of keys and values a rank has
    at least a head."""
    kv = max(KV, tp)
    return (H * (Q + 2 * kv) * D + Q * D * H + 3 * H * F) // tp + 2 * H


def embedding(tp: int) -> int:
    """The embedding, or the logits' product: rows of the vocabulary are divided over tp."""
    return V // tp * H


def activations(tp: int) -> int:
    """Bytes that a layer keeps of a micro-batch on a rank, sequence parallel and with a kernel of
    attention: four times its part of the stream (the input, after the first norm, after attention,
    after the second norm); queries, keys and values as they are multiplied, queries and keys with
    their positions, attention's output with a float32 a token and head; and gate, up and what the
    activation makes of them."""
    return 4 * STREAM // tp + of_attention(tp) + S * BF16 * 3 * F // tp


def of_attention(tp: int) -> int:
    """Of them, those of attention's heads."""
    kv = max(KV, tp)
    return S * (BF16 * ((Q + 2 * kv) + (Q + kv) + Q) * D + FP32 * Q) // tp


@functools.cache
def captured(layout: Layout):
    style = "megatron-fsdp" if layout.zero == 3 else "megatron"
    return capture(Model.preset("llama3.1-405b"), layout, style)


@functools.cache
def memory(layout: Layout, machine: str):
    """By kind, of the rank that takes most."""
    done = trnsim.project(captured(layout), machine, advise=False, interval=False, top=0)
    return done.figures.memory_by_kind


def payloads(layout: Layout, stage: int) -> dict[tuple[str, str], int]:
    """Bytes of a rank's step by collective and group."""
    workload = captured(layout)[stage]
    step = workload.choose_step(-1)
    found: Counter[tuple[str, str]] = Counter()
    for line in workload.print_records(step.begin, step.end):
        said = re.search(r" (\w+) of (\d+) bytes \w+ in group (\d+)", line)
        if said and " wait for " not in line:
            found[said[1], workload.groups[int(said[3])][0] or "world"] += int(said[2])
    return dict(found)


# --- tensor, pipeline and data parallel, as Llama 3 was trained on 16,384 GPUs --------------------
#
# 126 layers over 16 stages: 8 each, but 7 for the first, which has the embedding, and for the last,
# which has the logits. 2,048 sequences over 128 data parallel ranks: 16 micro-batches.


def test_pipeline_memory():
    """The second stage takes most: 8 layers, of 15 micro-batches that went forward before the first
    comes back. Adam's moments and float32 copies are divided over the 128 data parallel ranks."""
    held = 8 * layer(8)
    found = memory(PIPELINE, "h100")
    assert found["parameters"] == pytest.approx(BF16 * held + FP32 * held / 128, rel=0.02)
    assert found["gradients"] == pytest.approx(FP32 * held, rel=0.02)
    assert found["optimizer"] == pytest.approx(MOMENTS * held / 128, rel=0.02)
    assert found["activations"] == pytest.approx(15 * 8 * activations(8), rel=0.02)


@pytest.mark.parametrize("stage", [0, 1, 15])
def test_pipeline_payloads(stage):
    """Of each layer and micro-batch, forward: two all-gathers (before queries, keys and values, and
    before gate and up) and two reduce-scatters (after attention's product and after down);
    backward: the same turned around, and both inputs are gathered again for weights' gradients. The
    embedding adds a reduce-scatter, and an all-gather on its way back; the logits an all-gather,
    another for the gradient, a reduce-scatter, and three sums over the vocabulary's parts."""
    micro_batches, is_end = 16, stage in (0, 15)
    layers = 7 if is_end else 8
    held = layers * layer(8) + (embedding(8) if is_end else 0) + (H if stage == 15 else 0)
    gathers = 6 * layers + {0: 1, 15: 2}.get(stage, 0)
    scatters = 4 * layers + is_end
    norms = 2 * layers + (stage == 15)
    sums = 3 * S * FP32 * micro_batches if stage == 15 else 0
    ways = 1 if is_end else 2  # forward to the next stage, backward to the one before
    boundary = ways * micro_batches * STREAM // 8
    assert payloads(PIPELINE, stage) == {
        ("all_gather", "dp"): BF16 * held,
        ("reduce_scatter", "dp"): FP32 * held,
        ("all_gather", "tp"): gathers * micro_batches * STREAM,
        ("reduce_scatter", "tp"): scatters * micro_batches * STREAM,
        ("all_reduce", "tp"): norms * H * FP32 + sums,  # each rank saw a part of the sequence
        ("send", "pp"): boundary,
        ("recv", "pp"): boundary,
        ("all_reduce", "world"): FP32,  # the norm of all gradients
    }


# --- wide tensor parallelism, interleaved --------------------------------------------------------
#
# 126 layers over 4 stages of 8 pieces: 4 a piece, but 3 for the first and the last. 16 ranks share
# 8 heads of keys and values, so that each is held twice. 8 micro-batches.


def test_interleaved_memory():
    """The second stage takes most: 32 layers. Before its first backward it has gone forward
    (4 - 1 - 1) x 2 + (8 - 1) x 4 + 1 = 33 times, each time through 4 layers."""
    held = 32 * layer(16)
    found = memory(INTERLEAVED, "rainier")
    assert found["parameters"] == pytest.approx(BF16 * held + FP32 * held / 8, rel=0.02)
    assert found["gradients"] == pytest.approx(FP32 * held, rel=0.02)
    assert found["optimizer"] == pytest.approx(MOMENTS * held / 8, rel=0.02)
    assert found["activations"] == pytest.approx(33 * 4 * activations(16), rel=0.02)


@pytest.mark.parametrize("stage", [0, 1])
def test_interleaved_payloads(stage):
    """As without interleaving, but that each piece sends and receives: all 8 of a stage in the
    middle both ways, of the first stage 8 forward and 7 backward, and 7 forward and 8 backward."""
    micro_batches, is_first = 8, stage == 0
    layers = 31 if is_first else 32
    held = layers * layer(16) + (embedding(16) if is_first else 0)
    boundary = (15 if is_first else 16) * micro_batches * STREAM // 16
    assert payloads(INTERLEAVED, stage) == {
        ("all_gather", "dp"): BF16 * held,
        ("reduce_scatter", "dp"): FP32 * held,
        ("all_gather", "tp"): (6 * layers + is_first) * micro_batches * STREAM,
        ("reduce_scatter", "tp"): (4 * layers + is_first) * micro_batches * STREAM,
        ("all_reduce", "tp"): 2 * layers * H * FP32,
        ("send", "pp"): boundary,
        ("recv", "pp"): boundary,
        ("all_reduce", "world"): FP32,
    }


# --- fully sharded, with tensor parallelism and full recomputation -------------------------------
#
# 16 ranks divide everything in float32, 8 each layer; two micro-batches.

WHOLE = L * layer(8) + 2 * embedding(8) + H


def test_sharded_memory():
    """Parameters, gradients and moments over 16 ranks. A layer keeps its input alone. The peak is
    in the second backward, which has come to the last layer but one: 125 inputs are left, and of
    that layer, made again, what is after its first norm, its attention, and the sum after it."""
    found = memory(SHARDED, "h100")
    assert found["parameters"] == pytest.approx(FP32 * WHOLE / 16, rel=0.02)
    assert found["optimizer"] == pytest.approx(MOMENTS * WHOLE / 16, rel=0.02)
    assert found["gradients"] == pytest.approx(FP32 * WHOLE / 16, rel=0.02)
    kept = (L - 1 + 2) * STREAM // 8 + of_attention(8)
    assert found["activations"] == pytest.approx(kept, rel=0.02)


def test_sharded_payloads():
    """Parameters are gathered for each micro-batch, in 16 bits: those of layers and the embedding
    before the forward and again before the backward, those of the logits and the last norm once.
    Gradients of each micro-batch are scattered in float32. Full recomputation does a layer's
    forward messages again; norms' gradients are summed over tp in each micro-batch."""
    twice, once = L * layer(8) + embedding(8), embedding(8) + H
    assert payloads(SHARDED, 0) == {
        ("all_gather", "mesh_dp_shard"): 2 * BF16 * (2 * twice + once),
        ("reduce_scatter", "mesh_dp_shard"): 2 * FP32 * WHOLE,
        ("all_gather", "tp"): 2 * (8 * L + 1 + 2) * STREAM,
        ("reduce_scatter", "tp"): 2 * (6 * L + 1 + 1) * STREAM,
        ("all_reduce", "tp"): 2 * (2 * L + 1) * H * BF16 + 2 * 3 * S * FP32 + FP32,
        ("all_reduce", "mesh_dp_shard"): 2 * FP32,  # of the norm, divided and alike parts
    }
