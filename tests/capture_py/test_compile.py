# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.compile on the device: the same values as eager, the same work, in named regions."""

from __future__ import annotations

import gc

import pytest
import torch
from jobs import records_of
from torch import nn
from torch.utils.checkpoint import checkpoint

import trnsim.device  # noqa: F401
from trnsim import _core
from trnsim.capture.script import start_capture, stop_capture
from trnsim.capture.world import World

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        heads = self.norm(x).view(x.size(0), -1, 2, x.size(-1) // 2).transpose(1, 2)
        seen = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        x = x + seen.transpose(1, 2).reshape(x.shape)
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.again = again
        self.blocks = nn.ModuleList([Block(16) for _ in range(2)])
        self.out = nn.Linear(16, 8)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.out(x)


def train(wrap, mode="compute", lengths=(6, 6, 6), device="trn", again=False, compiled_step=False):
    """Three steps; returns the losses and what was recorded."""
    start_capture(World(), mode)
    try:
        torch.manual_seed(0)
        model = Model(again).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        step = torch.compile(optimizer.step) if compiled_step else optimizer.step
        forward, losses = wrap(model), []
        for length in lengths:
            x = torch.randn(2, length, 16).to(device)
            loss = forward(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            step()
            losses.append(loss)
        return [loss.item() for loss in losses], records_of(workload := stop_capture()), workload
    finally:
        del model, optimizer, step, forward
        gc.collect()


def step_of(rows, which=2):
    """The records of one step: those after so many optimizer steps."""
    ends = [i for i, row in enumerate(rows) if row["kind"] == "marker" and row["value"] == 0]
    return rows[ends[2 * which - 1] + 1 : ends[2 * which + 1]]


def ops_of(rows):
    return [row for row in rows if row["kind"] == "op"]


def per_block(model):
    for block in model.blocks:
        block.compile()
    return model


WAYS = {
    "default": torch.compile,
    "fullgraph": lambda model: torch.compile(model, fullgraph=True),
    "reduce-overhead": lambda model: torch.compile(model, mode="reduce-overhead"),
    "block by block": per_block,
    "a function": lambda model: torch.compile(lambda x: model(x)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_model_has_the_values_and_products_of_eager(way):
    expected, eager, _ = train(lambda model: model)
    losses, rows, _ = train(WAYS[way])
    assert losses == pytest.approx(expected, rel=1e-5)
    count = [
        sum(row["op"] in ("aten::mm", "aten::addmm") for row in each) for each in (eager, rows)
    ]
    assert count[0] == count[1] > 0
    regions = {row["region"] for row in ops_of(rows)} - {-1}
    assert len(regions) == (12 if way == "block by block" else 6)  # three steps, there and back


def test_both_modes_make_one_workload():
    workloads = [train(torch.compile, mode)[2] for mode in ("compute", "phantom")]
    assert workloads[0].compare(workloads[1], 3) == []


def test_dynamic_shapes_share_one_region():
    compiled = lambda model: torch.compile(model, dynamic=True)
    lengths = (6, 5, 4)
    expected, _, _ = train(lambda model: model, lengths=lengths)
    losses, _, workload = train(compiled, lengths=lengths)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert len(set(workload.to_columns()["regions"]["description"])) == 2


def test_a_graph_break_makes_two_regions():
    def broken(model):
        def forward(x):
            y = model.blocks[0](x)
            torch._dynamo.graph_break()
            return model.out(y)

        return torch.compile(forward)

    _, rows, _ = train(broken)
    assert len({row["region"] for row in ops_of(step_of(rows))} - {-1}) == 4


def test_ops_of_a_region_know_their_module_and_phase():
    _, rows, _ = train(torch.compile)
    for phase in ("forward", "backward"):
        paths = {row["path"] for row in ops_of(step_of(rows)) if row["phase"] == phase}
        assert {"blocks.0.up", "blocks.1.down", "out"} <= paths
        assert not any("_orig_mod" in path for path in paths)
    assert all(
        not row["no_grad"] for row in rows if row["phase"] == "forward" and row["region"] >= 0
    )


def test_checkpointed_blocks_are_recomputed_in_the_backward_region():
    expected, _, _ = train(lambda model: model)
    losses, rows, _ = train(torch.compile, again=True)
    assert losses == pytest.approx(expected, rel=1e-5)
    again = [row for row in ops_of(step_of(rows)) if row["phase"] == "recomputation"]
    assert {row["path"] for row in again if row["op"] == "aten::addmm"} >= {
        "blocks.0.up",
        "blocks.1.up",
    }


def test_a_compiled_optimizer_is_the_step_in_a_region():
    expected, eager, _ = train(lambda model: model)
    losses, rows, _ = train(lambda model: model, compiled_step=True)
    assert losses == pytest.approx(expected, rel=1e-5)
    mine, theirs = (
        [row for row in step_of(each) if row["phase"] == "optimizer"] for each in (rows, eager)
    )
    assert mine and -1 not in {row["region"] for row in ops_of(mine)}
    assert len(mine) <= len(theirs) + 2  # its count of steps is a tensor


def test_compiled_autograd_runs():
    def wrap(model):
        compiled = torch.compile(model)

        def forward(x):
            return compiled(x)

        return forward

    expected, _, _ = train(lambda model: model)
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        losses, rows, _ = train(wrap)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert any(row["region"] >= 0 and row["phase"] == "backward" for row in rows)


def test_saved_tensors_are_freed_as_the_backward_region_uses_them():
    eager, compiled = (train(wrap)[2].replay_allocations() for wrap in (lambda m: m, torch.compile))
    assert compiled.allocated_bytes <= 1.05 * eager.allocated_bytes


def test_changes_in_place_without_gradients_are_those_of_eager():
    def work(x, y):
        part = x[1:]
        part.add_(1)
        doubled = x * 2
        part.mul_(y)
        x.relu_()
        return doubled, part + x[1:]

    def run(function):
        torch.manual_seed(0)
        x, y = torch.randn(4, 5), torch.randn(3, 5)
        x, y = x.to("trn"), y.to("trn")
        with torch.no_grad():
            return [each.cpu() for each in (*function(x, y), x)]

    for mine, theirs in zip(run(torch.compile(work)), run(work), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_graphs_of_cpu_tensors_go_to_the_compiler_of_the_cpu(monkeypatch):
    from torch._inductor import compile_fx

    asked = []

    def fake_compile(model, inputs, **_):
        asked.append(model)
        return model.forward

    monkeypatch.setattr(compile_fx, "compile_fx", fake_compile)
    doubled = torch.compile(lambda x: 2 * x)
    assert doubled(torch.ones(3)).tolist() == [2, 2, 2]
    assert len(asked) == 1
    assert doubled(torch.ones(3).to("trn")).tolist() == [2, 2, 2]
    assert len(asked) == 1


def test_a_gpu_fuses_pointwise_ops_in_a_region_only():
    from trnsim.job import make_job

    job = make_job("h100", chips=1)
    bytes_of, ops = {}, {}
    for name, wrap in {"eager": lambda model: model, "compiled": torch.compile}.items():
        workload = train(wrap, "phantom", lengths=(512, 512, 512))[2]
        place = _core.make_placement(job.machine, 1, 0, 1)
        program = _core.lower_step(workload, workload.choose_step(2), job.machine, place, "", "")
        ops[name] = [op["name"] for op in program.ops]
        bytes_of[name] = sum(op["read_bytes"] + op["write_bytes"] for op in program.ops)
    assert not any(" + " in op for op in ops["eager"])
    fused = [op for op in ops["compiled"] if " + " in op]
    assert fused and not any("mm" in op for op in fused)
    assert bytes_of["compiled"] < bytes_of["eager"]


def test_a_stream_in_a_compiled_function_asks_no_driver_how_fast_the_device_is():
    side, model = torch.Stream(device="trn"), nn.Linear(8, 8).to("trn")

    @torch.compile
    def forward(x):
        with side:
            y = model(x) * 2
        torch.accelerator.current_stream().wait_stream(side)
        return y + 1

    forward(torch.ones(4, 8, device="trn")).sum().backward()
    assert model.weight.grad.shape == (8, 8)


def test_estimates_of_the_device_are_those_of_the_machine():
    from torch._inductor.utils import get_device_tflops, get_gpu_dram_gbps

    from trnsim.device import properties
    from trnsim.machine import load

    for name, bandwidth, peak in (("trn2", 2900, 667), ("tpu-v5p", 2765, 459)):
        properties.describe(load(name))
        assert get_gpu_dram_gbps() == pytest.approx(bandwidth)
        assert get_device_tflops(torch.bfloat16) == pytest.approx(peak)
    properties.describe(None)


def test_what_stands_for_a_function_of_torch_is_left_to_python():
    from trnsim.capture.cuda import names

    graphs = []

    def stands(x):
        return x + 1

    def compiled():
        torch.compile(stands, backend=lambda graph, _: graphs.append(graph) or graph)(torch.ones(2))
        return len(graphs)

    assert compiled() == 1
    torch.compiler.reset()
    names._leave_to_python([stands, len], torch._dynamo.eval_frame)
    assert compiled() == 1
