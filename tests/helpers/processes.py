# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A helper's `main(rank, ranks, folder)` in several processes that share a folder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

_HERE = Path(__file__).parent


@contextlib.contextmanager
def ran_in(ranks: int, helper: str, cases: list[Any]) -> Iterator[str]:
    """The folder, with `cases` for all of them to load, once every process has ended well."""
    start = (
        f"import sys, {helper} as job; job.main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_HERE), str(_HERE.parents[1])])}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(cases, f"{folder}/cases")
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", start, str(rank), str(ranks), folder], env=environment
            )
            for rank in range(ranks)
        ]
        assert [process.wait() for process in processes] == [0] * ranks
        yield folder
