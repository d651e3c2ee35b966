# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.cond, while_loop and scan: values as on the CPU, and a stated choice where none are
known."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
import torch
from jobs import records_of
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import trnsim.device  # noqa: F401
from trnsim.capture.script import start_capture, stop_capture
from trnsim.capture.world import World
from trnsim.errors import CaptureError

LARGE = 300  # 300 x 300 floats are too large for phantom mode to hold values of
NOTE = "torch.cond: a predicate depends on values that are not known"


@pytest.fixture(autouse=True)
def fresh():
    gc.collect()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    gc.collect()


@pytest.fixture(params=["eager", "compiled"])
def made(request):
    return (lambda function: function) if request.param == "eager" else torch.compile


def captured(work, mode):
    """What the work gives, its Workload, and how often each op of it ran."""
    start_capture(World(), mode)
    try:
        result = work()
    finally:
        workload = stop_capture()
    return result, workload, Counter(record["op"] for record in records_of(workload))


def branches(x, weight):
    """A product of matrices where the sum is above 1, else one pass over them."""
    return torch.cond(
        x.sum() > 1, lambda x, w: (x @ w).sin(), lambda x, w: x.cos() * w, (x, weight)
    )


def doubled_to(x, limit):
    return while_loop(lambda x: x.sum() < limit, lambda x: (x * 2,), (x,))[0]


def doubled_times(x, count):
    start = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(lambda i, x: i < count, lambda i, x: (i + 1, x * 2), (start, x))[1]


def sums(x, weight):
    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros_like(x[0]), x * weight)


def gradient_of(function, x, weight, device):
    """The value and the gradient of the weight, on the CPU."""
    x, weight = x.to(device), weight.to(device).detach().requires_grad_()
    out = function(x, weight)
    out = out[1] if isinstance(out, tuple) else out
    out.square().sum().backward()
    return out.detach().cpu(), weight.grad.cpu()


@pytest.mark.parametrize("sign", [1, -1])  # one branch and the other
@pytest.mark.parametrize("function", [branches, sums])
def test_values_and_gradients_are_those_of_the_cpu(made, function, sign):
    torch.manual_seed(0)
    x, weight = sign * torch.rand(5, 5), torch.rand(5, 5)
    expected = gradient_of(function, x, weight, "cpu")
    found, _, _ = captured(lambda: gradient_of(made(function), x, weight, "trn"), "compute")
    torch.testing.assert_close(found, expected)


def test_a_loop_runs_until_its_values_say_so(made):
    x = torch.arange(4.0)
    compute = lambda: made(doubled_to)(x.to("trn"), 100).cpu()
    assert captured(compute, "compute")[0].tolist() == [0, 32, 64, 96]


@pytest.mark.parametrize("cheap_first", [False, True])
def test_without_values_the_costlier_branch_is_taken_both_ways(made, cheap_first):
    def either(x, weight):
        costly, cheap = lambda x, w: (x @ w).sin(), lambda x, w: x.cos() * w
        order = (cheap, costly) if cheap_first else (costly, cheap)
        return torch.cond(x.sum() > 1, *order, (x, weight))

    def train():
        x = torch.empty(LARGE, LARGE, device="trn")
        weight = torch.empty(LARGE, LARGE, device="trn", requires_grad=True)
        made(either)(x, weight).sum().backward()

    _, workload, ops = captured(train, "phantom")
    # Forward, and the gradient of the weight; that of x may be computed too, and is not asked for.
    assert ops["aten::mm"] >= 2
    assert "aten::sin" in ops  # the cheap one has none, forward or backward
    assert [note for note in workload.notes if note.startswith(NOTE)]
    assert workload.unknown_reads == 0


def test_at_equal_flops_more_bytes_are_costlier(made):
    def either(x):
        return torch.cond(x.sum() > 1, lambda x: x.sin(), lambda x: x.cos().exp().tanh(), (x,))

    work = lambda: made(either)(torch.empty(LARGE, LARGE, device="trn"))
    _, _, ops = captured(work, "phantom")
    assert "aten::tanh" in ops and "aten::sin" not in ops


def test_without_values_a_loop_is_refused_and_one_that_counts_runs(made):
    make = lambda: torch.empty(LARGE, LARGE, device="trn")
    with pytest.raises(CaptureError, match=r"how often it runs is unknown: use --mode compute"):
        captured(lambda: made(doubled_to)(make(), 100), "phantom")
    _, workload, ops = captured(lambda: made(doubled_times)(make(), 7), "phantom")
    assert ops["aten::mul.Tensor"] == 7
    assert workload.unknown_reads == 0


def test_without_values_a_branch_that_hides_its_cost_is_refused(made):
    def nested(x):
        return torch.cond(x.sum() > 1, lambda x: doubled_times(x, 3), lambda x: x.cos(), (x,))

    with pytest.raises(CaptureError, match="while_loop in a branch hides which branch costs more"):
        captured(lambda: made(nested)(torch.empty(LARGE, LARGE, device="trn")), "phantom")


def test_a_scan_runs_once_a_row_in_both_modes(made):
    def work():
        x = torch.ones(5, LARGE, device="trn")
        made(lambda x: sums(x, x))(x)

    for mode in ("compute", "phantom"):
        assert captured(work, mode)[2]["aten::add.Tensor"] == 5
