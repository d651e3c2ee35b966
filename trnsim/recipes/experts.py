# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A feed-forward layer of experts: a router sends each token to some of them.

Tokens go to the ranks of their experts by an all-to-all among expert parallel ranks and come back
by another; or once to each server that has some of their experts, and from there to the ranks. On
the simulated device all experts get the same number of tokens, which is what benchmarks force, or
as many as the layout's skew says (`skew`); elsewhere the router decides and no token is dropped.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from trnsim.errors import RecipeError
from trnsim.recipes import fp8, kernels, skew
from trnsim.recipes.block import FeedForward, Parts
from trnsim.recipes.kernels import is_simulated
from trnsim.recipes.models import Model
from trnsim.recipes.parallel import all_sum
from trnsim.recipes.style import Style


class Experts(nn.Module):
    """Router, this rank's experts, and an expert that all tokens share."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        model, place, style = parts.model, parts.place, parts.style
        layout = place.layout
        if layout.tp > 1 and not layout.sequence_parallel and not parts.serves:
            raise RecipeError(f"experts with tp {layout.tp}: use sequence_parallel too")
        self.model, self.place, self.parts, self.style = model, place, parts, style
        self.count = model.experts // layout.ep
        self.tp = layout.tp if parts.serves else 1  # ranks that each expert is divided over
        width = model.expert_ffn // self.tp
        columns = (2 if model.gated else 1) * width
        make = lambda *shape: nn.Parameter(
            torch.empty(shape, dtype=parts.dtype, device=parts.device)
        )
        self.router = make(model.experts, model.hidden)
        self.up, self.down = (
            make(self.count, columns, model.hidden), make(self.count, model.hidden, width)
        )  # fmt: skip
        for weight in (self.up, self.down):
            weight.is_expert = True
            weight.divided = (0, None, layout.ep, place.ep_rank)
        if self.tp > 1:
            splits = [model.expert_ffn] * (2 if model.gated else 1)
            self.up.divided = (1, splits, self.tp, place.tp_rank)
            self.down.divided = (2, None, self.tp, place.tp_rank)
        self.serves, self.decodes = parts.serves, False
        self.up_bias = self.down_bias = None
        self.scaling = fp8.scaling_of(layout.precision)
        self.held_fp8: dict[str, Any] = {}
        self.shared = FeedForward(parts, model.shared_ffn) if model.shared_ffn else None
        if self.serves and self.shared is not None:  # its sum over ranks is that of the others
            self.shared.down.group = None

    def forward(self, x: Tensor) -> Tensor:
        """[tokens of this rank, hidden] to the same."""
        if not is_simulated(x):
            out = self._computed(x)
        else:
            out = self._served(x) if self.serves else self._simulated(x)
        if self.shared is not None:
            out = out + self.shared.lower(False, *self.shared.raise_(self.parts.gathered(x), False))
        return all_sum(out, self.place.tp) if self.serves else out

    # --- where values are of no interest ---------------------------------------------------------

    def _simulated(self, x: Tensor) -> Tensor:
        model, place = self.model, self.place
        logits = F.linear(x, self.router)
        shares = _Route.apply(logits, model.topk)
        if self.style.capacity:
            return self._masked(x, shares)
        if self.style.routes_on_host:
            shares.detach()[:1, :1].cpu()  # how many tokens go where, as the host asks
        servers, ranks = place.experts_by_server(self.style.dispatch_ranks)
        members = 1 if ranks is None else ranks.size()
        sent, rows = self._rows(x.shape[0], members)
        from_each = [sum(rows) // members] * members
        routed = x
        if servers is not None:
            once = _once_a_server(x.shape[0], model.topk, servers.size())
            routed = _exchanged(_Move.apply(routed, "permute", once), servers)
        routed = _exchanged(_Move.apply(routed, "permute", sum(sent)), ranks, sent, from_each)
        if self.count > 1:
            routed = _Move.apply(routed, "permute", sum(rows))
        if are_alike := len(set(rows)) == 1:
            routed = routed.unflatten(0, (self.count, -1))
        unlike = None if are_alike else rows
        up = _Grouped.apply(routed, self.up, self, unlike)
        active = _WeightedActivation.apply(up, shares, model.activation, model.gated)
        routed = _Grouped.apply(active, self.down, self, unlike)
        if are_alike:
            routed = routed.flatten(0, 1)
        if self.count > 1:
            routed = _Move.apply(routed, "permute", sum(rows))
        routed = _exchanged(routed, ranks, from_each, sent)
        if servers is not None:
            routed = _exchanged(_Move.apply(routed, "unpermute", once), servers)
        return _Move.apply(routed, "unpermute", x.shape[0])

    def _rows(self, tokens: int, members: int) -> tuple[list[int], tuple[int, ...]]:
        """Of so many tokens of each rank: rows to each of the ranks that they go to, and those that
        each expert of this one gets from all."""
        model, layout = self.model, self.place.layout
        if layout.expert_skew:
            rows = skew.rows_of_experts(model, layout, self.place.ep_rank)
            return list(skew.rows_to_ranks(model, layout)), rows
        parts = math.lcm(self.count, layout.ep)  # equal for every expert and every rank
        whole = -(-tokens * model.topk // parts) * parts
        return [whole // members] * members, (whole // self.count,) * self.count

    def _masked(self, x: Tensor, shares: Tensor) -> Tensor:
        """By masks that choose a fixed number of each sequence's tokens for every expert."""
        model, place = self.model, self.place
        sequences = x.unflatten(0, (min(place.layout.micro_batch, x.shape[0]), -1))
        each = math.ceil(sequences.shape[1] * model.topk * self.style.capacity / model.experts)
        places = model.experts * each
        mask = shares[:, :1].to(x.dtype).expand(-1, places).contiguous()
        mask = mask.unflatten(0, sequences.shape[:2])
        routed = _EachSequence.apply(mask.detach().transpose(1, 2), sequences).flatten(0, 1)
        routed = _exchanged(routed, place.ep).unflatten(0, (self.count, -1))
        up = _Grouped.apply(routed, self.up, self)
        active = kernels.activation(model.activation, model.gated, up, None, True)
        routed = _Grouped.apply(active, self.down, self).flatten(0, 1)
        routed = _exchanged(routed, place.ep).unflatten(0, (sequences.shape[0], -1))
        return _EachSequence.apply(mask, routed).flatten(0, 1)

    def _served(self, x: Tensor) -> Tensor:
        """While it generates: this rank's part of those experts that are loaded."""
        model = self.model
        shares = _Route.apply(F.linear(x, self.router), model.topk)
        loaded, rows = loads(model, self.style, x.shape[0], self.decodes)
        routed = _Move.apply(x, "permute", loaded * rows).unflatten(0, (loaded, rows))
        up = _multiply(routed, _some(self.up, loaded), x, True)
        active = _WeightedActivation.apply(up, shares, model.activation, model.gated)
        routed = _multiply(active, _some(self.down, loaded), x, True).flatten(0, 1)
        return _Move.apply(routed, "unpermute", x.shape[0])

    # --- where they are --------------------------------------------------------------------------

    def _computed(self, x: Tensor) -> Tensor:
        model, place = self.model, self.place
        shares, chosen = F.softmax(F.linear(x, self.router).float(), -1).topk(model.topk, -1)
        shares = (shares / shares.sum(-1, keepdim=True)).to(x.dtype).flatten()
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        sent = x[order // model.topk]
        to_each = torch.bincount(chosen, minlength=model.experts)
        from_each = to_each
        if place.ep is not None:
            from_each = torch.empty_like(to_each)
            dist.all_to_all_single(from_each, to_each, group=place.ep)
        ranks = place.layout.ep
        splits = [each.unflatten(0, (ranks, -1)).sum(1).tolist() for each in (to_each, from_each)]
        routed = _AllToAll.apply(sent, *splits, place.ep)
        own = torch.arange(self.count).repeat(ranks).repeat_interleave(from_each)
        made = torch.zeros_like(routed)
        for expert in range(self.count):
            at = (own == expert).nonzero()[:, 0]
            up = F.linear(routed[at], self.up[expert])
            active = kernels.activation(model.activation, model.gated, up, None, False)
            made = made.index_add(0, at, F.linear(active, self.down[expert]))
        back = _AllToAll.apply(made, *reversed(splits), place.ep)
        back = back * shares[order][:, None]
        return torch.zeros_like(x).index_add(0, order // model.topk, back)


def loads(model: Model, style: Style, tokens: int, decodes: bool) -> tuple[int, int]:
    """How often the weights of an expert are read for so many tokens, and rows of each product.

    Of tokens that choose with equal chances; a server's tokens do not.
    """
    experts, choices = model.experts, tokens * model.topk
    if style.expert_block and not decodes and choices >= max(experts, style.expert_block):
        blocks = -(-(choices - (experts - 1)) // style.expert_block) + experts - 1
        return blocks, style.expert_block  # whatever the shares are, it is enough
    if style.loads == "selected":
        return (choices, 1) if choices < experts else (experts, tokens)
    distinct = math.ceil(experts * (1 - (1 - model.topk / experts) ** tokens) - 1e-9)
    return distinct, -(-choices // distinct)


def _some(weight: Tensor, count: int) -> Tensor:
    """The weights of so many experts as right operands; of more than there are, one again."""
    weight = weight.detach().transpose(1, 2)
    return weight[:count] if count <= len(weight) else weight[:1].expand(count, -1, -1)


def _once_a_server(tokens: int, topk: int, servers: int) -> int:
    """Rows of tokens that go once to each of the servers with some of their experts, which are
    drawn with equal chances; the same number to every server."""
    share = 1 - (1 - 1 / servers) ** topk
    return math.ceil(tokens * share) * servers


class _AllToAll(torch.autograd.Function):
    """Rows to the ranks of a group: so many sent to each, so many received from each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sent: Any, received: Any, group: Any) -> Tensor:
        ctx.splits, ctx.group = (sent, received), group
        return _all_to_all(x, sent, received, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sent, received = ctx.splits
        return _all_to_all(grad.contiguous(), received, sent, ctx.group), None, None, None


def _all_to_all(x: Tensor, sent: Any, received: Any, group: Any) -> Tensor:
    if group is None:
        return x.clone()
    rows = x.shape[0] if received is None else sum(received)
    out = x.new_empty((rows, *x.shape[1:]))
    dist.all_to_all_single(out, x.contiguous(), received, sent, group=group)
    return out


def _exchanged(
    x: Tensor, group: Any, sent: list[int] | None = None, received: list[int] | None = None
) -> Tensor:  # fmt: skip
    """So many rows to each rank of the group, and so many from each; None: as many to all."""
    return x if group is None else _AllToAll.apply(x, sent, received, group)


# --- kernels --------------------------------------------------------------------------------------


class _Route(torch.autograd.Function):
    """Scores of all experts to the shares of the chosen ones."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, topk: int) -> Tensor:
        shares = logits.new_empty((logits.shape[0], topk), dtype=torch.float32)
        chosen = logits.new_empty(shares.shape, dtype=torch.int32)
        kernels.record("trnsim::route", [("input", logits)], [shares, chosen])
        ctx.save_for_backward(shares, chosen)
        ctx.shape, ctx.dtype = logits.shape, logits.dtype
        return shares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        out = grad.new_empty(ctx.shape, dtype=ctx.dtype)
        inputs = zip(("grad", "shares", "chosen"), (grad, *ctx.saved_tensors), strict=True)
        kernels.record("trnsim::route_backward", list(inputs), [out])
        return out, None


class _Move(torch.autograd.Function):
    """Rows in another order: to so many rows, or summed from them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kind: str, rows: int) -> Tensor:
        ctx.kind, ctx.rows = kind, x.shape[0]
        out = x.new_empty((rows, *x.shape[1:]))
        kernels.record(f"trnsim::{kind}", [("input", x)], [out])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        out = grad.new_empty((ctx.rows, *grad.shape[1:]))
        is_sum = ctx.kind == "permute" and ctx.rows < grad.shape[0]
        op = "trnsim::unpermute" if is_sum else "trnsim::permute"
        kernels.record(op, [("input", grad)], [out])
        return out, None, None


class _WeightedActivation(torch.autograd.Function):
    """The activation of [experts, rows, columns], times the share of each row."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shares: Tensor, name: str, gated: bool
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, shares)
        ctx.op = f"trnsim::{'gated_' if gated else ''}{name}"
        out = x.new_empty((*x.shape[:-1], x.shape[-1] // (2 if gated else 1)))
        kernels.record(ctx.op, [("input", x), ("shares", shares)], [out])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, shares = ctx.saved_tensors
        made = torch.empty_like(x), torch.empty_like(shares)
        inputs = [("grad", grad), ("input", x), ("shares", shares)]
        kernels.record(f"{ctx.op}_backward", inputs, made)
        return *made, None, None


class _Grouped(torch.autograd.Function):
    """One product for each expert: [experts, rows, in] to [experts, rows, out]; or, where rows of
    each are given, [all rows, in] to [all rows, out]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, layer: Experts, rows: tuple[int, ...] | None = None
    ) -> Tensor:  # fmt: skip
        operands = _operands(x, layer)
        ctx.save_for_backward(operands[-1])
        ctx.layer, ctx.weight, ctx.name = layer, weight, "up" if weight is layer.up else "down"
        ctx.rows = rows
        by_row = _weights(layer, ctx.name)[0].transpose(1, 2)
        if rows is not None:
            return _multiply_rows(operands[0], by_row, x, rows)
        return _multiply(operands[0], by_row, x, _is_grouped(layer))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        layer: Experts = ctx.layer
        grouped = _is_grouped(layer)
        operands = _operands(grad.contiguous(), layer)
        by_column = operands[-1].transpose(-1, -2)
        weight = _weights(layer, ctx.name)[-1]
        main = getattr(getattr(layer, ctx.name), "main_grad", None)
        if ctx.rows is not None:
            of_input = _multiply_rows(operands[0], weight, grad, ctx.rows)
            return of_input, _weight_by_rows(by_column, x, grad, ctx.rows, main), None, None
        of_input = _multiply(operands[0], weight, grad, grouped)
        if main is None:
            return of_input, _multiply(by_column, x, grad, grouped), None, None
        inputs = [("self", main), ("batch1", by_column), ("batch2", x)]
        kernels.record("aten::baddbmm_", inputs, [main], mutated=[main])
        return of_input, None, None, None


class _EachSequence(torch.autograd.Function):
    """One product for each sequence: [sequences, a, b] times [sequences, b, c]."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        return _multiply(left, right, right, False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        of_left = None
        if ctx.needs_input_grad[0]:
            of_left = _multiply(grad, right.transpose(1, 2), grad, False)
        return of_left, _multiply(left.transpose(1, 2), grad, grad, False)


def _is_grouped(layer: Experts) -> bool:
    """Whether one kernel makes the products of all experts, as where each has rows of its own
    number; XLA makes those of equal numbers as any product."""
    return not layer.style.capacity


def _operands(x: Tensor, layer: Experts) -> tuple[Tensor, ...]:
    return (x,) if layer.scaling is None else fp8.quantized(x, layer.scaling)


def _weights(layer: Experts, name: str) -> tuple[Tensor, ...]:
    """An expert weight as products take it: in 8 bits cast once a step."""
    weight = getattr(layer, name)
    if layer.scaling is None:
        return (weight,)
    if name not in layer.held_fp8:
        layer.held_fp8[name] = fp8.quantized(weight.detach(), layer.scaling)
    return layer.held_fp8[name]


def _multiply_rows(left: Tensor, right: Tensor, like: Tensor, rows: tuple[int, ...]) -> Tensor:
    """[all rows, b] times [n, b, c], of so many rows each, by one kernel."""
    out = like.new_empty((left.shape[0], right.shape[2]))
    inputs = [("self", left), ("mat2", right)]
    kernels.record("trnsim::grouped_mm", inputs, [out], [("rows", list(rows))])
    return out


def _weight_by_rows(
    left: Tensor, right: Tensor, like: Tensor, rows: tuple[int, ...], main: Tensor | None
) -> Tensor | None:  # fmt: skip
    """[a, all rows] times [all rows, c], of so many rows each: [n, a, c], or added to `main`."""
    inputs, scalars = [("self", left), ("mat2", right)], [("rows", list(rows))]
    if main is not None:
        inputs = [("main", main), *inputs]
        kernels.record("trnsim::grouped_mm", inputs, [main], scalars, mutated=[main])
        return None
    out = like.new_empty((len(rows), left.shape[0], right.shape[1]))
    kernels.record("trnsim::grouped_mm", inputs, [out], scalars)
    return out


def _multiply(left: Tensor, right: Tensor, like: Tensor, grouped: bool) -> Tensor:
    """[n, a, b] times [n, b, c], by one kernel for all or by one for each."""
    out = like.new_empty((left.shape[0], left.shape[1], right.shape[2]))
    if grouped:
        kernels.record("aten::bmm", [("self", left), ("mat2", right)], [out])
        return out
    for one, a, b in zip(out.unbind(), left.unbind(), right.unbind(), strict=True):
        kernels.record("aten::mm", [("self", a), ("mat2", b)], [one])
    return out
