# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Sections of a scaling curve and of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnsim.report import words
from trnsim.report.page import charts
from trnsim.report.page.parts import Absent, Block, Lines, Section, Table
from trnsim.report.plan import (
    comparison_lines,
    comparison_table,
    scaling_lines,
    scaling_table,
)

if TYPE_CHECKING:
    from trnsim.plan import Comparison, Scaling
    from trnsim.report.plan import Table as PlanTable


def _table(caption: str, table: PlanTable) -> Table:
    return Table(caption, table.header, table.rows, table.right)


def scaling_section(done: Scaling | None) -> Section | Absent:
    """The curve; done: None where none was given."""
    title = "Scaling"
    if done is None:
        return Absent(title, "no document of trnsim scale was given (--scaling)")
    blocks: list[Block] = [f"On {done.machine}" + (f" under {done.stack}." if done.stack else ".")]
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


def comparison_section(done: Comparison | None) -> Section | Absent:
    """Runs or machines beside each other; done: None where none was given."""
    title = "Comparison"
    if done is None:
        return Absent(title, "no document of trnsim compare was given (--comparison)")
    what = "Run files, against the first."
    if done.equal is not None:
        what = f"One job on several machines, with equal {done.equal}."
    blocks: list[Block] = [what]
    rows = [
        (f"{row.label}, {row.chips:,} chips", row.document["step_time_s"],
         *row.document["step_time_interval_s"])
        for row in done.rows
        if row.document is not None
    ]  # fmt: skip
    if rows:
        said = ", ".join(f"{name} {words.duration(value)}" for name, value, _, _ in rows)
        blocks.append(
            charts.chart("comparison", f"Step times: {said}.", charts.bars_with_intervals(rows),
                         0.9 + 0.4 * len(rows))
        )  # fmt: skip
    blocks.append(_table("Rows", comparison_table(done)))
    return Section("comparison", title, [*blocks, Lines(comparison_lines(done))])
