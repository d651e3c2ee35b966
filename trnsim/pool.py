# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Processes that capture and simulate side by side."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import context, spawn
from typing import Any

from trnsim.errors import PlanError
from trnsim.job import LARGEST_COUNT, whole_number_of

# Pools that wait for their next use, by what their processes were started with; None where no
# `kept_workers` is open.
_IDLE: dict[tuple[Any, ...], ProcessPoolExecutor] | None = None


@contextmanager
def worker_pool(processes: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes, one a core when None; inside of `kept_workers` those of the pool before.
    What they print is dropped.

    They work for trnsim alone and do not run the script again that asked for them, as spawned
    processes else do: it needs no `if __name__ == "__main__":`, and nothing in it happens twice.
    """
    count = processes or os.cpu_count() or 1
    key = (count, os.getcwd(), *sorted(one for one in os.environ.items() if "TRNSIM" in one[0]))
    pool = _IDLE.pop(key, None) if _IDLE else None
    pool = pool or ProcessPoolExecutor(count, mp_context=_Context(), initializer=_be_silent)
    ended_well = False
    try:
        yield pool
        ended_well = True
    finally:
        if ended_well and _IDLE is not None and key not in _IDLE:
            _IDLE[key] = pool
        else:
            pool.shutdown()


@contextmanager
def kept_workers() -> Iterator[None]:
    """Inside, processes of a pool that nobody uses any more serve the next: they start once."""
    global _IDLE
    if _IDLE is not None:
        yield
        return
    _IDLE = {}
    try:
        yield
    finally:
        idle, _IDLE = _IDLE, None
        for pool in idle.values():
            pool.shutdown()


def check_jobs(jobs: int | None) -> None:
    """Raises PlanError for a number of processes that is none."""
    if jobs is not None:
        whole_number_of(PlanError, "jobs", jobs, 1, LARGEST_COUNT)


_LOCK = threading.Lock()


class _Process(context.SpawnProcess):
    """A spawned process that is not told which script its parent runs."""

    def start(self) -> None:
        """As of any process."""
        mine = threading.get_ident()

        def without_script(name: str) -> dict[str, Any]:
            data: dict[str, Any] = told(name)
            if threading.get_ident() == mine:  # others' processes are told as ever
                data.pop("init_main_from_name", None)
                data.pop("init_main_from_path", None)
            return data

        with _LOCK:
            told = spawn.get_preparation_data
            spawn.get_preparation_data = without_script
            try:
                super().start()
            finally:
                spawn.get_preparation_data = told


class _Context(context.SpawnContext):
    Process = _Process  # type: ignore[assignment]


def _be_silent() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.environ["OMP_NUM_THREADS"] = "1"
