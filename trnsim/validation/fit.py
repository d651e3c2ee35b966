# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Fits the constants of chips and stacks to published training steps: of each chip a GEMM factor,
one for products in 8 bits, and one for each attention kernel; of each stack what its messages get
of the links inside of a pod or server and of those between, and what its experts' products get of
the GEMM rate. None per row, none per model.

The error of a row is the logarithm of predicted over published. Every round but the last simulates
every row with its constants, and with each of them 5 % larger. The constants move by least squares
on the rows' errors with Huber's weights, each held by a prior: those of stacks to 1, give or take a
factor of 1.5, and those of chips to the median of their kind over all chips, give or take 1.15.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trnsim.errors import TrnSimError, ValidationError
from trnsim.files import write_whole
from trnsim.machine.loader import Decimal, fitted_constants
from trnsim.pool import worker_pool
from trnsim.validation.predict import Settings, Skipped, captured, machine_of, step_seconds
from trnsim.validation.rows import Row

ROUNDS = 2
STEP = math.log(1.05)
PRIOR = math.log(1.5)
# Of a chip's constant about the median of its kind: what a chip has few rows of stays near what
# other chips have. With all of them held to 1, give or take 1.5, GB200's GEMMs came out at 1.22 and
# B200's at 0.56, and rows of families that were left out were within 5.1 % (median) and 19.7 %
# (90th percentile), not 5.1 and 17.1; in four parts of whole groups of alike rows, three times
# over, within 4.4 and 17.2 %, not 4.3 and 15.9 (420 rows, by slopes).
SPREAD = math.log(1.15)
# What a row's error is taken to be; Huber's weights begin at one and a half of it. Published steps
# of the same configuration differ by some 3 % where models are dense, and by 20 % between releases
# of a stack where they have experts.
NOISE = 0.04
NOISE_OF_EXPERTS = 0.12

# What a constant can be at most. The rates of the machine files, at which products run alone,
# leave so much to the peaks. No link is faster than it is, but a stack may hide messages under the
# products that they are for (user buffers), which its reference program waits for: more than 1 for
# links stands for that in the steps of the chips that it was fitted to, and counts as line rate in
# a collective alone and on all other chips. At line rate in all steps, and with all constants
# fitted anew, 379 of 420 steps were within 4.1 % (median) and 15.1 % (90th percentile), not 3.5
# and 13.6.
MOST = {
    "gemm_factor": 1.25, "float8_factor": 1.25, "attention_factor": 1.25, "link_factor": 2.5,
    "network_factor": 2.5, "grouped_factor": 1.0,
}  # fmt: skip
OF_CHIP = ("gemm_factor", "float8_factor", "attention_factor")
OF_LINKS = ("link_factor", "network_factor")
OF_STACK = (*OF_LINKS, "grouped_factor")
Key = tuple[str, str, str]  # chip or stack, factor, attention kernel or ""


