# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Parameters and gradients in flat buckets, and the optimizer over this rank's part of them.

As in Megatron-LM: parameters of a bucket lie in one buffer, their main gradients in another. In
the last micro-batch's backward a bucket whose gradients are complete is reduced, while the rest of
the backward runs; Adam changes the part that this rank owns (zero >= 1) or all of it (zero 0); the
changed parts are gathered, bucket after bucket in the order in which the next forward needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trnsim.recipes.parallel import Place, wait
from trnsim.recipes.style import Style

LEAST_BUCKET = 40_000_000  # elements; Megatron-LM's --ddp-bucket-size where ranks are few


class Bucket:
    """Some parameters that are reduced and gathered together.

    Attributes:
        data, grad: buffers of the parameters and of their main gradients.
        owned: this rank's part of the parameters; master: the same in float32.
    """

    def __init__(
        self, parameters: list[nn.Parameter], group: Any, rank: int, is_divided: bool,
        gradient: torch.dtype,
    ) -> None:  # fmt: skip
        first = parameters[0]
        ranks = group.size() if group is not None else 1
        count = sum(parameter.numel() for parameter in parameters)
        padded = -(-count // (128 * ranks)) * 128 * ranks
        self.parameters, self.group = parameters, group
        self.is_divided = is_divided and ranks > 1
        self.data = torch.empty(padded, dtype=first.dtype, device=first.device)
        self.grad = torch.zeros(padded, dtype=gradient, device=first.device)
        self._adopt()
        part = padded // ranks
        own = slice(rank * part, (rank + 1) * part) if self.is_divided else slice(0, padded)
        self.owned, self.owned_grad = self.data[own], self.grad[own]
        self.master = nn.Parameter(self.owned.detach().float())
        self.is_repeated = False  # the same on all tensor parallel ranks
        self.missing = len(parameters)
        self.reducing: Any = None
        self.gathering: Any = None

    def _adopt(self) -> None:
        """The parameters become views of the buffer."""
        at = 0
        for parameter in self.parameters:
            end = at + parameter.numel()
            view = self.data[at:end].view(parameter.shape)
            with torch.no_grad():
                view.copy_(parameter)
            parameter.data = view
            parameter.main_grad = self.grad[at:end].view(parameter.shape)
            at = end

    def start_reduce(self) -> None:
        """Sums the gradients over ranks, this rank's part or all."""
        if self.group is None:
            return
        if self.is_divided:
            self.reducing = dist.reduce_scatter_tensor(
                self.owned_grad, self.grad, group=self.group, async_op=True
            )
        else:
            self.reducing = dist.all_reduce(self.grad, group=self.group, async_op=True)

    def start_gather(self) -> None:
        """Gets the parts that other ranks have changed."""
        if self.is_divided:
            self.gathering = dist.all_gather_into_tensor(
                self.data, self.owned, group=self.group, async_op=True
            )

    def finish_gather(self) -> None:
        wait(self.gathering)
        self.gathering = None

    def finish_reduce(self) -> None:
        wait(self.reducing)
        self.reducing = None
        self.missing = len(self.parameters)


class Buckets:
    """All parameters of a rank.

    Args:
        shared: a parameter that another stage has too, and the group of the two.
    """

    def __init__(
        self, chunks: list[nn.Module], place: Place, style: Style, gradient: torch.dtype,
        shared: tuple[Tensor, Any] | None,
    ) -> None:  # fmt: skip
        self.place, self.style = place, style
        self.shared = shared
        self.is_last_backward = False
        self.buckets: list[Bucket] = []
        self._of: dict[int, Bucket] = {}
        self._of_module: dict[nn.Module, list[Bucket]] = {}
        self._hooks: list[Any] = []
        divided = place.layout.zero >= 1
        for chunk in chunks:
            for parameters, kind in _in_groups(chunk, place.layout.tp > 1):
                group = place.expert_data if kind == "expert" else place.data
                rank = group.rank() if group is not None else 0
                bucket = Bucket(parameters, group, rank, divided, gradient)
                bucket.is_repeated = kind == "repeated"
                self.buckets.append(bucket)
                for parameter in parameters:
                    self._of[id(parameter)] = bucket
                    hook = parameter.register_post_accumulate_grad_hook(self._take)
                    self._hooks.append(hook)

    def close(self) -> None:
        """Lets go of the parameters: what autograd holds is in no cycle that Python sees."""
        for hook in self._hooks:
            hook.remove()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                del parameter.main_grad
            bucket.parameters.clear()
        self._of_module.clear()

    def _take(self, parameter: Tensor) -> None:
        """All of a parameter's gradient is there: what autograd made goes into the main one."""
        if parameter.grad is not None:
            parameter.main_grad.add_(parameter.grad)
            parameter.grad = None
        if not self.is_last_backward or parameter.__dict__.get("is_reduced_late", False):
            return
        bucket = self._of[id(parameter)]
        bucket.missing -= 1
        if bucket.missing == 0 and self.style.gradient_overlap:
            bucket.start_reduce()

    def gather_before(self, module: nn.Module, *_: Any) -> None:
        """Waits for the module's parameters: a pre-hook of its forward."""
        if module not in self._of_module:
            found = {id(b): b for b in map(self._bucket_of, module.parameters()) if b}
            self._of_module[module] = list(found.values())
        for bucket in self._of_module[module]:
            if bucket.gathering is not None:
                bucket.finish_gather()

    def _bucket_of(self, parameter: Tensor) -> Bucket | None:
        return self._of.get(id(parameter))

    def start_gathers(self) -> None:
        """At the begin of a step, where gathers run beside the forward."""
        for bucket in self.buckets:
            bucket.start_gather()

    def finish_reduces(self) -> None:
        """After the last backward."""
        if self.shared is not None:
            weight, group = self.shared
            dist.all_reduce(weight.main_grad, group=group)
        for bucket in self.buckets:
            if bucket.reducing is None:
                bucket.start_reduce()
        for bucket in self.buckets:
            bucket.finish_reduce()
        if self.place.tp is not None and self.place.layout.sequence_parallel:
            for bucket in self.buckets:  # each rank saw a part of the sequence
                if bucket.is_repeated:
                    dist.all_reduce(bucket.grad, group=self.place.tp)


def _kind_of(parameter: Tensor, is_divided: bool) -> str:
    if parameter.__dict__.get("is_expert", False):
        return "expert"
    return "repeated" if is_divided and "divided" not in parameter.__dict__ else "own"


def _in_groups(
    chunk: nn.Module, is_divided: bool
) -> Iterable[tuple[list[nn.Parameter], str]]:  # fmt: skip
    """Parameters of the buckets, from the input on; those of a kind by themselves."""
    groups: dict[str, list[nn.Parameter]] = {"own": [], "expert": [], "repeated": []}
    seen: set[int] = set()
    for module in [chunk.embedding, *chunk.layers, chunk.head]:
        for parameter in module.parameters() if module is not None else ():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                groups[_kind_of(parameter, is_divided)].append(parameter)
        for kind, found in groups.items():
            if sum(each.numel() for each in found) >= LEAST_BUCKET:
                yield found, kind
                groups[kind] = []
    yield from ((found, kind) for kind, found in groups.items() if found)


class BucketOptimizer(torch.optim.Optimizer):
    """Adam over the owned parts, with clipping before it and the copies back after it."""

    def __init__(self, buckets: Buckets, rate: float, clip: float, kind: str) -> None:
        masters = [bucket.master for bucket in buckets.buckets]
        super().__init__(masters, {"lr": rate})
        self.buckets, self.clip = buckets, clip
        self.inner = torch.optim.AdamW(
            masters, lr=rate, betas=(0.9, 0.95), weight_decay=0.1,
            fused=kind == "fused", foreach=kind == "foreach",
        )  # fmt: skip

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step; gradients are zero afterwards."""
        all_buckets = self.buckets.buckets
        gradients = [bucket.owned_grad for bucket in all_buckets]
        if self.clip:
            self._clip(gradients)
        for bucket, gradient in zip(all_buckets, gradients, strict=True):
            bucket.master.grad = gradient.float() if gradient.dtype != torch.float32 else gradient
        self.inner.step()
        for bucket in all_buckets:
            bucket.owned.copy_(bucket.master)
            bucket.master.grad = None
            bucket.grad.zero_()
        if not self.buckets.style.parameter_overlap:
            for bucket in all_buckets:
                bucket.start_gather()
            for bucket in all_buckets:
                bucket.finish_gather()

    def _clip(self, gradients: list[Tensor]) -> None:
        is_first = self.buckets.place.tp_rank == 0
        counted = [b.owned_grad for b in self.buckets.buckets if is_first or not b.is_repeated]
        total = torch.stack(torch._foreach_norm(counted, 2)).float().pow(2).sum()
        if self.buckets.place.norm is not None:
            dist.all_reduce(total, group=self.buckets.place.norm)
        norm = total.sqrt().item()  # the host decides by it, as in Megatron-LM
        torch._foreach_mul_(gradients, min(1.0, self.clip / (norm + 1e-6)))
