# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A projection in a notebook: one small table and one bar. No script, no style sheet."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from trnsim.report import words
from trnsim.report.palette import PARTS
from trnsim.report.terminal import summary, title

if TYPE_CHECKING:
    from trnsim.project import Projection


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
