# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Bulk timelines beside a priority-queue simulation of the same job, one core, CPU seconds.

The job is in timeline.cpp. Every row is a median of five runs that take turns, but for our
reference engine, which is slow and stands there once. Hashes are compared in the run: a faster
answer that differs is an error.
"""

import csv
import io
import os
import subprocess
import tempfile
from pathlib import Path

import trnsim

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHIPS, TASKS, PEER_CHIPS = 4096, 20_000, 128
BUDGET_RATIO = 40  # times the priority queue


def build(folder: Path) -> Path:
    """Compiles the program against the library that trnsim is using."""
    library = Path(trnsim.__file__).parent / "lib"
    program = folder / "timeline"
    subprocess.run(
        [os.environ.get("CXX", "c++"), "-std=gnu++20", "-O3", "-DNDEBUG", f"-I{ROOT / 'csrc'}",
         str(HERE / "timeline.cpp"), f"-L{library}", "-ltrnsim_core", f"-Wl,-rpath,{library}",
         "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def measure(program: Path, chips: int, backend: str) -> list[dict]:
    """Rows of one run of the program."""
    done = subprocess.run(
        [str(program), str(chips), str(TASKS), str(PEER_CHIPS), backend],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return list(csv.DictReader(io.StringIO(done.stdout)))


def run() -> list[dict]:
    """Peer, reference and bulk."""
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(build(Path(folder)), CHIPS, "cpp")
    return [row | {"budget_ratio": BUDGET_RATIO} for row in rows]
