# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""PyTorch's OpInfo samples pass on the device, but for a list with reasons that never grows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXPECTED = json.loads((HERE / "expected_failures.json").read_text())
PARTS = 8  # processes of the runner: pytest -n 2 shares them out


@pytest.mark.parametrize("part", range(PARTS))
def test_ops_agree_with_the_cpu_but_for_the_listed_ones(part, tmp_path):
    target = tmp_path / "outcomes.json"
    command = [sys.executable, str(HERE / "runner.py"), "--jobs", "1"]
    command += ["--part", f"{part}/{PARTS}", "--json", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    failed, passed = {}, set()
    for outcome in json.loads(target.read_text()):
        key = f"{outcome['mode']} {outcome['name']}"
        if outcome["passed"]:
            passed.add(key)
        else:
            failed[key] = outcome["message"]
    listed = {f"{mode} {name}" for mode, names in EXPECTED["failures"].items() for name in names}
    news = {key: message for key, message in failed.items() if key not in listed}
    assert not news, "ops fail that are not in expected_failures.json"
    assert not listed & passed, "ops pass that expected_failures.json lists: take them out"


@pytest.mark.parametrize("mode", ["compute", "phantom"])
def test_the_list_is_short_and_each_entry_has_a_reason(mode):
    listed = EXPECTED["failures"][mode]
    assert len(listed) <= EXPECTED["most"][mode], "the list never grows"
    assert len(listed) <= 0.02 * EXPECTED["ops"], "98 % of the ops pass"
    assert all(len(reason) > 10 for reason in listed.values())
