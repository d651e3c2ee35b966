# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Fits the constants of inference stacks to published rows: what a collective call takes beside its
steps, what prefills get of the links, and what the host takes for a step behind an HTTP server.
None per row, none per model, and none for what the chip does.

The error of a figure is the logarithm of predicted over published. Constants are positive, and move
by least squares with Huber's weights on the errors' slopes, by their logarithms; a weak prior holds
each to where it starts. All rows are simulated anew in every round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trnsim import machine as machines
from trnsim.errors import TrnSimError, ValidationError
from trnsim.files import write_whole
from trnsim.validation.inference import (
    FIRST,
    LATER,
    Steps,
    captured_steps,
    ranks_per_chip_of,
    seconds_of,
)
from trnsim.validation.predict import Settings, Skipped, machine_of
from trnsim.validation.rows import Row

ROUNDS = 4
STEP = math.log(1.05)
PRIOR = math.log(3.0)
NOISE = 0.1  # what a figure's error is taken to be; Huber's weights begin at one and a half of it


@dataclass(frozen=True)
class Constant:
    """One that is fitted: a figure that a stack sheet, and those that extend it, lay over machines.

    Attributes:
        sheet: whose it is.
        key: of the figure; unit: its own.
        start: where the fit begins, and what the prior holds it to.
    """

    sheet: str
    key: str
    unit: str
    start: float


CONSTANTS = (
    Constant("neuron-inference", "collectives.base_latency", "us", 20.0),
    Constant("neuronx", "stack.link_factor", "1", 0.5),
    Constant("optimum-neuron", "chip.neuroncore.launch_latency", "us", 5000.0),
)
_SHEETS = ("neuronx", "nxd-inference")  # which have an error of their own


@dataclass(frozen=True)
class _Figure:
    """A published figure, and how its step is simulated."""

    row: Row
    quantity: str
    published: float
    steps: Steps
    machine: Any
    ranks_per_chip: int
    constants: tuple[int, ...]  # places in CONSTANTS of those that its sheet has

    def error(self, values: Sequence[float]) -> float:
        changes = [
            f"{CONSTANTS[i].key}={values[i]:.6g}" + CONSTANTS[i].unit.removeprefix("1")
            for i in self.constants
        ]
        machine = machines.apply(self.machine, changes)
        seconds = seconds_of(self.steps, self.quantity, machine, self.ranks_per_chip)
        return math.log(1e3 * seconds / self.published)


