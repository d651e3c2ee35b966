# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Sections of how sure the figures are: what moves them, what was guessed, where they are from."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trnsim.report import terminal, words
from trnsim.report.page import charts
from trnsim.report.page.parts import Absent, Block, Html, Section, Table

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.project import Projection

SHOWN = 12  # bars of a tornado


def _effect(step_s: float, faster_s: float, slower_s: float) -> tuple[str, ...]:
    return (
        words.duration(faster_s), words.shift(faster_s / step_s - 1),
        words.duration(slower_s), words.shift(slower_s / step_s - 1),
    )  # fmt: skip


_ENDS = ("at the better bound", "", "at the worse bound", "")


def _span(row: tuple[str, float, float], step_s: float) -> float:
    return max(abs(row[1] - step_s), abs(row[2] - step_s))


def sensitivity_section(
    projection: Projection, effects: Sequence[_core.FigureEffect] | None
) -> Section | Absent:
    """Which kinds of figures, and which figures, move the step most. effects: None: not asked."""
    p = projection.figures
    title = "What moves the answer"
    if not p.inputs or not p.step_ps:
        return Absent(title, "the run was projected without an interval")
    step_s = projection.step_time_s
    kinds = [(name, faster / 1e12, slower / 1e12) for name, faster, slower in p.inputs]
    if p.own_error:
        error = math.exp(p.own_error)
        kinds.append(("our error on published steps", step_s / error, step_s * error))
    kinds.sort(key=lambda row: -_span(row, step_s))
    moving = [row for row in kinds if _span(row, step_s) > 0]
    if not moving:
        return Absent(title, "no figure of the machine moves the step")
    low, high = (words.duration(end) for end in projection.step_time_interval_s)
    blocks: list[Block] = [
        ("The step simulated again with all figures of one kind at the bounds that their "
        "confidence leaves (measured 5 %, published 10 %, inferred 25 %, guessed 50 %, given 0 %). "
        f"The interval of the step time, {low} to {high}, is the root of the sum "
        f"of squares of these moves. Its basis: {p.interval_basis}."),
        _tornado("kinds", "kind of figures", _seen(moving, step_s), step_s),
        Table("By kind of figures", ("kind", *_ENDS),
              [(row[0], *_effect(step_s, *row[1:])) for row in moving], range(1, 5)),
    ]  # fmt: skip
    still = [row[0] for row in kinds if _span(row, step_s) == 0]
    if still:
        blocks.append("Kinds that move nothing: " + ", ".join(still) + ".")
    if effects is None:
        blocks.append("Single figures were not moved (--no-figures).")
    else:
        blocks += _figure_blocks(projection, effects)
    blocks.append(
        "What was guessed of software (the next section) is no figure, and not in these moves."
    )
    return Section("sensitivity", title, blocks)


def _seen(
    rows: Sequence[tuple[str, float, float]], step_s: float
) -> Sequence[tuple[str, float, float]]:
    """The first of them, without those whose bars nobody would see."""
    return [row for row in rows[:SHOWN] if _span(row, step_s) >= 1e-4 * step_s] or rows[:1]


def _tornado(
    name: str, what: str, rows: Sequence[tuple[str, float, float]], step_s: float
) -> charts.Chart:
    most = rows[0]
    alt = (
        f"Change of the step by {what}. Most by {most[0]}: from "
        f"{words.shift(most[1] / step_s - 1)} to {words.shift(most[2] / step_s - 1)}."
    )
    return charts.chart(name, alt, charts.tornado(rows, step_s), 1.1 + 0.27 * len(rows))


