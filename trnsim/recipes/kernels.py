# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The kernels between the products of a block, in two forms from one source.

Plain: ops of ATen, as an eager program runs them. Named: the fused kernels that training
frameworks bring along, each one record on the simulated device (csrc/lower/rules/named.cpp has
their costs) and its formula in ATen elsewhere. Both give the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from trnsim import _torch
from trnsim.recipes.parallel import copied

Named = Sequence[tuple[str, Tensor]]


def is_simulated(tensor: Tensor) -> bool:
    """Whether the tensor is on the simulated device."""
    return tensor.device.type == _torch.device_name()


def record(
    op: str, inputs: Named, outputs: Sequence[Tensor], scalars: Sequence[tuple[str, Any]] = (),
    mutated: Sequence[Tensor] = (),
) -> None:  # fmt: skip
    """Records one kernel; outputs in `mutated` are inputs written in place."""
    _torch.record_op(op, list(inputs), list(outputs), list(scalars), list(mutated))


def _run(
    op: str, inputs: Named, compute: Callable[[], tuple[Tensor, ...]],
    shapes: Sequence[tuple[Sequence[int], torch.dtype]],
) -> tuple[Tensor, ...]:  # fmt: skip
    """The results of a named kernel: recorded on the simulated device, computed elsewhere."""
    first = inputs[0][1]
    if not is_simulated(first):
        return compute()
    made = tuple(first.new_empty(shape, dtype=dtype) for shape, dtype in shapes)
    record(op, inputs, made)
    return made


# --- activations ----------------------------------------------------------------------------------


def _activate(name: str, x: Tensor) -> Tensor:
    if name == "silu":
        return F.silu(x)
    if name == "relu2":
        return F.relu(x).square()
    return F.gelu(x, approximate="tanh")


def _activation(name: str, gated: bool, x: Tensor, bias: Tensor | None) -> Tensor:
    if bias is not None:
        x = x + bias
    if not gated:
        return _activate(name, x)
    gate, up = x.chunk(2, -1)
    return _activate(name, gate) * up


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, name: str, gated: bool) -> Tensor:
        ctx.save_for_backward(x, bias)
        ctx.kind = name, gated
        inputs = [("input", x)] + ([("bias", bias)] if bias is not None else [])
        shape = (*x.shape[:-1], x.shape[-1] // (2 if gated else 1))
        return _run(
            f"trnsim::{'gated_' if gated else ''}{name}", inputs,
            lambda: (_activation(name, gated, x, bias),), [(shape, x.dtype)],
        )[0]  # fmt: skip

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, bias = ctx.saved_tensors
        name, gated = ctx.kind
        inputs = [("grad", grad), ("input", x)] + ([("bias", bias)] if bias is not None else [])

        def compute() -> tuple[Tensor, ...]:
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                constant = None if bias is None else bias.detach()
                made = _activation(name, gated, leaf, constant)
                return torch.autograd.grad(made, leaf, grad)

        op = f"trnsim::{'gated_' if gated else ''}{name}_backward"
        (result,) = _run(op, inputs, compute, [(x.shape, x.dtype)])
        of_bias = result.sum(0) if bias is not None and ctx.needs_input_grad[1] else None
        return result, of_bias, None, None


def activation(name: str, gated: bool, x: Tensor, bias: Tensor | None, named: bool) -> Tensor:
    """The activation of a feed-forward layer: of x, or of its first half times its second."""
    if named:
        return _Activation.apply(x, bias, name, gated)
    return _activation(name, gated, x, bias)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, name: str) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.kind = name
        inputs = [("gate", gate), ("up", up)]
        compute = lambda: (_activate(name, gate) * up,)
        return _run(f"trnsim::gated_{name}", inputs, compute, [(up.shape, up.dtype)])[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = ctx.saved_tensors

        def compute() -> tuple[Tensor, ...]:
            with torch.enable_grad():
                leaves = gate.detach().requires_grad_(), up.detach().requires_grad_()
                made = _activate(ctx.kind, leaves[0]) * leaves[1]
                return torch.autograd.grad(made, leaves, grad)

        inputs = [("grad", grad), ("gate", gate), ("up", up)]
        shapes = [(gate.shape, gate.dtype), (up.shape, up.dtype)]
        return *_run(f"trnsim::gated_{ctx.kind}_backward", inputs, compute, shapes), None


def gated(name: str, gate: Tensor, up: Tensor, named: bool) -> Tensor:
    """The activation of one tensor times another."""
    return _Gated.apply(gate, up, name) if named else _activate(name, gate) * up


# --- residual -------------------------------------------------------------------------------------


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, residual: Tensor, p: float
    ) -> Tensor:  # fmt: skip
        inputs = [("input", x), ("residual", residual)]
        inputs += [("bias", bias)] if bias is not None else []
        shapes = [(x.shape, x.dtype)] + ([(x.shape, torch.bool)] if p else [])

        def compute() -> tuple[Tensor, ...]:
            y = x if bias is None else x + bias
            if not p:
                return (residual + y,)
            kept, mask = torch.native_dropout(y, p, True)
            return residual + kept, mask

        out, *mask = _run("trnsim::bias_dropout_add", inputs, compute, shapes)
        ctx.save_for_backward(*mask)
        ctx.p, ctx.has_bias = p, bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        of_x = grad
        if ctx.p:
            (mask,) = ctx.saved_tensors
            (of_x,) = _run(
                "trnsim::dropout_backward", [("grad", grad), ("mask", mask)],
                lambda: (grad * mask / (1 - ctx.p),), [(grad.shape, grad.dtype)],
            )  # fmt: skip
        return of_x, of_x.sum(0) if ctx.has_bias else None, grad, None


