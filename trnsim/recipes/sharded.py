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
from torch.distributed.tensor import Shard

from trnsim.errors import RecipeError
from trnsim.recipes.block import Block
from trnsim.recipes.parallel import Place
from trnsim.recipes.style import Style


class Sharded:
    """FSDP around the chunks of a rank.

    Attributes:
        chunks: what to call in their place.
    """

    def __init__(
        self, chunks: list[Any], place: Place, style: Style, device: torch.device
    ) -> None:  # fmt: skip
        self.style, self.place, self.device = style, place, device
        layout = place.layout
        wide = layout.precision == "fp32"
        self.parameter_dtype = None if wide else _compute_dtype(layout.precision)
        self.reduce_dtype = None if wide else getattr(torch, layout.gradient)
        self.is_last_backward = False
        self.chunks, self.shard_group = chunks, None
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
        mesh = self._mesh(self.device.type)
        self.shard_group = mesh.get_group("dp_shard")
        shard = functools.partial(
            fully_shard, mesh=mesh, mp_policy=policy,
            shard_placement_fn=functools.partial(_divided_axis, ranks=self.shard_group.size()),
        )  # fmt: skip
        is_tied = chunk.embedding is not None and chunk.head is not None and _is_tied(chunk)
        if chunk.embedding is not None and not is_tied:
            shard(chunk.embedding, reshard_after_forward=not keeps)
        for block in chunk.layers:
            shard(block, reshard_after_forward=not keeps)
        if chunk.head is not None and not is_tied:
            shard(chunk.head, reshard_after_forward=False)
        shard(chunk, reshard_after_forward=False)
        if _device_of(chunk).type == "meta":
            _make_parts(chunk, self.device)
        return chunk

    def _fsdp1(self, chunk: Any) -> Any:
        from torch.distributed.fsdp import (
            FullyShardedDataParallel,
            MixedPrecision,
            ShardingStrategy,
        )
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        layout = self.place.layout
        mesh = self._mesh(self.device.type)
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
            limit_all_gathers=True, device_id=torch.empty(0, device=self.device).device,
            param_init_fn=_Maker(self.device),
        )  # fmt: skip

    def before_backward(self, chunk: int, is_last: bool) -> None:
        """FSDP reduces the gradients of every micro-batch."""

    def optimizer(self, rate: float, clip: float) -> Any:
        """Adam of torch, after clipping."""
        held = [each for chunk in self.chunks for each in chunk.parameters()]
        own = [nn.Parameter(each.to_local().detach()) if _is_shard(each) else each for each in held]
        kind = self.style.optimizer
        inner = torch.optim.AdamW(
            own, lr=rate, betas=(0.9, 0.95), weight_decay=0.1,
            fused=kind == "fused", foreach=kind == "foreach",
        )  # fmt: skip
        return _Clipped(inner, self.chunks, held, own, clip, self)

    def close(self) -> None:
        """Nothing outside holds the parameters."""


_NAMES = ("dp_replicate", "dp_shard")


class _Clipped:
    """Clips gradients, then steps, then drops them."""

    def __init__(
        self, inner: Any, chunks: list[Any], held: list[Any], own: list[Any], clip: float,
        sharded: Sharded,
    ) -> None:  # fmt: skip
        self.inner, self.chunks, self.held, self.own, self.clip = inner, chunks, held, own, clip
        self.group, self.shard_group = sharded.place.tp, sharded.shard_group

    def step(self) -> None:
        for held, own in zip(self.held, self.own, strict=True):
            if held is not own and held.grad is not None:
                own.grad = held.grad.to_local()
        if self.clip and hasattr(self.chunks[0], "clip_grad_norm_"):
            for chunk in self.chunks:
                chunk.clip_grad_norm_(self.clip)
        elif self.clip:
            self._clip()
        self.inner.step()
        for each in (*self.held, *self.own):
            each.grad = None

    @torch.no_grad()
    def _clip(self) -> None:
        """By the norm over all ranks; what tensor parallel ranks have alike counts once."""
        is_alike = lambda p: self.group is not None and "divided" not in p.__dict__
        total = self._square(lambda p: not is_alike(p))
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
            total = total + self._square(is_alike)
        nn.utils.clip_grads_with_norm_(self.own, self.clip, total.sqrt(), foreach=True)

    def _square(self, counts: Any) -> torch.Tensor:
        """Of the norm of some gradients, over the ranks that divide them."""
        pairs = zip(self.held, self.own, strict=True)
        found = [own.grad for held, own in pairs if counts(held) and own.grad is not None]
        if found:
            total = nn.utils.get_total_norm(found, foreach=True).square()
        else:  # torch's norm of nothing is on the CPU
            total = torch.zeros((), device=self.own[0].device)
        if self.shard_group is not None:
            dist.all_reduce(total, group=self.shard_group)
        return total


def _divided_axis(parameter: nn.Parameter, ranks: int) -> Shard | None:
    """The first axis that `ranks` divide: a few experts over many ranks by their rows, since FSDP
    pads an axis that is too short with whole experts. None: the first one."""
    axes = [axis for axis, size in enumerate(parameter.shape) if size % ranks == 0]
    return Shard(axes[0]) if axes and parameter.shape[0] < ranks else None


def _make_parts(chunk: nn.Module, device: torch.device) -> None:
    """Memory for the parts and buffers of a chunk that was made on the meta device; what was noted
    of a parameter stays."""
    noted = {name: dict(each.__dict__) for name, each in chunk.named_parameters()}
    chunk.to_empty(device=device)
    for name, each in chunk.named_parameters():
        each.__dict__.update(noted[name])


class _Maker:
    """Memory for the modules that FSDP1 wraps next, which were made on the meta device: a block at
    a time, each divided before the next. A weight that two modules share stays one."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.made = device, dict[nn.Parameter, nn.Parameter]()

    def __call__(self, module: nn.Module) -> None:
        for name, each in module.named_parameters(recurse=False):
            if each.is_meta and each not in self.made:
                self.made[each] = nn.Parameter(torch.empty_like(each, device=self.device))
                self.made[each].__dict__.update(each.__dict__)
            setattr(module, name, self.made.get(each, each))
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta:
                setattr(module, name, torch.empty_like(buffer, device=self.device))


def _is_shard(parameter: Any) -> bool:
    return hasattr(parameter, "to_local")


def _compute_dtype(precision: str) -> torch.dtype:
    return torch.float16 if precision == "fp16" else torch.bfloat16


def _device_of(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _is_tied(chunk: Any) -> bool:
    return chunk.head.logits.weight is chunk.embedding.weight
