# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Workload to Program: cost rules by op family, fusion, and algorithms of collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnsim import _core

__all__ = ["lower_step", "rules"]


def lower_step(
    workload: _core.Workload,
    step: _core.Step,
    machine: _core.Machine,
    placement: _core.Placement,
    *,
    stack: str = "",
    algorithm: str = "",
    collectives: str = "fluid",
) -> _core.Program:
    """Lowers one step of a Workload for a machine.

    Args:
        workload: what one rank asked of its device.
        step: the records of the step, as `choose_step` gives them.
        machine: whose engines, memories and collectives count.
        placement: where the ranks sit.
        stack: "fused" (Trainium's default), "eager" (a GPU's default), or "" for the default.
        algorithm: forces one algorithm on every collective but all-to-all, gather and scatter;
            "" chooses by size, as the machine's library does. csrc/lower/README.md lists them, and
            the error of one that does not suit a group says which do.
        collectives: "fluid", or "step": rings and halvings as messages between neighbours.

    Returns:
        A Program: `.ops`, `.calls`, `.tasks` (durations in ps), `.coverage()`, and text by `str`.

    Raises:
        LowerError: a group does not fit the placement, or a stack, an algorithm or a word for
            collectives is not known.
    """
    from trnsim import _core
    from trnsim.job import is_step_mode

    step_mode = is_step_mode(collectives)
    return _core.lower_step(workload, step, machine, placement, stack, algorithm, step_mode)


def rules() -> list[dict[str, str]]:
    """The cost rules, one an op: {"op", "family", "source"}, the source being the formula's."""
    from trnsim import _core

    return _core.cost_rules()
