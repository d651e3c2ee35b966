# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Searches and a scaling curve, whole, as a user runs them.

Of a search every layout that can matter is captured and simulated, three of them with their
interval. cpu_s is of all processes of a command, peak_MiB of the largest one; where other programs
run too, wall_s is theirs as well. The answer is kept beside them: a command that became faster by
finding something else shows here.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SEARCH = ["search", "llama3-405b", "--machine", "rainier", "--chips"]
COMMANDS = [
    [*SEARCH, "400000"],
    [*SEARCH, "16384", "--recompute", "none,selective,full"],
    [
        "scale", "llama3-8b", "--machine", "rainier", "--chips",
        "64,512,4096,32768,131072,400000", "--tp", "8", "--pp", "1", "--zero", "1",
        "--micro-batch", "1",
    ],
]  # fmt: skip


def run() -> list[dict]:
    """A row a command."""
    return [measure(command) for command in COMMANDS]


def measure(command: list[str]) -> dict:
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "trnsim", *command, "--json"],
            stdout=said, env=os.environ | {"PYTHONPATH": paths},
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"trnsim {' '.join(command)}: exit code {process.returncode}")
        said.seek(0)
        found = json.load(said)
    tried, answer = (searched if command[0] == "search" else scaled)(found)
    return {
        "command": " ".join(["trnsim", *command]),
        "cores": os.cpu_count(),
        "tried": tried,
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "wall_s": round(wall_s, 1),
        "peak_MiB": used.ru_maxrss // 1024,
        "answer": answer,
    }


def searched(found: dict) -> tuple[str, str]:
    best, counts = found["best"][0], found["counts"]
    degrees = " ".join(
        f"{name} {best[name]}" for name in ("tp", "pp", "vp", "cp", "dp", "micro_batch")
    )
    return (
        f"{counts['layouts']} layouts, {counts['simulated']} simulated",
        f"{degrees}: {best['step_time_s']:.4f} s",
    )


def scaled(found: dict) -> tuple[str, str]:
    points = found["points"]
    return f"{len(points)} sizes", " ".join(
        "-" if one["step_time_s"] is None else f"{one['step_time_s']:.4f}" for one in points
    )
