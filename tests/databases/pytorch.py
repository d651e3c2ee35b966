# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""PyTorch's own test files on the device, from a checkout of PyTorch, which is not part of ours.

    python -m tests.databases.pytorch --checkout DIR [--file test_torch.py] [--limit 1000]
                                      [--names add,sub] [--jobs 2] [--seconds 30] [--json FILE]
                                      [--device cpu]

DIR is the root of a checkout of about the version that is installed. Each file is imported once,
with the tests that PyTorch makes of it for the PrivateUse1 device, and each of these runs in a
forked process with a limit of seconds. --limit takes so many tests, evenly from all of the file.
Prints how many passed, failed and were skipped, and the most frequent reasons; --json keeps them
with every test that failed. --device cpu asks the same of PyTorch's own device: what fails there
fails for a reason of the checkout's or of the machine's.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.databases import forked

FILES = (
    "test_torch.py",
    "test_autograd.py",
    "test_nn.py",
    "test_ops.py",
    "test_modules.py",
    "test_optim.py",
)
REASONS = 12  # of a kind, are shown


def version_of(checkout: Path) -> str:
    """The checkout's own version."""
    file = checkout / "version.txt"
    return file.read_text().strip() if file.is_file() else "unknown"


def device_tests(file: Path, device: str) -> list[unittest.TestCase]:
    """The tests of a file that PyTorch made for the device."""
    kinds = {"trn": "privateuse1", "cpu": "cpu"}
    os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = kinds[device]
    sys.path.insert(0, str(file.parent))
    sys.argv = [str(file)]
    module = importlib.import_module(file.stem)
    from torch.testing._internal import common_device_type as devices

    base = devices.PrivateUse1TestBase if device == "trn" else devices.CPUTestBase
    of_file = unittest.TestLoader().loadTestsFromModule(module)
    return [test for test in forked.flat(of_file) if isinstance(test, base)]


def without_numbers(line: str) -> str:
    """A reason without numbers and addresses, so that like ones are counted as one."""
    return re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[-+]?\d+)?", "N", line)[:160]


def short_reason(text: str) -> str:
    """The last line of a traceback that names an exception."""
    lines = [line for line in text.strip().splitlines() if line and not line.startswith(" ")]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit)?(: |$)", line)]
    named = [line for line in named if re.match(r"[\w.]*(Error|Exception|Exit|Warning)\b", line)]
    line = (named or lines or [""])[-1]
    return without_numbers(line)


def reason_of(outcome: forked.Outcome) -> str:
    """Of a failed or skipped test; crashes keep their numbers."""
    is_raised = outcome.kind == "failed" and not outcome.reason.startswith(("ended", "took"))
    return without_numbers(outcome.reason) if is_raised else outcome.reason


def counted(outcomes: list[forked.Outcome]) -> dict[str, Any]:
    """Numbers by kind, and the most frequent reasons of failures and skips."""
    kinds = collections.Counter(outcome.kind for outcome in outcomes)
    document: dict[str, Any] = {kind: kinds[kind] for kind in forked.KINDS}
    for kind in forked.KINDS[1:]:
        reasons = collections.Counter(reason_of(o) for o in outcomes if o.kind == kind)
        document[f"{kind}_because"] = dict(reasons.most_common(REASONS))
    return document


def run_file(options: argparse.Namespace, file: str) -> dict[str, Any]:
    """Counts of one file, in this process, which holds the device afterwards."""
    begin = time.time()
    tests = device_tests(options.checkout / "test" / file, options.device)
    found = len(tests)
    if options.names:
        tests = [test for test in tests if any(name in test.id() for name in options.names)]
    if options.limit and options.limit < len(tests):
        tests = [tests[i * len(tests) // options.limit] for i in range(options.limit)]
    os.chdir(options.checkout / "test")
    outcomes = forked.run_all(tests, ("compute",), options.jobs, options.seconds)
    document = {"tests": found, "run": len(outcomes), **counted(outcomes)}
    document["seconds"] = round(time.time() - begin)
    failures = [outcome for outcome in outcomes if outcome.kind == "failed"]
    return document | {"failures": {each.test: reason_of(each) for each in failures}}


def in_process_of_its_own(arguments: list[str], file: str) -> dict[str, Any]:
    """Counts of one file; where it cannot be imported, why."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "counts.json"
        command = [sys.executable, "-m", "tests.databases.pytorch", *arguments]
        command += ["--file", file, "--json", str(target), "--inside"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return {"not_run": short_reason(done.stderr)}
        return json.loads(target.read_text())


def printed(file: str, counts: dict[str, Any]) -> str:
    """A few lines for a person."""
    if "not_run" in counts:
        return f"{file}: could not be run: {counts['not_run']}"
    lines = ["{0}: {run} of {tests} tests: ".format(file, **counts)]
    lines[0] += ", ".join(f"{counts[kind]} {kind}" for kind in forked.KINDS)
    for kind in forked.KINDS[1:]:
        lines += [f"  {kind} {n}: {reason}" for reason, n in counts[f"{kind}_because"].items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--file", action="append", help="one of its test/; the default is six")
    parser.add_argument("--limit", type=int, default=0, help="tests of a file; 0: all")
    parser.add_argument("--names", type=lambda text: text.split(","), help="parts of names")
    parser.add_argument("--device", choices=("trn", "cpu"), default="trn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=int, default=30, help="of one test")
    parser.add_argument("--json", type=Path, help="write the counts here")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    files = options.file or list(FILES)
    for file in files:
        if not (options.checkout / "test" / file).is_file():
            raise SystemExit(f"trnsim: no test/{file} in {options.checkout}: is it PyTorch's root?")
    if options.inside:
        options.json.write_text(json.dumps(run_file(options, files[0])))
        return
    passed_on = ["--checkout", str(options.checkout), "--limit", str(options.limit)]
    passed_on += ["--jobs", str(options.jobs), "--seconds", str(options.seconds)]
    passed_on += ["--device", options.device]
    passed_on += ["--names", ",".join(options.names)] if options.names else []
    document: dict[str, Any] = {
        "checkout": version_of(options.checkout),
        "torch": version("torch"),
        "device": options.device,
        "date": time.strftime("%Y-%m-%d"),
        "files": {},
    }
    for file in files:
        document["files"][file] = in_process_of_its_own(passed_on, file)
        print(printed(file, document["files"][file]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
