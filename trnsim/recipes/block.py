# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""One layer of the transformer, in the pieces between which a recomputation may begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trnsim.recipes import kernels
from trnsim.recipes.attention import Attention
from trnsim.recipes.linear import Linear
from trnsim.recipes.models import Model
from trnsim.recipes.parallel import Place, copied, gathered, scattered, summed
from trnsim.recipes.style import Style

State = tuple[Tensor, ...]
Piece = Callable[..., State]


class Parts:
    """What every part of a model is made with."""

    def __init__(self, model: Model, place: Place, style: Style, dtype: Any, device: Any) -> None:
        self.model, self.place, self.style = model, place, style
        self.dtype, self.device = dtype, device
        self.is_fp8 = "fp8" in place.layout.precision
        self.serves = False  # it generates: no gradients, and experts are divided over tp ranks

    def linear(
        self, inside: int, outside: int, kind: str, bias: bool, *, fp8: bool = True,
        splits: list[int] | None = None,
    ) -> Linear:  # fmt: skip
        """A linear layer, in 8 bits where the layout says so."""
        return Linear(
            self.place, self.style, (inside, outside), kind, bias=bias, splits=splits,
            is_fp8=self.is_fp8 and fp8, dtype=self.dtype, device=self.device,
        )  # fmt: skip

    def gathered(self, x: Tensor) -> Tensor:
        """The input of column layers that do not gather by themselves: once for all of them."""
        group = self.place.tp if self.style.separate else None
        return gathered(x, group) if self.place.layout.sequence_parallel else copied(x, group)

    def norm(self, size: int) -> kernels.Norm:
        """A norm over rows of that size."""
        eager = not self.style.named and self.model.norm == "rms"
        model, is_part = self.model, self.place.layout.sequence_parallel
        group = self.place.tp if is_part and self.style.data != "buckets" else None
        return kernels.Norm(
            size, model.norm, bool(model.norm_bias), self.dtype, self.device, eager, group
        )


def again(function: Callable[..., Any], *inputs: Any) -> Any:
    """Calls it keeping its inputs alone; what it makes is made again in the backward."""
    return checkpoint(
        function, *inputs, use_reentrant=False, preserve_rng_state=_has_random(inputs)
    )


def _has_random(inputs: tuple[Any, ...]) -> bool:
    return any(isinstance(x, Tensor) and not kernels.is_simulated(x) for x in inputs)


