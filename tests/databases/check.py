# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""All dtypes of PyTorch's databases against expected.json and counts.json: the full tier.

    python -m tests.databases.check [--write] [DTYPE ...]

A quarter of an hour on two cores. Exits with 1 and a line for each entry that does something else
than the lists say, and for each count that is below the committed one. --write commits the counts
of the dtypes anew.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
from typing import Any

from tests.databases import runner
from tests.databases.expected import FILE, LISTS, number_listed, surprises
from tests.databases.harness import MODES

COUNTS = FILE.with_name("counts.json")


def committed() -> dict[str, dict[str, Any]]:
    """Of each database and dtype: entries, and per mode how many agree with the CPU, how many with
    CUDA instead, how many fail and how many are skipped."""
    return json.loads(COUNTS.read_text())


def counted(database: str, outcomes: list[runner.Outcome]) -> dict[str, Any]:
    """What is committed of one database and dtype."""
    found: dict[str, Any] = {"entries": len({each.name for each in outcomes})}
    for mode in MODES:
        kinds = collections.Counter(each.kind for each in outcomes if each.mode == mode)
        dtype = outcomes[0].dtype
        as_cuda = number_listed("as_cuda", database, dtype, mode)
        found[mode] = {"agree": kinds["passed"] - as_cuda, "as_cuda": as_cuda}
        found[mode] |= {kind: kinds[kind] for kind in ("failed", "skipped")}
    return found


def shrunk(said: str, found: dict[str, Any], least: dict[str, Any]) -> list[str]:
    """A line for each count that got worse than the committed one."""
    lines = []
    if found["entries"] < least["entries"]:
        lines.append(f"{said}: {found['entries']} entries, committed are {least['entries']}")
    for mode in MODES:
        if found[mode]["agree"] < least[mode]["agree"]:
            lines.append(
                f"{said}: {found[mode]['agree']} agree in {mode} mode, "
                f"committed are {least[mode]['agree']}"
            )
        lines += [
            f"{said}: {found[mode][kind]} are {kind} in {mode} mode, committed {least[mode][kind]}"
            for kind in LISTS
            if found[mode][kind] > least[mode][kind]
        ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="commit the counts anew")
    parser.add_argument("dtypes", nargs="*", default=runner.DTYPE_NAMES)
    options = parser.parse_args()
    counts = committed() if COUNTS.is_file() else {}
    lines = []
    for database in runner.DATABASES:
        tests = runner.load(database, tuple(options.dtypes))
        outcomes = runner.run_all(tests, os.cpu_count() or 1)
        lines += surprises(database, outcomes)
        of = counts.setdefault(database, {})
        for dtype in sorted({each.dtype for each in outcomes}, key=runner.DTYPE_NAMES.index):
            found = counted(database, [each for each in outcomes if each.dtype == dtype])
            print(f"{database} {dtype}: {json.dumps(found)}", flush=True)
            if options.write:
                of[dtype] = found
            else:
                lines += shrunk(f"{database} {dtype}", found, of[dtype])
    if options.write:
        COUNTS.write_text(json.dumps(counts, indent=1) + "\n")
    print("\n".join(lines))
    raise SystemExit(1 if lines else 0)


if __name__ == "__main__":
    main()
