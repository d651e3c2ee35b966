# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""PyTorch's databases pass on the device in float32, but for a list with reasons that never grows.

The other dtypes are the full tier's: tests/full runs check.py over all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.databases.check import EXPECTED, HERE, surprises

PARTS = {"ops": 8, "modules": 2, "optimizers": 1}  # pytest -n 2 shares them out


@pytest.mark.parametrize(
    ("database", "part"), [(name, part) for name, parts in PARTS.items() for part in range(parts)]
)
def test_entries_agree_with_the_cpu_but_for_the_listed_ones(database, part, tmp_path):
    target = tmp_path / "outcomes.json"
    command = [sys.executable, "-m", "tests.databases.runner", "--database", database]
    command += ["--part", f"{part}/{PARTS[database]}", "--jobs", "1", "--json", str(target)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=HERE.parent.parent
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(target.read_text())
    assert len(outcomes) > 20
    assert not surprises(database, outcomes)


@pytest.mark.parametrize("database", PARTS)
def test_the_list_is_short_and_each_entry_has_a_reason(database):
    of = EXPECTED[database]
    for mode in ("compute", "phantom"):
        listed = of["failures"][mode]
        assert len(listed) <= of["most"][mode], "the list never grows"
        share = 0.01 if mode == "compute" else 0.015
        assert len(listed) <= share * of["entries"], "99 %, in phantom mode 98.5, of them pass"
        assert all(len(reason) > 10 for reason in listed.values())
