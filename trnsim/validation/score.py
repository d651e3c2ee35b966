# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Outcomes of rows, and their statistics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Outcome:
    """A row beside our figure.

    Attributes:
        published, predicted: in `unit`; predicted is None where the row was skipped.
        low, high: our 90 % interval.
        skipped: why there is no prediction, "" where there is one.
        algorithm: of a collective, what was chosen.
        also: outcomes of the row's other figures, in the order of its quantities.
    """

    id: str
    system: str
    kind: str
    case: str
    family: str
    stack: str
    quantity: str
    unit: str
    published: float | None
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    skipped: str = ""
    algorithm: str = ""
    also: tuple[Outcome, ...] = ()

    @property
    def error(self) -> float | None:
        """predicted / published - 1."""
        if self.predicted is None or not self.published:
            return None
        return self.predicted / self.published - 1

    @property
    def covered(self) -> bool | None:
        """The interval holds what was published."""
        if self.low is None or self.high is None or self.published is None:
            return None
        return self.low <= self.published <= self.high

    def to_dict(self) -> dict[str, Any]:
        """As `--json` has it; the kind of case is called class there."""
        document = asdict(self) | {"error": self.error, "covered": self.covered}
        document["class"] = document.pop("case")
        document["skipped"] = self.skipped or None
        document["also"] = [each.to_dict() for each in self.also]
        return document


@dataclass(frozen=True)
class Statistics:
    """Of the rows that have a prediction: errors are fractions, bias the median of signed ones."""

    n: int
    median: float | None
    p90: float | None
    bias: float | None
    coverage: float | None


def statistics(outcomes: Iterable[Outcome]) -> Statistics:
    """Median and 90th percentile of |error|, bias, and the share of intervals that cover."""
    done = [outcome for outcome in outcomes if outcome.error is not None]
    if not done:
        return Statistics(0, None, None, None, None)
    errors = np.array([outcome.error for outcome in done], dtype=float)
    covered = [outcome.covered for outcome in done if outcome.covered is not None]
    return Statistics(
        len(done),
        float(np.median(np.abs(errors))),
        float(np.percentile(np.abs(errors), 90)),
        float(np.median(errors)),
        float(np.mean(covered)) if covered else None,
    )


def figures(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes of all figures: those of each row, its own first."""
    return [each for outcome in outcomes for each in (outcome, *outcome.also)]


def summary(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Statistics overall and by kind, quantity, system, class, stack and family, in which each
    figure of a row counts; "families" counts each family once, with the median of its errors."""
    outcomes = figures(outcomes)
    return {
        "overall": asdict(statistics(outcomes)),
        "families": asdict(statistics(_one_a_family(outcomes))),
        **{
            f"by_{name}": {
                key: asdict(found)
                for key, group in sorted(_grouped(outcomes, of).items())
                if (found := statistics(group)).n
            }
            for name, of in _GROUPS.items()
        },
    }


_GROUPS: dict[str, Callable[[Outcome], str]] = {
    "kind": lambda outcome: outcome.kind,
    "quantity": lambda outcome: outcome.quantity,
    "system": lambda outcome: outcome.system,
    "class": lambda outcome: outcome.case,
    "stack": lambda outcome: outcome.stack or "none",
    "family": lambda outcome: outcome.family,
}


def _grouped(outcomes: Iterable[Outcome], of: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[of(outcome)].append(outcome)
    return groups


def _one_a_family(outcomes: list[Outcome]) -> list[Outcome]:
    """Of each family the row whose error is its median one."""
    chosen = []
    for group in _grouped([o for o in outcomes if o.error is not None], _GROUPS["family"]).values():
        ordered = sorted(group, key=lambda outcome: outcome.error or 0)
        chosen.append(ordered[len(ordered) // 2])
    return chosen