@dataclass(frozen=True)
class Constants:
    """What was fitted.

    Attributes:
        values: of each constant.
        rows: how many rows moved it.
        sensitivity: by how much the mean |error| of these rows grows when it is 5 % larger.
        held_out: logarithms of predicted over published, by stack, of rows whose configuration
            family was left out of the fit (by the slopes of the last round that has them).
        unseen: the same of all rows whose chip was left out, with the medians of the others'.
    """

    values: Mapping[Key, float]
    rows: Mapping[Key, int]
    sensitivity: Mapping[Key, float]
    held_out: Mapping[str, Sequence[float]]
    unseen: Sequence[float]

    @property
    def stack_errors(self) -> dict[str, tuple[float, int]]:
        """Of each stack with at least 8 rows: what nine in ten of its held-out rows stay within, as
        a logarithm, and the number of rows."""
        return {
            stack: (float(np.percentile(np.abs(errors), 90)), len(errors))
            for stack, errors in sorted(self.held_out.items())
            if len(errors) >= 8
        }

    def document(self) -> dict[str, Any]:
        """In the form of constants.toml."""
        found = _document(self.values, self.rows, self.sensitivity)
        chips = len({owner for owner, factor, _ in self.values if factor in OF_CHIP})
        for factor, value in _medians(self.values).items():
            figure = {"value": Decimal(f"{value:.3f}"), "source": f"median of {chips} chips"}
            whole = {"any": figure} if factor == "attention_factor" else figure
            found.setdefault("unseen", {})[factor] = whole
        return found

    def write(self, path: Path) -> None:
        """Writes them, whole or not at all."""
        lines = [
            "# SPDX-License-Identifier: Apache-2.0",
            "# SPDX-FileCopyrightText: The trnsim authors",
            "#",
            "# Constants fitted to published steps: of a chip, what is left of the rates of its",
            "# GEMMs and attention kernels inside a training step; of a stack, what its messages",
            "# get of the links, and its experts' products of the GEMM rate; and our error on",
            "# steps that the fit had not seen. Written by `trnsim validate CSV --fit`.",
        ]
        document = self.document()
        tables = {f'["{chip}"]': factors for chip, factors in document.items() if chip != "stack"}
        tables |= {f'[stack."{name}"]': factors for name, factors in document["stack"].items()}
        for table, factors in tables.items():
            lines += ["", table]
            for name, figure in factors.items():
                if name != "attention_factor":
                    lines.append(f"{name} = {_inline(figure)}")
            for kernel, figure in factors.get("attention_factor", {}).items():
                lines.append(f"attention_factor.{kernel} = {_inline(figure)}")
        lines += ["", "[stack_error]"]
        for stack, (error, count) in self.stack_errors.items():
            figure = {
                "value": Decimal(f"{error:.3f}"),
                "source": f"nine in ten of {count} published steps whose configuration family was "
                "left out of the fit are within it, as a logarithm",
            }
            lines.append(f'"{stack}" = {_inline(figure)}')
        if len(self.unseen) >= 8:
            figure = {
                "value": Decimal(f"{float(np.percentile(np.abs(self.unseen), 90)):.3f}"),
                "source": f"nine in ten of {len(self.unseen)} published steps whose chip was left "
                "out of the fit are within it, as a logarithm",
            }
            lines.append(f"unseen = {_inline(figure)}")
        text = "\n".join(lines) + "\n"
        write_whole(path, lambda part: part.write_text(text), ValidationError)

    def to_list(self) -> list[dict[str, Any]]:
        """As `--json` has them."""
        return [
            {
                "of": key[0], "constant": key[1], "attention_kernel": key[2] or None,
                "value": value, "rows": self.rows[key], "sensitivity": self.sensitivity[key],
            }
            for key, value in sorted(self.values.items())
        ]  # fmt: skip

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows for a person."""
        return ["chip or stack", "constant", "value", "rows", "error at +5 %"], [
            [
                chip, f"{factor} {kernel}".strip(), f"{value:.3f}",
                str(self.rows[chip, factor, kernel]),
                f"{100 * self.sensitivity[chip, factor, kernel]:+.2f} points",
            ]
            for (chip, factor, kernel), value in sorted(self.values.items())
        ]  # fmt: skip


def _inline(figure: Mapping[str, Any]) -> str:
    return (
        f'{{ value = {figure["value"]}, unit = "1", source = "{figure["source"]}", '
        f'confidence = "inferred" }}'
    )


def _document(
    values: Mapping[Key, float],
    rows: Mapping[Key, int] | None = None,
    sensitivity: Mapping[Key, float] | None = None,
) -> dict[str, Any]:
    found: dict[str, Any] = {"stack": {}}
    for key, value in sorted(values.items()):
        owner, factor, kernel = key
        source = "being fitted"
        if rows is not None and sensitivity is not None:
            source = (
                f"fitted to {rows[key]} published steps; 5 % more of it changes their mean error "
                f"by {100 * sensitivity[key]:+.2f} points"
            )
        text = f"{value:.3f}"
        figure = {"value": Decimal(text), "unit": "1", "source": source, "confidence": "inferred"}
        of_owner = (found["stack"] if factor in OF_STACK else found).setdefault(owner, {})
        if kernel:
            of_owner.setdefault("attention_factor", {})[kernel] = figure
        else:
            of_owner[factor] = figure
    return found


def _values_of(constants: Mapping[str, Any]) -> dict[Key, float]:
    """Constants of chips and stacks from the form of constants.toml."""
    values: dict[Key, float] = {}
    for owner, of_owner in constants.get("stack", {}).items():
        values |= {(owner, name, ""): float(each["value"]) for name, each in of_owner.items()}
    for chip, of_chip in constants.items():
        if chip in ("stack", "stack_error", "unseen", "inference"):
            continue
        for name, each in of_chip.items():
            kernels = each if name == "attention_factor" else {"": each}
            values |= {(chip, name, kernel): float(f["value"]) for kernel, f in kernels.items()}
    return values


def fit_constants(
    rows: Iterable[Row],
    settings: Settings,
    *,
    processes: int | None = None,
    on_round: Callable[[str], None] = lambda line: None,
    weights: Mapping[str, float] | None = None,
) -> Constants:
    """Fits the constants of all chips and stacks that the training rows among `rows` run on.

    Args:
        rows: others than training rows, and those that cannot be predicted, are left out.
        settings: `constants` is where the fit begins, those of constants.toml where it is None.
        processes: that work side by side; one a core when None.
        on_round: called with a line after each round.
        weights: of rows by their id, 1 for others.
    """
    rows = [row for row in rows if row.kind == "train" and row.published and row.about]
    begin = fitted_constants() if settings.constants is None else settings.constants
    values = _values_of(begin)
    measured: list[tuple[Row, float, dict[Key, float]]] = []
    with worker_pool(processes) as pool:
        slopes: dict[str, dict[Key, float]] = {}
        for turn in range(ROUNDS + 1):
            began = replace(settings, constants=_document(values))
            errors_of = list(
                pool.map(_error, rows, [began] * len(rows), [turn < ROUNDS] * len(rows))
            )
            kept = [(row, one) for row, one in zip(rows, errors_of, strict=True) if one]
            rows = [row for row, _ in kept]
            slopes |= {row.id: one[1] for row, one in kept if one[1]}
            measured = [(row, one[0], slopes.get(row.id, {})) for row, one in kept]
            errors = [abs(math.expm1(error)) for _, error, _ in measured]
            on_round(
                f"round {turn}: {len(measured)} rows, median error "
                f"{100 * float(np.median(errors or [0])):.1f} %, 90th percentile "
                f"{100 * float(np.percentile(errors or [0], 90)):.1f} %"
            )
            if turn < ROUNDS:
                values = _moved(values, measured, weights or {})
    constants = _constants(values, measured, weights or {})
    of_families = [error for errors in constants.held_out.values() for error in errors]
    for what, left_out in (
        ("configuration families", of_families), ("machines", constants.unseen)
    ):  # fmt: skip
        errors = [abs(math.expm1(error)) for error in left_out] or [0.0]
        on_round(
            f"{what} left out: median error {100 * float(np.median(errors)):.1f} %, "
            f"90th percentile {100 * float(np.percentile(errors, 90)):.1f} %"
        )
    return constants


def _error(
    row: Row, settings: Settings, with_slopes: bool
) -> tuple[float, dict[Key, float]] | None:
    """log(predicted / published) and its derivatives by the logarithms of the row's constants."""
    from trnsim import machine as machines

    assert row.published is not None and row.about is not None
    try:
        workloads = captured(row, settings)
        machine = machine_of(row, settings)
        changed: dict[Key, Any] = {}
        for factor in (*OF_CHIP, *OF_STACK) if with_slopes else ():
            if factor == "grouped_factor" and not row["experts"]:
                continue
            if factor == "float8_factor" and not row.is_float8:
                continue
            kernel = machines.attention_kernel_of(machine) if factor == "attention_factor" else ""
            owner = row.about.stack if factor in OF_STACK else machine.chip_name
            moved = _times(machine, factor, math.exp(STEP))
            changed[owner, factor, kernel] = machines.apply(
                machine, [f"stack.{factor}={moved:.6f}"]
            )
        base, *others = step_seconds(workloads, machine, *changed.values())
        found = {
            key: math.log(seconds / base) / STEP
            for key, seconds in zip(changed, others, strict=True)
            if abs(math.log(seconds / base)) > 1e-4
        }
    except (Skipped, TrnSimError):
        return None
    except Exception:  # noqa: BLE001 - a defect of ours, which `validate` lists
        return None
    return math.log(base / row.published.value), found


