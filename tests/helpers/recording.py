# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The device in a chosen mode, and recordings of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import trnsim.device  # noqa: F401
from trnsim import _torch
from trnsim.workload import Workload


def use(mode: str) -> None:
    """Changes the mode, which needs that no device tensor is alive."""
    gc.collect()
    _torch.set_mode(mode)


class Recording:
    """Holds the Workload once the block has ended."""

    workload: Workload

    def lines(self) -> list[str]:
        return self.workload.print_records(0, len(self.workload))

    def ops(self) -> list[str]:
        """Names of the ops in order, without their namespaces."""
        return [line.split("(")[0].rsplit("::", 1)[1] for line in self.lines() if "aten::" in line]


@contextmanager
def record() -> Iterator[Recording]:
    recording = Recording()
    _torch.start_recording()
    try:
        yield recording
    finally:
        recording.workload = Workload.from_capsule(_torch.stop_recording())
