# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What an entry gave on the device beside what it gave on the CPU."""

from __future__ import annotations

from typing import Any

import torch

Results = tuple[list[torch.Tensor], list[torch.Tensor]]  # of the forward and of the backward pass
# Sums of half floats differ with their order, which layouts decide.
TOLERANCES = {torch.bfloat16: (5e-2, 5e-2), torch.float16: (1e-2, 1e-2)}


def to_device(value: Any) -> Any:
    """A tensor's copy on the device, a leaf like it; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("trn").requires_grad_(value.requires_grad)
    return value


def gradients(results: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of the inputs, by all results that have any."""
    roots = [result for result in results if result.requires_grad]
    if not (inputs and roots):
        return []
    # Different weights, so that a gradient at the wrong place shows.
    weights = [torch.linspace(0.5, 1.5, root.numel()).reshape(root.shape) for root in roots]
    weights = [w.to(r.dtype).to(r.device) for w, r in zip(weights, roots, strict=True)]
    found = torch.autograd.grad(roots, inputs, weights, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def difference(got: Results, want: Results, mode: str, is_random: bool = False) -> str:
    """Empty when they agree: in values in compute mode, but random ones, in strides in phantom
    mode, in shapes and dtypes in both."""
    for part, ours, theirs in zip(("forward", "backward"), got, want, strict=True):
        if len(ours) != len(theirs):
            return f"{part}: {len(ours)} results for {len(theirs)}"
        for g, w in zip(ours, theirs, strict=True):
            found = _difference(g, w, mode, is_random)
            if found:
                return f"{part}: {found}"
    return ""


def _significant_strides(tensor: torch.Tensor) -> list[int]:
    if tensor.numel() == 0:
        return []
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def _difference(got: torch.Tensor, want: torch.Tensor, mode: str, is_random: bool) -> str:
    if got.layout != torch.strided or want.layout != torch.strided:
        return "" if got.layout == want.layout else f"layout {got.layout} for {want.layout}"
    if got.device.type != "trn" and want.numel():
        return f"the result is on {got.device}"
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)} for {tuple(want.shape)}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype} for {want.dtype}"
    if mode == "phantom":
        if _significant_strides(got) != _significant_strides(want):
            return f"strides {got.stride()} for {want.stride()} of shape {tuple(want.shape)}"
        return ""
    if is_random:
        return ""
    rtol, atol = TOLERANCES.get(want.dtype, (1e-3, 1e-4))
    try:
        torch.testing.assert_close(
            got.cpu(), want, rtol=rtol, atol=atol, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        return str(error).replace("\n", " ")[:200]
    return ""
