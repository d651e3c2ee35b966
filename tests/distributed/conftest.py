# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Process groups of any size in this process, in both modes."""

from __future__ import annotations

import contextlib
import gc

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trnsim._torch")
import torch.distributed as dist  # noqa: E402

from trnsim import _torch  # noqa: E402
from trnsim.capture.script import start_capture, stop_capture  # noqa: E402
from trnsim.capture.world import World  # noqa: E402


@pytest.fixture(params=["compute", "phantom"])
def mode(request):
    """The capture mode; no tensor of another test may be alive when it changes."""
    gc.collect()
    return request.param


@contextlib.contextmanager
def job(world_size: int, mode: str, rank: int = 0, ranks_per_server: int | None = None):
    """A capture of one rank in a world that has its default process group."""
    gc.collect()
    start_capture(World(rank, world_size, ranks_per_server, torchrun=True), mode)
    holder = Job()
    try:
        dist.init_process_group()
        yield holder
    finally:
        holder.workload = stop_capture()
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()


class Job:
    """Hands out the Workload once the job has ended."""

    workload = None


def snapshot():
    """What has been recorded so far."""
    return _torch.snapshot_recording()
