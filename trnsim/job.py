# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What is asked of a run before anything runs: which machine, how many chips, how many ranks."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnsim.asked import value_of
from trnsim.errors import (
    CaptureError,
    LowerError,
    MachineError,
    RecipeError,
    TrnSimError,
    WorkloadError,
)

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
_FROM_1 = ("chips", "ranks", "ranks_per_chip")


def texts_of(error: type[TrnSimError], name: str, given: Iterable[str]) -> list[str]:
    """The texts that an argument lists; raises `error` for one text alone, and for what is none."""
    return list(value_of(error, name, "list[str]", given))


def whole_numbers_of(
    error: type[TrnSimError], name: str, given: Iterable[int], least: int, most: int
) -> list[int]:
    """The whole numbers that an argument lists, each from `least` to `most`; raises `error`."""
    numbers = value_of(error, name, "list[int]", given)
    return [_within(error, f"{name} has", number, least, most) for number in numbers]


def whole_number_of(error: type[TrnSimError], name: str, number: int, least: int, most: int) -> int:
    """The number; raises `error` where it is not a whole one from `least` to `most`."""
    return _within(error, name, value_of(error, name, "int", number), least, most)


def _within(error: type[TrnSimError], what: str, whole: int, least: int, most: int) -> int:
    if not least <= whole <= most:
        raise error(f"{what} {whole}: use {least} to {most}")
    return whole


def check_asked(error: type[TrnSimError] = WorkloadError, **counts: int | None) -> None:
    """Raises `error` when one of the named counts is negative, too large or no whole number."""
    for name, count in counts.items():
        if count is None:
            continue
        count = value_of(error, name, "int", count)
        if count < 0:
            least = "at least 1" if name in _FROM_1 else "0 or more"
            raise error(f"{name} {count} is negative: use {least}")
        most = 2**62 if name in ("tokens_per_step", "samples_per_step") else LARGEST_COUNT
        if count > most:
            raise error(f"{name} {count} is too large: use at most {most}")


def _way_of_model(name: str) -> str:
    """Which verbs take a model of that name; "" where it is none."""
    from trnsim.recipes.models import Model

    try:
        Model.preset(name)
    except RecipeError:
        return ""
    return (
        f"it is the name of a model: trnsim search {name} --save FILE writes its step for trnsim "
        "project, and trnsim scale and compare take the name"
    )


def check_script(script: str, is_module: bool) -> None:
    """Raises CaptureError where there is no such Python file, or module."""
    if not is_module:
        if not os.path.isfile(script):  # of names that are too long Path's own raises
            way = _way_of_model(script) or "give the path of a Python file, or -m MODULE"
            raise CaptureError(f"no script '{script}': {way}")
        return
    sys.path.insert(0, "")  # where python -m looks first
    try:
        found = importlib.util.find_spec(script.partition(".")[0])
    except ValueError:
        found = None
    finally:
        sys.path.remove("")
    if found is None:
        raise CaptureError(f"no module '{script}': give its name as python -m takes it")


def is_step_mode(collectives: str | None) -> bool:
    """Of "fluid" (None) or "step"; raises LowerError for another word."""
    if collectives not in (None, "fluid", "step"):
        raise LowerError(f"there are no collectives '{collectives}': use fluid or step")
    return collectives == "step"


def tell_device(engine: str) -> None:
    """Says on stderr that TRNSIM_DEVICE=cuda was set where another engine simulated."""
    if os.environ.get("TRNSIM_DEVICE") == "cuda" and "cuda" not in engine.split(" (")[0]:
        print(f"trnsim: TRNSIM_DEVICE=cuda, but this ran on {engine}", file=sys.stderr)


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
        else tuple(texts_of(MachineError, "overrides", overrides))
    )
    if isinstance(machine, _core.Machine):
        machine = machines.apply(machine, assignments)
    else:
        machine = machines.load(machine, assignments, stack)
    place = machines.placement(machine, chips, ranks, ranks_per_chip)
    machines.topology(machine, place.chips)
    return Job(machine, place)
