# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a layout takes at the least: bounds below what the simulator would say of it.

Time. A stage of the pipeline computes all micro-batches one after another. Before it can begin, the
first of them has gone forward through the stages before it, and after it has ended, the last of
them goes back through these. So a step takes at least, for each stage,

    micro-batches * (layers of the stage) + (first pieces of the stages before it),

a layer taken for what it takes by itself: at first its products at the published peak, later what
the simulator says of it alone, on a network that nobody else uses. What data parallelism and
messages between stages add is left out.

A skew of experts keeps both. The products at the peak are those of a mean rank, and the rank with
most rows has no fewer: a maximum is at least its mean, and all ranks of an expert parallel group
wait for it in the next all-to-all. (Of times the like is not true: a rank whose rows are all of one
expert reads fewer weights, and fills its tiles better, than one with the mean number of rows in
many.) So a layer is measured with the skew itself: `alone` keeps expert parallel groups whole and
the tokens of a rank as they are, so that each rank there has the rows that it has in the layout.

Memory. A rank holds its part of the parameters, gradients and moments, and the activations of every
forward that runs ahead of its backward in the schedule, but for those of layers that go to the
host. What the copies there and back take is left out.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trnsim.recipes.layout import Layout

if TYPE_CHECKING:
    from trnsim.plan.layouts import Candidate
    from trnsim.recipes.models import Model

Kind = tuple[bool, int]  # of a layer: has experts, window of its attention

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_MOMENTS = 8  # bytes: Adam's two, in float32


@dataclass(frozen=True)
class Bound:
    """Of a layout's step.

    Attributes:
        seconds, memory_bytes: it takes no less.
    """

    seconds: float
    memory_bytes: float


def kind_of(model: Model, layer: int) -> Kind:
    """Layers of a kind take the same time."""
    return model.has_experts(layer), model.window_of(layer)


def model_of_kind(model: Model, kind: Kind) -> Model:
    """The model with layers of that kind alone."""
    has_experts, window = kind
    alike = model.with_(window=window, window_every=0)
    if has_experts:
        return alike.with_(dense_layers=0, expert_every=1)
    return alike.with_(experts=0, topk=0, dense_layers=0, expert_every=1)


def alone(layout: Layout, kind: Kind) -> Layout | None:
    """What a layer of the kind is measured in: no pipeline, as few data parallel ranks as its
    experts need, and one micro-batch a rank. None where that would be no bound.

    FSDP's own messages have no place in a bound, since two ranks may take longer for theirs than
    many: there each context parallel rank has its tokens to itself, whose attention sees fewer
    others, and experts that are divided are not measured.
    """
    has_experts, _ = kind
    if not has_experts:
        layout = layout.with_(expert_skew="")
    if layout.zero == 3:
        if has_experts and layout.ep > 1:
            return None
        layout = layout.with_(cp=1, sequence=layout.sequence // layout.cp)
    ep = layout.ep if has_experts else 1
    dp = ep // math.gcd(ep, layout.tp * layout.cp)
    return layout.with_(
        pp=1, vp=1, ep=ep, dp=dp, shard=0, global_batch=layout.micro_batch * dp, offload_layers=0
    )  # fmt: skip


def layer_by_peak(model: Model, layout: Layout, kind: Kind, peak_flops: float) -> float:
    """Seconds of a layer's products on a rank, forward and backward, at `peak_flops` a second."""
    passes = 4 if layout.recompute == "full" else 3
    weights = model.active_weights(_layer_of(model, kind))
    flops = 2 * passes * weights * layout.tokens / layout.tp
    return flops / peak_flops


def bound_of(
    model: Model, candidate: Candidate, seconds: Mapping[Kind, float],
    activations: Mapping[Kind, int] | None = None,
) -> Bound:  # fmt: skip
    """The bound by what a layer of each kind takes; without activations of the states alone."""
    layout = candidate.layout
    pieces = _kinds_of_pieces(model, layout.pp, layout.vp)
    times = [sum(seconds[kind] * count for kind, count in piece.items()) for piece in pieces]
    whole, before = 0.0, 0.0
    for stage in range(layout.pp):
        of_stage = sum(times[stage :: layout.pp])
        whole = max(whole, layout.micro_batches * of_stage + before)
        before += times[stage]
    memory = 0.0
    for stage in {0, layout.pp - 1}:
        held = _state_bytes(model, candidate, stage)
        if activations is not None:
            on_device = _kinds_of_pieces(model, layout.pp, layout.vp, layout.offload_layers)
            held += _activation_bytes(layout, stage, on_device, activations)
        memory = max(memory, held)
    return Bound(whole, memory)


@functools.lru_cache(1024)
def _kinds_of_pieces(model: Model, pp: int, vp: int, without: int = 0) -> list[Counter[Kind]]:
    """How many layers of each kind every piece of the model has, without its first ones."""
    pieces = Layout(pp=pp, vp=vp, global_batch=pp).chunk_layers(model)
    return [Counter(kind_of(model, layer) for layer in piece[without:]) for piece in pieces]


@functools.lru_cache(64)
def _layer_of(model: Model, kind: Kind) -> int:
    """The first layer of the kind."""
    return next(n for n in range(model.layers) if kind_of(model, n) == kind)


def _state_bytes(model: Model, candidate: Candidate, stage: int) -> float:
    """Parameters, gradients and moments of a rank of the stage; what is not divided evenly, and
    what is small, is left out."""
    layout, style = candidate.layout, candidate.style
    dense, experts = 0.0, 0.0  # elements of a rank
    expert = model.dense_weights(model.expert_ffn)
    for piece in _kinds_of_pieces(model, layout.pp, layout.vp)[stage :: layout.pp]:
        for kind, count in piece.items():
            dense += count * model.active_weights(_layer_of(model, kind)) / layout.tp
            if kind[0]:
                dense -= count * model.topk * expert / layout.tp
                experts += count * model.experts * expert / layout.ep
    if layout.zero == 3:
        shards = layout.shard or layout.dp * layout.cp
        of_experts = experts * layout.ep / layout.stage_ranks
        return (4 + _MOMENTS) * (dense / shards + of_experts)
    weight = 4 if layout.precision == "fp32" else 2
    gradient = _BYTES[layout.gradient] if style.main_gradients else 0
    moments = _MOMENTS * (dense + experts)
    if layout.zero:
        of_experts = experts * layout.ep / layout.stage_ranks
        moments = _MOMENTS * (dense / (layout.dp * layout.cp) + of_experts)
    return (weight + gradient) * (dense + experts) + moments


def _activation_bytes(
    layout: Layout, stage: int, pieces: list[Counter[Kind]], of_layer: Mapping[Kind, int]
) -> float:
    """Of the forwards that have no backward yet when the first backward begins."""
    total = layout.micro_batches * layout.vp
    if layout.vp == 1:
        ahead = layout.micro_batches if layout.schedule == "gpipe" else layout.pp - stage
    elif layout.micro_batches == layout.pp:
        ahead = total
    else:
        ahead = (layout.pp - stage - 1) * 2 + (layout.vp - 1) * layout.pp + 1
    held = 0.0
    for number in range(min(ahead, total)):
        chunk = number % (layout.pp * layout.vp) // layout.pp
        piece = pieces[chunk * layout.pp + stage]
        held += sum(of_layer[kind] * count for kind, count in piece.items())
    return held
