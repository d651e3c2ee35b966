# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Processes that capture and simulate side by side."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def worker_pool(processes: int | None = None) -> ProcessPoolExecutor:
    """A pool of fresh processes, one a core when None. What they print is dropped."""
    return ProcessPoolExecutor(
        processes or os.cpu_count() or 1, mp_context=get_context("spawn"), initializer=_be_silent
    )


def _be_silent() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.environ["OMP_NUM_THREADS"] = "1"