@dataclass(frozen=True)
class InferenceConstants:
    """What was fitted.

    Attributes:
        values: of CONSTANTS, in their order.
        errors: of each figure: its row, its name, its error and its slopes, one a constant.
        held_out: errors of the figures whose configuration family was left out of the fit, by the
            slopes of the last round, in the order of `errors`.
    """

    values: tuple[float, ...]
    errors: tuple[tuple[Row, str, float, tuple[float, ...]], ...]
    held_out: tuple[float, ...]

    def error_of(self, sheet: str, quantity: str) -> tuple[float, int]:
        """What nine in ten held-out figures of a sheet, and of those that extend it, stay within,
        as a logarithm, and how many there are."""
        found = [
            abs(error)
            for (row, name, *_), error in zip(self.errors, self.held_out, strict=True)
            if name == quantity and row.about and sheet in machines.sheets_of(row.about.stack)
        ]
        return (float(np.percentile(found, 90)) if found else 0.0), len(found)

    def write(self, path: Path) -> None:
        """Writes them in the form of trnsim/machine/inference.toml, whole or not at all."""
        lines = [
            "# SPDX-License-Identifier: Apache-2.0",
            "# SPDX-FileCopyrightText: The trnsim authors",
            "#",
            "# Constants of inference stacks, fitted to published rows of inference: figures that",
            "# each sheet, and those that extend it, lay over machines, and our errors on figures",
            "# whose configuration family was left out of the fit. Written by",
            "# `trnsim validate CSV --kind infer --fit`.",
        ]
        for constant, value, (_, about) in zip(CONSTANTS, self.values, self._about(), strict=True):
            table, _, name = constant.key.rpartition(".")
            lines += ["", f'[sheet."{constant.sheet}".{table}]']
            rounded = f"{float(f'{value:.3g}'):g}"
            lines.append(f"{name} = {_inline(rounded, constant.unit, about)}")
        for quantity in (LATER, FIRST):
            for sheet in _SHEETS:
                error, count = self.error_of(sheet, quantity)
                if not count:
                    continue
                about = (
                    f"nine in ten of {count} published figures whose configuration family was left "
                    "out of the fit are within it, as a logarithm"
                )
                lines += [
                    "",
                    f'[prefill."{sheet}"]' if quantity == FIRST else f'[sheet."{sheet}".stack]',
                ]
                lines.append(f"error = {_inline(f'{error:.3f}', '1', about)}")
        text = "\n".join(_joined(lines)) + "\n"
        write_whole(path, lambda part: part.write_text(text), ValidationError)

    def _about(self) -> list[tuple[int, str]]:
        """Of each constant: how many figures moved it, and its source in words."""
        found = []
        for i in range(len(CONSTANTS)):
            touched = [
                (error, slopes[i]) for _, _, error, slopes in self.errors if abs(slopes[i]) > 1e-3
            ]
            now = np.mean([abs(math.expm1(error)) for error, _ in touched] or [0.0])
            then = np.mean([abs(math.expm1(e + s * STEP)) for e, s in touched] or [0.0])
            text = (
                f"fitted to {len(touched)} published figures; 5 % more of it changes their mean "
                f"error by {100 * (then - now):+.2f} points"
            )
            found.append((len(touched), text))
        return found

    def to_list(self) -> list[dict[str, Any]]:
        """As `--json` has them."""
        return [
            {
                "of": constant.sheet, "constant": constant.key, "value": value,
                "unit": constant.unit, "figures": count, "source": about,
            }
            for constant, value, (count, about) in zip(
                CONSTANTS, self.values, self._about(), strict=True
            )
        ]  # fmt: skip

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows for a person: the constants, then our errors with a family left out."""
        lines = [
            [constant.sheet, constant.key, f"{value:.3g} {constant.unit.removeprefix('1')}", about]
            for constant, value, (_, about) in zip(
                CONSTANTS, self.values, self._about(), strict=True
            )
        ]
        for sheet in _SHEETS:
            for quantity in (LATER, FIRST):
                error, count = self.error_of(sheet, quantity)
                found = f"{100 * math.expm1(error):.0f} %"
                lines.append([sheet, f"90th % of {quantity}", found, f"{count} figures held out"])
        return ["stack", "constant", "value", "about"], lines


def _inline(value: str, unit: str, source: str) -> str:
    return f'{{ value = {value}, unit = "{unit}", source = "{source}", confidence = "inferred" }}'


def _joined(lines: list[str]) -> list[str]:
    """Without a second header of the same table."""
    tables: dict[str, list[str]] = {}
    head = lines[: lines.index("")]
    for i, line in enumerate(lines):
        if line.startswith("["):
            tables.setdefault(line, []).append(lines[i + 1])
    return head + [part for table, values in tables.items() for part in ("", table, *values)]


def fit_inference(
    rows: Iterable[Row], settings: Settings, *, on_round: Callable[[str], None] = lambda line: None
) -> InferenceConstants:
    """Constants of inference stacks from published rows; those that cannot be built are left out.

    Raises ValidationError where no row can be built.
    """
    facts = replace(settings, constants=_without_ours(settings))
    figures = [figure for row in rows for figure in _figures(row, facts)]
    if not figures:
        raise ValidationError("no row of inference can be built: give rows of kind infer")
    values = np.array([constant.start for constant in CONSTANTS])
    for number in range(ROUNDS):
        errors, slopes = _slopes(figures, values)
        on_round(
            f"round {number + 1}: median error {100 * np.median(np.abs(np.expm1(errors))):.1f} % "
            f"of {len(figures)} figures"
        )
        if number + 1 < ROUNDS:
            values = values * np.exp(np.clip(_move(errors, slopes, values), -0.7, 0.7))
    return InferenceConstants(
        tuple(map(float, values)),
        tuple(
            (figure.row, figure.quantity, float(error), tuple(map(float, slope)))
            for figure, error, slope in zip(figures, errors, slopes, strict=True)
        ),
        tuple(_held_out(figures, errors, slopes, values)),
    )


def _without_ours(settings: Settings) -> Mapping[str, Any]:
    constants = machines.fitted_constants() if settings.constants is None else settings.constants
    return {key: value for key, value in constants.items() if key != "inference"}


def _figures(row: Row, settings: Settings) -> list[_Figure]:
    try:
        steps = captured_steps(row, settings)
        machine = machine_of(row, settings)
        per_chip = ranks_per_chip_of(row, steps, machine)
    except (Skipped, TrnSimError):
        return []
    assert row.about is not None
    sheets = machines.sheets_of(row.about.stack)
    own = tuple(i for i, constant in enumerate(CONSTANTS) if constant.sheet in sheets)
    return [
        _Figure(row, quantity.name, quantity.value, steps, machine, per_chip, own)
        for quantity in row.quantities
    ]


def _slopes(figures: Sequence[_Figure], values: Any) -> tuple[Any, Any]:
    errors = np.array([figure.error(values) for figure in figures])
    slopes = np.zeros((len(figures), len(values)))
    for i, figure in enumerate(figures):
        for j in figure.constants:
            more = values.copy()
            more[j] *= math.exp(STEP)
            slopes[i, j] = (figure.error(more) - errors[i]) / STEP
    return errors, slopes


def _move(errors: Any, slopes: Any, values: Any) -> Any:
    """By how much the logarithms of the constants move."""
    from_start = np.log(values / np.array([constant.start for constant in CONSTANTS]))
    move = np.zeros(slopes.shape[1])
    for _ in range(20):
        left = errors + slopes @ move
        weight = np.minimum(1, 1.5 * NOISE / np.maximum(np.abs(left), 1e-9)) / NOISE**2
        normal = slopes.T @ (weight[:, None] * slopes) + np.eye(len(move)) / PRIOR**2
        move = np.linalg.solve(normal, -(slopes.T @ (weight * errors)) - from_start / PRIOR**2)
    return move


def _held_out(figures: Sequence[_Figure], errors: Any, slopes: Any, values: Any) -> list[float]:
    """Errors of the figures of each family, with constants fitted to all others."""
    families = np.array([figure.row.family for figure in figures])
    found = np.zeros(len(figures))
    for family in sorted(set(families)):
        mine = families == family
        moved = _move(errors[~mine], slopes[~mine], values)
        found[mine] = errors[mine] + slopes[mine] @ moved
    return [float(each) for each in found]
