# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Run one benchmark and keep its result: python benchmarks/run.py CASE [--dry-run]

A case is a folder of benchmarks/ with a case.py that has a function `run() -> list[dict]`: one dict
a row, units in the keys, always with the peer that it is measured against in the same run. The rows
go to benchmarks/results/<processor>/<case>.csv. A row whose `ratio` is below its `budget_ratio` is
said, and makes the exit code 1.
"""

import argparse
import csv
import importlib.util
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def processor() -> str:
    """The processor's model name as a folder name: "amd-epyc"."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return re.sub(r"[^a-z0-9]+", "-", line.split(":", 1)[1].lower()).strip("-")
    raise SystemExit("trnsim: /proc/cpuinfo names no processor: run on Linux on x86")


def load(case: str):
    path = HERE / case / "case.py"
    if not path.is_file():
        known = ", ".join(sorted(p.parent.name for p in HERE.glob("*/case.py")))
        raise SystemExit(f"trnsim: no benchmark '{case}': choose one of {known}")
    spec = importlib.util.spec_from_file_location(f"benchmark_{case}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case")
    parser.add_argument("--dry-run", action="store_true", help="print the rows, write nothing")
    options = parser.parse_args()
    rows = load(options.case).run()
    columns = list(rows[0])
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if not options.dry_run:
        keep(options.case, rows)
    missed = [
        row for row in rows if float(row.get("budget_ratio") or 0) > float(row.get("ratio", 0))
    ]
    for row in missed:
        print(f"trnsim: below its budget: {row}", file=sys.stderr)
    sys.exit(1 if missed else 0)


def keep(case: str, rows: list[dict]) -> None:
    """Writes the rows to the results of this processor."""
    target = HERE / "results" / processor() / f"{case}.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"written to {target.relative_to(HERE.parent)}", file=sys.stderr)


if __name__ == "__main__":
    main()
