# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Scripts that start their own ranks: only the captured one runs, in this process."""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

from trnsim import _torch
from trnsim.capture.world import World, current_world
from trnsim.errors import CaptureError


class _EndedProcesses:
    """What ``spawn(join=False)`` returns: the one process has run already."""

    processes: tuple[Any, ...] = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True

    def pids(self) -> list[int]:
        return [os.getpid()]


def without_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces the loop of a DataLoader's worker process: it makes no tensor of the device.

    What it computed there would be in no step, and its tensors cannot be passed on: the process
    that wants them would wait for ever.
    """

    @functools.wraps(original)
    def _worker_loop(*arguments: Any, **named: Any) -> None:
        name = _torch.device_name()
        _torch.refuse_allocations(
            f"a worker process of a DataLoader makes a tensor on {name}, whose work no step would "
            f"hold: give CPU tensors, and move them to {name} in the loop over the batches"
        )
        original(*arguments, **named)

    return _worker_loop


def _note(world: World, started: int) -> None:
    if started not in (1, world.local_world_size):
        _torch.add_note(
            f"the script starts {started} processes, of which only local rank "
            f"{world.local_rank} of {world.local_world_size} ran"
        )


def start_in_process(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``torch.multiprocessing.start_processes``, and its ``spawn``."""

    @functools.wraps(original)
    def start_processes(
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        *more: Any,
        **options: Any,
    ) -> Any:
        world = current_world()
        if world is None:
            return original(fn, args, nprocs, join, daemon, *more, **options)
        _note(world, nprocs)
        fn(world.local_rank if nprocs > world.local_rank else 0, *args)
        return None if join else _EndedProcesses()

    return start_processes


def launch_in_process(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces the call of torchrun's launcher, for scripts and commands that use it."""

    @functools.wraps(original)
    def __call__(launcher: Any, *args: Any) -> Any:
        world = current_world()
        if world is None:
            return original(launcher, *args)
        _note(world, launcher._config.nproc_per_node)
        entry = launcher._entrypoint
        if callable(entry):
            return {world.local_rank: entry(*args)}
        _run_command([entry, *args])
        return {world.local_rank: None}

    return __call__


def _run_command(command: list[str]) -> None:
    """Runs what torchrun would start: [python, -u, [-m], script, arguments...]."""
    words = list(command)
    if os.path.basename(words[0]).startswith("python"):
        words.pop(0)
    is_module = False
    while words and words[0].startswith("-"):
        is_module = is_module or words[0] == "-m"
        words.pop(0)
    if not words or not (is_module or words[0].endswith(".py")):
        raise CaptureError(
            f"torchrun of '{' '.join(command)}': only Python scripts run in process, so start "
            "the script with `trnsim run` itself"
        )
    before = sys.argv
    sys.argv = words
    try:
        if is_module:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
            runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = before
