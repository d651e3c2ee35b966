# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What becomes of the entries that do not simply agree with the CPU: expected.json, with reasons.

Of each database three lists, which only shrink:

failed:  the device does something else, or refuses.
as_cuda: shapes, strides and dtypes are not the CPU's but those of PyTorch's CUDA kernels, as its
         functions for the meta device say: harness.py compares with these, and values as ever.
skipped: torch's harness skips it on a device that is neither a CPU nor CUDA.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_KINDS = {"failed": "failed", "as_cuda": "passed", "skipped": "skipped"}  # of listed entries
LISTS = tuple(_KINDS)
FILE = Path(__file__).resolve().parent / "expected.json"
EXPECTED: dict[str, dict[str, dict[str, Any]]] = json.loads(FILE.read_text())


def is_listed(kind: str, database: str, name: str, dtype: str, mode: str) -> bool:
    """Is the entry on a list of the database, with this dtype and in this mode?"""
    row = EXPECTED[database][kind].get(name)
    return row is not None and dtype in row["dtypes"] and mode in row["modes"]


def number_listed(kind: str, database: str, dtype: str, mode: str) -> int:
    """How many entries are on a list."""
    names = EXPECTED[database][kind]
    return sum(is_listed(kind, database, name, dtype, mode) for name in names)


def expected_kind(database: str, name: str, dtype: str, mode: str) -> str:
    """What an entry does, by the lists."""
    for each, kind in _KINDS.items():
        if is_listed(each, database, name, dtype, mode):
            return kind
    return "passed"


def surprises(database: str, outcomes: Iterable[tuple[str, str, str, str, str]]) -> list[str]:
    """A line for each entry that does something else than the lists say; outcomes are the
    runner's."""
    lines = []
    for name, dtype, mode, kind, reason in outcomes:
        expected = expected_kind(database, name, dtype, mode)
        if kind != expected:
            lines.append(f"{mode} {name} {dtype} is {kind} and listed as {expected}: {reason}")
    return lines
