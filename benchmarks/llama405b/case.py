# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A step of Llama-405B's shape on 400,000 chips, folded; on 4,096 chips beside every rank of it.

step.py says what the step is. Where both ways run, every task of every rank must end at the same
picosecond: a difference is an error. CPU seconds, the fold with its topology; where classes alone
run, the median of five. Peak memory is that of the whole process, in the rows of both ways with all
times of all ranks.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLUMNS = (
    "chips", "stages", "odd", "way", "ranks_simulated", "fold_cpu_s", "simulate_cpu_s", "step_ms",
    "solve_ms", "timeline_hash", "tasks_compared", "tasks_different", "peak_MiB",
)  # fmt: skip
# pods, stages, what is odd, way
RUNS = [
    (64, 8, "none", "both"),
    (64, 8, "chip", "both"),
    (64, 8, "nic", "both"),
    (64, 8, "chip,nic", "both"),
    (64, 8, "chip,link", "both"),
    (1024, 8, "jitter", "ranks"),
    (6250, 1, "none", "classes"),
    (6250, 10, "none", "classes"),
    (6250, 10, "chip,nic", "classes"),
    (6250, 10, "chip,link", "classes"),
]


def measure(pods: int, stages: int, odd: str, way: str) -> dict:
    """The row of one run in a process of its own."""
    root = str(HERE.parent.parent)
    done = subprocess.run(
        [sys.executable, str(HERE / "step.py"), str(pods), str(stages), odd, way],
        check=True, stdout=subprocess.PIPE, text=True,
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join((root, os.environ.get("PYTHONPATH", ""))),
            # or threads that wait count as work
            "OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1",
        },
    )  # fmt: skip
    row = json.loads(done.stdout)
    if row.get("tasks_different"):
        raise SystemExit(f"trnsim: folded and rank by rank differ: {row}")
    return {name: row.get(name, "") for name in COLUMNS}


def median(pods: int, stages: int, odd: str, way: str) -> dict:
    """Of five runs where one takes a second or two; of one where every rank is simulated."""
    rows = [measure(pods, stages, odd, way) for _ in range(5 if way == "classes" else 1)]
    rows.sort(key=lambda row: row["fold_cpu_s"] + row["simulate_cpu_s"])
    return rows[len(rows) // 2]


def run() -> list[dict]:
    """Rows: both ways first, then what is only folded."""
    return [median(*each) for each in RUNS]
