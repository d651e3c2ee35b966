# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Streams: names for orders of work, current per thread and device, waits recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from trnsim import device as trn


@pytest.fixture
def kinds(stop_recording: Callable[[], list]) -> Callable[[], list[tuple[str, int]]]:
    """kinds() ends the recording: (kind, stream) of every record."""
    return lambda: [(record.kind, record.stream) for record in stop_recording()]


Kinds = Callable[[], list[tuple[str, int]]]


def test_a_new_stream_is_neither_the_default_one_nor_another_new_one() -> None:
    first, second = trn.Stream(), trn.Stream()
    assert len({first, second, trn.default_stream()}) == 3
    assert trn.default_stream().stream_id == 0
    assert trn.current_stream() == trn.default_stream()


def test_torch_stream_makes_streams_of_the_device() -> None:
    stream = torch.Stream("trn")
    assert stream.device == torch.device("trn", 0)
    assert stream != trn.default_stream()


def test_the_stream_context_sets_and_restores_the_current_stream() -> None:
    stream = trn.Stream()
    with trn.stream(stream):
        assert trn.current_stream() == stream
        assert torch.accelerator.current_stream() == stream
        with trn.stream(None):
            assert trn.current_stream() == stream
    assert trn.current_stream() == trn.default_stream()
    with stream:
        assert trn.current_stream() == stream
    assert trn.current_stream() == trn.default_stream()


def test_set_stream_holds_until_the_next_one() -> None:
    stream = trn.Stream()
    trn.set_stream(stream)
    assert trn.current_stream() == stream
    trn.set_stream(trn.default_stream())
    assert trn.current_stream() == trn.default_stream()


def test_the_current_stream_is_each_thread_s_own() -> None:
    seen = []
    with trn.stream(trn.Stream()):
        thread = threading.Thread(target=lambda: seen.append(trn.current_stream()))
        thread.start()
        thread.join()
    assert seen == [trn.default_stream()]


def test_priorities_are_clamped_and_kept() -> None:
    least, greatest = trn.Stream.priority_range()
    assert greatest < least  # lower is more urgent
    assert trn.Stream(priority=greatest - 7).priority == greatest
    assert trn.Stream(priority=least + 7).priority == least
    assert trn.default_stream().priority == least


def test_work_on_a_stream_is_done_when_the_host_asks() -> None:
    stream = trn.Stream()
    assert stream.query()
    stream.synchronize()
    trn.synchronize()


def test_wait_stream_is_an_event_record_and_an_event_wait(kinds: Kinds) -> None:
    side = trn.Stream()
    trn._C.start_recording()
    side.wait_stream(trn.current_stream())
    trn.current_stream().wait_stream(side)
    side_id = side.stream_id
    assert kinds() == [
        ("event_record", 0),
        ("event_wait", side_id),
        ("event_record", side_id),
        ("event_wait", 0),
    ]


def test_synchronizing_a_stream_is_a_host_read_on_it(kinds: Kinds) -> None:
    side = trn.Stream()
    trn._C.start_recording()
    side.synchronize()
    assert kinds() == [("host_read", side.stream_id)]
    assert trn.current_stream() == trn.default_stream()


def test_synchronizing_the_device_waits_for_every_stream_of_it(kinds: Kinds) -> None:
    side = trn.Stream()
    trn._C.start_recording()
    trn.synchronize()
    found = kinds()
    marked = {stream for kind, stream in found if kind == "event_record"}
    assert {0, side.stream_id} <= marked
    assert found[-1][0] == "host_read"
    # One wait for each mark, all before the host goes on.
    assert sum(kind == "event_wait" for kind, _ in found) == len(marked)


def test_ops_carry_the_stream_that_was_current(mode: str, kinds: Kinds) -> None:
    side = trn.Stream()
    x = torch.ones(4, device="trn")
    trn._C.start_recording()
    x + 1
    with trn.stream(side):
        x + 2
    assert kinds() == [("op", 0), ("op", side.stream_id)]
    x.record_stream(side)


def test_backward_runs_on_the_streams_of_the_forward(mode: str, kinds: Kinds) -> None:
    side = trn.Stream()
    x = torch.ones(4, device="trn", requires_grad=True)
    with trn.stream(side):
        y = (x * 3).sum()
    trn._C.start_recording()
    with trn.stream(side):
        y.backward()
    ops = [stream for kind, stream in kinds() if kind == "op"]
    assert side.stream_id in ops


def test_a_stream_is_made_again_from_its_parts_and_says_what_it_is() -> None:
    trn._C.set_device_count(2)
    stream = torch.Stream(device="trn:1")
    again = torch.Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    assert again == stream and torch.Stream(1).device == torch.device("trn", 1)
    assert "device_type=trn, device_index=1" in repr(stream)


def test_streams_of_two_devices_wait_for_each_other(kinds: Kinds) -> None:
    trn._C.set_device_count(2)
    first, second = torch.Stream(device="trn:0"), torch.Stream(device="trn:1")
    trn._C.start_recording()
    second.wait_stream(first)
    first.wait_event(second.record_event())
    assert [kind for kind, _ in kinds()] == ["event_record", "event_wait"] * 2


def test_setting_a_stream_of_another_device_sets_the_device() -> None:
    trn._C.set_device_count(2)
    stream = torch.Stream(device="trn:1")
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_device_index() == 1
