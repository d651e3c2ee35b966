# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.profiler shows simulated device time, and profiling changes no step."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_named_ranges_hold_the_time_of_the_ops_in_them() -> None:
    with profile() as profiled, torch.profiler.record_function("outer"):
        with torch.profiler.record_function("first"):
            work(2)
        with torch.profiler.record_function("second"):
            work(4)
    total = {each.key: each.device_time_total for each in profiled.key_averages()}
    assert total["outer"] == pytest.approx(total["first"] + total["second"], rel=0.05)
    assert total["second"] > 1.5 * total["first"] > 0


def test_shapes_backward_and_a_trace_are_there(tmp_path: Path) -> None:
    weight = torch.empty(512, 256, device="trn", requires_grad=True)
    with profile(record_shapes=True) as profiled:
        (torch.empty(64, 512, device="trn") @ weight).sum().backward()
    by_shape = profiled.key_averages(group_by_input_shape=True)
    assert any(each.key == "aten::mm" and [64, 512] in each.input_shapes for each in by_shape)
    assert any("Backward" in each.key for each in by_shape)
    file = tmp_path / "trace.json"
    profiled.export_chrome_trace(str(file))
    names = [event.get("name") for event in json.loads(file.read_text())["traceEvents"]]
    assert "aten::mm" in names


def test_work_on_other_streams_has_its_time() -> None:
    side = torch.Stream(device="trn")
    with profile() as profiled, side:
        work(2)
    side.synchronize()
    assert device_us(profiled.key_averages(), "aten::mm") > 206


def test_an_exception_and_an_empty_range_leave_the_profiler_usable() -> None:
    with pytest.raises(ValueError), profile() as profiled:
        work(1)
        raise ValueError
    assert device_us(profiled.key_averages(), "aten::mm") > 0
    with profile() as profiled:
        pass
    assert profiled.key_averages().self_cpu_time_total >= 0


def test_a_schedule_hands_out_its_active_steps() -> None:
    seen = []
    with profile(
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda done: seen.append(device_us(done.key_averages(), "aten::mm")),
    ) as profiled:
        for _ in range(5):
            work(1)
            profiled.step()
    assert len(seen) == 1 and seen[0] > 2 * 150