def _figure_blocks(projection: Projection, effects: Sequence[_core.FigureEffect]) -> list[Block]:
    step_s = projection.step_time_s
    rows = [(e.key, e.faster_ps / 1e12, e.slower_ps / 1e12) for e in effects]
    if not rows:
        return ["No single figure moves the step by itself."]
    of_key = {effect.key: effect for effect in effects}
    known = {figure.key: figure for figure in projection.machine.figures}
    rows.sort(key=lambda row: -_span(row, step_s))
    table = []
    for row in rows:
        figure, effect = known[row[0]], of_key[row[0]]
        off = f"{figure.confidence}, ±{effect.percent}\u00a0%"
        table.append((row[0], words.figure(figure.value, figure.unit), off,
                      *_effect(step_s, *row[1:])))  # fmt: skip
    return [
        (
            "The same with one figure at a time, of the kinds that move the step by 0.5 % or more. "
            "A share is never moved above 1."
        ),
        _tornado("figures", "single figures", _seen(rows, step_s), step_s),
        Table("By figure", ("figure", "value", "how sure", *_ENDS), table, range(3, 7)),
    ]


def guesses_section(projection: Projection) -> Section:
    """What was guessed, the same said of several things in one line."""
    merged: dict[tuple[str, str], list[str]] = {}
    for name, value, effect in projection.figures.guesses:
        merged.setdefault((name, effect), []).append(value)
    rows = [
        (name, terminal._short(", ".join(values)), effect)
        for (name, effect), values in merged.items()
    ]
    guessed = [f.key for f in projection.machine.figures if f.confidence == "guessed"]
    blocks: list[Block] = ["What stood open, and how it was settled."]
    if rows:
        blocks.append(Table("Guesses", ("what", "taken to be", "why, and what it moves"), rows))
    else:
        blocks.append("Nothing stood open.")
    if guessed:
        blocks.append(
            f"{len(guessed)} figures of the machine are guessed, with their sources below: "
            + ", ".join(guessed)
            + "."
        )
    return Section("guesses", "What was guessed", blocks)


def sources_section(projection: Projection) -> Section:
    """Every figure of the machine."""
    from trnsim import _core

    figures = projection.machine.figures
    counts: dict[str, int] = {}
    for figure in figures:
        counts[figure.confidence] = counts.get(figure.confidence, 0) + 1
    said = ", ".join(f"{count} {confidence}" for confidence, count in sorted(counts.items()))
    rows = [
        (f.key, words.figure(f.value, f.unit), f.confidence,
         _core.input_group_of(f.key), f.source)
        for f in figures
    ]  # fmt: skip
    blocks: list[Block] = [
        (f"Machine {projection.machine.name}: {projection.machine.description} {len(figures)} "
        f"figures: {said}. "
        f"The kind says with which others a figure moves in the interval; without one it is a "
        "size, a count or a price, and is taken as it is."),
        Table("Figures of the machine", ("figure", "value", "confidence", "kind", "source"), rows,
              folded=f"All {len(figures)} figures with their sources"),
    ]  # fmt: skip
    if projection.figures.overrides:
        changed = ", ".join(projection.figures.overrides)
        blocks.insert(1, f"Set by hand: {changed}.")
    return Section("sources", "Sources", blocks)


def not_modelled_section() -> Section:
    """The page of what is not modelled, whole."""
    from markdown_it import MarkdownIt

    text = (Path(__file__).parents[1] / "not_modelled.md").read_text(encoding="utf-8")
    text = text.split("-->", 1)[1].split("\n# ", 1)[1].split("\n", 1)[1]  # its title is ours
    markup = MarkdownIt("commonmark", {"html": False}).render(text.replace("\n## ", "\n### "))
    return Section("not-modelled", "What is not modelled", [Html(markup)])


def identity_section(
    projection: Projection, command: Sequence[str] | None, made_by: str | None
) -> Section:
    """How to make it again, and how to tell that it is the same."""
    import trnsim

    p = projection.figures
    rows = []
    if made_by is not None:
        rows.append(("this report", made_by))
    if command:
        rows.append(("script of the run", shlex.join(command)))
    rows += [
        ("trnsim", trnsim.__version__),
        ("torch", importlib.metadata.version("torch")),
        ("Python", platform.python_version()),
        ("timeline", p.timeline_hash),
        ("workload", p.workload_hash),
        ("machine", projection.machine.hash),
        ("seed", str(p.seed)),
        ("simulated by", projection.timeline.engine),
    ]
    return Section("identity", "How this was made", [
        "The same run file, machine and version give the same hashes on any computer.",
        Table("Command, versions and hashes", ("", ""), rows),
    ])  # fmt: skip
