# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Parameters, gradients and optimizer divided by torch's own FSDP, block by block."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trnsim.errors import RecipeError
from trnsim.recipes.block import Block
from trnsim.recipes.parallel import Place
from trnsim.recipes.style import Style


class Sharded:
    """FSDP around the chunks of a rank.

    Attributes:
        chunks: what to call in their place.
    """

    def __init__(self, chunks: list[Any], place: Place, style: Style) -> None:
        self.style, self.place = style, place
        layout = place.layout
        wide = layout.precision == "fp32"
        self.parameter_dtype = None if wide else _compute_dtype(layout.precision)
        self.reduce_dtype = None if wide else getattr(torch, layout.gradient)
        self.is_last_backward = False
        self.chunks = chunks
        if len(place.data_ranks) == 1 and not dist.is_initialized():
            for chunk in chunks:
                chunk.to(self.parameter_dtype or torch.float32)
                for name in ("cos", "sin"):
                    if getattr(chunk, name) is not None:
                        setattr(chunk, name, getattr(chunk, name).float())
            return
        wrap = self._fsdp1 if style.data == "fsdp1" else self._fsdp2
        self.chunks = [wrap(chunk) for chunk in chunks]

    def _mesh(self, device: str) -> DeviceMesh:
        """The data parallel ranks of this one: all, or replicas of the ranks that divide."""
        layout = self.place.layout
        ranks = layout.dp * layout.cp
        shard = layout.shard or ranks
        if ranks % shard:
            raise RecipeError(f"shard {shard} does not divide the {ranks} data parallel ranks")
        shape, names = [layout.pp, ranks // shard, shard, layout.tp], ["pp", *_NAMES, "tp"]
        mesh = init_device_mesh(device, tuple(shape), mesh_dim_names=tuple(names))
        return mesh[_NAMES] if ranks > shard else mesh["dp_shard"]

    def _fsdp2(self, chunk: Any) -> Any:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        layout = self.place.layout
        policy = MixedPrecisionPolicy(
            self.parameter_dtype, self.reduce_dtype, cast_forward_inputs=False
        )
        keeps = layout.pp > 1 or layout.zero < 3  # parameters stay gathered until the backward
        mesh = self._mesh(_device_of(chunk).type)
        shard = functools.partial(fully_shard, mesh=mesh, mp_policy=policy)
        is_tied = chunk.embedding is not None and chunk.head is not None and _is_tied(chunk)
        if chunk.embedding is not None and not is_tied:
            shard(chunk.embedding, reshard_after_forward=not keeps)
        for block in chunk.layers:
            shard(block, reshard_after_forward=not keeps)
        if chunk.head is not None and not is_tied:
            shard(chunk.head, reshard_after_forward=False)
        return shard(chunk, reshard_after_forward=False)

    def _fsdp1(self, chunk: Any) -> Any:
        from torch.distributed.fsdp import (
            FullyShardedDataParallel,
            MixedPrecision,
            ShardingStrategy,
        )
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        layout = self.place.layout
        mesh = self._mesh(_device_of(chunk).type)
        strategy = ShardingStrategy.FULL_SHARD
        if mesh.ndim == 2:
            strategy = ShardingStrategy.HYBRID_SHARD
        elif layout.zero < 3:
            strategy = ShardingStrategy.SHARD_GRAD_OP
        precision = MixedPrecision(
            self.parameter_dtype, self.reduce_dtype, cast_root_forward_inputs=False
        )
        return FullyShardedDataParallel(
            chunk, device_mesh=mesh, sharding_strategy=strategy, mixed_precision=precision,
            auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True,
            limit_all_gathers=True, device_id=_device_of(chunk),
        )  # fmt: skip

    def before_backward(self, chunk: int, is_last: bool) -> None:
        """FSDP reduces the gradients of every micro-batch."""

    def optimizer(self, rate: float, clip: float) -> Any:
        """Adam of torch, after clipping."""
        parameters = [each for chunk in self.chunks for each in chunk.parameters()]
        kind = self.style.optimizer
        inner = torch.optim.AdamW(
            parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.1,
            fused=kind == "fused", foreach=kind == "foreach",
        )  # fmt: skip
        return _Clipped(inner, self.chunks, parameters, clip, self.place)

    def close(self) -> None:
        """Nothing outside holds the parameters."""


_NAMES = ("dp_replicate", "dp_shard")


class _Clipped:
    """Clips gradients, then steps, then drops them."""

    def __init__(
        self, inner: Any, chunks: list[Any], parameters: list[Any], clip: float, place: Place
    ) -> None:
        self.inner, self.chunks, self.parameters, self.clip = inner, chunks, parameters, clip
        self.group = place.tp

    def step(self) -> None:
        if self.clip and hasattr(self.chunks[0], "clip_grad_norm_"):
            for chunk in self.chunks:
                chunk.clip_grad_norm_(self.clip)
        elif self.clip:
            self._clip()
        self.inner.step()
        self.inner.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _clip(self) -> None:
        """By the norm over all ranks; what tensor parallel ranks have alike counts once."""
        total = self._norm("divided" in p.__dict__ or self.group is None for p in self.parameters)
        if self.group is not None:
            total = total.square()
            dist.all_reduce(total, group=self.group)
            rest = self._norm("divided" not in p.__dict__ for p in self.parameters)
            total = (total + rest.square()).sqrt()
        nn.utils.clip_grads_with_norm_(self.parameters, self.clip, total, foreach=True)

    def _norm(self, counts: Any) -> torch.Tensor:
        chosen = zip(self.parameters, counts, strict=True)
        gradients = [p.grad for p, is_counted in chosen if is_counted and p.grad is not None]
        if not gradients:  # torch's norm of nothing is on the CPU
            return torch.zeros((), device=_device_of(self.chunks[0]))
        total = nn.utils.get_total_norm(gradients, foreach=True)
        return total.full_tensor() if hasattr(total, "full_tensor") else total


def _compute_dtype(precision: str) -> torch.dtype:
    return torch.float16 if precision == "fp16" else torch.bfloat16


def _device_of(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _is_tied(chunk: Any) -> bool:
    return chunk.head.logits.weight is chunk.embedding.weight
