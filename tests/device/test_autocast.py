# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.autocast("trn") by PyTorch's own lists, and GradScaler("trn")."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trnsim import device as trn


def test_matrix_products_run_in_bfloat16_and_normalisation_in_float32(mode: str) -> None:
    x = torch.ones(4, 8, device="trn")
    weight = torch.ones(8, 8, device="trn")
    with torch.autocast("trn"):
        product = x @ weight
        assert product.dtype == torch.bfloat16
        assert torch.nn.functional.linear(x, weight).dtype == torch.bfloat16
        assert torch.softmax(product, -1).dtype == torch.float32
        assert torch.nn.functional.layer_norm(product, (8,)).dtype == torch.float32
        assert (product + product).dtype == torch.bfloat16  # on no list: as its arguments are
    assert (x @ weight).dtype == torch.float32


def test_float16_can_be_asked_for(mode: str) -> None:
    x = torch.ones(4, 8, device="trn")
    with torch.autocast("trn", dtype=torch.float16):
        assert (x @ x.T).dtype == torch.float16
    with trn.amp.autocast(dtype=torch.float16):
        assert (x @ x.T).dtype == torch.float16


def test_a_part_can_be_asked_for_in_float32_as_on_cuda(mode: str) -> None:
    half, single = (torch.ones(4, 4, device="trn", dtype=d) for d in (torch.bfloat16, None))
    with torch.autocast("trn"), torch.autocast("trn", dtype=torch.float32):
        assert (half @ single).dtype == torch.float32


def test_autocast_can_be_switched_off_inside(mode: str) -> None:
    x = torch.ones(4, 8, device="trn")
    with torch.autocast("trn"), torch.autocast("trn", enabled=False):
        assert (x @ x.T).dtype == torch.float32


def test_a_dtype_that_the_device_does_not_know_switches_autocast_off() -> None:
    with pytest.warns(UserWarning, match="not supported"):
        context = torch.autocast("trn", dtype=torch.float64)
    with context:
        assert not torch.is_autocast_enabled("trn")


def test_the_widest_argument_decides_for_ops_that_promote(mode: str) -> None:
    half = torch.ones(4, device="trn", dtype=torch.bfloat16)
    single = torch.ones(4, device="trn")
    with torch.autocast("trn"):
        assert torch.atan2(half, single).dtype == torch.float32


def test_binary_cross_entropy_is_refused_with_the_way_out() -> None:
    x = torch.full((4,), 0.5, device="trn")
    with torch.autocast("trn"), pytest.raises(RuntimeError, match="with_logits"):
        torch.nn.functional.binary_cross_entropy(x, x)


def test_values_and_gradients_are_those_of_the_cpu_under_autocast() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    x = torch.randn(5, 8)

    def run(device: str) -> list[torch.Tensor]:
        model.to(device).zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(x.to(device)).float().square().mean()
        loss.backward()
        return [loss.detach().cpu(), *(p.grad.cpu().clone() for p in model.parameters())]

    cpu, ours = run("cpu"), run("trn")
    # The CPU's list leaves layer_norm in bfloat16 and ours does not: one bfloat16 rounding apart.
    for a, b in zip(cpu, ours, strict=True):
        torch.testing.assert_close(a, b, rtol=3e-2, atol=3e-2)


def scaled_steps(scaler: torch.amp.GradScaler, gradients: list[float]) -> tuple[list[float], float]:
    """A weight of 1 under SGD with rate 1 through `scaler`: its values, and the last scale."""
    weight = nn.Parameter(torch.ones(1, device="trn"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    values = []
    for gradient in gradients:
        optimizer.zero_grad()
        scaler.scale((weight * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        values.append(weight.item())
    return values, scaler.get_scale()


def test_grad_scaler_steps_and_skips() -> None:
    # scale 4 and growth every 2 good steps: good, infinite (skipped, scale halves), good, good
    scaler = torch.amp.GradScaler("trn", init_scale=4.0, growth_interval=2)
    values, scale = scaled_steps(scaler, [0.25, float("inf"), 0.25, 0.25])
    assert values == [0.75, 0.75, 0.5, 0.25]
    assert scale == 4.0  # 4 -> 2 at the skip -> 4 after two good steps


def test_the_device_s_own_grad_scaler_is_torch_s() -> None:
    values, _ = scaled_steps(trn.amp.GradScaler(init_scale=8.0), [0.5])
    assert values == [0.5]


def test_gradients_of_unknown_value_count_as_finite(mode: str) -> None:
    # 128 KiB of weights: phantom mode does not know their gradients, and must not skip every step.
    weight = nn.Parameter(torch.ones(32 * 1024, device="trn"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    stepped = []
    optimizer.register_step_post_hook(lambda *unused: stepped.append(True))
    scaler = torch.amp.GradScaler("trn")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((weight * 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert stepped == [True, True]


def test_torch_asks_and_sets_autocast_of_the_device() -> None:
    assert not torch.is_autocast_enabled("trn")
    with torch.autocast("trn", dtype=torch.float16):
        assert torch.is_autocast_enabled("trn")
        assert torch.get_autocast_dtype("trn") == torch.float16
        assert not torch.is_autocast_enabled("cpu")
    assert torch.get_autocast_dtype("trn") == torch.bfloat16


def test_own_autograd_functions_cast_by_the_device_s_rules(mode: str) -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="trn", cast_inputs=torch.float16)
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            assert not torch.is_autocast_enabled("trn")
            return x @ weight

        @staticmethod
        @torch.amp.custom_bwd(device_type="trn")
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight.T, x.T @ grad

    x, weight = (torch.ones(8, 8, device="trn", requires_grad=True) for _ in range(2))
    with torch.autocast("trn"):
        product = Product.apply(x, weight)
    assert product.dtype == torch.float16
    product.sum().backward()
    assert x.grad.dtype == torch.float32


def test_a_weight_is_cast_once_inside(mode: str) -> None:
    weight = torch.ones(8, 8, device="trn", requires_grad=True)
    x = torch.ones(8, 8, device="trn", dtype=torch.bfloat16)
    with torch.autocast("trn"):
        before = trn.memory_allocated()
        first = x @ weight
        one = trn.memory_allocated() - before
        second = x @ weight
        assert trn.memory_allocated() - before - one < one  # no second copy of the weight
    assert first.dtype == second.dtype == torch.bfloat16