def _times(machine: Any, factor: str, times: float) -> float:
    now = {figure.key: figure.value for figure in machine.figures}.get(f"stack.{factor}", "1")
    return float(now) * times


def _moved(
    values: Mapping[Key, float],
    measured: Sequence[tuple[Row, float, Mapping[Key, float]]],
    weights: Mapping[str, float],
) -> dict[Key, float]:
    """One step of Gauss and Newton, with Huber's weights found by repetition."""
    keys = sorted({key for _, _, slopes in measured for key in slopes})
    if not keys:
        return dict(values)
    place = {key: i for i, key in enumerate(keys)}
    slopes = np.zeros((len(measured), len(keys)))
    for i, (_, _, of_row) in enumerate(measured):
        for key, slope in of_row.items():
            slopes[i, place[key]] = slope
    errors = np.array([error for _, error, _ in measured])
    noise = np.array([NOISE_OF_EXPERTS if row["experts"] else NOISE for row, _, _ in measured])
    given = np.array([weights.get(row.id, 1.0) for row, _, _ in measured]) / noise**2
    now = np.array([math.log(values.get(key, 1.0)) for key in keys])
    most = np.array([math.log(MOST[key[1]]) for key in keys]) - now
    held = np.array([SPREAD if key[1] in OF_CHIP else PRIOR for key in keys]) ** -2.0
    move = np.zeros(len(keys))
    for _ in range(20):
        left = errors + slopes @ move
        weight = given * np.minimum(1, 1.5 * noise / np.maximum(np.abs(left), 1e-9))
        normal = slopes.T @ (weight[:, None] * slopes) + np.diag(held)
        right = held * (_centres(keys, now + move) - now) - slopes.T @ (weight * errors)
        move = _bounded(normal, right, most)
    move = np.minimum(np.clip(move, -0.5, 0.5), most)
    return dict(values) | {key: math.exp(now[i] + move[i]) for key, i in place.items()}


