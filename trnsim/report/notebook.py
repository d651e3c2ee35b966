# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Results in a notebook: a projection as one small table and one bar, what is planned as its tables
and lines. No script, no style sheet."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from trnsim.report import words
from trnsim.report.palette import PARTS
from trnsim.report.terminal import summary, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnsim.plan.shown import Shown
    from trnsim.project import Projection
    from trnsim.report.plan import Table


def to_html(projection: Projection) -> str:
    """The title, a bar of where the step goes, and the figures of the step."""
    p = projection.figures
    step = p.step_ps or 1
    cells, labels = [], []
    for name, time_ps in projection.breakdown_ps.items():
        if time_ps == 0:
            continue
        text = f"{name.replace('_', ' ')} {words.percent(time_ps / step)}"
        cells.append(
            f'<div title="{escape(text)}" style="width:{100 * time_ps / step:.3f}%;'
            f'background:{PARTS[name].colour}"></div>'
        )
        labels.append(f'<span style="color:{PARTS[name].colour}">&#9632;</span> {escape(text)}')
    rows = "".join(
        f'<tr><td style="text-align:left">{escape(name.strip())}</td>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in summary(projection)
    )
    return (
        f"<div><b>{escape(title(projection))}</b>"
        f'<div style="display:flex;height:14px;max-width:600px;margin:6px 0">{"".join(cells)}</div>'
        f"<div>{' &nbsp; '.join(labels)}</div><table>{rows}</table></div>"
    )


def plan_to_html(done: Shown) -> str:
    """The tables of a comparison, a curve, a search, a goodput or disturbances, and the lines that
    belong below them."""
    tables, lines = _parts_of(done)
    shown = "".join(map(_table, tables))
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<div>{shown}<ul>{items}</ul></div>"


def _parts_of(done: Any) -> tuple[Sequence[Table], Sequence[str]]:
    from trnsim import plan
    from trnsim.report import disturbance, goodput, search
    from trnsim.report import plan as words_of

    if isinstance(done, plan.Comparison):
        return [words_of.comparison_table(done)], words_of.comparison_lines(done)
    if isinstance(done, plan.Scaling):
        return [words_of.scaling_table(done)], words_of.scaling_lines(done)
    if isinstance(done, plan.Search):
        return [search.search_table(done)], search.search_lines(done)
    if isinstance(done, plan.Disturbance):
        return [disturbance.disturbance_table(done)], disturbance.disturbance_lines(done)
    return goodput.tables(done), [goodput.heading(done), *goodput.goodput_lines(done)]


def _table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        sides = ("right" if i in table.right else "left" for i in range(len(cells)))
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.rows)
    return f"<table><tr>{row(table.header, 'th')}</tr>{body}</table>"
