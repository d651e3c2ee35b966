# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""FlexAttention on the device: one op forward, one backward, costed by what its mask leaves.

torch's own dense kernels compute values where there are any, on the CPU; shapes and strides are
those of torch's fake kernels. The record holds query, key, value, the tensors of the BlockMask, and
``density``: the share of the blocks of scores that are computed. It is read off the BlockMask where
that has values, else found by asking the mask itself about a few rows of each block; where the mask
depends on values that nobody knows, every block counts, and a note says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from trnsim import _torch

_NAMES = ("query", "key", "value")
_BACKWARD_NAMES = (*_NAMES, "out", "logsumexp", "grad_out", "grad_logsumexp")
_LARGE_BLOCK = 1 << 30  # torch's size of the one block of a mask that masks nothing
_MOST_MASKS = 8  # of batch and heads: more are taken to be like these

_densities: weakref.WeakKeyDictionary[Any, dict[Any, float]] = weakref.WeakKeyDictionary()


def serve(module: ModuleType) -> None:
    """Registers our kernels at torch._higher_order_ops.flex_attention, once it is imported."""
    keys = torch._C.DispatchKey
    serves_cuda = _torch.device_name() == "cuda"
    device = keys.CUDA if serves_cuda else keys.PrivateUse1
    forward, backward = module.flex_attention, module.flex_attention_backward
    dense = keys.CompositeExplicitAutograd
    forward.py_impl(device)(
        _kernel(
            "trnsim::flex_attention",
            _NAMES,
            module.flex_attention_fake_impl,
            forward.py_kernels[dense],
        )
    )
    backward.py_impl(device)(
        _kernel(
            "trnsim::flex_attention_backward",
            _BACKWARD_NAMES,
            module.flex_attention_backward_fake_tensor_mode,
            backward.py_kernels[dense],
        )
    )
    if not serves_cuda:  # torch has that of CUDA itself
        forward.py_impl(keys.AutocastPrivateUse1)(_autocast(forward))


def validate_device(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``_validate_device``, whose list of devices is fixed."""
    name = _torch.device_name()  # here, since dynamo traces what follows

    def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != name:
            original(query, key, value)

    return _validate_device


def _kernel(
    op: str, names: tuple[str, ...], shapes: Callable[..., Any], dense: Callable[..., Any]
) -> Callable[..., Any]:
    at_mask = 4 if len(names) == len(_NAMES) else 9  # positions of the arguments

    def kernel(*arguments: Any, **named: Any) -> Any:
        arguments += tuple(named.values())  # the caller's order is the signature's
        buffers = arguments[at_mask + 3 :]
        with _torch.Quiet():
            results = shapes(*arguments)
            _fill(results, arguments, dense)
            density = _density(arguments[0], arguments[1], arguments[at_mask], buffers)
        inputs = [each for each in zip(names, arguments, strict=False) if each[1] is not None]
        rest = [each for each in tree_leaves((arguments[at_mask], buffers)) if _is_tensor(each)]
        inputs += [("block_mask", each) for each in rest]
        scalars = [("scale", float(arguments[at_mask + 1])), ("density", density)]
        written = [each for each in tree_leaves(results) if _is_tensor(each)]
        _torch.record_op(op, inputs, written, scalars)
        return results

    return kernel


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _all_known(values: Iterable[Any]) -> bool:
    return all(_torch.is_known(each) for each in values if _is_tensor(each))


class _DevicesAreHost(TorchFunctionMode):
    """Inside, graphs that name our device make their tensors on the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        name, host = _torch.device_name(), torch.device("cpu")
        ours = lambda each: isinstance(each, torch.device) and each.type == name
        args, kwargs = tree_map(lambda each: host if ours(each) else each, (args, kwargs or {}))
        return function(*args, **kwargs)


def _on_host(values: Any) -> Any:
    name = _torch.device_name()
    here = lambda each: _is_tensor(each) and each.device.type == name
    return tree_map(lambda each: _torch.values_of(each) if here(each) else each, values)


def _fill(results: Any, arguments: tuple[Any, ...], dense: Callable[..., Any]) -> None:
    """The values of the results, where those of all arguments are known and theirs can be."""
    out = [each for each in tree_leaves(results) if _is_tensor(each)]
    if _all_known(tree_leaves(arguments)) and all(map(_torch.can_be_known, out)):
        with _DevicesAreHost():
            made = [each for each in tree_leaves(dense(*_on_host(arguments))) if _is_tensor(each)]
        for mine, computed in zip(out, made, strict=True):
            _torch.values_of(mine).copy_(computed)
        return
    for each in out:
        _torch.forget_values(each)


def _autocast(flex_attention: Any) -> Callable[..., Any]:
    def autocast(query: Any, key: Any, value: Any, *arguments: Any, **named: Any) -> Any:
        name = _torch.device_name()
        wanted = torch.get_autocast_dtype(name)
        query, key, value = (
            each.to(wanted) if each.is_floating_point() and each.dtype != torch.float64 else each
            for each in (query, key, value)
        )
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return flex_attention(query, key, value, *arguments, **named)

    return autocast


# --- how much of the scores the mask leaves -----------------------------------------------------


def _density(query: Any, key: Any, mask: tuple[Any, ...], buffers: tuple[Any, ...]) -> float:
    rows, columns, mask_mod = int(mask[-3]), int(mask[-2]), mask[-1]
    if rows >= _LARGE_BLOCK or query.size(-2) == 0 or key.size(-2) == 0:
        return 1.0
    partial, full = mask[2], mask[4]
    if _all_known((partial, full)):
        blocks = sum(float(_on_host(each).sum()) for each in (partial, full) if each is not None)
        return min(1.0, blocks / (partial.numel() * -(-key.size(-2) // columns)))
    masks = buffers[-1] if buffers else ()
    if not _all_known(masks):
        _torch.add_note(
            "FlexAttention: a mask depends on values that are not known: every block is computed"
        )
        return 1.0
    shape = (*partial.shape[:2], query.size(-2), key.size(-2), rows, columns)
    known = _densities.setdefault(mask_mod, {}) if not masks else {}
    if shape not in known:
        known[shape] = _sampled_density(mask_mod, _on_host(masks), *shape)
        _torch.add_note(
            "FlexAttention: the share of the blocks that a mask leaves is found by asking it about "
            "three rows of each"
        )
    return known[shape]


def _sampled_density(
    mask_mod: Any, buffers: Any, batch: int, heads: int, queries: int, keys: int, rows: int,
    columns: int,
) -> float:  # fmt: skip
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    first = torch.arange(0, queries, rows)
    asked = torch.stack([first, first + rows // 2, first + rows - 1], 1).clamp(max=queries - 1)
    of_heads = min(heads, _MOST_MASKS)
    of_batch = min(batch, max(1, _MOST_MASKS // of_heads))
    vmapped = _vmap_for_bhqkv(mask_mod, prefix=(), suffix=(None,) * len(buffers))
    with _DevicesAreHost(), TransformGetItemToIndex():
        seen = vmapped(
            torch.arange(of_batch), torch.arange(of_heads), asked.flatten(), torch.arange(keys),
            *buffers,
        )  # fmt: skip
    seen = seen.expand(of_batch, of_heads, asked.numel(), keys).reshape(-1, 3, keys).any(1)
    padded = torch.nn.functional.pad(seen, (0, -keys % columns))
    return float(padded.unflatten(1, (-1, columns)).any(2).float().mean())
