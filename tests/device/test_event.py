# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Events: marks in the recording, and elapsed time from the installed clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from command import python

from trnsim import device as trn

Stop = Callable[[], list]


def test_events_are_torch_events_of_the_device() -> None:
    event = trn.Event(enable_timing=True)
    assert isinstance(event, torch.Event)
    assert isinstance(event, trn.Event)
    assert event.device.type == "trn"
    assert not isinstance(torch.Event("cpu"), trn.Event)


def test_each_recording_of_an_event_is_a_mark_of_its_own(stop_recording: Stop) -> None:
    event = trn.Event()
    trn._C.start_recording()
    event.record()
    event.record()
    event.wait()
    marks = stop_recording()
    assert [mark.kind for mark in marks] == ["event_record", "event_record", "event_wait"]
    assert marks[0].payload != marks[1].payload
    assert marks[2].payload == marks[1].payload  # a wait is for the newest mark


def test_an_event_that_was_never_recorded_is_not_waited_for(stop_recording: Stop) -> None:
    event = trn.Event()
    trn._C.start_recording()
    event.wait()
    event.synchronize()
    assert event.query()
    assert len(stop_recording()) == 0


def test_synchronizing_an_event_does_not_wait_for_the_stream_that_goes_on(
    stop_recording: Stop,
) -> None:
    event = trn.Event()
    trn._C.start_recording()
    event.record()
    event.synchronize()
    record, wait, read = stop_recording()
    assert [record.kind, wait.kind, read.kind] == ["event_record", "event_wait", "host_read"]
    assert record.stream == 0
    assert wait.stream == read.stream != 0


def test_elapsed_time_is_the_installed_clock_s(stop_recording: Stop) -> None:
    start, end = trn.Event(enable_timing=True), trn.Event(enable_timing=True)
    asked = []

    def clock(event_id: int) -> int:
        asked.append(event_id)
        return 1_500_000_000 * (event_id - first)  # 1.5 ms a mark

    trn._C.start_recording()
    start.record()
    end.record()
    first = stop_recording()[0].payload
    trn._C.set_event_clock(clock)
    assert start.elapsed_time(end) == 1.5
    assert asked == [first + 1, first]


def test_a_clock_that_raises_reaches_the_script() -> None:
    start, end = trn.Event(enable_timing=True), trn.Event(enable_timing=True)
    trn._C.start_recording()
    start.record()
    end.record()

    def clock(event_id: int) -> int:
        raise ValueError(f"no event {event_id}")

    trn._C.set_event_clock(clock)
    with pytest.raises(ValueError, match="no event"):
        start.elapsed_time(end)


def test_elapsed_time_needs_timing_and_recorded_events() -> None:
    start, end = trn.Event(enable_timing=True), trn.Event()
    start.record()
    end.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(end)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(trn.Event(enable_timing=True))


def test_without_a_machine_time_is_the_host_s_and_monotone() -> None:
    done = python("""
        import torch
        import trnsim.device as trn
        events = [trn.Event(enable_timing=True) for _ in range(3)]
        for event in events: event.record()
        assert 0 <= events[0].elapsed_time(events[1]) <= events[0].elapsed_time(events[2])
    """)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("host's clock") == 1  # said once, not for each reading


def test_events_cannot_cross_processes() -> None:
    with pytest.raises(ValueError, match="processes"):
        trn.Event(interprocess=True)
