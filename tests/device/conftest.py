# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What every test of the device needs: the device, in one mode or in both."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

import trnsim.device as trn


def enter(mode: str) -> str:
    """Puts the device into `mode`; no trn tensor may be alive."""
    if trn._C.live_block_count():
        gc.collect()
    trn._C.set_mode(mode)
    return mode


class Record(NamedTuple):
    """One record, as far as these tests look at it."""

    kind: str
    stream: int
    payload: int
    value: int


def _stop_recording() -> list[Record]:
    from trnsim import _core

    workload = _core.Workload.from_capsule(trn._C.stop_recording())
    rows = workload.to_columns()["records"]
    kinds = _core.workload_enum_names()["records.kind"]
    columns = zip(rows["kind"], rows["stream"], rows["payload"], rows["value"], strict=True)
    return [Record(kinds[k], int(s), int(p), int(v)) for k, s, p, v in columns]


@pytest.fixture
def stop_recording() -> Callable[[], list[Record]]:
    """stop_recording() ends the recording; what it holds, in order."""
    return _stop_recording


@pytest.fixture(autouse=True)
def fresh_device() -> Iterator[None]:
    """Compute mode, one device, its default stream, nothing recorded: before and after."""
    enter("compute")
    yield
    if trn._C.is_recording():
        trn._C.stop_recording()
    trn.properties.describe(None)
    trn._C.set_device_count(1)
    trn._C.set_capacity_bytes(-1)
    trn._C.set_event_clock(None)
    trn.set_device(0)
    trn.set_stream(trn.default_stream())


@pytest.fixture(params=["compute", "phantom"])
def mode(request: pytest.FixtureRequest) -> str:
    """The test runs in both modes."""
    return enter(request.param)
