# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Cross-entropy of logits whose vocabulary is divided over tensor parallel ranks.

Three ways: "fused" reads the logits once each way and writes the gradient in their place; "parts"
is Megatron-LM's, kernels on a copy in float32 between its three sums over ranks; "eager" is ATen's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from trnsim.recipes import kernels
from trnsim.recipes.parallel import Place, all_max, all_sum


def cross_entropy(logits: Tensor, targets: Tensor, place: Place, kind: str) -> Tensor:
    """The mean loss of the tokens: [tokens, vocab / tp] and [tokens]."""
    if kind == "eager" and place.tp is None:
        return F.cross_entropy(logits.float(), targets)
    first = place.tp_rank * logits.shape[1]
    return _CrossEntropy.apply(logits, targets, first, place.tp, kind).mean()


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, first: int, group: Any, kind: str
    ) -> Tensor:  # fmt: skip
        ctx.kind = kind
        if kernels.is_simulated(logits):
            return _record_forward(ctx, logits, targets, group)
        wide = logits.float()
        largest = all_max(wide.amax(1), group)
        wide = wide - largest[:, None]
        outside = (targets < first) | (targets >= first + logits.shape[1])
        own = (targets - first).masked_fill(outside, 0)
        chosen = wide.gather(1, own[:, None])[:, 0].masked_fill(outside, 0.0)
        chosen = all_sum(chosen, group)
        wide = wide.exp()
        total = all_sum(wide.sum(1), group)
        ctx.save_for_backward(wide / total[:, None], own, outside)
        return total.log() - chosen

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if kernels.is_simulated(grad):
            return _record_backward(ctx, grad), None, None, None, None
        shares, own, outside = ctx.saved_tensors
        of_logits = shares.clone()
        chosen = (~outside).to(shares.dtype)
        of_logits[torch.arange(len(own)), own] -= chosen
        return of_logits * grad[:, None], None, None, None, None


def _record_forward(ctx: Any, logits: Tensor, targets: Tensor, group: Any) -> Tensor:
    rows = logits.shape[0]
    numbers = [logits.new_empty(rows, dtype=torch.float32) for _ in range(3)]
    loss = logits.new_empty(rows, dtype=torch.float32)
    given = [("target", targets)]
    if ctx.kind == "fused":
        kernels.record("trnsim::cross_entropy_sums", [("input", logits), *given], numbers)
        for number in numbers if group is not None else ():
            all_sum(number, group)
        parts = [(f"sum{i}", number) for i, number in enumerate(numbers)]
        kernels.record("trnsim::cross_entropy_loss", parts, [loss])
        ctx.save_for_backward(logits, numbers[0], numbers[2], targets)
        return loss
    wide = logits.new_empty(logits.shape, dtype=torch.float32)
    kernels.record("trnsim::cross_entropy_wide", [("input", logits)], [wide])
    kernels.record("trnsim::cross_entropy_largest", [("input", wide)], numbers[:1])
    all_max(numbers[0], group)
    inputs = [("input", wide), ("largest", numbers[0]), *given]
    kernels.record("trnsim::cross_entropy_exponents", inputs, [wide, *numbers[1:]], mutated=[wide])
    all_sum(numbers[1], group)
    all_sum(numbers[2], group)
    inputs = [("input", wide), ("total", numbers[2]), ("chosen", numbers[1])]
    kernels.record("trnsim::cross_entropy_shares", inputs, [wide, loss], mutated=[wide])
    ctx.save_for_backward(wide, targets)
    ctx.dtype = logits.dtype
    return loss


def _record_backward(ctx: Any, grad: Tensor) -> Tensor:
    saved = ctx.saved_tensors
    names = ("input", "largest", "total", "target") if ctx.kind == "fused" else ("input", "target")
    inputs = [("grad", grad), *zip(names, saved, strict=True)]
    if ctx.kind == "fused":  # in the place of the logits
        of_logits = saved[0].detach()
        kernels.record(
            "trnsim::cross_entropy_backward", inputs, [of_logits], mutated=[of_logits]
        )  # fmt: skip
        return of_logits
    of_logits = saved[0].new_empty(saved[0].shape, dtype=ctx.dtype)
    kernels.record("trnsim::cross_entropy_backward", inputs, [of_logits])
    return of_logits
