# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The runner of PyTorch's own test files counts what each test did, on a file of ours."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = """
    import os, time
    import torch
    from torch.testing._internal.common_device_type import (
        dtypes, instantiate_device_type_tests, onlyCPU,
    )
    from torch.testing._internal.common_utils import TestCase, run_tests

    class TestKinds(TestCase):
        @dtypes(torch.float32, torch.int64)
        def test_passes(self, device, dtype):
            x = torch.ones(3, device=device, dtype=dtype)
            self.assertEqual(x.device.type, "trn")
            self.assertEqual((x + 1).tolist(), [2, 2, 2])

        def test_fails(self, device):
            self.assertEqual(torch.ones(1, device=device), torch.zeros(1, device=device))

        @onlyCPU
        def test_is_skipped(self, device):
            pass

        def test_crashes(self, device):
            os.abort()

        def test_never_ends(self, device):
            while True:
                time.sleep(1)

    class TestOfNoDevice(TestCase):
        def test_is_left_out(self):
            self.fail("it is of no device")

    instantiate_device_type_tests(TestKinds, globals())
"""


def run(folder, *arguments):
    command = [sys.executable, "-m", "tests.databases.pytorch", "--checkout", str(folder)]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )


def test_every_test_of_the_device_is_counted_once(tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "version.txt").write_text("9.9.9\n")
    (tmp_path / "test" / "test_kinds.py").write_text(textwrap.dedent(FILE))
    (tmp_path / "test" / "test_broken.py").write_text("import torch.no_such_module\n")
    target = tmp_path / "counts.json"
    done = run(tmp_path, "--file", "test_kinds.py", "--file", "test_broken.py",
               "--seconds", "8", "--json", str(target))  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(target.read_text())
    assert document["checkout"] == "9.9.9"
    counts = document["files"]["test_kinds.py"]
    assert {kind: counts[kind] for kind in ("tests", "run", "passed", "failed", "skipped")} == {
        "tests": 6, "run": 6, "passed": 2, "failed": 3, "skipped": 1,
    }  # fmt: skip
    reasons = {name.rsplit(".", 1)[1]: why for name, why in counts["failures"].items()}
    assert reasons["test_crashes_trn"] == "ended by signal 6"
    assert reasons["test_never_ends_trn"] == "took more than 8 s"
    assert reasons["test_fails_trn"].startswith("AssertionError")
    assert counts["skipped_because"] == {"Only runs on cpu": 1}
    broken = document["files"]["test_broken.py"]
    assert broken == {"not_run": "ModuleNotFoundError: No module named 'torch.no_such_module'"}


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 1
    assert f"no test/test_torch.py in {tmp_path}: is it PyTorch's root?" in done.stderr
