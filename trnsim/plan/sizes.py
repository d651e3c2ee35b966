# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""How many chips: sizes of a curve, and counts that are equal in dollars, watts or peak."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trnsim.errors import MachineError, PlanError
from trnsim.job import LARGEST_COUNT

if TYPE_CHECKING:
    from trnsim import _core

EQUAL = ("chips", "dollars", "watts", "peak")


def parse_sizes(text: str, points: int | None = None) -> list[int]:
    """The sizes of "64..400000" (64, doublings, and 400000; with `points` that many, each the same
    factor apart) or of "64,256,1024", ascending, each once.

    Raises:
        PlanError: text that is neither, sizes below 1 or too large, or a list with `points`.
    """
    first, is_range, last = text.partition("..")
    if not is_range:
        if points is not None:
            raise PlanError(f"--points {points} needs a range: write --chips 64..1024, not {text}")
        return sorted({_size(word, text) for word in text.split(",")})
    low, high = _size(first, text), _size(last, text)
    if low > high:
        raise PlanError(f"'{text}' begins with the larger size: write {high}..{low}")
    if points is not None:
        return _spread(low, high, points)
    sizes = []
    while low < high:
        sizes.append(low)
        low *= 2
    return [*sizes, high]


def _spread(low: int, high: int, points: int) -> list[int]:
    if points < 2:
        raise PlanError(f"--points {points} has no first and last size: use at least 2")
    ratio = (high / low) ** (1 / (points - 1))
    inner = {round(low * ratio**k) for k in range(1, points - 1)}
    return sorted({low, *inner, high})


def _size(word: str, text: str) -> int:
    stripped = word.strip()
    if not (stripped.isascii() and stripped.isdigit()) or not 1 <= int(stripped) <= LARGEST_COUNT:
        raise PlanError(
            f"'{text}' is no list of sizes: write whole numbers from 1 to {LARGEST_COUNT} as "
            "64..400000 or 64,256,1024"
        )
    return int(stripped)


def nearest_legal(machine: _core.Machine, ideal: float) -> int:
    """The count of chips nearest to `ideal` that the machine can be cut to, of two the smaller.

    Raises:
        MachineError: `ideal` is further above the machine's largest count than that is from the
            count below it; the message says why the machine ends there.
    """
    from trnsim import machine as machines

    counts = machine.legal_chip_counts
    step = counts[-1] - counts[-2] if len(counts) > 1 else 1
    if ideal > counts[-1] + step / 2:
        machines.topology(machine, min(max(round(ideal), counts[-1] + 1), LARGEST_COUNT))
    above = bisect.bisect_left(counts, ideal)
    around = counts[max(above - 1, 0) : above + 1]
    return min(around, key=lambda count: (abs(count - ideal), count))


@dataclass(frozen=True)
class EqualCount:
    """How many chips of a machine are equal to what was asked for.

    Attributes:
        chips: None where no count is.
        ideal: the count that would be exactly equal; None where it is not known.
        off: by which share chips is more (less, below 0) than ideal.
        reason: why chips is None.
    """

    chips: int | None
    ideal: float | None = None
    off: float | None = None
    reason: str = ""


_UNKNOWN = {
    "dollars": ("price", "price.per_chip_hour=2.50USD/h"),
    "watts": ("power", "power.per_chip=900W"),
    "peak": ("dense BF16 peak", "chip.peak.published.bfloat16=990TFLOP/s"),
}


def _measure(machine: _core.Machine, equal: str) -> float | None:
    """What a chip of the machine has of what is to be equal."""
    if equal == "dollars":
        return machine.price_usd_per_chip_hour
    if equal == "watts":
        return machine.power_per_chip_w
    return machine.published_flops.get("bfloat16") if equal == "peak" else 1.0


def equal_counts(machines: Sequence[_core.Machine], chips: int, equal: str) -> list[EqualCount]:
    """For each machine the count of chips that is equal to `chips` of the first.

    Args:
        machines: the first is what the others are made equal to.
        chips: rounded to what the first can be cut to, where it can hold as many.
        equal: "chips"; "dollars" an hour, "watts" or "peak" (published dense BF16 FLOP/s) of all
            chips together, by the machines' figures of a chip.

    Raises:
        PlanError: another word, or a first machine of which the figure is not known.
    """
    if equal not in EQUAL:
        raise PlanError(f"nothing is equal in '{equal}': use {', '.join(EQUAL)}")
    of_first = _measure(machines[0], equal)
    if of_first is None:
        raise PlanError(_unknown(machines[0], equal))
    counts = [_count(machines[0], float(chips), equal)]
    total = of_first * (counts[0].chips or chips)
    for machine in machines[1:]:
        mine = _measure(machine, equal)
        if mine is None:
            counts.append(EqualCount(None, reason=_unknown(machine, equal)))
        else:
            counts.append(_count(machine, chips if equal == "chips" else total / mine, equal))
    return counts


def _count(machine: _core.Machine, ideal: float, equal: str) -> EqualCount:
    try:
        found = nearest_legal(machine, ideal)
    except MachineError as error:
        return EqualCount(None, ideal, reason=str(error))
    return EqualCount(found, ideal, found / ideal - 1)


def _unknown(machine: _core.Machine, equal: str) -> str:
    what, example = _UNKNOWN[equal]
    return (
        f"the {what} of a chip of {machine.name} is not known, so none of its counts is equal in "
        f"{equal}: give it, as --set {machine.name}:{example}"
    )
