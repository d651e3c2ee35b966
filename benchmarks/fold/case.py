# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""From a job to its cohorts: the classes directly, beside all ranks and then the fold.

The job is in fold.cpp. Where both ways run, their timelines must have one hash: a faster answer
that differs is an error. CPU seconds; the machine that made the results shares its cores.
"""

import tempfile
from pathlib import Path

from programs import compile_ours, rows_of

HERE = Path(__file__).resolve().parent
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


def run() -> list[dict]:
    """Rows by size, with the ways of one size together."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = compile_ours(HERE / "fold.cpp", Path(folder))
        for pods, stages, odd, ways in RUNS:
            found = [rows_of(program, pods, stages, odd, way)[0] for way in ways]
            if len({(row["timeline_hash"], row["classes"]) for row in found}) > 1:
                raise SystemExit(f"trnsim: the two ways differ at {pods} pods: {found}")
            rows += found
    return rows
