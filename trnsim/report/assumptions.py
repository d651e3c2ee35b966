# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The list of assumptions that a projection, or a machine, rests on: a file to sign off."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from trnsim.errors import ReportError
from trnsim.files import write_whole
from trnsim.report import words

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.project import Projection

SUFFIXES = (".md", ".csv")
_UNSURE = ("guessed", "inferred")
_BY_HAND = "set by hand"
# What a figure moves that is not in the interval of the step, by how its key begins.
_MOVES = {
    "price.": "dollars", "power.": "energy", "site.pue": "energy of the site, CO2",
    "site.grid": "CO2", "fabric.tor.power": "energy", "fabric.leaf.power": "energy",
    "fabric.spine.power": "energy", "stack.": "step (the stack's own error is in its interval)",
}  # fmt: skip


@dataclass(frozen=True)
class Assumption:
    """One figure that nobody published for this machine, or that was settled for this run.

    Attributes:
        figure: its key, or what a run had to settle.
        value, unit, confidence, source: as of the machine's file.
        lowest, highest: as the interval takes it, in the unit; "" where it is not in the interval.
        moves: what it moves, and with a projection by how much.
        signed_off_by: empty, for whoever signs.
    """

    figure: str
    value: str
    unit: str
    confidence: str
    lowest: str
    highest: str
    moves: str
    source: str
    signed_off_by: str = ""


HEADER = [each.name.replace("_", " ") for each in fields(Assumption)]


def list_assumptions(
    machine: _core.Machine, projection: Projection | None = None
) -> list[Assumption]:
    """Every figure of the machine that is guessed, inferred or set by hand, and what the run itself
    left open. With a projection, those that move its step most come first."""
    from trnsim import _core
    from trnsim.machine import at_bounds

    ends: dict[str, tuple[str, str]] = {}
    for faster, slower in at_bounds(machine).values():
        for one, other in zip(faster.figures, slower.figures, strict=True):
            if one.value != other.value:
                low, high = sorted((Fraction(one.value), Fraction(other.value)))
                ends[one.key] = (_decimal(low), _decimal(high))
    effects = {} if projection is None else _effects(projection)
    found: list[tuple[float, Assumption]] = []
    for figure in machine.figures:
        if figure.confidence not in _UNSURE and figure.source != _BY_HAND:
            continue
        low, high = ends.get(figure.key, ("", ""))
        group = _core.input_group_of(figure.key) if low else ""
        size, effect = effects.get(group, (0.0, ""))
        unit = "" if figure.unit in ("1", "word", "list") else figure.unit
        moves = (effect or f"step, with all of {group}") if group else _moved(figure.key)
        found.append((size, Assumption(
            figure.key, figure.value, unit, figure.confidence, low, high, moves, figure.source
        )))  # fmt: skip
    found.sort(key=lambda each: -each[0])
    rows = [each for _, each in found]
    if projection is not None:
        rows += [
            Assumption(name, value, "", "settled in the run", "", "", effect, "the run's guesses")
            for name, value, effect in projection.figures.guesses
        ]
    return rows


def write_assumptions(
    path: Path, machine: _core.Machine, projection: Projection | None = None
) -> int:
    """Writes them as Markdown or CSV, by the file's ending; returns how many there are.

    Raises:
        ReportError: another ending, or the file cannot be written.
    """
    check_path(path)
    rows = list_assumptions(machine, projection)
    text = _csv(rows) if path.suffix == ".csv" else _markdown(rows, machine, projection)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"), ReportError)
    return len(rows)


def check_path(path: Path) -> None:
    """Raises ReportError for an ending that says no format."""
    if path.suffix not in SUFFIXES:
        raise ReportError(
            f"--assumptions {path} ends in none of {', '.join(SUFFIXES)}: give it one of them"
        )


def _effects(projection: Projection) -> Mapping[str, tuple[float, str]]:
    """By kind of figure, how far the step moves with all of it at their bounds."""
    step = projection.figures.step_ps
    found = {}
    for name, *moved in projection.figures.inputs:
        if step:
            low, high = (each / step - 1 for each in sorted(moved))
            size = max(abs(low), abs(high))
            found[name] = (size, f"step {_signed(low)} to {_signed(high)}, with all of {name}")
    return found


def _signed(share: float) -> str:
    return ("-" if share < 0 else "+") + words.percent(abs(share))


def _moved(key: str) -> str:
    for start, what in _MOVES.items():
        if key.startswith(start):
            return what
    return "what is simulated, not its interval"


def _decimal(value: Fraction) -> str:
    return f"{float(value):.6g}"


def _csv(rows: list[Assumption]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()


def _markdown(rows: list[Assumption], machine: _core.Machine, projection: Projection | None) -> str:
    import trnsim
    from trnsim.machine import stack_of, version_of

    def cell(text: str) -> str:
        return " ".join(text.replace("|", "\\|").split())

    of = machine.name if (stack := stack_of(machine)) is None else f"{machine.name} under {stack}"
    lines = [
        f"# Assumptions: {of}",
        "",
        f"Machine data {version_of(machine)}, machine {machine.hash}, trnsim {trnsim.__version__}.",
    ]
    if projection is not None:
        p = projection.figures
        low, high = projection.step_time_interval_s
        lines.append(
            f"Workload {p.workload_hash} on {p.chips_used} chips: step "
            f"{words.duration(projection.step_time_s)}, {words.duration(low)} to "
            f"{words.duration(high)}."
        )
    lines += ["", "| " + " | ".join(HEADER) + " |", "|" + " --- |" * len(HEADER)]
    lines += ["| " + " | ".join(map(cell, astuple(row))) + " |" for row in rows]
    return "\n".join(lines) + "\n"
