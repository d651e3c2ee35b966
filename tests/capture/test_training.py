# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Whole training steps: values against the CPU, and the same record in both modes."""

from __future__ import annotations

import gc

import pytest
import torch
from models import Gpt, ResNet, gpt_batch, resnet_batch, train
from recording import record, use
from torch import nn
from torch.utils.checkpoint import checkpoint

CASES = {
    "gpt": (Gpt, gpt_batch, {}),
    "gpt_single_tensor": (Gpt, gpt_batch, {"foreach": False}),
    "gpt_fused": (Gpt, gpt_batch, {"fused": True}),
    "resnet": (ResNet, resnet_batch, {}),
    "resnet_sgd": (ResNet, resnet_batch, {"optimizer": torch.optim.SGD, "momentum": 0.9}),
}


@pytest.mark.parametrize("case", CASES)
def test_compute_mode_trains_to_the_losses_of_the_cpu_for_ten_steps(compute, case):
    make, batch, options = CASES[case]
    expected = train(make, batch, "cpu", 10, **options)
    got = train(make, batch, "trn", 10, **options)
    assert got == pytest.approx(expected, rel=2e-4, abs=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_both_modes_record_the_same_workload_op_for_op(case):
    make, batch, options = CASES[case]
    workloads = []
    for mode in ("compute", "phantom"):
        use(mode)
        with record() as recording:
            train(make, batch, "trn", 3, **options)
            gc.collect()
        workloads.append(recording.workload)
    assert len(workloads[0]) > 100
    assert workloads[0].compare(workloads[1]) == []
    assert workloads[0].hash == workloads[1].hash


def test_dropout_is_one_op_with_a_mask_of_one_byte(mode, record):
    x = torch.ones(512, 512, device="trn", requires_grad=True)
    with record() as recording:
        torch.nn.functional.dropout(x, 0.5).sum().backward()
    assert recording.ops()[0] == "native_dropout"
    assert "native_dropout_backward" in recording.ops()
    line = recording.lines()[0]
    assert "out1: bool[512,512]" in line


def test_an_optimizer_of_many_tensors_is_a_handful_of_records(mode, record):
    model = nn.Sequential(*(nn.Linear(200, 200) for _ in range(20))).to("trn")
    stepper = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(4, 200, device="trn")).sum().backward()
    stepper.step()
    with record() as recording:
        stepper.step()
    assert recording.ops() == ["_foreach_add_.Scalar", "_fused_adamw_"]


def test_a_storage_that_arguments_far_apart_share_is_written_once(mode, record):
    x, others = torch.zeros(2, 4, device="trn"), [torch.zeros(4, device="trn") for _ in range(12)]
    with record() as recording:
        torch._foreach_add_([x[0], *others, x[1]], 1.0)
        x.neg()
    assert recording.ops() == ["_foreach_add_.Scalar", "neg"]
    tables = recording.workload.to_columns()
    read = tables["records"]["uses_begin"][-1]  # by the last op
    assert tables["uses"]["version"][read] == 1


def test_checkpointing_gives_the_gradients_of_the_cpu(compute):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    model(x).sum().backward()
    expected = model[0].weight.grad.clone()
    model.zero_grad()
    device_model = model.to("trn")
    checkpoint(device_model, x.to("trn"), use_reentrant=False).sum().backward()
    torch.testing.assert_close(device_model[0].weight.grad.cpu(), expected)


def test_a_backward_record_has_the_sequence_number_of_its_forward_record(mode, record):
    x = torch.ones(300, 300, device="trn", requires_grad=True)
    with record() as recording:
        torch.nn.functional.gelu(x).backward(torch.ones(300, 300, device="trn"))
    lines = recording.lines()
    forward = next(line for line in lines if "aten::gelu(" in line)
    backward = next(line for line in lines if "aten::gelu_backward(" in line)
    assert " forward " in forward
    assert " backward " in backward
    assert forward.split(" seq ")[1].split()[0] == backward.split(" seq ")[1].split()[0]


def test_scaled_gradients_are_stepped_in_both_modes(mode):
    model = nn.Linear(300, 300).to("trn")
    stepper = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("trn")
    scaler.scale(model(torch.ones(4, 300, device="trn")).mean()).backward()
    with record() as recording:
        scaler.step(stepper)
        scaler.update()
    assert "_foreach_add_.List" in recording.ops()
    assert scaler.get_scale() == 65536.0
