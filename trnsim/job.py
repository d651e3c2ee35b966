# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What is asked of a run before anything runs: which machine, how many chips, how many ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnsim.errors import CaptureError, LowerError, MachineError, TrnSimError, WorkloadError

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.capture.world import World


@dataclass(frozen=True)
class Job:
    """A machine and the placement of ranks on its first chips; both are checked.

    Attributes:
        machine: with its overrides applied.
        placement: chips, ranks, ranks_per_chip and ranks_per_server.
    """

    machine: _core.Machine
    placement: _core.Placement

    @property
    def capacity_bytes(self) -> int:
        """Memory of one rank, in bytes."""
        return self.machine.rank_memory_bytes(self.placement.ranks_per_chip)

    def check_scenario(self, slow_chips: Sequence[str], faults: Sequence[str]) -> None:
        """Raises what trnsim.project would for these, as far as it shows before there is a step."""
        from trnsim import _core

        _core.check_scenario(slow_chips, faults, self.machine, self.placement)

    def check_ranks(self, formed: int) -> None:
        """Raises CaptureError where the script formed a group of another size than the job's."""
        if formed not in (1, self.placement.ranks):
            raise CaptureError(
                f"the script formed a group of {formed} ranks, and {self.placement.chips} chips "
                f"hold {self.placement.ranks}: let it read WORLD_SIZE, or run it on as many chips "
                "as it has ranks"
            )

    def world(self, rank: int = 0) -> World:
        """The job as a script sees it that runs as `rank`. Imports torch."""
        from trnsim.capture.world import World

        place = self.placement
        return World(
            rank=rank,
            world_size=place.ranks,
            ranks_per_server=place.ranks_per_server,
            chips=place.chips,
        )


LARGEST_COUNT = 2**31 - 1


def check_asked(error: type[TrnSimError] = WorkloadError, **counts: int | None) -> None:
    """Raises `error` when one of the named counts is negative, too large or no whole number."""
    for name, count in counts.items():
        if count is None:
            continue
        if not hasattr(count, "__index__") or isinstance(count, bool):
            raise error(f"{name} {count!r} is not a whole number: use one")
        if count < 0:
            raise error(f"{name} {count} is negative: use 0 or more")
        most = 2**62 if name in ("tokens_per_step", "samples_per_step") else LARGEST_COUNT
        if count > most:
            raise error(f"{name} {count} is too large: use at most {most}")


def is_step_mode(collectives: str | None) -> bool:
    """Of "fluid" (None) or "step"; raises LowerError for another word."""
    if collectives not in (None, "fluid", "step"):
        raise LowerError(f"there are no collectives '{collectives}': use fluid or step")
    return collectives == "step"


def make_job(
    machine: str | _core.Machine,
    *,
    chips: int | None = None,
    ranks: int | None = None,
    ranks_per_chip: int | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    stack: str | None = None,
) -> Job:
    """Loads the machine and places the ranks.

    Args:
        machine: a preset's name, the path of a machine file, or a Machine.
        chips, ranks, ranks_per_chip: what is not given follows from the rest; one chip when
            nothing is given.
        overrides: assignments as "key=value", or a mapping.
        stack: a stack sheet's name or path, for a machine that is given by name or path.

    Raises:
        MachineError: an unknown machine, a broken file, contradictory counts, or a number of chips
            that the machine cannot be cut to.
    """
    from trnsim import _core
    from trnsim import machine as machines

    check_asked(MachineError, chips=chips, ranks=ranks, ranks_per_chip=ranks_per_chip)
    assignments = (
        tuple(f"{key}={value}" for key, value in overrides.items())
        if isinstance(overrides, Mapping)
        else tuple(overrides)
    )
    if isinstance(machine, _core.Machine):
        machine = machines.apply(machine, assignments)
    else:
        machine = machines.load(machine, assignments, stack)
    place = machines.placement(machine, chips, ranks, ranks_per_chip)
    machines.topology(machine, place.chips)
    return Job(machine, place)