class SelfAttention(nn.Module):
    """Queries, keys and values, attention, and the product of its output."""

    def __init__(self, parts: Parts, layer: int) -> None:
        super().__init__()
        model, place, style = parts.model, parts.place, parts.style
        self.model, self.style = model, style
        tp = place.layout.tp
        self.heads = model.heads // tp
        self.kv_heads = max(1, model.kv_heads // tp)
        kv = self.kv_heads * tp  # heads of keys are repeated where there are fewer than ranks
        splits = [model.heads * model.head_dim, kv * model.head_dim, kv * model.value_dim]
        bias = model.qkv_bias or model.biases
        each = [[n] for n in splits] if style.separate else [splits]
        self.qkv = nn.ModuleList(
            parts.linear(model.hidden, sum(n), "column", bias, splits=n) for n in each
        )
        self.out = parts.linear(model.heads * model.value_dim, model.hidden, "row", model.biases)
        if model.qk_norm:
            self.q_norm, self.k_norm = parts.norm(model.head_dim), parts.norm(model.head_dim)
        self.attention = Attention(
            place, model.window_of(layer), model.dropout, style.attention != "flash", style.named
        )
        self.attention.by_parts = style.attention == "parts"
        self.recomputes_attention = place.layout.recompute == "selective"

    def project(self, x: Tensor, is_kept: bool) -> State:
        """Queries, keys and values, beside each other or each for itself."""
        return tuple(part(x, is_kept=is_kept) for part in self.qkv)

    def split(self, cos: Tensor, sin: Tensor, *projected: Tensor) -> State:
        """Queries, keys and values by head, with positions turned in."""
        size, values = self.model.head_dim, self.model.value_dim
        if len(projected) == 1:
            widths = [self.heads * size, self.kv_heads * size, self.kv_heads * values]
            projected = projected[0].split(widths, -1)
        q, k, v = projected
        q, k = q.unflatten(-1, (-1, size)), k.unflatten(-1, (-1, size))
        if self.model.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.model.position == "rope":
            q = kernels.rotary(q, cos, sin, self.style.named)
            k = kernels.rotary(k, cos, sin, self.style.named)
        return q, k, v.unflatten(-1, (-1, values))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What attention makes of them, [tokens, heads x size]."""
        is_again = self.recomputes_attention and self.attention.with_scores
        out = again(self.attention, q, k, v) if is_again else self.attention(q, k, v)
        return out.flatten(-2)


class FeedForward(nn.Module):
    """Up, activation, down; with a gate that is a part of up, or a layer of its own."""

    def __init__(self, parts: Parts, width: int) -> None:
        super().__init__()
        model, style = parts.model, parts.style
        self.model, self.named = model, style.named
        self.gate: Linear | None = None
        splits = [width] * (2 if model.gated else 1)
        if style.separate and model.gated:
            self.gate, splits = parts.linear(model.hidden, width, "column", model.biases), [width]
        self.up = parts.linear(model.hidden, sum(splits), "column", model.biases, splits=splits)
        self.down = parts.linear(width, model.hidden, "row", model.biases)

    def raise_(self, x: Tensor, is_kept: bool) -> State:
        """The first products; their biases are added by the activation."""
        up = self.up(x, with_bias=False, is_kept=is_kept)
        return (up,) if self.gate is None else (self.open(x, is_kept), up)

    def open(self, x: Tensor, is_kept: bool) -> Tensor:
        """The gate's own product."""
        return self.gate(x, is_kept=is_kept)

    def lower(self, is_kept: bool, *raised: Tensor) -> Tensor:
        """The activation and the second product."""
        model = self.model
        if len(raised) == 2:
            x = kernels.gated(model.activation, *raised, self.named)
        else:
            x = kernels.activation(
                model.activation, model.gated, raised[0], self.up.bias, self.named
            )
        return self.down(x, is_kept=is_kept)


class Block(nn.Module):
    """One layer."""

    def __init__(self, parts: Parts, layer: int) -> None:
        super().__init__()
        model, layout = parts.model, parts.place.layout
        self.parts = parts
        self.model, self.named = model, parts.style.named
        self.first_norm, self.second_norm = parts.norm(model.hidden), parts.norm(model.hidden)
        if model.norms_per_layer == 4:
            self.out_norm, self.down_norm = parts.norm(model.hidden), parts.norm(model.hidden)
        if model.is_latent:
            from trnsim.recipes.latent import LatentAttention

            self.mixer: nn.Module = LatentAttention(parts, layer)
        else:
            self.mixer = SelfAttention(parts, layer)
        self.has_experts = model.has_experts(layer)
        if self.has_experts:
            from trnsim.recipes.experts import Experts

            self.feed: nn.Module = Experts(parts)
        else:
            self.feed = FeedForward(parts, model.ffn)
        self.recompute: str | tuple[str, ...] = layout.recompute

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.recompute == "full":
            return again(self._run, x, cos, sin)
        if isinstance(self.recompute, str):
            return self._run(x, cos, sin)
        return self._keep_some(x, cos, sin)

    def _run(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        attended = self._attend(cos, sin, *self._qkv(x, False))
        x = self._add_out(x, self.mixer.out(attended))
        if self.has_experts:
            return self._add_down(x, self.feed(self.second_norm(x)))
        return self._add_down(x, self.feed.lower(False, *self._up(x, False)))

    def _keep_some(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As _run, where what is not in `recompute` is made again from the last that is kept."""
        kept = set(self.recompute)
        source = again(self._qkv, x, True) if "qkv" in kept else (x,)

        def by_head(*source: Tensor) -> State:
            made = source if "qkv" in kept else self._qkv(source[0], False)
            return self.mixer.split(cos, sin, *made)

        if "attention" in kept:
            attended = self.mixer.attend(*again(by_head, *source))
            out = self.mixer.out(attended)
        else:
            make = lambda *s: self.mixer.out(self.mixer.attend(*by_head(*s)), is_kept="out" in kept)
            out = again(make, *source)
        x = self._add_out(x, out)
        if self.has_experts:
            return self._add_down(x, again(lambda x: self.feed(self.second_norm(x)), x))
        return self._add_down(x, self._keep_some_of_feed(x, kept))

    def _keep_some_of_feed(self, x: Tensor, kept: set[str]) -> Tensor:
        keeps_down = "down" in kept
        if "up" in kept:
            return again(self.feed.lower, keeps_down, *again(self._up, x, True))
        if "gate" in kept and self.feed.gate is not None:
            gate = again(lambda x: self.feed.open(self._normed(x), True), x)

            def make(gate: Tensor, x: Tensor) -> Tensor:
                up = self.feed.up(self._normed(x))
                return self.feed.lower(keeps_down, gate, up)

            return again(make, gate, x)
        return again(lambda x: self.feed.lower(keeps_down, *self._up(x, False)), x)

    def _qkv(self, x: Tensor, is_kept: bool) -> State:
        return self.mixer.project(self.whole(self.first_norm(x)), is_kept)

    def _attend(self, cos: Tensor, sin: Tensor, *qkv: Tensor) -> Tensor:
        return self.mixer.attend(*self.mixer.split(cos, sin, *qkv))

    def _normed(self, x: Tensor) -> Tensor:
        return self.whole(self.second_norm(x))

    def _up(self, x: Tensor, is_kept: bool) -> State:
        return self.feed.raise_(self._normed(x), is_kept)

    def whole(self, x: Tensor) -> Tensor:
        """The input of column layers, where they do not gather it by themselves."""
        return self.parts.gathered(x)

    def _add_out(self, x: Tensor, out: Tensor) -> Tensor:
        bias = self.mixer.out.bias
        if self.model.norms_per_layer == 4:
            out, bias = self.out_norm(out), None
        return kernels.dropout_add(out, bias, x, self.model.dropout, self.named)

    def _add_down(self, x: Tensor, down: Tensor) -> Tensor:
        bias = None if self.has_experts else self.feed.down.bias
        if self.model.norms_per_layer == 4:
            down, bias = self.down_norm(down), None
        return kernels.dropout_add(down, bias, x, self.model.dropout, self.named)


class Embedding(nn.Module):
    """Vectors of tokens, the vocabulary divided over tensor parallel ranks, and of positions."""

    def __init__(self, parts: Parts, vocab: int) -> None:
        super().__init__()
        model, place = parts.model, parts.place
        self.model, self.place = model, place
        self.rows = vocab // place.layout.tp
        self.first = self.rows * place.tp_rank
        shape = (self.rows, model.hidden)
        self.weight = nn.Parameter(torch.empty(shape, dtype=parts.dtype, device=parts.device))
        self.weight.divided = (0, None, place.layout.tp, place.tp_rank)
        self.places: nn.Parameter | None = None
        if model.position == "learned":
            shape = (max(model.max_positions, place.layout.sequence), model.hidden)
            self.places = nn.Parameter(torch.empty(shape, dtype=parts.dtype, device=parts.device))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """[batch, sequence] to [tokens of this rank, hidden]."""
        ids = tokens.flatten()
        if self.place.tp is None:
            x = nn.functional.embedding(ids, self.weight)
        else:
            outside = (ids < self.first) | (ids >= self.first + self.rows)
            ids = (ids - self.first).masked_fill(outside, 0)
            x = nn.functional.embedding(ids, self.weight)
            x = x.masked_fill(outside[:, None], 0.0)
            x = self._joined(x)
        if self.places is not None:
            x = x + self._own(nn.functional.embedding(positions, self.places))
        if self.model.dropout:
            x = nn.functional.dropout(x, self.model.dropout, True)
        return x

    def _joined(self, x: Tensor) -> Tensor:
        group = self.place.tp
        return scattered(x, group) if self.place.layout.sequence_parallel else summed(x, group)

    def _own(self, x: Tensor) -> Tensor:
        """The rows of this rank, with sequence parallelism."""
        if self.place.tp is None or not self.place.layout.sequence_parallel:
            return x
        return x.chunk(self.place.layout.tp)[self.place.tp_rank]


class Head(nn.Module):
    """The last norm and the logits of this rank's part of the vocabulary, in 16 bits."""

    def __init__(self, parts: Parts, vocab: int) -> None:
        super().__init__()
        self.norm = parts.norm(parts.model.hidden)
        self.logits = parts.linear(parts.model.hidden, vocab, "column", False, fp8=False)

        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.parts.gathered(self.norm(x)))
