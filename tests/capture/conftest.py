# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The device in a chosen mode, and recordings."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import recording


@pytest.fixture
def compute() -> Iterator[None]:
    recording.use("compute")
    yield
    gc.collect()


@pytest.fixture
def phantom() -> Iterator[None]:
    recording.use("phantom")
    yield
    gc.collect()


@pytest.fixture(params=["compute", "phantom"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    recording.use(request.param)
    yield request.param
    gc.collect()


@pytest.fixture
def record() -> Callable[[], object]:
    return recording.record
