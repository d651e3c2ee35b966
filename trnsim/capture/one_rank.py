# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""One run of a script as one rank, in this process: rank 0 of `trnsim run`, and each child."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trnsim.leave import leave

if TYPE_CHECKING:
    from trnsim.capture.pipelining import Shapes
    from trnsim.capture.script import CaptureResult
    from trnsim.job import Job


@dataclass
class Request:
    """One run of a script as one rank; everything is as `trnsim run` was asked for."""

    script: str
    arguments: list[str]
    is_module: bool
    machine: str
    overrides: list[str]
    chips: int
    ranks_per_chip: int
    mode: str
    no_oom: bool
    is_cuda: bool = False
    stop_after_step: int | None = None
    rank: int = 0
    folder: str = ""

    def path(self, ending: str) -> Path:
        """A file of this rank."""
        return Path(self.folder) / f"rank{self.rank}{ending}"

    def make_job(self) -> Job:
        """The machine and its ranks."""
        from trnsim.job import make_job

        return make_job(
            self.machine, chips=self.chips, ranks_per_chip=self.ranks_per_chip,
            overrides=self.overrides,
        )  # fmt: skip


def enter(request: Request) -> None:
    """Makes this process that of the device: before torch is imported, which would only warn where
    it fails."""
    os.environ["TRNSIM_AUTOLOAD"] = "1"  # asked for our device, whoever else is here
    if request.is_cuda:
        from trnsim.capture.cuda import early

        early.load()
    import trnsim.device  # noqa: F401


def capture_rank(
    request: Request, job: Job, *, notes: Sequence[str] = (), shapes: Shapes | None = None
) -> CaptureResult:
    """Runs the script. A process that it forks, and that comes to its end, ends here.

    Args:
        request: what is run.
        job: the request's.
        notes: what the Workload says beside what capture had to guess.
        shapes: what other ranks have said; it takes what this one says.
    """
    enter(request)
    from trnsim import _torch
    from trnsim.capture import run_script
    from trnsim.device import clock

    clock.install(job.machine, job.placement.ranks_per_chip)
    world, process = job.world(request.rank), os.getpid()
    # For good: what the script leaves is freed after the capture, on this rank's device.
    _torch.set_device_count(world.local_world_size)
    captured = run_script(
        request.script, request.arguments, is_module=request.is_module, world=world,
        mode=request.mode, capacity_bytes=job.capacity_bytes, no_oom=request.no_oom,
        stop_after_step=request.stop_after_step, notes=notes, shapes=shapes, others_follow=True,
    )  # fmt: skip
    if os.getpid() != process:
        leave(captured.exit_code)
    return captured
