# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""How DTensor and context parallelism may divide the fused attention of an out-of-tree device.

torch has rules for the attention kernels of CUDA by name; that of devices like ours,
``_scaled_dot_product_fused_attention_overrideable``, has none. Batches and heads may be divided
between ranks anywhere, sequences where context parallelism is on, which then passes the keys and
values round.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from trnsim import _torch
from trnsim.capture.imports import after_import

_CONTEXT = "torch.distributed.tensor.experimental._context_parallel"
_BATCH, _HEADS, _SEQUENCE = 0, 1, 2


def install() -> None:
    """Tells torch as soon as it has loaded what is to be told; once."""
    after_import("torch.distributed.tensor._ops", lambda _: _tell_dtensor())
    after_import(f"{_CONTEXT}._attention", lambda _: _tell_context_parallel())


def _forward() -> Any:
    return torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default


def _backward() -> Any:
    return torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default


def _tell_dtensor() -> None:
    try:
        from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
        from torch.distributed.tensor._ops.single_dim_strategy import register_single_dim_strategy
    except ImportError:  # before torch 2.14: DTensor then says that it has no rule for the op
        return
    # Results depend on which of the arguments from the fourth on there are, and on their values.
    schema = RuntimeSchemaInfo(3)
    register_single_dim_strategy(_forward(), schema_info=schema)(_divide_forward)
    register_single_dim_strategy(_backward(), schema_info=schema)(_divide_backward)


def _dims() -> tuple[int, ...]:
    rules = sys.modules.get(f"{_CONTEXT}._sharding_rules")
    in_context = rules is not None and bool(rules._cp_strategy_contexts)
    return (_BATCH, _HEADS, _SEQUENCE) if in_context else (_BATCH, _HEADS)


def _of_bias(bias: Any, dim: int) -> tuple[Any, Any]:
    """Placements of the bias, and of its gradient, where all else is divided on the dimension."""
    from torch.distributed.tensor import Partial, Replicate
    from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

    at = dim + len(bias.shape) - 4  # it is broadcast from the right
    if at >= 0 and bias.shape[at] > 1:
        return _ShardingPlaceholder(at), _ShardingPlaceholder(at)
    return Replicate(), Partial()


def _divide_forward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    """For each way, where the results are, then where the inputs are."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

    bias = args[3] if len(args) > 3 else None
    ways = []
    for dim in _dims():
        part = _ShardingPlaceholder(dim)
        # output, logsumexp, two of nested tensors, two counts, seed, offset, debug mask
        results = [part, part, None, None, None, None, Replicate(), Replicate(), None]
        ways.append([*results, part, part, part])
        if bias is not None:
            ways[-1].append(_of_bias(bias, dim)[0])
    return ways


def _divide_backward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor._op_schema import TensorMeta
    from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

    bias = args[4]
    ways = []
    for dim in _dims():
        part = _ShardingPlaceholder(dim)
        placed, gradient = (None, None) if bias is None else _of_bias(bias, dim)
        inputs = [part, part, part, part, *([] if bias is None else [placed]), part, part]
        # Behind the output and its logsumexp: of nested tensors, and the state of the dropout.
        inputs += [Replicate() for arg in args[8:] if isinstance(arg, TensorMeta)]
        ways.append([part, part, part, gradient, *inputs])
    return ways


def _tell_context_parallel() -> None:
    attention = sys.modules[f"{_CONTEXT}._attention"]
    attention.custom_ops[_forward()] = _passed_round
    attention.custom_ops[_backward()] = _passed_round


def _passed_round(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Serves both ops on DTensors whose sequences are divided."""
    from torch.distributed.tensor import DTensor

    dispatcher = DTensor._op_dispatcher
    info = dispatcher.unwrap_to_op_info(op, args, kwargs)
    dispatcher.sharding_propagator.propagate(info)
    placed = info.output_sharding
    if placed is None or placed.needs_redistribute:
        raise NotImplementedError(
            "context parallelism of queries and keys on other placements: divide queries, keys and "
            "values alike along the sequence"
        )
    run: Callable[..., Any] = _ring_forward if op == _forward() else _ring_backward
    first_record = _torch.record_count()
    bound = inspect.signature(run).bind(
        info.compute_mesh.get_group(), *info.local_args, **info.local_kwargs
    )
    results = run(*bound.args, **bound.kwargs)
    if bound.arguments.get("is_causal", False):
        _torch.mark_below_diagonal(first_record)
    return dispatcher.wrap(results, placed.output_spec)


def _note_balance(group: Any, is_causal: bool) -> None:
    attention = sys.modules[f"{_CONTEXT}._attention"]
    if is_causal and not attention._cp_options.enable_load_balance and group.size() > 1:
        _torch.add_note(
            f"context parallelism without load balance: rank {group.rank()} of {group.size()} "
            "stands for all, though each computes another share of the causal mask"
        )


def _ring_forward(
    group: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    if attn_bias is not None:
        raise NotImplementedError(
            "context parallelism of attention with a mask or a bias: use is_causal=True, or "
            "leave it out"
        )
    attention = sys.modules[f"{_CONTEXT}._attention"]
    _note_balance(group, is_causal)
    return attention._templated_ring_attention(
        group,
        _SEQUENCE,
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable,
        query=query,
        key=key,
        value=value,
        is_causal=is_causal,
        dropout_p=dropout_p,
        scale=scale,
    )


def _ring_backward(
    group: Any,
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    grad_input_mask: tuple[bool, ...],
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    *,
    scale: float | None = None,
) -> Any:
    attention = sys.modules[f"{_CONTEXT}._attention"]
    return attention._templated_ring_attention_backward(
        group,
        _SEQUENCE,
        _backward(),
        grad_out=grad_out,
        grad_out_name="grad_out",
        query=query,
        key=key,
        value=value,
        out=out,
        logsumexp=logsumexp,
        is_causal=is_causal,
        attn_bias=attn_bias,
        grad_input_mask=grad_input_mask,
        cum_seq_q=cum_seq_q,
        cum_seq_k=cum_seq_k,
        max_q=max_q,
        max_k=max_k,
        dropout_p=dropout_p,
        philox_seed=philox_seed,
        philox_offset=philox_offset,
        scale=scale,
    )
