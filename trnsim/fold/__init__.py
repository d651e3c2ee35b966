# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""From a Program to a System: every rank placed, every collective on its links; and from a System
to its cohorts: one rank for all that behave the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnsim._core import Cohorts, System, fold_system, make_system

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trnsim._core import Machine, Placement, Program, Topology

__all__ = ["Cohorts", "System", "cohorts", "fold_system", "make_system", "place", "place_roles"]


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


def place_roles(
    roles: Sequence[tuple[Program, str]],
    machine: Machine,
    topology: Topology,
    placement: Placement,
    *,
    odd_ranks: Iterable[tuple[int, int, int]] = (),
) -> System:
    """Every rank of a job in which ranks play several Programs.

    roles: Programs and the ranks that play them, written as a Workload writes groups: "0..63", or
        "start 0 axes 1x64 640x625" for 64 in a row, 625 times, 640 apart. Each rank plays one.
    odd_ranks: (rank, factor of its compute times in 2^-16, start in ps).

    Raises SimulateError as `place` does, and when a rank plays no role or two.
    """
    from trnsim import _core

    return _core.make_job_system(list(roles), machine, topology, placement, list(odd_ranks))


def cohorts(
    roles: Sequence[tuple[Program, str]],
    machine: Machine,
    topology: Topology,
    placement: Placement,
    *,
    odd_ranks: Iterable[tuple[int, int, int]] = (),
) -> Cohorts:
    """fold_system(place_roles(...)), without ever making all ranks."""
    from trnsim import _core

    return _core.make_cohorts(list(roles), machine, topology, placement, list(odd_ranks))
