# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The device in a chosen mode, and recordings."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import trnsim.device  # noqa: F401
from trnsim import _torch
from trnsim.workload import Workload


def use(mode: str) -> None:
    """Changes the mode, which needs that no device tensor is alive."""
    gc.collect()
    _torch.set_mode(mode)


@pytest.fixture
def compute() -> Iterator[None]:
    use("compute")
    yield
    gc.collect()


@pytest.fixture
def phantom() -> Iterator[None]:
    use("phantom")
    yield
    gc.collect()


@pytest.fixture(params=["compute", "phantom"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    use(request.param)
    yield request.param
    gc.collect()


class Recording:
    """Holds the Workload once the block has ended."""

    workload: Workload

    def lines(self) -> list[str]:
        return self.workload.print_records(0, len(self.workload))

    def ops(self) -> list[str]:
        """Names of the ops in order, without their namespaces."""
        return [line.split("(")[0].rsplit("::", 1)[1] for line in self.lines() if "aten::" in line]


@contextmanager
def _record() -> Iterator[Recording]:
    recording = Recording()
    _torch.start_recording()
    try:
        yield recording
    finally:
        recording.workload = Workload.from_capsule(_torch.stop_recording())


@pytest.fixture
def record() -> Callable[[], object]:
    return _record
