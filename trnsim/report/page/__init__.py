# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The report: one HTML file that holds everything, for whoever gets it by mail.

It asks for nothing from anywhere: no script runs in it, and a policy in it forbids that. The same
run gives the same bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.errors import ReportError
from trnsim.files import check_place, write_whole
from trnsim.report.page.charts import check_library
from trnsim.report.page.parts import Chart, Html, Lines, Notice, Page, Table

if TYPE_CHECKING:
    from trnsim.plan import Comparison, Scaling, Search
    from trnsim.project import Projection

__all__ = ["check_page", "make_page", "render_page", "write_page"]


def check_page(path: Path) -> None:
    """Refuses, before anything is simulated, what write_page would: raises ReportError."""
    check_library()
    check_place(path, ReportError)


def write_page(
    projection: Projection,
    path: str | os.PathLike[str],
    *,
    scaling: Scaling | str | os.PathLike[str] | None = None,
    comparison: Comparison | str | os.PathLike[str] | None = None,
    search: Search | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    figures: bool = True,
    command: Sequence[str] | None = None,
    made_by: str | None = None,
) -> Path:
    """Writes the report of a projection, whole or not at all, and returns its path.

    Args:
        projection: of trnsim.project.
        path: of the HTML file; its folder is there.
        scaling, comparison, search: what trnsim.scale, trnsim.compare and trnsim.search return, or
            the path of the JSON document that their verbs print, of a search also the document
            read; None leaves the section out.
        figures: move single figures of the machine to their bounds too, which simulates the step
            some ten to a hundred times more.
        command: the script and its arguments; None: what the projection's origin says.
        made_by: the command that makes the report.

    Raises:
        ReportError: no matplotlib, or a path that cannot be written.
        PlanError: a file that is no document of a scaling, a comparison or a search.
    """
    target = Path(path)
    check_page(target)
    page = make_page(
        projection, scaling=scaling, comparison=comparison, search=search, figures=figures,
        command=command, made_by=made_by,
    )  # fmt: skip
    text = render_page(page)
    write_whole(target, lambda part: part.write_text(text, encoding="utf-8"), ReportError)
    return target


def make_page(
    projection: Projection,
    *,
    scaling: Scaling | str | os.PathLike[str] | None = None,
    comparison: Comparison | str | os.PathLike[str] | None = None,
    search: Search | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    figures: bool = True,
    command: Sequence[str] | None = None,
    made_by: str | None = None,
) -> Page:
    """The same as parts; arguments and errors as of write_page."""
    from trnsim.origin import Origin
    from trnsim.plan.documents import read_comparison, read_scaling, read_search
    from trnsim.report.page import plans, step, subject, trust, work

    if isinstance(scaling, (str, os.PathLike)):
        scaling = read_scaling(scaling)
    if isinstance(comparison, (str, os.PathLike)):
        comparison = read_comparison(comparison)
    layouts = read_search(search) if isinstance(search, (str, os.PathLike)) else search
    if layouts is not None and not isinstance(layouts, Mapping):
        layouts = layouts.to_dict()
    pictures = step.Pictures(projection)
    effects = _effects(projection) if figures else None
    origin = projection.origin if command is None else Origin(tuple(command))
    run = subject.of_run(projection, origin)
    page = Page(subject.title_of(projection, run), subject.facts_of(projection, run))
    page.cards = step.cards(projection)
    for part in (
        step.breakdown_section(projection),
        step.engines_section(projection, pictures),
        step.roles_section(projection, pictures),
        step.links_section(projection, pictures),
        step.memory_section(projection, pictures),
        work.advice_section(projection),
        plans.scaling_section(scaling, run),
        plans.comparison_section(comparison, run),
        plans.search_section(layouts, run),
        trust.sensitivity_section(projection, effects),
        trust.guesses_section(projection),
        work.ops_section(projection),
        work.classes_section(projection, pictures),
        step.summary_section(projection),
        trust.sources_section(projection),
        trust.not_modelled_section(),
        trust.identity_section(projection, origin.command, made_by),
    ):
        page.add(part)
    page.notices = subject.notices_of(page.sections)
    return page


def _effects(projection: Projection) -> list[Any]:
    from trnsim import _core
    from trnsim.project.progress import watch

    if not projection.figures.step_ps or not projection.figures.inputs:
        return []
    with watch(counter := _core.ProjectProgress(), "moving single figures"):
        return _core.figure_effects(projection.run, counter)


def _whole(text: str) -> str:
    """The text with no break between a number and its unit: "372 MiB of 95.3 GiB" breaks at "of"
    only."""
    return re.sub(r"(?<=\d) (?=[%A-Za-zµ$])(?!(?:to|of|and|is|a) )", "\u00a0", text)


def render_page(page: Page) -> str:
    """The HTML text."""
    import jinja2
    from markupsafe import Markup

    import trnsim

    here = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    kinds = {"is_chart": Chart, "is_table": Table, "is_lines": Lines, "is_html": Html,
             "is_notice": Notice}  # fmt: skip
    for name, kind in kinds.items():
        environment.tests[name] = lambda value, kind=kind: isinstance(value, kind)
    environment.filters["whole"] = _whole
    return environment.get_template("page.html.jinja").render(
        page=page,
        style=Markup((here / "page.css").read_text(encoding="utf-8")),
        version=trnsim.__version__,
    )
