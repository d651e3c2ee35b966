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
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FILES = (
    "test_torch.py",
    "test_autograd.py",
    "test_nn.py",
    "test_ops.py",
    "test_modules.py",
    "test_optim.py",
)
KINDS = ("passed", "failed", "skipped")
REASONS = 12  # of a kind, are shown


class Outcome(NamedTuple):
    """What became of one test."""

    name: str
    kind: str
    reason: str  # of a failure the exception, of a skip what the test says


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
    return [test for test in _flat(of_file) if isinstance(test, base)]


def _flat(suite: Any) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from _flat(each)
        else:
            yield each


def short_reason(text: str) -> str:
    """The last line of a traceback that names an exception, so that like ones are counted as one:
    without numbers and addresses."""
    lines = [line for line in text.strip().splitlines() if line and not line.startswith(" ")]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit)?(: |$)", line)]
    named = [line for line in named if re.match(r"[\w.]*(Error|Exception|Exit|Warning)\b", line)]
    line = (named or lines or [""])[-1]
    return re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[-+]?\d+)?", "N", line)[:160]


def run_here(test: unittest.TestCase) -> Outcome:
    """Runs a test in this process."""
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)
    name = test.id()
    bad = [*result.errors, *result.failures]
    if bad:
        return Outcome(name, "failed", short_reason(bad[0][1]))
    if result.unexpectedSuccesses:
        return Outcome(name, "failed", "passes though PyTorch expects it to fail")
    if result.skipped:
        return Outcome(name, "skipped", result.skipped[0][1][:160])
    return Outcome(name, "passed", "")


def _child(test: unittest.TestCase, seconds: int, pipe: int) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    signal.alarm(seconds)
    os.write(pipe, pickle.dumps(tuple(run_here(test))))
    os._exit(0)


def _start(test: unittest.TestCase, seconds: int) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            _child(test, seconds, writing)
        finally:
            os._exit(1)  # what a child raises must not come back as a second parent
    os.close(writing)
    return pid, reading


def _read(test: unittest.TestCase, pipe: int, status: int, seconds: int) -> Outcome:
    with os.fdopen(pipe, "rb") as stream:
        sent = stream.read()
    if sent:
        return Outcome(*pickle.loads(sent))
    code = os.waitstatus_to_exitcode(status)
    why = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    if code == -signal.SIGALRM:
        why = f"took more than {seconds} s"
    return Outcome(test.id(), "failed", why)


def run_all(tests: list[unittest.TestCase], jobs: int, seconds: int) -> list[Outcome]:
    """Every test in a process of its own, `jobs` at a time."""
    import gc

    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    outcomes = []
    running: dict[int, tuple[unittest.TestCase, int]] = {}
    waiting = list(reversed(tests))
    while waiting or running:
        while waiting and len(running) < jobs:
            pid, pipe = _start(waiting[-1], seconds)
            running[pid] = waiting.pop(), pipe
        pid, status = os.wait()
        outcomes.append(_read(*running.pop(pid), status, seconds))
    return sorted(outcomes)


def counted(outcomes: list[Outcome]) -> dict[str, Any]:
    """Numbers by kind, and the most frequent reasons of failures and skips."""
    kinds = collections.Counter(outcome.kind for outcome in outcomes)
    document: dict[str, Any] = {kind: kinds[kind] for kind in KINDS}
    for kind in KINDS[1:]:
        reasons = collections.Counter(o.reason for o in outcomes if o.kind == kind)
        document[f"{kind}_because"] = dict(reasons.most_common(REASONS))
    return document


def run_file(options: argparse.Namespace, file: str) -> dict[str, Any]:
    """Counts of one file, in this process, which holds the device afterwards."""
    import torch

    import trnsim.device  # noqa: F401
    from trnsim import _torch

    _torch.set_mode("compute")
    torch.set_num_threads(1)
    begin = time.time()
    tests = device_tests(options.checkout / "test" / file, options.device)
    found = len(tests)
    if options.names:
        tests = [test for test in tests if any(name in test.id() for name in options.names)]
    if options.limit and options.limit < len(tests):
        tests = [tests[i * len(tests) // options.limit] for i in range(options.limit)]
    os.chdir(options.checkout / "test")
    outcomes = run_all(tests, options.jobs, options.seconds)
    document = {"tests": found, "run": len(outcomes), **counted(outcomes)}
    document["seconds"] = round(time.time() - begin)
    failures = [outcome for outcome in outcomes if outcome.kind == "failed"]
    return document | {"failures": {outcome.name: outcome.reason for outcome in failures}}


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
    lines[0] += ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)
    for kind in KINDS[1:]:
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
    import torch

    document: dict[str, Any] = {
        "checkout": version_of(options.checkout),
        "torch": torch.__version__,
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
