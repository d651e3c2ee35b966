# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The clock of a capture: elapsed time is what the machine takes for the ops between two events."""

from __future__ import annotations

import pytest
import torch

from trnsim import device as trn
from trnsim import machine
from trnsim.device import clock


def elapsed_ms(products: int) -> float:
    """Simulated time of so many dependent matrix products."""
    x = torch.empty(1024, 1024, device="trn", dtype=torch.bfloat16)
    start, end = trn.Event(enable_timing=True), trn.Event(enable_timing=True)
    start.record()
    for _ in range(products):
        x = x @ x
    end.record()
    return start.elapsed_time(end)


@pytest.fixture(autouse=True)
def simulated(fresh_device: None) -> None:
    """A phantom capture on trn2."""
    trn._C.set_mode("phantom")
    trn._C.start_recording()
    clock.install(machine.load("trn2"))


def test_elapsed_time_is_simulated_and_grows_with_the_work() -> None:
    one, nine = elapsed_ms(1), elapsed_ms(9)
    assert 0 < one < nine


def test_the_same_work_takes_the_same_time_again() -> None:
    elapsed_ms(3)  # the first launch
    assert elapsed_ms(5) == pytest.approx(elapsed_ms(5), rel=0.2)


def test_a_core_alone_takes_longer_than_the_chip_that_a_rank_has_to_itself() -> None:
    trn2 = machine.load("trn2")
    times_ms = []
    for ranks_per_chip in (trn2.ranks_per_chip_allowed[0], trn2.ranks_per_chip_allowed[-1]):
        clock.install(trn2, ranks_per_chip)
        times_ms.append(elapsed_ms(3))
    assert 0 < times_ms[0] < times_ms[1]


def test_time_goes_on_behind_steps_that_a_script_makes_by_hand() -> None:
    weight = torch.zeros(64, 64, device="trn", requires_grad=True)
    for _ in range(3):
        (weight * weight).sum().backward()
        with torch.no_grad():
            weight -= weight.grad
    assert elapsed_ms(3) > 0


def test_nothing_between_two_events_takes_no_time() -> None:
    elapsed_ms(2)
    assert elapsed_ms(0) == 0


def test_a_stream_that_waited_is_as_late_as_what_it_waited_for() -> None:
    x = torch.empty(1024, 1024, device="trn", dtype=torch.bfloat16)
    side, done = trn.Stream(), trn.Event(enable_timing=True)
    start = trn.Event(enable_timing=True)
    start.record()
    x @ x
    side.wait_stream(trn.current_stream())
    done.record(side)
    end = trn.Event(enable_timing=True)
    end.record()
    assert start.elapsed_time(done) == start.elapsed_time(end) > 0


def test_a_stream_that_was_idle_is_as_late_as_the_host() -> None:
    """An event there is not where the stream's last op ended, long before."""
    clock.install(machine.load("h100"))
    x = torch.empty(4096, 4096, device="trn")
    side = trn.Stream()
    with trn.stream(side):
        alone_ms = elapsed_ms(1)
    for _ in range(3):
        for _ in range(200):
            x @ x
        trn.synchronize()
        with trn.stream(side):
            assert 0 < elapsed_ms(1) < 2 * alone_ms
