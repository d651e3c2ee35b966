# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""From a job to its cohorts: the classes directly, beside all ranks and then the fold.

The job is in fold.cpp. Where both ways run, their timelines must have one hash: a faster answer
that differs is an error. CPU seconds; the machine that made the results shares its cores.
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
# pods, stages, something odd, ways
RUNS = [
    (64, 1, 0, ("ranks", "classes")),
    (1024, 1, 0, ("ranks", "classes")),
    (1024, 16, 0, ("ranks", "classes")),
    (1024, 16, 1, ("ranks", "classes")),
    (6250, 1, 0, ("classes",)),
    (6250, 1, 1, ("classes",)),
    (6240, 16, 0, ("classes",)),
    (6240, 16, 1, ("classes",)),
]


def build(folder: Path) -> Path:
    """Compiles the program against the library that trnsim is using."""
    library = Path(trnsim.__file__).parent / "lib"
    program = folder / "fold"
    subprocess.run(
        [os.environ.get("CXX", "c++"), "-std=gnu++20", "-O3", "-DNDEBUG", f"-I{ROOT / 'csrc'}",
         str(HERE / "fold.cpp"), f"-L{library}", "-ltrnsim_core", f"-Wl,-rpath,{library}",
         "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def measure(program: Path, pods: int, stages: int, odd: int, way: str) -> dict:
    """The row of one run of the program."""
    done = subprocess.run(
        [str(program), str(pods), str(stages), str(odd), way],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return next(csv.DictReader(io.StringIO(done.stdout)))


def run() -> list[dict]:
    """Rows by size, with the ways of one size together."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for pods, stages, odd, ways in RUNS:
            found = [measure(program, pods, stages, odd, way) for way in ways]
            if len({(row["timeline_hash"], row["classes"]) for row in found}) > 1:
                raise SystemExit(f"trnsim: the two ways differ at {pods} pods: {found}")
            rows += found
    return rows
