# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What an entry gave on the device beside what it gave on the CPU."""

from __future__ import annotations

from typing import Any

import torch

Results = tuple[list[torch.Tensor], list[torch.Tensor]]  # of the forward and of the backward pass
# Sums of half floats differ with their order, which layouts decide.
TOLERANCES = {torch.bfloat16: (5e-2, 5e-2), torch.float16: (1e-2, 1e-2)}


def to_device(value: Any, device: str) -> Any:
    """A tensor's copy on a device, a leaf like it on as large a storage; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach()
    if plain.layout != torch.strided or plain.is_conj() or plain.is_neg():
        return plain.to(device, copy=True).requires_grad_(value.requires_grad)
    storage = plain.untyped_storage()
    elements = storage.nbytes() // plain.itemsize
    whole = plain.new_empty(0).set_(storage, 0, (elements,), (1,)).to(device, copy=True)
    copy = whole.as_strided(plain.shape, plain.stride(), plain.storage_offset())
    return copy.requires_grad_(value.requires_grad)


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


def difference(
    got: Results, want: Results, mode: str, is_random: bool = False, like: Results | None = None
) -> str:
    """Empty when they agree: in values in compute mode, but random ones, in strides in phantom
    mode, in shapes and dtypes in both. `like` has the strides, shapes and dtypes, where these are
    not `want`'s."""
    like = like or want
    for part, ours, theirs, layouts in zip(("forward", "backward"), got, want, like, strict=True):
        if not len(ours) == len(theirs) == len(layouts):
            return f"{part}: {len(ours)} results for {len(theirs)}"
        for g, w, layout in zip(ours, theirs, layouts, strict=True):
            found = _difference_of_layout(g, layout, mode)
            if not found and mode == "compute" and not is_random and g.numel() == w.numel():
                found = _difference_of_values(g, w)
            if found:
                return f"{part}: {found}"
    return ""


def _significant_strides(tensor: torch.Tensor) -> list[int]:
    if tensor.numel() == 0:
        return []
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def _difference_of_layout(got: torch.Tensor, want: torch.Tensor, mode: str) -> str:
    if got.layout != want.layout:
        return f"layout {got.layout} for {want.layout}"
    if got.device.type != "trn" and want.numel():
        return f"the result is on {got.device}"
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)} for {tuple(want.shape)}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype} for {want.dtype}"
    if mode == "phantom" and _significant_strides(got) != _significant_strides(want):
        return f"strides {got.stride()} for {want.stride()} of shape {tuple(want.shape)}"
    return ""


def _difference_of_values(got: torch.Tensor, want: torch.Tensor) -> str:
    rtol, atol = TOLERANCES.get(want.dtype, (1e-3, 1e-4))
    try:
        torch.testing.assert_close(
            got.cpu().to(want.dtype), want, rtol=rtol, atol=atol, equal_nan=True,
            check_stride=False,
        )  # fmt: skip
    except AssertionError as error:
        return str(error).replace("\n", " ")[:200]
    return ""
