# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim search llama3-405b --machine rainier --chips 400000`, whole, as a user runs it.

Every layout that can matter is captured and simulated, three of them with their interval. cpu_s is
of all processes, peak_MiB of the largest one; where other programs run too, wall_s is theirs as
well. The step of the best layout is kept beside them: a search that became faster by finding
something else shows here.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = ["search", "llama3-405b", "--machine", "rainier", "--chips", "400000"]


def run() -> list[dict]:
    """One row."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "trnsim", *COMMAND, "--json"],
        check=True, stdout=subprocess.PIPE, text=True,
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        },
    )  # fmt: skip
    wall_s = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(done.stdout)
    best, counts = found["best"][0], found["counts"]
    layout = {name: best[name] for name in ("tp", "pp", "vp", "cp", "dp", "micro_batch")}
    return [{
        "command": " ".join(["trnsim", *COMMAND]),
        "cores": os.cpu_count(),
        "layouts": counts["layouts"],
        "simulated": counts["simulated"],
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "wall_s": round(wall_s, 1),
        "peak_MiB": used.ru_maxrss // 1024,
        "best": " ".join(f"{name} {degree}" for name, degree in layout.items()),
        "step_s": round(best["step_time_s"], 4),
    }]  # fmt: skip
