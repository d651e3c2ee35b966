# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Attention of jagged tensors on the device: one attention a sequence.

torch has kernels of CUDA that take all sequences at once, and else makes strided nested tensors,
which the device has not. A sequence at a time gives the same values and the same products; a GPU
launches more kernels for it, and a note says so.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch

from trnsim import _torch

_NOTE = (
    "attention of jagged tensors runs a sequence at a time: a GPU has one kernel for all of them"
)
_WAYS = "pad them to dense ones, or use FlexAttention with a mask by document"


def attended_by_sequence(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``jagged_scaled_dot_product_attention`` for tensors of the device.

    Raises:
        ValueError: as torch's own, for inputs that do not fit and for masks.
        NotImplementedError: for sequences with holes, and lengths that nobody knows.
    """

    @functools.wraps(original)
    def jagged_scaled_dot_product_attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, *more: Any, **named: Any
    ) -> Any:
        if query.device.type != _torch.device_name() or query._ragged_idx == 1:
            return original(query, key, value, attn_mask, *more, **named)
        from torch.nested._internal.sdpa import _validate_sdpa_input

        _validate_sdpa_input(query, key, value, attn_mask)
        of_query, of_key = _lengths(query), _lengths(key)
        rows = zip(
            _sequences(query, of_query),
            _sequences(key, of_key),
            _sequences(value, of_key),
            strict=True,
        )
        attend = torch.nn.functional.scaled_dot_product_attention
        parts = [attend(*each, None, *more, **named)[0].transpose(0, 1) for each in rows]
        _torch.add_note(_NOTE)
        return _jagged_like(query, torch.cat(parts)).transpose(1, 2)

    return jagged_scaled_dot_product_attention


def _refused(what: str) -> NotImplementedError:
    name = _torch.device_name()
    return NotImplementedError(
        f"attention of jagged tensors with {what} is not supported on {name}: {_WAYS}"
    )


def _lengths(jagged: Any) -> list[int]:
    """Rows of each sequence of a tensor of (batch, heads, rows, size)."""
    if jagged.lengths() is not None:
        raise _refused("holes between sequences")
    if not _torch.is_known(jagged.offsets()):
        raise _refused("lengths that depend on values that are not known")
    with _torch.Quiet():  # the kernels that are stood for read them on the device
        offsets = _torch.values_of(jagged.offsets()).tolist()
    return [end - begin for begin, end in itertools.pairwise(offsets)]


def _sequences(jagged: Any, lengths: list[int]) -> list[Any]:
    """Each as (1, heads, rows, size)."""
    rows = jagged.transpose(1, 2).values().split(lengths)
    return [each.transpose(0, 1).unsqueeze(0) for each in rows]


def _jagged_like(query: Any, values: Any) -> Any:
    from torch.nested._internal.nested_tensor import nested_view_from_values_offsets

    return nested_view_from_values_offsets(
        values,
        query.offsets(),
        min_seqlen=query._maybe_min_seqlen,
        max_seqlen=query._maybe_max_seqlen,
    )
