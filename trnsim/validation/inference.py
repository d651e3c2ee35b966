# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Rows of inference: the time to the first token, and of every one that follows.

Both are steps of the reference program (trnsim.recipes.generator): prefills of the batch, and a
decoding step with the cache that the token in the middle of the output reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnsim.validation.rows import Row

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.validation.predict import Settings

FIRST, LATER = "time_to_first_token", "time_per_output_token"


@dataclass(frozen=True)
class Steps:
    """Workloads of what a row measured.

    Attributes:
        by_quantity: the step that each published figure is, and how often it runs for it.
        ranks: of the job.
    """

    by_quantity: dict[str, tuple[_core.Workload, int]]
    ranks: int


def captured_steps(row: Row, settings: Settings) -> Steps:
    """The Workloads of the row's recipe, from the folder of captures where it has them; for each
    figure that the row gives.

    Raises Skipped where the source does not say enough.
    """
    from trnsim.recipes.serving_rows import configure_serving
    from trnsim.validation.predict import Skipped

    served = configure_serving(dict(row.columns))
    if isinstance(served, str):
        raise Skipped(served)
    kinds = {LATER: ("decode", 1), FIRST: ("prefill", served.prefills)}
    found = {}
    for quantity in row.quantities:
        kind, times = kinds[quantity.name]
        found[quantity.name] = _workload(served, kind, settings), times
    return Steps(found, served.serving.tp)


def _workload(served: Any, kind: str, settings: Settings) -> _core.Workload:
    from trnsim.recipes.generator import capture_inference
    from trnsim.validation.predict import captured_once

    configured = served.model, served.serving, served.style, kind
    return captured_once(settings, configured, lambda: [capture_inference(*configured)])[0]


def seconds_of(steps: Steps, quantity: str, machine: _core.Machine, ranks_per_chip: int) -> float:
    """The figure on a machine."""
    from trnsim.project.projection import step_seconds

    workload, times = steps.by_quantity[quantity]
    return step_seconds([workload], [machine], ranks_per_chip)[0] * times


def ranks_per_chip_of(row: Row, steps: Steps, machine: _core.Machine) -> int:
    """Ranks that share a chip: as the row's chips say, or else logical cores as they are by
    default. Skipped for what the machine cannot have."""
    from trnsim.validation.predict import Skipped

    allowed = machine.ranks_per_chip_allowed
    chips = int(row.number("chips") or 0)
    figures = {figure.key: figure.value for figure in machine.figures}
    per_chip = 1
    if "chip.neuroncore.cores" in figures:
        cores = int(figures["chip.neuroncore.cores"])
        per_chip = cores // int(figures["chip.neuroncore.cores_per_logical"])
    if chips and steps.ranks > chips * per_chip:
        per_chip = steps.ranks // chips
    if per_chip not in allowed:
        raise Skipped(f"{steps.ranks} ranks on {chips} chips: a chip has {allowed}")
    return per_chip


def figures_of(row: Row, settings: Settings) -> dict[str, float]:
    """Our figures for those that the row gives, in ms by name. Raises Skipped or TrnSimError."""
    from trnsim.validation.predict import machine_of

    steps = captured_steps(row, settings)
    machine = machine_of(row, settings)
    per_chip = ranks_per_chip_of(row, steps, machine)
    return {name: 1e3 * seconds_of(steps, name, machine, per_chip) for name in steps.by_quantity}


def error_of(quantity: str, machine: _core.Machine, settings: Settings) -> float | None:
    """What nine in ten held-out figures of that name stay within under the machine's stack, as a
    logarithm: of decoding the stack's own error, of prefills one of theirs; None where it is not
    known."""
    from trnsim import machine as machines
    from trnsim.validation.predict import own_error

    constants = machines.fitted_constants() if settings.constants is None else settings.constants
    of_prefills = constants.get("inference", {}).get("prefill", {})
    stack = machines.stack_of(machine)
    sheets = machines.sheets_of(stack) if stack and quantity == FIRST else ()
    found = next((of_prefills[sheet] for sheet in sheets if sheet in of_prefills), None)
    return own_error(machine) if found is None else float(found["error"]["value"])
