# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""FlexAttention is one op each way, with values in compute mode, costed by what its mask leaves."""

from __future__ import annotations

import re

import pytest
import torch
from jobs import records_of
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import trnsim.device  # noqa: F401
from trnsim.capture.script import start_capture, stop_capture
from trnsim.capture.world import World

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

LENGTH, BLOCK = 512, 128


def causal(batch, head, query, key):
    return query >= key


def window(batch, head, query, key):
    return (query >= key) & (query - key < BLOCK)


# Blocks of 128 x 128: 4 x 4 of which causal leaves 10, and a window of 128 two a row but one.
SHARES = {None: 1.0, causal: 10 / 16, window: 7 / 16}


def attend(mask, mode, compiled, length=LENGTH, device="trn"):
    start_capture(World(), mode)
    try:
        torch.manual_seed(0)
        block_mask = mask and create_block_mask(mask, None, None, length, length, device=device)
        x = torch.randn(1, 2, length, 16).to(device).requires_grad_()
        attention = torch.compile(flex_attention) if compiled else flex_attention
        out = attention(x * 1, x * 1, x * 1, block_mask=block_mask)
        out.square().sum().backward()
        values = (out.detach().cpu(), x.grad.cpu())
        del out, x, block_mask
        return values, (workload := stop_capture()), records_of(workload)
    except BaseException:
        stop_capture()
        raise


def by_hand(mask, length=LENGTH):
    torch.manual_seed(0)
    x = torch.randn(1, 2, length, 16).requires_grad_()
    scores = x @ x.transpose(-1, -2) / 4
    if mask is not None:
        places = torch.arange(length)
        scores = scores.masked_fill(~mask(0, 0, places[:, None], places[None]), -torch.inf)
    out = scores.softmax(-1) @ x
    out.square().sum().backward()
    return out.detach(), x.grad


def shares_of(workload):
    texts = workload.to_columns()["signatures"]["text"]
    found = [re.search(r"density=([0-9.e-]+)f", text) for text in texts if "trnsim::flex" in text]
    return [float(each[1]) for each in found]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mask", SHARES)
def test_flex_attention_is_one_op_each_way_with_its_values(mask, compiled):
    values, workload, rows = attend(mask, "compute", compiled)
    for mine, theirs in zip(values, by_hand(mask), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    ops = [row["op"] for row in rows if "flex" in row["op"]]
    assert ops == ["trnsim::flex_attention", "trnsim::flex_attention_backward"]
    assert not any("bmm" in row["op"] or "softmax" in row["op"] for row in rows)
    assert shares_of(workload) == pytest.approx([SHARES[mask]] * 2)


def test_both_modes_make_one_workload():
    compute, phantom = (attend(causal, mode, True)[1] for mode in ("compute", "phantom"))
    assert compute.compare(phantom, 3) == []


def test_a_mask_of_unknown_values_is_asked_about_its_blocks():
    # A mask of 8192 x 8192 is too large for phantom mode to keep.
    _, workload, _ = attend(window, "phantom", False, length=8192)
    rows = 8192 // BLOCK
    assert shares_of(workload) == pytest.approx([(2 * rows - 1) / rows**2] * 2)
    assert any("asking it" in note for note in workload.notes)


def test_masked_blocks_take_no_time():
    from trnsim.project.projection import project

    times = []
    for mask in (None, causal, window):
        workload = attend(mask, "phantom", True, length=4096)[1]
        times.append(project(workload, "trn2", chips=1).step_time_s)
    assert times[0] > times[1] > times[2]


def test_flex_attention_takes_part_in_autocast():
    start_capture(World(), "phantom")
    try:
        x = torch.randn(1, 2, 128, 16).to("trn")
        with torch.autocast("trn", torch.bfloat16):
            assert flex_attention(x, x, x).dtype == torch.bfloat16
    finally:
        del x
        stop_capture()
