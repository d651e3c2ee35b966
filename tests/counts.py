# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""How many tests there are: counts.json holds the committed numbers, and they never shrink.

    python tests/counts.py check|update BUILD      BUILD: a build folder with the C++ test programs

The Python tests are counted by pytest itself when all of them are collected (conftest.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMITTED = HERE / "counts.json"


def committed() -> dict[str, int]:
    """The committed counts, by kind."""
    return json.loads(COMMITTED.read_text())


def count_cpp(build: Path) -> int:
    """Tests of all GoogleTest programs in the build folder."""
    count = 0
    for program in sorted((build / "tests" / "cpp").glob("test_*")):
        if program.is_file() and not program.suffix:
            listed = subprocess.run(
                [program, "--gtest_list_tests"], check=True, capture_output=True, text=True
            )
            count += sum(line.startswith("  ") for line in listed.stdout.splitlines())
    return count


def count_python() -> int:
    """Tests that pytest collects."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", str(HERE)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE.parent)
    return sum("::" in line for line in listed.stdout.splitlines())


def main() -> int:
    """Compares the C++ tests with the committed count, or commits both counts anew."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("check", "update"):
        print(__doc__, file=sys.stderr)
        return 2
    cpp = count_cpp(Path(sys.argv[2]))
    if sys.argv[1] == "update":
        counts = {"cpp": cpp, "python": count_python()}
        COMMITTED.write_text(json.dumps(counts, indent=2) + "\n")
        return 0
    if cpp < committed()["cpp"]:
        print(f"{cpp} C++ tests, and {COMMITTED.name} has {committed()['cpp']}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
