# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Sections of a scaling curve, of a comparison and of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnsim.report import words
from trnsim.report.page import charts, subject
from trnsim.report.page.parts import Absent, Block, Lines, Section, Table
from trnsim.report.plan import (
    comparison_lines,
    comparison_table,
    scaling_lines,
    scaling_table,
)
from trnsim.report.search import front_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trnsim.plan import Comparison, ComparisonRow, Scaling
    from trnsim.report.page.subject import Subject
    from trnsim.report.plan import Table as PlanTable

    Bar = tuple[str, float, float, float]


def _table(caption: str, table: PlanTable) -> Table:
    return Table(caption, table.header, table.rows, table.right)


def scaling_section(done: Scaling | None, run: Subject) -> Section | Absent:
    """The curve; done: None where none was given; run: of the report."""
    title = "Scaling"
    if done is None:
        return Absent(title, "no document of trnsim scale was given (--scaling)")
    of = subject.of_scaling(done)
    blocks: list[Block] = [*subject.notice_of(run, of), subject.of_words(of)]
    points = [
        {
            "chips": point.chips,
            "step_s": point.figure("step_time_s"),
            "low": point.figure("step_time_interval_s")[0],
            "high": point.figure("step_time_interval_s")[1],
            "efficiency": done.efficiency(point),
        }
        for point in done.ran
    ]
    if points:
        said = ", ".join(
            f"{point['chips']:,} chips {words.duration(point['step_s'])}"
            + ("" if point["efficiency"] is None else f" ({words.percent(point['efficiency'])})")
            for point in points
        )
        blocks.append(
            charts.chart("scaling", f"Step time, and efficiency in brackets: {said}.",
                         charts.curve(points, done.basis), (3.0, 5.4))
        )  # fmt: skip
    blocks.append(_table("Sizes", scaling_table(done)))
    return Section("scaling", title, [*blocks, Lines(scaling_lines(done))])


def comparison_section(done: Comparison | None, run: Subject) -> Section | Absent:
    """Runs or machines beside each other; arguments as of scaling_section."""
    title = "Comparison"
    if done is None:
        return Absent(title, "no document of trnsim compare was given (--comparison)")
    of = subject.of_comparison(done)
    what = f"Run files, against the first, on {of.where}."
    if done.equal is not None:
        what = f"{subject.of_words(of)[:-1]}: one job on each, with equal {done.equal}."
    blocks: list[Block] = [*subject.notice_of(run, of), what]
    blocks += _bars(done)
    blocks.append(_table("Rows", comparison_table(done)))
    return Section("comparison", title, [*blocks, Lines(comparison_lines(done))])


def _bars(done: Comparison) -> list[Block]:
    """Of what can be compared: step times on as many chips, else what a second or a dollar buys."""
    ran = [row for row in done.rows if row.document is not None]
    if not ran:
        return []
    work = _per_work(done, ran)
    if work is None:
        rows = [_bar(row, row.figure("step_time_s"), row.figure("step_time_interval_s"))
                for row in ran]  # fmt: skip
        said = ", ".join(f"{row[0]} {words.duration(row[1])}" for row in rows)
        alt, draw = f"Step times: {said}.", charts.bars_with_intervals(rows)
    else:
        what, rows = work
        size, prefix = _scale_of(max(row[1] for row in rows))
        said = ", ".join(f"{row[0]} {words.count(row[1])}" for row in rows)
        alt = f"{what[0].upper()}{what[1:]}: {said}."
        draw = charts.bars_with_intervals(rows, f"{prefix}{what}", size)
    return [charts.chart("comparison", alt, draw, 0.9 + 0.4 * len(rows))]


def _bar(row: ComparisonRow, value: float, ends: Sequence[float]) -> Bar:
    return f"{row.label}, {row.chips:,} chips", value, *sorted(ends)  # type: ignore[return-value]


def _per_work(done: Comparison, ran: Sequence[ComparisonRow]) -> tuple[str, list[Bar]] | None:
    """What is shown in place of step times where the machines are not on as many chips: tokens (or
    samples) a dollar where dollars are equal and known, else a second. None where steps can be
    compared, or nothing but steps is known."""
    if done.equal in (None, "chips") or done.unit is None:
        return None
    counts = [row.in_a_step(done.unit) for row in ran]
    if any(count is None for count in counts):
        return None
    dollars = [row.figure("cost_usd_per_step") for row in ran]
    is_priced = done.equal == "dollars" and all(dollars)
    rows = []
    for row, count, usd in zip(ran, counts, dollars, strict=True):
        step_s = row.figure("step_time_s")
        a_second = usd / step_s if is_priced else 1.0
        value, *ends = (
            count / (seconds * a_second)
            for seconds in (step_s, *row.figure("step_time_interval_s"))
        )  # fmt: skip
        rows.append(_bar(row, value, ends))
    return f"{done.unit} a {'dollar' if is_priced else 'second'}", rows


def _scale_of(most: float) -> tuple[float, str]:
    for size, name in ((1e9, "billion "), (1e6, "million "), (1e3, "thousand ")):
        if most >= size:
            return size, name
    return 1.0, ""


def search_section(done: Mapping[str, Any] | None, run: Subject) -> Section | Absent:
    """The Pareto front of time, memory and money; done: the document of a search, None where none
    was given; run: of the report."""
    title = "Layouts"
    if done is None:
        return Absent(title, "no document of trnsim search was given (--search)")
    fits = [row for row in done["simulated"] if row["fits"]]
    if not fits:
        return Absent(title, "no layout of the search fits into memory")
    of = subject.of_search(done)
    counts = done["counts"]
    priced = all(row["usd_per_million_tokens"] is not None for row in fits)
    front = done["front"]
    said = "; ".join(
        f"{i}: {words.duration(row['step_time_s'])}, {words.size(row['memory_peak_bytes'])}, "
        + (words.money(row["usd_per_million_tokens"]) if priced else f"{row['chips']} chips")
        for i, row in enumerate(front, 1)
    )
    text = (
        f"{subject.of_words(of)} A numbered diamond is a layout that no other beats in "
        f"step time, memory and chips at once, up to {words.percent(done['slower_by'])} slower "
        "than the fastest; a circle is another one that was simulated and fits. Where there is no "
        "room for a number, the table has it."
    )
    one_count = len({row["chips"] for row in fits}) == 1
    if one_count:
        text += f" All are on {fits[0]['chips']:,} chips, so money goes with the step time."
    alt = f"Step time, memory of a rank, and money of the front: {said}."
    blocks: list[Block] = [
        *subject.notice_of(run, of),
        text,
        charts.chart(
            "layouts", alt, charts.front(fits, front, priced), (3.2, 3.0 if one_count else 5.8)
        ),
        _table("The front, by its numbers", front_table(front)),
    ]
    counted = (
        f"{counts['simulated']:,} of {counts['layouts']:,} layouts that the rules allow were "
        "simulated; the others are too large or not better by their bounds"
    )
    lines = [counted]
    if done["wrong_bounds"]:
        lines.append("NOT PROVEN: layouts below their bounds, so a better one may be left out")
    return Section("layouts", title, [*blocks, Lines(lines)])
