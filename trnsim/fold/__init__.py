# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""From a Program to a System: every rank placed, every collective on its links; and from a System
to its cohorts: one rank for all that behave the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnsim._core import Cohorts, System, fold_system, make_system

if TYPE_CHECKING:
    from trnsim._core import Machine, Placement, Program, Topology

__all__ = ["Cohorts", "System", "fold_system", "make_system", "place"]


def place(
    program: Program,
    machine: Machine,
    topology: Topology,
    placement: Placement,
    *,
    used_ranks: int | None = None,
) -> System:
    """Every rank of the placement plays `program`; its groups become communicators on links.

    used_ranks: how many of the placed ranks take part, all when None; 1 for a script that formed no
    process group.

    Raises SimulateError when the groups that are called on do not tile the ranks.
    """
    ranks = placement.ranks if used_ranks is None else used_ranks
    return make_system(program, machine, topology, placement, ranks)
