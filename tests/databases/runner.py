# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""PyTorch's own databases on the device, beside the CPU: one forked process an entry.

    python -m tests.databases.runner [--database ops] [--dtypes float32] [--names add,sub]
                                     [--part 0/2] [--jobs 2] [--json FILE]

The databases are ops (OpInfo), modules (ModuleInfo) and optimizers (OptimizerInfo). Some samples of
each entry, forward and backward: compute mode compares values, phantom mode shapes, strides and
dtypes. The parent imports everything and never runs autograd, so that a fork costs milliseconds; a
crash or an endless loop ends one entry and no more. A child runs both modes; the mode after a crash
gets a child of its own.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import pickle
import signal
import time
import warnings
from typing import Any, NamedTuple, Protocol

import torch

SECONDS_PER_ENTRY = 60
MODES = ("compute", "phantom")
DATABASES = ("ops", "modules", "optimizers")
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8")


class Entry(Protocol):
    """One op, module or optimizer with one dtype."""

    name: str
    dtype: torch.dtype

    def references(self) -> list[tuple[Any, Any]]:
        """Samples, and what the CPU makes of them."""

    def compare(self, mode: str, sample: Any, want: Any) -> str:
        """Runs a sample on the device; empty when it agrees with the CPU."""


class Outcome(NamedTuple):
    """What became of one entry in one mode."""

    name: str
    dtype: str
    mode: str
    passed: bool
    samples: int
    message: str  # of the first failure


def _outcome(entry: Entry, mode: str, passed: bool, samples: int, message: str) -> Outcome:
    return Outcome(entry.name, str(entry.dtype)[6:], mode, passed, samples, message)


def run_entry(entry: Entry, mode: str, references: list[tuple[Any, Any]]) -> Outcome:
    """Runs the entry's samples in this process."""
    for index, (sample, want) in enumerate(references):
        try:
            difference = entry.compare(mode, sample, want)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this entry's result
            difference = f"{type(error).__name__}: {error}"
        if difference:
            text = f"sample {index}: {difference}".replace("\n", " ")[:300]
            return _outcome(entry, mode, False, index, text)
    return _outcome(entry, mode, True, len(references), "")


def _child(entry: Entry, modes: tuple[str, ...], pipe: int) -> None:
    from trnsim import _torch

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    torch.set_num_threads(1)
    signal.alarm(SECONDS_PER_ENTRY)
    warnings.simplefilter("ignore")
    references = entry.references()
    if not references:
        os._exit(0)  # an entry of other devices: it has no outcome
    for mode in modes:
        deadline = time.time() + 5
        while gc.collect() >= 0 and _torch.live_block_count() and time.time() < deadline:
            time.sleep(0.01)  # autograd's own thread lets go of its last tensors in its own time
        _torch.set_mode(mode)
        os.write(pipe, pickle.dumps(tuple(run_entry(entry, mode, references))))
    os._exit(0)


class _Job(NamedTuple):
    entry: Entry
    modes: tuple[str, ...]
    pipe: int


def _start(entry: Entry, modes: tuple[str, ...]) -> tuple[int, _Job]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            _child(entry, modes, writing)
        finally:
            os._exit(1)  # what a child raises must not come back as a second parent
    os.close(writing)
    return pid, _Job(entry, modes, reading)


def _read(job: _Job, status: int) -> list[Outcome]:
    """What the child sent; a mode in which it ended counts as failed."""
    outcomes = []
    with os.fdopen(job.pipe, "rb") as stream:
        for _ in job.modes:
            try:
                outcomes.append(Outcome(*pickle.load(stream)))
            except EOFError:
                break
    code = os.waitstatus_to_exitcode(status)
    if len(outcomes) < len(job.modes) and code != 0:
        why = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        if code == -signal.SIGALRM:
            why = f"took more than {SECONDS_PER_ENTRY} s"
        outcomes.append(_outcome(job.entry, job.modes[len(outcomes)], False, 0, why))
    return outcomes


def load(database: str, dtypes: list[str], names: set[str] | None = None) -> list[Entry]:
    """The entries of a database, all or those named."""
    of = importlib.import_module(f"tests.databases.{database}")
    entries = of.entries([getattr(torch, name) for name in dtypes])
    return [each for each in entries if names is None or each.name in names]


def run_all(entries: list[Entry], jobs: int) -> list[Outcome]:
    """Every entry in both modes, `jobs` entries at a time."""
    import trnsim.device  # noqa: F401

    warnings.simplefilter("ignore")
    warm_up()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    outcomes: list[Outcome] = []
    running: dict[int, _Job] = {}
    waiting = [(entry, MODES) for entry in reversed(entries)]
    while waiting or running:
        while waiting and len(running) < jobs:
            pid, job = _start(*waiting.pop())
            running[pid] = job
        pid, status = os.wait()
        job = running.pop(pid)
        done = _read(job, status)
        outcomes += done
        for outcome in done:
            if not outcome.passed:
                print(
                    f"{outcome.mode} {outcome.name} {outcome.dtype}: {outcome.message}", flush=True
                )
        if done and (rest := job.modes[len(done) :]):
            waiting.append((job.entry, rest))
    return sorted(outcomes)


def warm_up() -> None:
    """Imports what the first entry would otherwise import in every child."""
    x = torch.ones(300, 300, device="trn")  # past the size that phantom mode computes
    _ = (x + 1, x @ x, torch.nn.functional.layer_norm(x, (300,)), x.sum(), torch.linalg.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", choices=DATABASES, default="ops")
    parser.add_argument("--dtypes", default="float32", help="some of them, or all")
    parser.add_argument("--names", type=lambda text: set(text.split(",")))
    parser.add_argument("--part", default="0/1", help="I/N: every N-th entry from the I-th")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", help="write the outcomes here")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    dtypes = list(DTYPES) if options.dtypes == "all" else options.dtypes.split(",")
    begin = time.time()
    entries = load(options.database, dtypes, options.names)[part::parts]
    outcomes = run_all(entries, options.jobs)
    for mode in MODES:
        of_mode = [outcome for outcome in outcomes if outcome.mode == mode]
        passed = sum(outcome.passed for outcome in of_mode)
        print(
            f"{mode}: {passed} of {len(of_mode)} {options.database} pass "
            f"({100 * passed / max(1, len(of_mode)):.1f} %), "
            f"{sum(outcome.samples for outcome in of_mode)} samples"
        )
    print(f"{time.time() - begin:.0f} s")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump([outcome._asdict() for outcome in outcomes], stream, indent=1)


if __name__ == "__main__":
    main()
