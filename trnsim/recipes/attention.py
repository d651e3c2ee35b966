# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Attention between queries, keys and values that this rank has: one kernel, or with its scores.

Tokens are [batch x sequence, heads, size], one sample after another. With context parallelism a
rank has two pieces of each sequence, the i-th and the i-th from the end, so that all ranks have as
much to do; keys and values are gathered.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from trnsim.recipes import kernels
from trnsim.recipes.parallel import Place, gathered


def positions_of(sequence: int, cp: int, cp_rank: int) -> Tensor:
    """Places in the sequence of the tokens that a context parallel rank has."""
    if cp == 1:
        return torch.arange(sequence)
    size = sequence // (2 * cp)
    pieces = (cp_rank, 2 * cp - 1 - cp_rank)
    return torch.cat([torch.arange(i * size, (i + 1) * size) for i in pieces])


def _by_head(x: Tensor, batch: int) -> Tensor:
    return x.unflatten(0, (batch, -1)).transpose(1, 2)


class Attention(torch.nn.Module):
    """The part of a layer without weights.

    Args:
        window: keys that a query sees, 0 = all before it.
        dropout: of probabilities.
        with_scores: products and a softmax instead of one kernel.

    Attributes:
        by_parts: that softmax is one op after another, each with its result in memory.
    """

    def __init__(
        self, place: Place, window: int, dropout: float, with_scores: bool, named: bool,
        slopes: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.place, self.window, self.dropout = place, window, dropout
        self.with_scores, self.named = with_scores, named
        self.slopes = slopes  # of ALiBi
        self.by_parts = False
        self.cache: Any = None  # of keys and values, while it generates

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        layout = self.place.layout
        batch = layout.micro_batch
        if self.cache is not None:
            if self.cache.is_decoding:
                return self._decode(q, k, v)
            self.cache.write(k, v, batch)
        group = self.place.cp
        if group is not None:
            k, v = gathered(k, group), gathered(v, group)
        simulated = kernels.is_simulated(q)
        if self.with_scores and simulated and self.named:
            return _Scores.apply(q, k, v, batch, self.dropout, self.by_parts)
        if group is not None and not simulated:
            k, v = (x.unflatten(0, (layout.cp, batch, -1)).transpose(0, 1).flatten(0, 2)
                    for x in (k, v))  # fmt: skip
        mask = None if simulated and not self.with_scores else self._mask(q.device)
        q, k, v = (_by_head(x, batch) for x in (q, k, v))
        if self.with_scores:
            out = self._from_scores(q, k, v, mask)
        elif mask is None:
            out = self._kernel(q, k, v)
        else:
            bias = torch.zeros((), dtype=q.dtype).masked_fill(~mask, float("-inf"))
            out = F.scaled_dot_product_attention(
                q, k, v, bias, self.dropout, enable_gqa=q.shape[1] != k.shape[1]
            )
        return out.transpose(1, 2).flatten(0, 1)

    def _decode(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from trnsim.recipes import decoding

        attend = decoding.attend_scores if self.cache.with_scores else decoding.attend_kernel
        return attend(self.cache, q, k, v)

    def _kernel(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Of the window, as many keys as it holds are recorded, for each query."""
        is_windowed = 0 < self.window < k.shape[2]
        if is_windowed:
            k, v = k[:, :, : self.window], v[:, :, : self.window]
        return F.scaled_dot_product_attention(
            q, k, v, None, self.dropout, not is_windowed, enable_gqa=q.shape[1] != k.shape[1]
        )

    def _mask(self, device: Any) -> Tensor:
        layout = self.place.layout
        queries = positions_of(layout.sequence, layout.cp, self.place.cp_rank)
        keys = torch.cat(
            [positions_of(layout.sequence, layout.cp, rank) for rank in range(layout.cp)]
        )
        mask = queries[:, None] >= keys[None]
        if self.window:
            mask &= queries[:, None] - keys[None] < self.window
        return mask.to(device)

    def _from_scores(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        repeats = q.shape[1] // k.shape[1]
        if repeats > 1:
            k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(~mask, -10000.0)
        shares = F.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
        if self.dropout:
            shares = F.dropout(shares, self.dropout, True)
        return shares @ v


class _Scores(torch.autograd.Function):
    """Two batched products with named kernels between them, on the simulated device."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, batch: int, p: float, by_parts: bool
    ) -> Tensor:  # fmt: skip
        s, heads, size = q.shape[0] // batch, q.shape[1], q.shape[2]
        keys, count = k.shape[0] // batch, batch * heads
        ctx.shape = count, s, keys, size, p
        scores = q.new_empty((count, s, keys))
        _batched(q, (count, s, size), k, (count, size, keys), scores)
        if by_parts:
            shares = _softmax_by_parts(scores)
        else:
            shares = q.new_empty(scores.shape)
            kernels.record("trnsim::masked_softmax", [("input", scores)], [shares])
        used, mask = shares, None
        if p:
            used = q.new_empty(scores.shape)
            mask = q.new_empty(scores.shape, dtype=torch.bool)
            kernels.record("aten::native_dropout", [("input", shares)], [used, mask])
        out = q.new_empty((q.shape[0], heads, v.shape[2]))
        _batched(used, used.shape, v, (count, keys, v.shape[2]), out)
        ctx.save_for_backward(q, k, v, shares, used if p else None, mask)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, shares, used, mask = ctx.saved_tensors
        used = shares if used is None else used
        count, s, keys, size, p = ctx.shape
        of_v, of_shares = torch.empty_like(v), torch.empty_like(shares)
        _batched(grad, (count, s, v.shape[2]), v, (count, v.shape[2], keys), of_shares)
        _batched(used, (count, keys, s), grad, (count, s, v.shape[2]), of_v)
        if p:
            inputs = [("grad_output", of_shares), ("mask", mask)]
            of_dropped, of_shares = of_shares, torch.empty_like(shares)
            kernels.record("aten::native_dropout_backward", inputs, [of_shares])
            del of_dropped
        of_scores = torch.empty_like(shares)
        inputs = [("grad", of_shares), ("output", shares)]
        kernels.record("trnsim::masked_softmax_backward", inputs, [of_scores])
        of_q, of_k = torch.empty_like(q), torch.empty_like(k)
        _batched(of_scores, shares.shape, k, (count, keys, size), of_q)
        _batched(of_scores, (count, keys, s), q, (count, s, size), of_k)
        return of_q, of_k, of_v, None, None, None


def _softmax_by_parts(scores: Tensor) -> Tensor:
    """As transformers-neuronx writes it (layers/attention.py, hlo.py): each op in float32 reads and
    writes all scores."""

    def part(name: str, dtype: torch.dtype, *inputs: Tensor, rows: bool = False) -> Tensor:
        shape = (*scores.shape[:2], 1) if rows else scores.shape
        out = scores.new_empty(shape, dtype=dtype)
        named = [(f"input{i}", each) for i, each in enumerate(inputs)]
        kernels.record(f"trnsim::softmax_{name}", named, [out])
        return out

    wide = torch.float32
    made = part("widen", wide, part("mask", scores.dtype, scores))
    made = part("shift", wide, made, part("largest", wide, made, rows=True))
    made = part("exponent", wide, made)
    made = part("share", wide, made, part("total", wide, made, rows=True))
    return part("narrow", scores.dtype, made)


def _batched(a: Tensor, a_shape: Any, b: Tensor, b_shape: Any, out: Tensor) -> None:
    """Records one batched product of tensors that are read in these shapes."""
    batch, rows, columns = a_shape[0], a_shape[1], b_shape[2]
    kernels.record(
        "aten::bmm", [("self", _as(a, a_shape)), ("mat2", _as(b, b_shape))],
        [_as(out, (batch, rows, columns))],
    )  # fmt: skip


def _as(x: Tensor, shape: Any) -> Tensor:
    """The storage of x in another shape; keys of fewer heads are read again for each query head."""
    if x.shape == tuple(shape):
        return x
    batch, rows, columns = shape
    shared = batch * rows * columns // x.numel()
    strides = (0 if shared > 1 else rows * columns, columns, 1)
    return torch.as_strided(x, tuple(shape), strides)
