# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""PyTorch's databases pass on the device in float32, but for lists with reasons that never grow.

The other dtypes are the full tier's: tests/full runs check.py over all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases.expected import EXPECTED, LISTS, number_listed, surprises

ROOT = Path(__file__).resolve().parents[2]
COUNTS = json.loads((Path(__file__).parent / "counts.json").read_text())
MODES = ("compute", "phantom")
PARTS = {"ops": 8, "modules": 2, "optimizers": 1}  # pytest -n 2 shares them out
# Outcomes of entries, in both modes and with all dtypes, that are on a list: never more.
MOST = {
    ("ops", "failed"): 28,
    ("ops", "as_cuda"): 35,
    ("ops", "skipped"): 114,
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Apart from the other tests: torch's harness changes settings of the process.
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("database", "part"), [(name, part) for name, parts in PARTS.items() for part in range(parts)]
)
def test_entries_do_what_the_lists_say(database, part, tmp_path):
    target = tmp_path / "outcomes.json"
    done = run("-m", "tests.databases.runner", "--database", database, "--jobs", "1",
               "--part", f"{part}/{PARTS[database]}", "--json", str(target))  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = [tuple(outcome.values()) for outcome in json.loads(target.read_text())]
    entries = COUNTS[database]["float32"]["entries"]
    assert len(outcomes) == len(MODES) * len(range(part, entries, PARTS[database]))
    assert not surprises(database, outcomes)


def test_the_harness_makes_the_entries_that_were_counted():
    program = """
import collections, json
from tests.databases import harness, runner
made = {}
for database in runner.DATABASES:
    names = [harness.name_of(test.id()) for test in runner.load(database)]
    made[database] = collections.Counter(name.dtype for name in names)
print(json.dumps(made))
"""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr[-2000:]
    made = json.loads(done.stdout.splitlines()[-1])
    for database, dtypes in COUNTS.items():
        assert made[database] == {dtype: of["entries"] for dtype, of in dtypes.items()}


@pytest.mark.parametrize("database", COUNTS)
def test_of_each_dtype_99_percent_pass_and_the_counts_are_those_of_the_lists(database):
    for dtype, of in COUNTS[database].items():
        for mode in MODES:
            listed = {each: number_listed(each, database, dtype, mode) for each in LISTS}
            assert {each: of[mode][each] for each in LISTS} == listed, (dtype, mode)
            assert of[mode]["agree"] == of["entries"] - sum(listed.values())
            assert listed["failed"] <= 0.01 * (of["entries"] - listed["skipped"]), (dtype, mode)


@pytest.mark.parametrize("database", COUNTS)
def test_the_lists_do_not_grow_and_each_entry_has_a_reason(database):
    for each in LISTS:
        rows = EXPECTED[database][each].values()
        outcomes = sum(len(row["modes"]) * len(row["dtypes"]) for row in rows)
        assert outcomes <= MOST.get((database, each), 0), "the lists never grow"
        assert all(len(row["reason"]) > 10 for row in rows)
