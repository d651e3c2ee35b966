# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Chunk: the layers of one stage of a pipeline, with the embedding or the loss at the ends."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor, nn

from trnsim.recipes import kernels
from trnsim.recipes.attention import positions_of
from trnsim.recipes.block import Block, Embedding, Head, Parts
from trnsim.recipes.layout import padded_vocab
from trnsim.recipes.loss import cross_entropy
from trnsim.recipes.offload import Offload, streams_of
from trnsim.recipes.parallel import Place


class Chunk(nn.Module):
    """One piece of the model.

    Args:
        parts: the model, the rank's place and the style.
        layers: numbers of its layers.
        is_first, is_last: whether the embedding and the loss are here.
    """

    def __init__(self, parts: Parts, layers: list[int], is_first: bool, is_last: bool) -> None:
        super().__init__()
        model, place = parts.model, parts.place
        layout = place.layout
        self.place, self.kind = place, parts.style.loss
        vocab = padded_vocab(model, layout.tp)
        self.embedding = Embedding(parts, vocab) if is_first else None
        self.layers = nn.ModuleList(Block(parts, layer) for layer in layers)
        self.head = Head(parts, vocab) if is_last else None
        if model.tied and is_first and is_last:
            self.head.logits.weight = self.embedding.weight
        if model.tied and is_last:
            self.head.logits.weight.is_tied = True
        if layout.recompute_layers >= 0:
            for block in list(self.layers)[layout.recompute_layers :]:
                block.recompute = "none"
        self.offload_layers = layout.offload_layers
        positions = positions_of(layout.sequence, layout.cp, place.cp_rank)
        every = positions.repeat(layout.micro_batch).to(parts.device)
        self.register_buffer("positions", every, persistent=False)
        if model.position == "rope":
            size = model.rope_dim or model.head_dim
            cos, sin = kernels.rotary_table(every, size, parts.device)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)
        else:
            self.cos = self.sin = None

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Tokens or hidden states to hidden states or the loss."""
        if self.embedding is not None:
            x = self.embedding(x, self.positions)
        offload = self._offload(x)
        for block in self.layers:
            if offload is None:
                x = block(x, self.cos, self.sin)
            else:
                x = offload.run(block, x, self.cos, self.sin)
        if offload is not None:
            offload.end()
        if self.head is None:
            return x
        logits = self.head(x)
        if offload is not None:
            offload.ahead(logits)
        return cross_entropy(logits, targets.flatten(), self.place, self.kind)

    def _offload(self, x: Tensor) -> Offload | None:
        """What sends activations of the first layers to the host; there they are, on a CPU."""
        if not self.offload_layers or x.device.type == "cpu":
            return None
        tables = self.cos, self.sin, self.positions
        return Offload(self.offload_layers, streams_of(x.device), tables)


def fill(chunk: Chunk, layers: list[int], place: Place, hidden: int) -> None:
    """Initial values: those that an undivided model has, of which each rank takes its part."""
    named = [(f"layer {n}", block) for n, block in zip(layers, chunk.layers, strict=True)]
    named += [("embedding", chunk.embedding), ("head", chunk.head)]
    for owner, module in named:
        for name, parameter in module.named_parameters() if module is not None else ():
            if kernels.is_simulated(parameter) or parameter.is_meta or parameter.dim() == 1:
                continue  # values are of no interest; norms are ones and biases zeros already
            is_tied = name == "logits.weight" and parameter.__dict__.get("is_tied", False)
            key = "embedding weight" if is_tied else f"{owner} {name}"
            with torch.no_grad():
                parameter.copy_(_own_part(parameter, key, place) * 0.02 * (1024 / hidden) ** 0.5)


def _own_part(parameter: Tensor, key: str, place: Place) -> Tensor:
    """Random numbers of the whole parameter, of which this rank's part."""
    axis, splits, count, rank = parameter.__dict__.get("divided", (0, None, 1, 0))
    whole = list(parameter.shape)
    whole[axis] *= count
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    made = torch.randn(whole, generator=generator)
    pieces = made.split(splits, axis) if splits else [made]
    return torch.cat([piece.chunk(count, axis)[rank] for piece in pieces], axis)
