# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Weights of linear layers that are kept in 8 bits, one scale a row, and multiplied in 16."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trnsim.recipes import kernels
from trnsim.recipes.linear import Linear


def keep_in_int8(layer: Linear) -> None:
    """Replaces the layer's weight; it can be no more trained."""
    weight = layer.weight.detach()
    if kernels.is_simulated(weight):
        kept = torch.empty_like(weight, dtype=torch.int8)
        scale = weight.new_empty(weight.shape[0])
    else:
        scale = (weight.float().abs().amax(1).clamp(min=1e-12) / 127).to(weight.dtype)
        kept = (weight.float() / scale[:, None].float()).round().clamp(-127, 127).to(torch.int8)
    layer.weight = nn.Parameter(kept, requires_grad=False)
    layer.scale = scale


def multiply(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """x times the transposed weight, times the scale of each of its rows."""
    if kernels.is_simulated(x):
        out = x.new_empty((x.shape[0], weight.shape[0]))
        inputs = [("self", x), ("mat2", weight), ("scales", scale)]
        kernels.record("aten::_weight_int8pack_mm", inputs, [out])
    else:
        out = (x @ weight.to(x.dtype).t()) * scale
    return out if bias is None else out + bias
