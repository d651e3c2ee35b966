# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Where a rank stands in a layout, its process groups, and what it sends over them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trnsim.errors import RecipeError
from trnsim.recipes.layout import Layout


class Place:
    """A rank's coordinates and groups; a group of one rank is None.

    Groups are made by their members alone, so that a job of any size makes few.
    """

    def __init__(self, layout: Layout, rank: int) -> None:
        self.layout, self.rank = layout, rank
        tp, cp, dp = layout.tp, layout.cp, layout.dp
        stage = layout.stage_ranks
        self.stage, inside = divmod(rank, stage)
        self.tp_rank = inside % tp
        self.cp_rank = inside // tp % cp
        self.dp_rank = inside // (tp * cp)
        first = self.stage * stage
        mine = first + self.tp_rank  # of ranks with the same part of the weights
        self.tp_ranks = [rank - self.tp_rank + i for i in range(tp)]
        self.cp_ranks = [rank + (i - self.cp_rank) * tp for i in range(cp)]
        self.data_ranks = [mine + i * tp for i in range(cp * dp)]
        self.pp_ranks = [inside + i * stage for i in range(layout.pp)]
        self.ep_rank = inside % layout.ep
        self.ep_ranks = [rank - self.ep_rank + i for i in range(layout.ep)]
        self.expert_data_ranks = [
            first + self.ep_rank + i * layout.ep for i in range(stage // layout.ep)
        ]
        self._groups: dict[tuple[int, ...], Any] = {}
        self.tp = self._group("tp", self.tp_ranks)
        self.cp = self._group("cp", self.cp_ranks)
        self.data = self._group("dp_cp" if cp > 1 else "dp", self.data_ranks)
        self.pp = self._group("pp", self.pp_ranks)
        self.ep = self._group("ep", self.ep_ranks) if layout.ep > 1 else None
        self.expert_data = self.data
        if layout.ep > 1 or tp > 1:
            self.expert_data = self._group("expert_dp", self.expert_data_ranks)
        if layout.zero == 0:  # every data parallel rank has the whole model's norm of gradients
            own = [inside - self.tp_rank + i for i in range(tp)]
            ranks = [each + i * stage for i in range(layout.pp) for each in own]
            self.norm = self._group("model", ranks)
        else:
            self.norm = self._group("world", list(range(layout.world)))

    def _group(self, name: str, ranks: list[int]) -> Any:
        if len(ranks) == 1:
            return None
        key = tuple(ranks)
        if key not in self._groups:
            if len(ranks) == dist.get_world_size():
                self._groups[key] = dist.group.WORLD
            else:
                self._groups[key] = dist.new_group(
                    ranks, use_local_synchronization=True, group_desc=name
                )
        return self._groups[key]

    def ends(self) -> Any:
        """The group of this pipeline's first and last rank; for those two alone."""
        return self._group("embedding", [self.pp_ranks[0], self.pp_ranks[-1]])

    def experts_by_server(self, ranks: int) -> tuple[Any, Any]:
        """Groups of expert parallel ranks: those at one place of all servers, with `ranks` of them
        each, and those of one server. None and all of them, where they are on one server, or when
        `ranks` is 0: tokens go straight to their experts."""
        if not ranks or self.ep is None or len(self.ep_ranks) <= ranks:
            return None, self.ep
        if len(self.ep_ranks) % ranks:
            raise RecipeError(
                f"ep {len(self.ep_ranks)} is no multiple of a server's {ranks} ranks: use "
                f"{-(-len(self.ep_ranks) // ranks) * ranks}"
            )
        place = self.ep_rank % ranks
        first = self.ep_rank - place
        servers = self._group("ep_servers", self.ep_ranks[place::ranks])
        return servers, self._group("ep_server", self.ep_ranks[first : first + ranks])

    @property
    def is_first(self) -> bool:
        """Of the pipeline."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Of the pipeline."""
        return self.stage == self.layout.pp - 1


# --- messages -----------------------------------------------------------------------------------
#
# Each returns its result and the work to wait for; a group of None returns its input.


def start_gather(x: Tensor, group: Any) -> tuple[Tensor, Any]:
    """The parts of all ranks along the first axis."""
    if group is None:
        return x, None
    out = x.new_empty((x.shape[0] * group.size(), *x.shape[1:]))
    return out, dist.all_gather_into_tensor(out, x.contiguous(), group=group, async_op=True)


def start_scatter(x: Tensor, group: Any) -> tuple[Tensor, Any]:
    """This rank's part along the first axis of the sum over all ranks."""
    if group is None:
        return x, None
    out = x.new_empty((x.shape[0] // group.size(), *x.shape[1:]))
    return out, dist.reduce_scatter_tensor(out, x.contiguous(), group=group, async_op=True)


def start_sum(x: Tensor, group: Any) -> tuple[Tensor, Any]:
    """The sum over all ranks, in place."""
    if group is None:
        return x, None
    return x, dist.all_reduce(x, group=group, async_op=True)


def wait(work: Any) -> None:
    """Makes what follows wait for it."""
    if work is not None:
        work.wait()


def gather(x: Tensor, group: Any) -> Tensor:
    out, work = start_gather(x, group)
    wait(work)
    return out


def scatter(x: Tensor, group: Any) -> Tensor:
    out, work = start_scatter(x, group)
    wait(work)
    return out


def all_sum(x: Tensor, group: Any) -> Tensor:
    out, work = start_sum(x, group)
    wait(work)
    return out


def all_max(x: Tensor, group: Any) -> Tensor:
    if group is not None:
        dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
    return x


class _Gather(torch.autograd.Function):
    """All parts; backward sums the gradients of all ranks and keeps this rank's part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return gather(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return scatter(grad, ctx.group), None


class _Scatter(torch.autograd.Function):
    """This rank's part of the sum; backward gathers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return scatter(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return gather(grad, ctx.group), None


class _Sum(torch.autograd.Function):
    """The sum over all ranks, which all then use alike."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        return all_sum(x.clone() if x.device.type == "cpu" else x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Copy(torch.autograd.Function):
    """Used alike on all ranks; backward sums the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return all_sum(grad.contiguous(), ctx.group), None


def gathered(x: Tensor, group: Any) -> Tensor:
    """See _Gather."""
    return x if group is None else _Gather.apply(x, group)


def scattered(x: Tensor, group: Any) -> Tensor:
    """See _Scatter."""
    return x if group is None else _Scatter.apply(x, group)


def summed(x: Tensor, group: Any) -> Tensor:
    """See _Sum."""
    return x if group is None else _Sum.apply(x, group)


def copied(x: Tensor, group: Any) -> Tensor:
    """See _Copy."""
    return x if group is None else _Copy.apply(x, group)
