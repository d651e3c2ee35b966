# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Pipelines captured rank by rank in this process, with the schedules of torch's own."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
import torch.distributed as dist
from jobs import job
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage

from trnsim.capture import pipelining
from trnsim.capture.roles import Finder, as_workloads


class Products(torch.autograd.Function):
    """A product whose backward takes two, also where nobody needs a gradient of the input."""

    @staticmethod
    def forward(ctx, x, weight, scale):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        x.t() @ grad
        return grad @ weight.t(), None, None


class FreeLoss(torch.autograd.Function):
    """No op at all, forward and backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.new_empty(())

    @staticmethod
    def backward(ctx, grad):
        return grad.new_empty(ctx.shape)


class Work(nn.Module):
    """`layers` equal products; no gradient is accumulated."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, device="trn"))
        self.layers = layers
        self.register_buffer("weight", torch.empty(width, width, device="trn"))

    def forward(self, x):
        for _ in range(self.layers):
            x = Products.apply(x, self.weight, self.scale)
        return x


class Exponential(torch.autograd.Function):
    """One op, whose backward takes two, all of one length in any layout."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        x.exp()
        return grad.exp(), None


class Pointwise(nn.Module):
    """`layers` ops that take as long wherever their inputs come from, which on Trainium products
    do not: those turn what lies the other way round."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, device="trn"))
        self.layers = layers

    def forward(self, x):
        for _ in range(self.layers):
            x = Exponential.apply(x, self.scale)
        return x


class Layers(nn.Sequential):
    """Layers whose backward by weights can be put off."""

    def __init__(self, layers: int, width: int) -> None:
        linear = lambda: nn.Linear(width, width, bias=False, device="trn")
        super().__init__(*(linear() for _ in range(layers)))


def run_pipeline(
    rank: int,
    ranks: int,
    make_schedule: Callable,
    *,
    micro_batches: int,
    module: Callable[[int, int], nn.Module] = Work,
    layers: Callable[[int], int] = lambda stage: 1,
    stage_of: Callable[[int, int], list[int]] = lambda rank, ranks: [rank],
    chunks: int = 1,
    replicas: int = 1,
    width: int = 512,
    rows: int = 512,
    steps: int = 2,
) -> None:
    """What each rank of a pipeline does: `steps` steps, marked by hand. With replicas, the ranks of
    a stage stand side by side and reduce a gradient's worth of bytes at the end."""
    device = torch.device("trn", 0)
    ranks //= replicas
    mesh = init_device_mesh("trn", (ranks, replicas), mesh_dim_names=("pp", "dp"))
    gradient = torch.empty(width, width, device=device)
    mine = [
        PipelineStage(
            module(layers(i), width), i, ranks * chunks, device, group=mesh["pp"].get_group()
        )
        for i in stage_of(rank // replicas, ranks)
    ]
    loss_fn = lambda out, target: FreeLoss.apply(out)
    schedule = make_schedule(mine, micro_batches, loss_fn)
    for _ in range(steps):
        x = torch.empty(rows * micro_batches, width, device=device)
        target = torch.empty(rows * micro_batches, 1, device=device)
        is_first, is_last = (any(getattr(s, f"is_{w}") for s in mine) for w in ("first", "last"))
        inputs, more = [x] if is_first else [], {"target": target} if is_last else {}
        schedule.step(*inputs, **more, return_outputs=False)
        if replicas > 1:
            dist.all_reduce(gradient, group=mesh["dp"].get_group())
        torch.trn.step()


def capture(script: Callable[[int, int], None], ranks: int, **options) -> list:
    """The Workloads of all roles of `script(rank, ranks)`, found as `trnsim run` finds them."""
    shapes: dict = {}

    def run(rank: int):
        gc.collect()
        known = pipelining.begin(pipelining.Shapes(dict(shapes)))
        with job(ranks, "phantom", rank) as captured:
            script(rank, ranks)
        shapes.update(known.said)
        return captured.workload

    finder = Finder(lambda wanted, _: {rank: run(rank) for rank in wanted}, **options)
    return as_workloads(finder.find(run(0)))