def dropout_add(x: Tensor, bias: Tensor | None, residual: Tensor, p: float, named: bool) -> Tensor:
    """residual + dropout(x + bias)."""
    if named:
        return _DropoutAdd.apply(x, bias, residual, p)
    x = x if bias is None else x + bias
    return residual + (F.dropout(x, p, True) if p else x)


# --- norms ----------------------------------------------------------------------------------------


class Norm(torch.nn.Module):
    """RMS or layer norm of the last axis: one kernel of ATen, and in RMS's eager form many.

    Args:
        group: ranks over which autograd sums the gradients of its parameters, each of which saw a
            part of the sequence; None where something else does.
    """

    def __init__(
        self, size: int, kind: str, bias: bool, dtype: torch.dtype, device: Any, eager: bool,
        group: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size, dtype=dtype, device=device))
        self.bias = (
            torch.nn.Parameter(torch.zeros(size, dtype=dtype, device=device)) if bias else None
        )
        self.size, self.kind, self.eager, self.group = size, kind, eager, group

    def forward(self, x: Tensor) -> Tensor:
        weight = copied(self.weight, self.group)
        if self.kind == "layer":
            bias = None if self.bias is None else copied(self.bias, self.group)
            return F.layer_norm(x, (self.size,), weight, bias, 1e-5)
        if not self.eager:
            return F.rms_norm(x, (self.size,), weight, 1e-5)
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normed.type_as(x) * weight


# --- rotary positions -----------------------------------------------------------------------------


def rotary_table(positions: Tensor, size: int, device: Any) -> tuple[Tensor, Tensor]:
    """Cosines and sines of each position, [positions, size / 2]."""
    steps = torch.arange(0, size, 2, device=device, dtype=torch.float32) / size
    angles = positions.to(torch.float32)[:, None] * (10000.0**-steps)[None]
    return angles.cos(), angles.sin()


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    size = 2 * cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    a, b = turned.float().chunk(2, -1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    made = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).type_as(x)
    return torch.cat([made, rest], -1) if rest.shape[-1] else made


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        inputs = [("input", x), ("cos", cos), ("sin", sin)]
        compute = lambda: (_rotated(x, cos, sin),)
        return _run("trnsim::rope", inputs, compute, [(x.shape, x.dtype)])[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        inputs = [("input", grad), ("cos", cos), ("sin", sin)]
        compute = lambda: (_rotated(grad, cos, -sin),)
        return _run("trnsim::rope", inputs, compute, [(grad.shape, grad.dtype)])[0], None, None


def rotary(x: Tensor, cos: Tensor, sin: Tensor, named: bool) -> Tensor:
    """x [tokens, heads, size] with its positions turned in."""
    return _Rotary.apply(x, cos, sin) if named else _rotated(x, cos, sin)


# --- gradients ------------------------------------------------------------------------------------


def accumulate_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """into += left @ right, in the dtype of `into`: the epilogue of the product adds."""
    if is_simulated(into):
        inputs = [("self", into), ("mat1", left), ("mat2", right)]
        record("aten::addmm_", inputs, [into], mutated=[into])
    else:
        into.addmm_(left.to(into.dtype), right.to(into.dtype))
