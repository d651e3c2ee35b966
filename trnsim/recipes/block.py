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
from trnsim.recipes.parallel import Place, scattered, gathered
from trnsim.recipes.style import Style

State = tuple[Tensor, ...]
Piece = Callable[..., State]


class Parts:
    """What every part of a model is made with."""

    def __init__(self, model: Model, place: Place, style: Style, dtype: Any, device: Any) -> None:
        self.model, self.place, self.style = model, place, style
        self.dtype, self.device = dtype, device
        self.is_fp8 = "fp8" in place.layout.precision

    def linear(
        self, inside: int, outside: int, kind: str, bias: bool, *, fp8: bool = True,
        splits: list[int] | None = None,
    ) -> Linear:  # fmt: skip
        """A linear layer, in 8 bits where the layout says so."""
        return Linear(
            self.place, self.style, (inside, outside), kind, bias=bias, splits=splits,
            is_fp8=self.is_fp8 and fp8, dtype=self.dtype, device=self.device,
        )  # fmt: skip

    def norm(self, size: int) -> kernels.Norm:
        """A norm over rows of that size."""
        eager = not self.style.named and self.model.norm == "rms"
        model = self.model
        return kernels.Norm(size, model.norm, bool(model.norm_bias), self.dtype, self.device, eager)


def again(function: Callable[..., Any], *inputs: Any) -> Any:
    """Calls it keeping its inputs alone; what it makes is made again in the backward."""
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=_has_random(inputs))


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
        self.qkv = parts.linear(model.hidden, sum(splits), "column", bias, splits=splits)
        self.out = parts.linear(model.heads * model.value_dim, model.hidden, "row", model.biases)
        if model.qk_norm:
            self.q_norm, self.k_norm = parts.norm(model.head_dim), parts.norm(model.head_dim)
        self.attention = Attention(
            place, model.window_of(layer), model.dropout, style.attention == "scores", style.named
        )
        self.recomputes_attention = place.layout.recompute == "selective"

    def project(self, x: Tensor, is_kept: bool) -> Tensor:
        """Queries, keys and values beside each other."""
        return self.qkv(x, is_kept=is_kept)

    def split(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> State:
        """Queries, keys and values by head, with positions turned in."""
        size, values = self.model.head_dim, self.model.value_dim
        widths = [self.heads * size, self.kv_heads * size, self.kv_heads * values]
        q, k, v = qkv.split(widths, -1)
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
    """Up, activation, down."""

    def __init__(self, parts: Parts, width: int) -> None:
        super().__init__()
        model = parts.model
        self.model, self.named = model, parts.style.named
        splits = [width] * (2 if model.gated else 1)
        self.up = parts.linear(model.hidden, sum(splits), "column", model.biases, splits=splits)
        self.down = parts.linear(width, model.hidden, "row", model.biases)

    def raise_(self, x: Tensor, is_kept: bool) -> Tensor:
        """The first product; its bias is added by the activation."""
        return self.up(x, with_bias=False, is_kept=is_kept)

    def lower(self, x: Tensor, is_kept: bool) -> Tensor:
        """The activation and the second product."""
        model = self.model
        x = kernels.activation(model.activation, model.gated, x, self.up.bias, self.named)
        return self.down(x, is_kept=is_kept)


class Block(nn.Module):
    """One layer."""

    def __init__(self, parts: Parts, layer: int) -> None:
        super().__init__()
        model, layout = parts.model, parts.place.layout
        self.model, self.named = model, parts.style.named
        self.first_norm, self.second_norm = parts.norm(model.hidden), parts.norm(model.hidden)
        if model.norms_per_layer == 4:
            self.out_norm, self.down_norm = parts.norm(model.hidden), parts.norm(model.hidden)
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
        qkv = self._qkv(x, False)
        attended = self._attend(qkv, cos, sin)
        x = self._add_out(x, self.mixer.out(attended))
        if self.has_experts:
            return self._add_down(x, self.feed(self.second_norm(x)))
        return self._add_down(x, self.feed.lower(self._up(x, False), False))

    def _keep_some(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As _run, where what is not in `recompute` is made again from the last that is kept."""
        kept = set(self.recompute)
        qkv = again(self._qkv, x, True) if "qkv" in kept else None
        if "attention" in kept:
            if qkv is None:
                q, k, v = again(lambda x: self.mixer.split(self._qkv(x, False), cos, sin), x)
            else:
                q, k, v = again(self.mixer.split, qkv, cos, sin)
            attended = self.mixer.attend(q, k, v)
            from_attention = lambda is_kept: self.mixer.out(attended, is_kept=is_kept)  # noqa: E731
        else:
            source, is_qkv = (x, False) if qkv is None else (qkv, True)

            def make(source: Tensor, is_kept: bool) -> Tensor:
                made = source if is_qkv else self._qkv(source, False)
                return self.mixer.out(self._attend(made, cos, sin), is_kept=is_kept)

            from_attention = lambda is_kept: again(make, source, is_kept)  # noqa: E731
        x = self._add_out(x, from_attention("out" in kept))
        if self.has_experts:
            return self._add_down(x, again(lambda x: self.feed(self.second_norm(x)), x))
        if "up" in kept:
            up = again(self._up, x, True)
            return self._add_down(x, again(self.feed.lower, up, "down" in kept))
        make = lambda x: self.feed.lower(self._up(x, False), "down" in kept)  # noqa: E731
        return self._add_down(x, again(make, x))

    def _qkv(self, x: Tensor, is_kept: bool) -> Tensor:
        return self.mixer.project(self.first_norm(x), is_kept)

    def _attend(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return self.mixer.attend(*self.mixer.split(qkv, cos, sin))

    def _up(self, x: Tensor, is_kept: bool) -> Tensor:
        return self.feed.raise_(self.second_norm(x), is_kept)

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
        from trnsim.recipes.parallel import summed

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

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.norm(x))


__all__ = ["Block", "Embedding", "Head", "Parts", "again", "gathered"]
