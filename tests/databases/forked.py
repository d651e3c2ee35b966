# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Runs tests that torch's harness made, each in a forked process: a crash or an endless loop ends
one test and no more.

The parent imports everything and never runs autograd, so that a fork costs milliseconds. A child
runs its test in each mode; the mode after a crash gets a child of its own.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import time
import unittest
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

import trnsim.device  # noqa: F401 - makes the device known
from trnsim import _torch

KINDS = ("passed", "failed", "skipped")


class Outcome(NamedTuple):
    """What became of one test in one mode."""

    test: str  # its id
    mode: str
    kind: str
    reason: str  # of a failure the exception's first line, of a skip what the test says


def flat(suite: Any) -> Iterator[unittest.TestCase]:
    """The tests of a suite of suites."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from flat(each)
        else:
            yield each


class _Result(unittest.TestResult):
    """Keeps the first exception."""

    exception: BaseException | None = None

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.exception = self.exception or err[1]

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.exception = self.exception or err[1]

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        self.exception = self.exception or (err and err[1])


def run_here(test: unittest.TestCase, mode: str) -> Outcome:
    """Runs a test in this process."""
    result = _Result()
    unittest.TestSuite([test]).run(result)
    if result.exception is not None:
        said = str(result.exception).strip().splitlines() or [""]
        reason = f"{type(result.exception).__name__}: {said[0]}"[:300]
        return Outcome(test.id(), mode, "failed", reason)
    if result.unexpectedSuccesses:
        reason = "passes though PyTorch expects it to fail"
        return Outcome(test.id(), mode, "failed", reason)
    if result.skipped:
        return Outcome(test.id(), mode, "skipped", result.skipped[0][1][:160])
    return Outcome(test.id(), mode, "passed", "")


def _child(test: unittest.TestCase, modes: tuple[str, ...], seconds: int, pipe: int) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    torch.set_num_threads(1)
    for mode in modes:
        signal.alarm(seconds)
        if _torch.mode() != mode:
            deadline = time.time() + 5
            while gc.collect() >= 0 and _torch.live_block_count() and time.time() < deadline:
                time.sleep(0.01)  # autograd's own thread lets go of its last tensors in its time
            _torch.set_mode(mode)
        os.write(pipe, pickle.dumps(tuple(run_here(test, mode))))
    os._exit(0)


class _Job(NamedTuple):
    test: unittest.TestCase
    modes: tuple[str, ...]
    pipe: int


def _start(test: unittest.TestCase, modes: tuple[str, ...], seconds: int) -> tuple[int, _Job]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            _child(test, modes, seconds, writing)
        finally:
            os._exit(1)  # what a child raises must not come back as a second parent
    os.close(writing)
    return pid, _Job(test, modes, reading)


def _read(job: _Job, status: int, seconds: int) -> list[Outcome]:
    """What the child sent; a mode in which it ended counts as failed."""
    outcomes = []
    with os.fdopen(job.pipe, "rb") as stream:
        for _ in job.modes:
            try:
                outcomes.append(Outcome(*pickle.load(stream)))
            except EOFError:
                break
    if len(outcomes) < len(job.modes):
        code = os.waitstatus_to_exitcode(status)
        why = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        if code == -signal.SIGALRM:
            why = f"took more than {seconds} s"
        outcomes.append(Outcome(job.test.id(), job.modes[len(outcomes)], "failed", why))
    return outcomes


def run_all(
    tests: list[unittest.TestCase],
    modes: tuple[str, ...],
    jobs: int,
    seconds: int,
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Every test in every mode, `jobs` tests at a time and each for at most `seconds` a mode;
    `report` hears of each outcome when it is there."""
    _warm_up()
    outcomes: list[Outcome] = []
    running: dict[int, _Job] = {}
    waiting = [(test, modes) for test in reversed(tests)]
    while waiting or running:
        while waiting and len(running) < jobs:
            pid, job = _start(*waiting.pop(), seconds)
            running[pid] = job
        pid, status = os.wait()
        job = running.pop(pid)
        done = _read(job, status, seconds)
        outcomes += done
        for outcome in done:
            report(outcome)
        if rest := job.modes[len(done) :]:
            waiting.append((job.test, rest))
    return sorted(outcomes)


def _warm_up() -> None:
    """Imports what the first test would otherwise import in every child."""
    import torch._dynamo

    x = torch.ones(300, 300, device="trn")  # past what phantom mode computes
    _ = (x + 1, x @ x, torch.nn.functional.layer_norm(x, (300,)), x.sum(), torch.linalg.norm(x))
    del x, _
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
