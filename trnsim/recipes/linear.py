# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Linear layers whose weights are divided over tensor parallel ranks.

Their autograd functions are written by hand, as in Megatron-LM: an input that was gathered from
its sequence parallel parts is kept as the part and gathered again in the backward, messages run
beside the products, and the product of the weight's gradient adds into the main gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trnsim.recipes import fp8, kernels
from trnsim.recipes.parallel import (
    Place,
    all_sum,
    gather,
    scatter,
    scattered,
    start_gather,
    start_scatter,
    start_sum,
    summed,
    wait,
)
from trnsim.recipes.style import Style


def is_recomputed() -> bool:
    """Inside a backward: a checkpointed function runs again."""
    return torch._C._current_graph_task_id() != -1


def add_gradient(weight: Tensor, grad: Tensor, x: Tensor) -> Tensor | None:
    """Adds grad^T x into the weight's main gradient, or returns it where there is none."""
    main = getattr(weight, "main_grad", None)
    if main is None:
        return grad.t() @ x
    kernels.accumulate_product(main, grad.t(), x)
    return None


class _Column(torch.autograd.Function):
    """[tokens, in] to [tokens, out / tp]; with sequence parallel, the input is this rank's part."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Linear, is_kept: bool
    ) -> Tensor:  # fmt: skip
        ctx.layer, group = layer, layer.sequence_group
        saved = layer.saved(x)
        ctx.save_for_backward(*saved)
        if is_kept and is_recomputed():  # nobody reads it: what comes after it was kept
            return x.new_empty((x.shape[0] * (group.size() if group else 1), weight.shape[0]))
        return layer.product(gather(saved[0], group), weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layer: Linear = ctx.layer
        group = layer.sequence_group
        total, gathering = start_gather(ctx.saved_tensors[-1], group)
        by_row, by_column = layer.operands_of_gradient(grad.contiguous(), None)
        if not layer.overlaps:
            wait(gathering)
        of_input = layer.input_gradient(by_row)
        if layer.overlaps:
            wait(gathering)
        start = start_scatter if group is not None else start_sum
        of_input, reducing = start(of_input, group if group is not None else layer.group)
        if not layer.overlaps:
            wait(reducing)
        of_weight = layer.weight_gradient(by_column, total)
        of_bias = grad.sum(0) if ctx.needs_input_grad[2] else None
        if layer.overlaps:
            wait(reducing)
        return of_input, of_weight, of_bias, None, None


class _Row(torch.autograd.Function):
    """[tokens, in / tp] to [tokens, out], summed over ranks; sequence parallel keeps a part."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, layer: Linear, is_kept: bool
    ) -> Tensor:  # fmt: skip
        ctx.layer = layer
        saved = layer.saved(x)
        ctx.save_for_backward(*saved)
        group = layer.sequence_group
        if is_kept and is_recomputed():
            rows = x.shape[0] // (group.size() if group else 1)
            return x.new_empty((rows, weight.shape[0]))
        out = layer.product(saved[0], weight, None)
        return scatter(out, group) if group is not None else all_sum(out, layer.group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layer: Linear = ctx.layer
        by_row, by_column = layer.operands_of_gradient(grad.contiguous(), layer.sequence_group)
        of_input = layer.input_gradient(by_row)
        return of_input, layer.weight_gradient(by_column, ctx.saved_tensors[-1]), None, None


class Linear(nn.Module):
    """A linear layer, its columns or rows divided over tensor parallel ranks.

    Args:
        features: of the whole input and the whole output.
        kind: "column", "row", or "whole": not divided.
        is_fp8: its products run in 8 bits.
        splits: of the output's columns, where each part is divided by itself.
    """

    def __init__(
        self, place: Place, style: Style, features: tuple[int, int], kind: str, *,
        bias: bool = False, is_fp8: bool = False, dtype: torch.dtype, device: Any,
        splits: list[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        tp = place.layout.tp if kind != "whole" else 1
        inside, outside = features
        shape = (outside, inside // tp) if kind == "row" else (outside // tp, inside)
        self.weight = nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
        if kind != "whole":
            self.weight.divided = (int(kind == "row"), splits, tp, place.tp_rank)
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = nn.Parameter(torch.zeros(shape[0], dtype=dtype, device=device))
            if kind == "column":
                self.bias.divided = (0, splits, tp, place.tp_rank)
        self.kind = kind
        self.outer_group = place.tp if style.separate and kind == "row" else None
        talks = kind != "whole" and not style.separate
        self.group = place.tp if talks else None
        self.sequence_group = self.group if place.layout.sequence_parallel else None
        self.has_sequence = place.layout.sequence_parallel
        self.overlaps = style.tp_overlap
        self.is_plain = self.group is None and not style.main_gradients and not is_fp8
        self.scaling = fp8.scaling_of(place.layout.precision) if is_fp8 else None
        self.held_fp8: tuple[Tensor, Tensor] | None = None  # the weight in 8 bits, for one step
        self.scale: Tensor | None = None  # of each row of a weight that is kept in int8

    def forward(self, x: Tensor, with_bias: bool = True, is_kept: bool = False) -> Tensor:
        """The product; a row layer never adds its bias. `is_kept`: the result is not made again
        when what led to it is."""
        out = self._multiplied(x, self.bias if with_bias else None, is_kept)
        if self.outer_group is None:
            return out
        return (scattered if self.has_sequence else summed)(out, self.outer_group)

    def _multiplied(self, x: Tensor, bias: Tensor | None, is_kept: bool) -> Tensor:
        if self.is_plain and not is_kept and self.scale is None:
            return F.linear(x, self.weight, bias if self.kind != "row" else None)
        if self.kind != "row":
            return _Column.apply(x, self.weight, bias, self, is_kept)
        return _Row.apply(x, self.weight, self, is_kept)

    # --- the three products, in 16 or 8 bits -----------------------------------------------------

    def saved(self, x: Tensor) -> tuple[Tensor, ...]:
        """The operand of the forward and the one that the gradient of the weight needs."""
        return (x,) if self.scaling is None else fp8.quantized(x, self.scaling)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """An operand that `saved` made times the transposed weight."""
        if self.scale is not None:
            from trnsim.recipes import int8

            return int8.multiply(x, weight, self.scale, bias)
        if self.scaling is None:
            return F.linear(x, weight, bias)
        return fp8.multiply(x, fp8.weights_of(self)[0].t(), bias, weight)

    def operands_of_gradient(self, grad: Tensor, group: Any) -> tuple[Tensor, Tensor]:
        """The gradient of the output, gathered over `group`: for products over its last axis and
        over its first."""
        if self.scaling is None:
            grad = gather(grad, group)
            return grad, grad
        by_row, by_column = fp8.quantized(grad, self.scaling)
        if group is None:
            return by_row, by_column
        by_row = gather(by_row, group)
        return by_row, by_row

    def input_gradient(self, grad: Tensor) -> Tensor:
        """grad times the weight."""
        if self.scaling is None:
            return grad @ self.weight
        return fp8.multiply(grad, fp8.weights_of(self)[1], None, self.weight)

    def weight_gradient(self, grad: Tensor, x: Tensor) -> Tensor | None:
        """grad^T x, added to the main gradient or returned."""
        if self.scaling is None or hasattr(self.weight, "main_grad"):
            return add_gradient(self.weight, grad, x)
        return fp8.multiply(grad.t(), x, None, self.weight)
