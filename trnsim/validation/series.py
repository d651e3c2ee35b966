# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Weak scaling as it was published, beside ours: one configuration at several sizes.

Rows of a series are configured alike but for how many data parallel ranks there are, and for how
FSDP groups them; each chip has the same work. Efficiency is the step of the smallest size over that
of another.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trnsim.validation.rows import Row
from trnsim.validation.score import Outcome


@dataclass(frozen=True)
class Scaled:
    """A row of a series that is not its smallest.

    Attributes:
        series: system, framework, model and precision, as the table has them.
        base_chips, chips: of the smallest size and of this one.
        published, predicted: efficiency against the smallest; predicted None where one of the two
            is not predicted.
    """

    id: str
    series: str
    base_chips: int
    chips: int
    published: float
    predicted: float | None

    @property
    def residual(self) -> float | None:
        """predicted / published - 1."""
        return None if self.predicted is None else self.predicted / self.published - 1


def series_of(rows: Iterable[Row]) -> list[list[Row]]:
    """Training rows that are one configuration at two sizes or more, by ascending chips; of rows of
    one size all."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        key = _key(row)
        if key is not None:
            found[key].append(row)
    series = [sorted(each, key=_chips) for each in found.values()]
    return [each for each in series if _chips(each[0]) < _chips(each[-1])]


def _key(row: Row) -> tuple[Any, ...] | None:
    """What is alike in a series; None for what is no training row that can be configured."""
    from trnsim import recipes

    if row.kind != "train" or row.about is None or row.published is None:
        return None
    configured = recipes.configure(dict(row.columns))
    if isinstance(configured, str):
        return None
    model, layout, style = configured
    alike = layout.with_(dp=layout.ep, shard=0, global_batch=layout.micro_batch * layout.ep
                         * layout.pp)  # fmt: skip
    share = layout.global_batch / _chips(row)
    return (row.system, row["framework"], row.about, row.release, model, style, alike, share)


def _chips(row: Row) -> int:
    return int(row.number("chips") or 0)


def scaled(rows: Iterable[Row], outcomes: Iterable[Outcome]) -> list[Scaled]:
    """Every row of every series but its smallest, the first of them where there are several.

    Args:
        outcomes: what `validate` gives for the rows; of others nothing is predicted.
    """
    by_id = {outcome.id: outcome for outcome in outcomes}
    found = []
    for series in series_of(rows):
        first = series[0]
        name = " ".join((first.system, first["framework"], first["model"], first["precision"]))
        for row in series[1:]:
            if _chips(row) == _chips(first):
                continue
            published = _published(first) / _published(row)
            before, after = (by_id.get(each.id) for each in (first, row))
            predicted = None
            if before and after and before.predicted and after.predicted:
                predicted = before.predicted / after.predicted
            found.append(
                Scaled(row.id, name.strip(), _chips(first), _chips(row), published, predicted)
            )
    return found


def _published(row: Row) -> float:
    assert row.published is not None
    return row.published.value


def summary_of(points: Sequence[Scaled]) -> dict[str, float | int | None]:
    """How far off predicted efficiencies are, and how far off it is to say that nothing is lost.

    `n` rows; `median` and `p90` of residuals without their sign, `bias` their median with it,
    `lossless_median` and `lossless_p90` of an efficiency of 1 for every row.
    """
    done = [point for point in points if point.residual is not None]
    if not done:
        return {"n": 0, **dict.fromkeys(
            ("median", "p90", "bias", "lossless_median", "lossless_p90")
        )}  # fmt: skip
    off = sorted(abs(point.residual or 0.0) for point in done)
    lossless = sorted(abs(1 / point.published - 1) for point in done)
    return {
        "n": len(done),
        "median": statistics.median(off),
        "p90": _p90(off),
        "bias": statistics.median(point.residual or 0.0 for point in done),
        "lossless_median": statistics.median(lossless),
        "lossless_p90": _p90(lossless),
    }


def _p90(ascending: list[float]) -> float:
    """What nine in ten stay within."""
    return ascending[min(len(ascending) - 1, -(-9 * len(ascending) // 10) - 1)]


def scaling_table(points: Sequence[Scaled]) -> tuple[list[str], list[list[str]]]:
    """Header and lines, by series and size."""
    header = ["series", "row", "chips", "published", "predicted", "residual"]
    lines = [
        [
            point.series,
            point.id,
            f"{point.base_chips:,} to {point.chips:,}",
            f"{100 * point.published:.1f} %",
            "" if point.predicted is None else f"{100 * point.predicted:.1f} %",
            "" if point.residual is None else f"{100 * point.residual:+.1f} %",
        ]
        for point in points
    ]
    return header, lines


def summary_line(points: Sequence[Scaled]) -> str:
    """The summary as a sentence."""
    found = summary_of(points)
    if not found["n"]:
        return "no series of one configuration at several sizes is predicted"
    share = {name: f"{100 * (value or 0.0):.1f} %" for name, value in found.items()}
    bias = f"{100 * (found['bias'] or 0.0):+.1f} %"
    return (
        f"{found['n']} efficiencies: half within {share['median']} and nine in ten within "
        f"{share['p90']} of what was published, bias {bias}; who says that nothing is lost is "
        f"within {share['lossless_median']} and {share['lossless_p90']}"
    )
