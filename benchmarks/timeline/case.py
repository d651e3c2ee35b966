# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Bulk timelines beside a priority-queue simulation of the same job, one core, CPU seconds.

The job is in timeline.cpp. Every row is a median of five runs that take turns, but for our
reference engine, which is slow and stands there once. Hashes are compared in the run: a faster
answer that differs is an error.
"""

import tempfile
from pathlib import Path

from programs import compile_ours, rows_of

HERE = Path(__file__).resolve().parent
CHIPS, TASKS, PEER_CHIPS = 4096, 20_000, 128
BUDGET_RATIO = 40  # times the priority queue


def run() -> list[dict]:
    """Peer, reference and bulk."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_ours(HERE / "timeline.cpp", Path(folder))
        rows = rows_of(program, CHIPS, TASKS, PEER_CHIPS, "cpp")
    return [
        row | {"budget_ratio": BUDGET_RATIO if row["engine"].startswith("bulk") else ""}
        for row in rows
    ]