def _centres(keys: Sequence[Key], logarithms: Any) -> Any:
    """What the constants are held to: 0, and of a factor of chips the median over them."""
    medians = _medians(dict(zip(keys, logarithms, strict=True)))
    return np.array([medians.get(key[1], 0.0) for key in keys])


def _bounded(normal: Any, right: Any, most: Any) -> Any:
    """Solves normal x = right with x <= most: what exceeds its bound stays there, one by one."""
    fixed = np.zeros(len(right), dtype=bool)
    while True:
        free = ~fixed
        found = most.copy()
        moved = right[free] - normal[np.ix_(free, fixed)] @ most[fixed]
        found[free] = np.linalg.solve(normal[np.ix_(free, free)], moved)
        over = np.where(free, found - most, 0)
        if over.max(initial=0) <= 1e-12:
            return found
        fixed[int(np.argmax(over))] = True


def _held_out(
    values: Mapping[Key, float],
    measured: Sequence[tuple[Row, float, Mapping[Key, float]]],
    weights: Mapping[str, float],
) -> dict[str, list[float]]:
    """Errors of the rows of each family with constants fitted to all others, by stack."""
    found: dict[str, list[float]] = {}
    for family in sorted({row.family for row, _, _ in measured}):
        others = [one for one in measured if one[0].family != family]
        without = _moved(values, others, weights)
        for row, error, slopes in measured:
            if row.family != family or row.about is None:
                continue
            for key, slope in slopes.items():
                error += slope * math.log(without.get(key, 1.0) / values.get(key, 1.0))
            found.setdefault(row.about.stack, []).append(error)
    return found


def _medians(values: Mapping[Key, float]) -> dict[str, float]:
    """Of each factor of chips, the median over them: what a chip that was never fitted gets."""
    return {
        factor: float(np.median([value for key, value in values.items() if key[1] == factor]))
        for factor in OF_CHIP
        if any(key[1] == factor for key in values)
    }


def _unseen(
    values: Mapping[Key, float],
    measured: Sequence[tuple[Row, float, Mapping[Key, float]]],
    weights: Mapping[str, float],
) -> list[float]:
    """Errors of the rows of each chip with constants fitted to all others."""
    chips = {key[0] for key in values if key[1] in OF_CHIP}
    found = []
    for chip in sorted(chips):
        is_of = [any(key[0] == chip for key in slopes) for _, _, slopes in measured]
        others = [one for one, is_it in zip(measured, is_of, strict=True) if not is_it]
        without = _moved(values, others, weights)
        without = {key: value for key, value in without.items() if key[0] != chip}
        medians = _medians(without)
        for (_, error, slopes), is_it in zip(measured, is_of, strict=True):
            if not is_it:
                continue
            for key, slope in slopes.items():
                new = without.get(key, medians.get(key[1], 1.0))
                if key[1] in OF_LINKS:  # as machine.load takes them on a chip without steps
                    new = min(new, 1.0)
                error += slope * math.log(new / values.get(key, 1.0))
            found.append(error)
    return found


def _constants(
    values: Mapping[Key, float],
    measured: Sequence[tuple[Row, float, Mapping[Key, float]]],
    weights: Mapping[str, float],
) -> Constants:
    rows: dict[Key, int] = {}
    sensitivity: dict[Key, float] = {}
    for key in values:
        touched = [(error, slopes[key]) for _, error, slopes in measured if key in slopes]
        rows[key] = len(touched)
        now = [abs(math.expm1(error)) for error, _ in touched]
        then = [abs(math.expm1(error + slope * STEP)) for error, slope in touched]
        sensitivity[key] = float(np.mean(then) - np.mean(now)) if touched else 0.0
    return Constants(
        dict(values), rows, sensitivity, _held_out(values, measured, weights),
        _unseen(values, measured, weights),
    )  # fmt: skip
