# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Ops of a script's own library: they run, say what they miss, and cost what the script says."""

from __future__ import annotations

import gc

import pytest
import torch
from jobs import records_of

import trnsim
import trnsim.device
from trnsim import _core
from trnsim.capture.script import start_capture, stop_capture
from trnsim.capture.world import World
from trnsim.errors import CaptureError, LowerError
from trnsim.job import make_job

library = torch.library.Library("costs", "FRAGMENT")


@torch.library.custom_op("costs::mix", mutates_args=())
def mix(x: torch.Tensor, weight: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.sin(x @ weight) * scale


mix.register_fake(lambda x, weight, scale: x.new_empty(x.shape[0], weight.shape[1]))
mix.register_autograd(
    lambda ctx, grad: (grad * ctx.scale, None, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "scale", inputs[2]),
)


@torch.library.custom_op("costs::plain", mutates_args=())
def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x @ x)


@torch.library.custom_op("costs::on_cpu", mutates_args=(), device_types="cpu")
def on_cpu(x: torch.Tensor) -> torch.Tensor:
    return x[1:] + 1


library.define("device_only(Tensor x) -> Tensor")
library.define("bare(Tensor x) -> Tensor")
torch.library.register_fake("costs::device_only", torch.empty_like, lib=library)


def run(function, mode="phantom"):
    gc.collect()
    start_capture(World(), mode)
    try:
        function()
        gc.collect()
    finally:
        workload = stop_capture()
    return workload


def lowered(workload, machine="trn2"):
    job = make_job(machine, chips=1)
    place = _core.make_placement(job.machine, 1, 0, 1)
    return _core.lower_step(workload, workload.choose_step(), job.machine, place, "", "")


def use_mix(rows=1024):
    x = torch.zeros(rows, 512, device="trn", requires_grad=True)
    out = mix(x * 1, torch.zeros(512, 512, device="trn"), 2.0)
    out.sum().backward()


@pytest.fixture
def given():
    """Registers a cost of costs::mix, and takes it back."""
    from trnsim.lower import custom

    def register(**cost):
        trnsim.cost("costs::mix")(lambda x, weight, scale: cost)

    yield register
    custom._functions.clear()


def test_without_a_cost_its_parts_are_recorded():
    ops = [row["op"] for row in records_of(run(lambda: plain(torch.zeros(9, 9).to("trn"))))]
    assert "aten::mm" in ops and "aten::sin" in ops


@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_with_a_cost_it_is_one_record_that_autograd_walks_back(mode, given):
    given(flops=10)
    ops = [row["op"] for row in records_of(run(use_mix, mode)) if row["kind"] == "op"]
    assert ops.count("costs::mix") == 1
    assert "aten::sin" not in ops


def test_the_cost_is_what_the_function_says(given):
    # 4 vector passes of a million cycles at 0.96 GHz.
    given(vector_cycles=4_000_000, read_bytes=0, write_bytes=1 << 20, flops=1 << 30)
    program = lowered(run(use_mix))
    (op,) = [op for op in program.ops if op["name"] == "costs::mix"]
    assert op["rule"] == "given" and op["model_flops"] == 1 << 30
    assert (op["read_bytes"], op["write_bytes"]) == (0, 1 << 20)
    assert op["bound_ps"] == pytest.approx(4_000_000 / 0.96e9 * 1e12, rel=1e-6)
    assert any(guess["value"] == "costs::mix" for guess in program.guesses)


def test_cycles_alone_are_refused_where_there_are_no_such_engines(given):
    given(vector_cycles=4_000_000)
    with pytest.raises(LowerError, match="'costs::mix' is in cycles of Trainium's engines alone"):
        lowered(run(use_mix), "h100")


def test_cycles_beside_flops_are_left_out_on_a_gpu_and_that_is_said(given):
    given(vector_cycles=4_000_000, flops=10**12, dtype="bfloat16")
    program = lowered(run(use_mix), "h100")
    (guess,) = [each for each in program.guesses if each["name"] == "cycles given by the script"]
    assert guess["value"] == "costs::mix" and "FLOPs and bytes alone" in guess["effect"]
    given(flops=10**12, dtype="bfloat16")
    plain = lowered(run(use_mix), "h100")
    assert not any("cycles" in each["name"] for each in plain.guesses)
    times = [
        op["bound_ps"] for each in (program, plain) for op in each.ops if op["rule"] == "given"
    ]
    assert times[0] == times[1] > 0


def test_flops_take_the_time_of_the_peak_on_each_machine(given):
    flops = 10**13
    given(flops=flops, dtype=torch.bfloat16, read_bytes=0, write_bytes=0)
    workload = run(use_mix)
    for machine in ("trn2", "h100"):
        (op,) = [op for op in lowered(workload, machine).ops if op["name"] == "costs::mix"]
        assert 5e-3 < op["bound_ps"] / 1e12 < 25e-3, machine  # 10 TFLOP at 400 to 2000 TFLOP/s


def test_a_function_gets_the_arguments_by_name(given):
    seen = []

    @trnsim.cost(mix)
    def cost_of_mix(x, weight, scale):
        seen.append((tuple(x.shape), tuple(weight.shape), weight.device.type, scale))
        return {"flops": 2 * x.shape[0] * weight.numel()}

    program = lowered(run(use_mix))
    assert seen == [((1024, 512), (512, 512), "meta", 2.0)]
    (op,) = [op for op in program.ops if op["name"] == "costs::mix"]
    assert op["model_flops"] == 2 * 1024 * 512 * 512


def test_a_run_file_keeps_the_cost(given, tmp_path):
    from trnsim.workload.files import save

    given(gpsimd_cycles=5_000_000)
    workload = run(use_mix)
    save(workload, tmp_path / "own.trnsim")
    given(gpsimd_cycles=1)
    again = trnsim.load(tmp_path / "own.trnsim")
    assert again.hash == workload.hash
    bounds = [
        op["bound_ps"]
        for each in (workload, again)
        for op in lowered(each).ops
        if op["name"] == "costs::mix"
    ]
    assert bounds[0] == bounds[1] > 4e9


def test_a_cost_that_cannot_be_is_refused(given):
    given(flopps=1)
    with pytest.raises(CaptureError, match="no 'flopps': use flops"):
        run(use_mix)
    given(flops=-1)
    with pytest.raises(CaptureError, match="flops -1"):
        run(use_mix)
    with pytest.raises(CaptureError, match="of your own, not 'aten::mm'"):
        trnsim.cost("aten::mm")
    with pytest.raises(CaptureError, match="no op 'costs::nowhere'"):
        trnsim.cost("costs::nowhere")(dict)


def test_an_op_with_shapes_alone_runs_in_phantom_mode_only():
    x = lambda: torch.zeros(4, 4).to("trn")
    assert run(lambda: torch.ops.costs.device_only(x())).signature_count > 0
    with pytest.raises(NotImplementedError, match="costs::device_only has no CPU kernel"):
        run(lambda: torch.ops.costs.device_only(x()), "compute")


@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_an_op_with_a_cpu_kernel_alone_runs_in_both_modes(mode):
    seen = []
    run(lambda: seen.append(tuple(on_cpu(torch.zeros(256, 256).to("trn")).shape)), mode)
    assert seen == [(255, 256)]


@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_an_op_without_kernels_says_what_to_register(mode):
    with pytest.raises(NotImplementedError, match="register .*torch.library.register_"):
        run(lambda: torch.ops.costs.bare(torch.zeros(4, 4).to("trn")), mode)
