# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Products of linear layers in 8 bits: casts of their operands, and the products themselves.

An operand is cast once for its rows and once for its columns in one kernel (a product in 8 bits
contracts the contiguous axis of both); weights are cast once a step. Scales: one a tensor, of the
steps before ("delayed") or of its own values ("current"), one for 128 elements ("block") or 32
("mx"). Away from the simulated device, values are rounded to what 8 bits hold and multiplied as
they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trnsim.recipes import kernels

_E4M3 = torch.float8_e4m3fn
_GROUPS = {"delayed": 0, "current": 0, "block": 128, "mx": 32}
_SCALINGS = {"fp8": "delayed", "fp8_current": "current", "fp8_block": "block", "mxfp8": "mx"}


def scaling_of(precision: str) -> str | None:
    """How operands are scaled in a precision; None where products are not in 8 bits."""
    return _SCALINGS.get(precision)


def _scale_count(x: Tensor, scaling: str) -> int:
    group = _GROUPS[scaling]
    return -(-x.numel() // group) if group else 1


def quantized(x: Tensor, scaling: str) -> tuple[Tensor, Tensor]:
    """x for products over its last axis and over its first, in 8 bits."""
    if not kernels.is_simulated(x):
        rounded = _rounded(x)
        return rounded, rounded
    by_row, by_column = x.new_empty(x.shape, dtype=_E4M3), x.new_empty(x.shape, dtype=_E4M3)
    scales = x.new_empty(_scale_count(x, scaling), dtype=torch.float32)
    if scaling == "current":  # its scale comes from the largest value of this very tensor
        kernels.record("trnsim::largest_value", [("input", x)], [scales])
    kernels.record("trnsim::cast_fp8", [("input", x)], [by_row, by_column, scales])
    return by_row, by_column


def _rounded(x: Tensor) -> Tensor:
    scale = x.abs().amax().clamp(min=1e-12) / 448.0
    return ((x / scale).to(_E4M3).to(x.dtype) * scale).detach()


def multiply(left: Tensor, right: Tensor, bias: Tensor | None, like: Tensor) -> Tensor:
    """left @ right of two operands, in the dtype of `like`."""
    if not kernels.is_simulated(left):
        out = left @ right
        return out if bias is None else out + bias
    out = like.new_empty((left.shape[0], right.shape[1]))
    inputs = [("self", left), ("mat2", right)] + ([("bias", bias)] if bias is not None else [])
    kernels.record("aten::_scaled_mm", inputs, [out])
    return out


def weights_of(layer: Any) -> tuple[Tensor, Tensor]:
    """A layer's weight in 8 bits, cast when it is first asked for in a step."""
    if layer.held_fp8 is None:
        layer.held_fp8 = quantized(layer.weight.detach(), layer.scaling)
    return layer.held_fp8
