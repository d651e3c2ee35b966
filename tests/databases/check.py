# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""All dtypes of PyTorch's databases against expected_failures.json: the full tier.

    python -m tests.databases.check [DTYPE ...]

Half an hour of CPU for every dtype of the ops. Exits with 1 and the names when an entry fails that
is not listed, or one passes that is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.databases import runner

HERE = Path(__file__).resolve().parent
EXPECTED = json.loads((HERE / "expected_failures.json").read_text())


def listed(database: str, dtype: str) -> set[tuple[str, str]]:
    """(mode, name) of what may fail; "other" has what fails with some dtypes but float32, which has
    a list of its own."""
    of = EXPECTED[database]
    found = {(mode, name) for mode, names in of["failures"].items() for name in names}
    if dtype == "float32":
        return found
    return found | {
        (mode, name)
        for mode, names in of["other"].items()
        for name, about in names.items()
        if dtype in about["dtypes"]
    }


def surprises(database: str, outcomes: list[dict[str, Any]]) -> list[str]:
    """A line for each entry that fails without being listed or, in float32, passes though it is."""
    lines = []
    for outcome in outcomes:
        expected = (outcome["mode"], outcome["name"]) in listed(database, outcome["dtype"])
        said = "{mode} {name} {dtype}".format(**outcome)
        if not outcome["passed"] and not expected:
            lines.append(f"{said}: {outcome['message']}")
        if outcome["passed"] and expected and outcome["dtype"] == "float32":
            lines.append(f"{said}: passes and is listed: take it out")
    return lines


def main() -> None:
    dtypes = sys.argv[1:] or list(runner.DTYPES)
    lines = []
    for database in runner.DATABASES:
        entries = runner.load(database, dtypes)
        outcomes = runner.run_all(entries, os.cpu_count() or 1)
        failed = sum(not outcome.passed for outcome in outcomes)
        print(f"{database}: {len(outcomes) - failed} of {len(outcomes)} outcomes agree", flush=True)
        lines += surprises(database, [outcome._asdict() for outcome in outcomes])
    print("\n".join(lines))
    raise SystemExit(1 if lines else 0)


if __name__ == "__main__":
    main()
