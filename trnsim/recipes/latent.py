# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Multi-head latent attention: queries, keys and values come from short vectors of each token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trnsim.recipes import kernels
from trnsim.recipes.attention import Attention
from trnsim.recipes.block import Parts, State, again
from trnsim.recipes.parallel import gathered


class LatentAttention(nn.Module):
    """In the place of SelfAttention. What makes the short vectors is not divided over ranks."""

    def __init__(self, parts: Parts, layer: int) -> None:
        super().__init__()
        model, place, style = parts.model, parts.place, parts.style
        self.model, self.style, self.place = model, style, place
        self.heads = model.heads // place.layout.tp
        self.no_rope = model.head_dim - model.rope_dim
        query = model.heads * model.head_dim
        values = model.heads * (self.no_rope + model.value_dim)
        if model.q_rank:
            self.q_down = parts.linear(model.hidden, model.q_rank, "whole", False)
            self.q_norm = parts.norm(model.q_rank)
        self.q_up = parts.linear(model.q_rank or model.hidden, query, "column", False)
        self.kv_down = parts.linear(model.hidden, model.kv_rank + model.rope_dim, "whole", False)
        self.kv_norm = parts.norm(model.kv_rank)
        self.kv_up = parts.linear(model.kv_rank, values, "column", False)
        self.out = parts.linear(model.heads * model.value_dim, model.hidden, "row", False)
        self.attention = Attention(
            place, model.window_of(layer), model.dropout, style.attention != "flash", style.named
        )
        self.attention.by_parts = style.attention == "parts"
        self.recomputes_attention = place.layout.recompute == "selective"

    def project(self, x: Tensor, is_kept: bool) -> State:
        """Queries; keys without positions and values; keys with positions."""
        rank = self.model.kv_rank
        short = self.q_norm(self.q_down(x)) if self.model.q_rank else x
        q = self.q_up(short, is_kept=is_kept)
        kv, turned = self.kv_down(x).split([rank, self.model.rope_dim], -1)
        kv = self.kv_up(self.kv_norm(kv), is_kept=is_kept)
        if self.place.layout.sequence_parallel:
            turned = gathered(turned.contiguous(), self.place.tp)
        return q, kv, turned

    def split(self, cos: Tensor, sin: Tensor, q: Tensor, kv: Tensor, turned: Tensor) -> State:
        """Queries, keys and values by head, with positions turned in."""
        named = self.style.named
        q = kernels.rotary(q.unflatten(-1, (self.heads, -1)), cos, sin, named)
        k, v = kv.unflatten(-1, (self.heads, -1)).split([self.no_rope, self.model.value_dim], -1)
        turned = kernels.rotary(turned.unsqueeze(1), cos, sin, named)
        k = torch.cat([turned.expand(-1, self.heads, -1), k], -1)
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What attention makes of them, [tokens, heads x size]."""
        is_again = self.recomputes_attention and self.attention.with_scores
        out = again(self.attention, q, k, v) if is_again else self.attention(q, k, v)
        return out.flatten(-2)
