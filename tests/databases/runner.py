# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""PyTorch's own databases on the device, beside the CPU: one forked process an entry.

    python -m tests.databases.runner [--database ops] [--dtypes float32] [--names add,sub]
                                     [--part 0/2] [--jobs 2] [--json FILE]

The databases are ops (OpInfo), modules (ModuleInfo) and optimizers (OptimizerInfo). torch's own
harness makes a test of each entry with each dtype (harness.py); every test runs in compute mode and
in phantom mode. --names takes names as the harness makes them: fft_rfftn, nn_Linear, foreach_Adam.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import time
import unittest
from typing import NamedTuple

from tests.databases import forked
from tests.databases.harness import DTYPES, MODES, name_of

SECONDS = 60  # an entry may take, in a mode
DATABASES = ("ops", "modules", "optimizers")
DTYPE_NAMES = tuple(str(dtype)[6:] for dtype in DTYPES)


class Outcome(NamedTuple):
    """What became of one entry in one mode."""

    name: str
    dtype: str
    mode: str
    kind: str  # one of forked.KINDS
    reason: str


def load(
    database: str, dtypes: tuple[str, ...] = DTYPE_NAMES, names: set[str] | None = None
) -> list[unittest.TestCase]:
    """The harness' tests of a database, all or those named, in the order of their names."""
    module = importlib.import_module(f"tests.databases.{database}")
    suite = unittest.TestLoader().loadTestsFromModule(module)
    chosen = []
    for test in forked.flat(suite):
        name, dtype = name_of(test.id())
        if dtype in dtypes and (names is None or name in names):
            chosen.append(test)
    return sorted(chosen, key=lambda test: test.id())


def _outcome(of: forked.Outcome) -> Outcome:
    return Outcome(*name_of(of.test), of.mode, of.kind, of.reason)


def _report(of: forked.Outcome) -> None:
    if of.kind != "passed":
        print("{2} {0} {1} {3}: {4}".format(*_outcome(of)), flush=True)


def run_all(tests: list[unittest.TestCase], jobs: int) -> list[Outcome]:
    """Every test in both modes, `jobs` tests at a time; says which did not pass."""
    return [_outcome(each) for each in forked.run_all(tests, MODES, jobs, SECONDS, _report)]


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
    dtypes = DTYPE_NAMES if options.dtypes == "all" else tuple(options.dtypes.split(","))
    begin = time.time()
    outcomes = run_all(load(options.database, dtypes, options.names)[part::parts], options.jobs)
    for mode in MODES:
        kinds = collections.Counter(each.kind for each in outcomes if each.mode == mode)
        said = ", ".join(f"{kinds[kind]} {kind}" for kind in forked.KINDS)
        print(f"{mode}: {kinds.total()} {options.database}: {said}")
    print(f"{time.time() - begin:.0f} s")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump([outcome._asdict() for outcome in outcomes], stream, indent=1)


if __name__ == "__main__":
    main()
