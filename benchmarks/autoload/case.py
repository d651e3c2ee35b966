# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What autoload adds to `import torch`: at most 5 %.

Fresh interpreters, alternating between with and without, so that both see the same disk cache and
the same load; the medians are compared. Command: python benchmarks/run.py autoload
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

REPETITIONS = 7
ROOT = Path(__file__).resolve().parents[2]
CODE = """
import time
start = time.perf_counter()
import torch
print(time.perf_counter() - start, torch._C._get_privateuse1_backend_name())
"""


def import_seconds(autoload: str) -> float:
    """Seconds of `import torch` in a fresh interpreter, with TRNSIM_AUTOLOAD=`autoload`."""
    environment = {**os.environ, "TRNSIM_AUTOLOAD": autoload}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    seconds, device = done.stdout.split()
    expected = "privateuseone" if autoload == "0" else "trn"
    if device != expected:
        raise SystemExit(
            f"trnsim: import torch brought '{device}', not '{expected}': install trnsim first "
            f"(pip install --no-build-isolation .)"
        )
    return float(seconds)


def run() -> list[dict]:
    """One row: medians in seconds, and what autoload adds in percent."""
    import_seconds("1"), import_seconds("0")  # fills the disk cache
    pairs = [(import_seconds("1"), import_seconds("0")) for _ in range(REPETITIONS)]
    with_s, without_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return [
        {
            "import_torch_s": round(without_s, 3),
            "import_torch_with_trnsim_s": round(with_s, 3),
            "added_percent": round(100 * (with_s / without_s - 1), 1),
            "budget_percent": 5,
            "repetitions": REPETITIONS,
        }
    ]
