# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.profiler shows simulated device time, and profiling changes no step."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from trnsim import device as trn
from trnsim import machine
from trnsim.device import clock


@pytest.fixture(autouse=True)
def simulated(fresh_device: None) -> None:
    """A phantom capture on trn2."""
    trn._C.set_mode("phantom")
    trn._C.start_recording()
    clock.install(machine.load("trn2"))


def work(products: int) -> None:
    x = torch.empty(4096, 4096, device="trn", dtype=torch.bfloat16)
    for _ in range(products):
        x = x @ x
    x.relu()


def device_us(events: object, name: str) -> float:
    return sum(each.self_device_time_total for each in events if each.key == name)


@pytest.mark.parametrize("activities", [None, [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]])
def test_averages_hold_what_the_machine_takes(activities: list[ProfilerActivity] | None) -> None:
    work(1)
    start, end = trn.Event(enable_timing=True), trn.Event(enable_timing=True)
    with profile(activities=activities) as profiled:
        start.record()
        work(8)
        end.record()
    averages = profiled.key_averages()
    total = device_us(averages, "aten::mm") + device_us(averages, "aten::relu")
    # Each op in whole microseconds.
    assert total == pytest.approx(1000 * start.elapsed_time(end), abs=10)
    # 8 products of 2 x 4096^3 FLOPs at 667 TFLOP/s and more: 206 us each at least.
    assert device_us(averages, "aten::mm") > 7 * 206
    assert next(each for each in averages if each.key == "aten::mm").count == 8


def test_the_table_has_the_device_s_columns() -> None:
    with profile() as profiled:
        work(2)
    table = profiled.key_averages().table(sort_by="self_device_time_total", row_limit=3)
    assert "Self TRN" in table and "aten::mm" in table
    assert "Self TRN time total: 0.000us" not in table


def test_the_older_profiler_has_them_too() -> None:
    with torch.autograd.profiler.profile(use_device="trn", use_kineto=False) as profiled:
        work(2)
    assert device_us(profiled.key_averages(), "aten::mm") > 0


def test_a_profiled_step_takes_as_long_as_another() -> None:
    times = []
    for is_profiled in (False, True):
        trn._C.stop_recording()
        trn._C.start_recording()
        if is_profiled:
            with profile():
                work(4)
        else:
            work(4)
        end = trn.Event(enable_timing=True)
        end.record()
        times.append(clock.EventClock(machine.load("trn2"))(_newest()))
    assert times[0] == times[1] > 0


def _newest() -> int:
    """The id of the event that was recorded last."""
    from trnsim import _core

    recorded = _core.Workload.from_capsule(trn._C.snapshot_recording())
    kinds = _core.workload_enum_names()["records.kind"]
    rows = recorded.to_columns()["records"]
    marks = [
        payload
        for kind, payload in zip(rows["kind"].tolist(), rows["payload"].tolist(), strict=True)
        if kinds[kind] == "event_record"
    ]
    return marks[-1]
