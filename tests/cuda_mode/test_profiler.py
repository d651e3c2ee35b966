# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.profiler of a script that is written for CUDA shows the simulated device's time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

PROFILED = """
    import torch
    from torch.profiler import ProfilerActivity, profile
    x = torch.empty(4096, 4096, device="cuda", dtype=torch.bfloat16)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with {profiler} as profiled:
        start.record()
        for _ in range(8):
            x = x @ x
        end.record()
    averages = profiled.key_averages()
    (product,) = [each for each in averages if each.key == "aten::mm"]
    print("device", product.self_device_time_total, "events", 1000 * start.elapsed_time(end))
    print(averages.table(sort_by="{sort}", row_limit=3))
"""


@pytest.mark.parametrize(
    "profiler",
    [
        "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        "profile()",
        'torch.autograd.profiler.profile(use_device="cuda")',
        'torch.autograd.profiler.profile(use_device="cuda", use_kineto=True)',
    ],
)
@pytest.mark.parametrize("sort", ["self_cuda_time_total"])
def test_averages_have_the_device_s_columns(run: Callable, profiler: str, sort: str) -> None:
    ran = run(PROFILED.format(profiler=profiler, sort=sort), "--cuda")
    assert ran.code == 0, ran.prints
    device, events = re.search(r"device ([\d.]+) events ([\d.]+)", ran.prints).groups()
    # Each of the eight in whole microseconds; 2 x 4096^3 FLOPs at 667 TFLOP/s take 206 of them.
    assert float(device) == pytest.approx(float(events), abs=10) and float(device) > 8 * 206
    assert "Self CUDA" in ran.prints and "Self CUDA time total: 0.000us" not in ran.prints
