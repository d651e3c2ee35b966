# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What the studies share: their one option, tables, figures with intervals, and verdicts."""

from __future__ import annotations

import argparse
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import exp, hypot, log
from pathlib import Path
from typing import Any

import trnsim

HERE = Path(__file__).parent
UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
warnings.filterwarnings("ignore", category=FutureWarning, module="torch")


@dataclass(frozen=True)
class Figure:
    """A number, and the lowest and highest that it may be."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        form = ".3f" if 0.5 <= self.value < 2 else ".3g"  # near 1 the third decimal counts
        return f"{self.value:{form}} ({self.low:{form}} to {self.high:{form}})"


def is_smoke(description: str) -> bool:
    """Reads the command line: whether the smallest size is asked for."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="the smallest size, for tests")
    return parser.parse_args().smoke


def project(workloads: Any, machine: Any, **options: Any) -> Any:
    """The step's projection with its interval, but without advice."""
    return trnsim.project(workloads, machine, advise=False, **options)


def seconds(workloads: Any, **options: Any) -> Callable[[Any], float]:
    """What gives the step time on a machine, for `spread`."""

    def time_on(machine: Any) -> float:
        return project(workloads, machine, interval=False, **options).step_time_s

    return time_on


def time_of(projection: Any) -> Figure:
    """Step time in seconds, with the projection's own interval."""
    return Figure(projection.step_time_s, *projection.step_time_interval_s)


def quotient(over: Figure, under: Figure) -> Figure:
    """over / under of figures with independent errors: these add as squares of logarithms."""
    value = over.value / under.value
    down = hypot(log(over.value / over.low), log(under.high / under.value))
    up = hypot(log(over.high / over.value), log(under.value / under.low))
    return Figure(value, value * exp(-down), value * exp(up))


def spread(measure: Callable[..., float], *machines: Any) -> Figure:
    """A number that variants of a machine give together, such as the ratio of their step times.

    Figures of one kind move to their bounds in all variants at once, as in the interval of a
    projection, so that what they have in common cancels; kinds are independent errors. Our own
    error on published steps is taken to be common and left out.
    """
    bounds = [trnsim.machine.at_bounds(machine) for machine in machines]
    kinds = sorted({kind for each in bounds for kind in each})
    moved = [machines] + [
        tuple(
            each[kind][end] if kind in each else machine
            for each, machine in zip(bounds, machines, strict=True)
        )
        for kind in kinds
        for end in (0, 1)
    ]
    with ThreadPoolExecutor() as pool:
        value, *others = pool.map(lambda variants: measure(*variants), moved)
    ends = [(value, *others[i : i + 2]) for i in range(0, len(others), 2)]
    below = hypot(*(value - min(end) for end in ends))
    above = hypot(*(max(end) - value for end in ends))
    return Figure(value, value - below, value + above)


def duration(time_s: float) -> str:
    """Three digits and a unit."""
    unit, size = next((u for u in UNITS if time_s >= u[1]), UNITS[-1])
    return f"{time_s / size:.3g} {unit}"


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A title, then columns with two spaces between them, then an empty line."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(title)
    for line in lines:
        print("  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)).rstrip())
    print()


def judge(cases: Mapping[str, Figure], claimed: float) -> str:
    """Whether figures reach what is claimed: by their whole intervals, or it is left open."""
    sure = [name for name, figure in cases.items() if figure.low >= claimed]
    never = [name for name, figure in cases.items() if figure.high < claimed]
    unsure = [name for name in cases if name not in (*sure, *never)]
    if len(sure) == len(cases):
        return "holds"
    if len(never) == len(cases):
        return "does not hold"
    if not sure and not never:
        return "cannot be decided: the intervals reach from below to above what is claimed"
    parts = [f"holds only for {', '.join(sure)}" if sure else "holds for none surely"]
    if unsure:
        parts.append(f"cannot be decided for {', '.join(unsure)}")
    if never:
        parts.append(f"does not hold for {', '.join(never)}")
    return "; ".join(parts)


def print_verdict(claim: str, found: str, rests_on: str, missing: str, verdict: str) -> None:
    """The last lines of a study."""
    texts = {
        "claim": claim, "found": found, "rests on": rests_on, "missing": missing,
        "verdict": verdict, "version": f"trnsim {trnsim.__version__}",
    }  # fmt: skip
    for label, text in texts.items():
        wrapped = textwrap.wrap(text, 88, break_on_hyphens=False)
        print(f"{label:<9} " + ("\n" + 10 * " ").join(wrapped))
