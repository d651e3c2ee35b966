# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Under FSDP no rank ever holds the whole model, not even before the first step."""

import pytest

import trnsim
from trnsim.recipes import Layout, Model, capture

MODEL = Model(layers=32, hidden=1024, ffn=4096, heads=8, vocab=2048)
LAYOUT = Layout(dp=16, zero=3, global_batch=16, sequence=256, recompute="full")
FP32, MOMENTS = 4, 8


@pytest.mark.parametrize("style", ["llm-foundry", "fsdp"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_peak_is_that_of_a_step(style, tied):
    """Parameters, gradients and moments over 16 ranks; that of one rank alone would be 16 times the
    parameters."""
    workloads = capture(MODEL.with_(tied=tied), LAYOUT, style)
    done = trnsim.project(workloads, "h100", advise=False, interval=False, top=0)
    whole = done.figures.parameters
    assert done.memory_peak_bytes < FP32 * whole / 2
    assert done.memory_by_kind["parameters"] == pytest.approx(FP32 * whole / 16, rel=0.02)
    assert done.memory_by_kind["optimizer"] == pytest.approx(MOMENTS * whole / 16, rel=0.05)


def test_a_tied_weight_stays_one():
    both = [capture(MODEL.with_(tied=tied), LAYOUT, "llm-foundry") for tied in (False, True)]
    apart, one = (trnsim.project(each, "h100", advise=False, interval=False) for each in both)
    assert apart.figures.parameters - one.figures.parameters == 2048 * 1024
