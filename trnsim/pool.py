# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Processes that capture and simulate side by side."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import context, spawn
from typing import Any

from trnsim.errors import PlanError
from trnsim.job import LARGEST_COUNT, whole_number_of


def worker_pool(processes: int | None = None) -> ProcessPoolExecutor:
    """A pool of fresh processes, one a core when None. What they print is dropped.

    They work for trnsim alone and do not run the script again that asked for them, as spawned
    processes else do: it needs no `if __name__ == "__main__":`, and nothing in it happens twice.
    """
    return ProcessPoolExecutor(
        processes or os.cpu_count() or 1, mp_context=_Context(), initializer=_be_silent
    )


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
