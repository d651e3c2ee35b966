# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Makes a run's step the one that its user measured, by one constant of the stack."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.errors import ValidationError
from trnsim.files import write_whole
from trnsim.validation.fit import OF_CHIP, OF_STACK

if TYPE_CHECKING:
    from trnsim.workload import RunFile

CONSTANTS = (*OF_CHIP, *OF_STACK)
LEAST, MOST = 1 / 16, 4.0  # of a constant: beyond it something else is wrong
STEP = 1.05


@dataclass(frozen=True)
class Calibration:
    """One constant of a stack, so that a step takes as long as was measured.

    Attributes:
        constant: its name; value: what it becomes; before: what it was.
        step_time_s, measured_s: the step with the new value, and the one that it stands for.
        step_time_before_s: the step with the old one.
        chip, stack: whose constant it is; stack is "" for a machine without a sheet.
        effects: of each constant, by how much of itself the step falls when it is 5 % larger.
    """

    constant: str
    value: float
    before: float
    step_time_s: float
    measured_s: float
    step_time_before_s: float
    chip: str
    stack: str
    effects: dict[str, float]

    def sheet(self) -> str:
        """A stack sheet with the constant, for `--stack FILE`; it extends the run's own."""
        source = (
            f"calibrated: the step of a run on {self.chip} measured {self.measured_s:.6g} s, and "
            f"{self.step_time_before_s:.6g} s without"
        )
        figure = (
            f'{{ value = {self.value:.6f}, unit = "1", source = {json.dumps(source)}, '
            f'confidence = "measured" }}'
        )
        name = self.stack or "no stack sheet"
        lines = [f"description = {json.dumps(f'{name}, calibrated to a measured step')}"]
        if self.stack:
            lines.append(f"extends = {json.dumps(self.stack)}")
        lines += ["", f"[on.{json.dumps(self.chip)}.stack]", f"{self.constant} = {figure}"]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Writes the sheet, whole or not at all."""
        write_whole(path, lambda part: part.write_text(self.sheet()), ValidationError)


def calibrate(
    run: RunFile | str | os.PathLike[str],
    measured_s: float,
    *,
    constant: str | None = None,
    stack: str | None = None,
    machine: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Calibration:
    """Finds the value of one stack constant with which the run's step takes `measured_s`.

    Args:
        run: a run file, or its path.
        measured_s: the step that was measured, in seconds.
        constant: one of `CONSTANTS`; None: the one that moves the step most.
        stack, machine, options: as :func:`trnsim.project` takes them.

    Raises:
        ValidationError: a step that no value of the constant between 1/16 and 4 gives, with those
            that it can give; an unknown constant; one that the step does not depend on.
    """
    import trnsim
    from trnsim import workload as workloads

    if not (math.isfinite(measured_s) and measured_s > 0):
        raise ValidationError(f"a measured step of {measured_s} s: give a positive time")
    if constant is not None and constant not in CONSTANTS:
        raise ValidationError(f"no constant '{constant}': use one of {', '.join(CONSTANTS)}")
    loaded = workloads.load_run(run) if isinstance(run, (str, os.PathLike)) else run

    def project(*overrides: str) -> Any:
        return trnsim.project(
            loaded, machine, stack=stack, overrides=overrides, top=0, advise=False, interval=False,
            **options,
        )  # fmt: skip

    base = project()
    figures = {figure.key: figure.value for figure in base.machine.figures}
    now = {name: _number(figures.get(f"stack.{name}", "1")) for name in CONSTANTS}

    def step(name: str, value: float) -> float:
        seconds: float = project(f"stack.{name}={value:.6f}").step_time_s
        return seconds

    names = CONSTANTS if constant is None else (constant,)
    effects = {
        name: 1 - step(name, min(MOST, now[name] * STEP)) / base.step_time_s for name in names
    }
    chosen = max(effects, key=lambda name: effects[name])
    if effects[chosen] <= 0:
        raise ValidationError(
            f"the step does not depend on {constant or 'any constant of the stack'}: "
            + ("choose another constant" if constant else "what is measured is not in the step")
        )
    value = _solved(chosen, lambda value: step(chosen, value), measured_s)
    return Calibration(
        chosen, value, now[chosen], step(chosen, value), measured_s, base.step_time_s,
        base.machine.chip_name, figures.get("stack.name", ""), effects,
    )  # fmt: skip


def _number(text: str) -> float:
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1)


def _solved(name: str, step: Callable[[float], float], measured_s: float) -> float:
    """By halving; a step never grows with a constant."""
    low, high = LEAST, MOST
    slowest, fastest = step(low), step(high)
    if not fastest <= measured_s <= slowest:
        raise ValidationError(
            f"no {name} between {LEAST:g} and {MOST:g} gives a step of {measured_s:.6g} s: they "
            f"give {fastest:.6g} to {slowest:.6g} s: check what was measured, or calibrate another "
            "constant"
        )
    for _ in range(40):
        middle = math.sqrt(low * high)
        if round(middle, 6) in (round(low, 6), round(high, 6)):
            break
        if step(middle) > measured_s:
            low = middle
        else:
            high = middle
    return round(math.sqrt(low * high), 6)
