# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Style: how a stack of software writes the same training step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trnsim.errors import RecipeError

DATA = ("buckets", "fsdp2", "fsdp1")
ATTENTION = ("flash", "scores", "parts")
LOSS = ("fused", "parts", "eager")


@dataclass(frozen=True)
class Style:
    """What differs between stacks.

    Attributes:
        named: the framework's own fused kernels between products; else ops of ATen.
        attention: "flash", one kernel, or "scores", products with a softmax between them, or
            "parts", where that softmax is one op after another, each with its result in memory.
        loss: "fused" (one kernel each way), "parts" (Megatron-LM's), "eager" (ATen in float32).
        data: "buckets" (Megatron-LM's flat buffers of parameters and gradients), "fsdp2"
            (torch's fully_shard) or "fsdp1" (FullyShardedDataParallel).
        main_gradients: products of weight gradients add into buffers of the gradient dtype.
        tp_overlap: messages of tensor parallel layers run beside the products of the backward.
        gradient_overlap, parameter_overlap: buckets are reduced in the last backward, and
            gathered in the first forward.
        clip: gradients are clipped by their norm over the whole model.
        separate: the two first products of a gated feed-forward layer are two layers.
        routes_on_host: the host reads how many tokens go to each expert, in every layer.
        dispatch_ranks: tokens go once to each server, of so many ranks, that has some of their
            experts, and are handed on there (DeepEP); 0: a copy for each expert goes to its rank.
        capacity: experts take this much more than an equal share of each sequence's tokens, and
            masks choose them (GShard, MaxText without sparse_matmul); 0: tokens are sorted, each
            expert takes what it is sent.
        decode: as attention, of one query against a cache of keys and values.
        loads: of experts, when few tokens are decoded: "distinct", those that somebody is expected
            to choose, or "selected", one for each choice, and all with every token where choices
            are as many as experts.
        expert_block: rows of one expert that a prefill multiplies at a time, 0 = all of its own.
        optimizer: "fused", "foreach" as in torch without a choice, or "single", a loop.
    """

    name: str = "megatron"
    named: bool = True
    attention: str = "flash"
    loss: str = "fused"
    data: str = "buckets"
    main_gradients: bool = True
    tp_overlap: bool = True
    gradient_overlap: bool = True
    parameter_overlap: bool = True
    clip: bool = True
    separate: bool = False
    routes_on_host: bool = False
    dispatch_ranks: int = 0
    capacity: float = 0.0
    decode: str = "flash"
    loads: str = "distinct"
    expert_block: int = 0
    optimizer: str = "fused"

    def __post_init__(self) -> None:
        for name, known in (("attention", ATTENTION), ("loss", LOSS), ("data", DATA)):
            if getattr(self, name) not in known:
                raise RecipeError(f"{name} '{getattr(self, name)}': use {', '.join(known)}")

    def with_(self, **changes: Any) -> Style:
        """The same style with other choices."""
        return replace(self, **changes)


STYLES = {
    style.name: style
    for style in (
        Style(),
        Style(
            "megatron-2021", attention="scores", loss="parts",
            gradient_overlap=False, parameter_overlap=False,
        ),
        Style("fsdp", data="fsdp2", main_gradients=False, loss="fused"),
        Style(
            "llm-foundry", named=False, data="fsdp1", main_gradients=False, loss="eager",
            optimizer="single",
        ),
        Style(
            "torchtitan", data="fsdp2", main_gradients=False, loss="parts", separate=True,
        ),
        Style(
            "torchtitan-eager", named=False, data="fsdp2", main_gradients=False, loss="eager",
            separate=True,
        ),
        Style("megatron-fsdp", data="fsdp2", main_gradients=False, loss="fused"),
        Style("gspmd", data="fsdp2", main_gradients=False, loss="fused"),
        Style(
            "neuron", attention="scores", loss="eager", main_gradients=False, tp_overlap=False,
            gradient_overlap=False, parameter_overlap=False,
        ),
        # transformers-neuronx generates with scores; NxD Inference has a kernel for prefills.
        Style("neuronx", attention="parts", main_gradients=False, decode="scores"),
        Style(
            "nxd-inference", main_gradients=False, decode="scores", loads="selected",
            expert_block=512,
        ),
    )
}  # fmt: skip


def style_of(style: Style | str) -> Style:
    """A style by its name."""
    if isinstance(style, Style):
        return style
    if style not in STYLES:
        raise RecipeError(f"no style '{style}': use {', '.join(STYLES)}")
    return STYLES[style]
