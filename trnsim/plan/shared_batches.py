# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Sequences of a step that several machines can all share out over their chips."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trnsim.plan.layouts import Refused, Space, candidate_of, candidates, degrees_of

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.recipes.models import Model

_FARTHEST = 4  # times the batch that was asked for
_MOST_CHECKED = 64  # batches that are tried on all machines


@dataclass(frozen=True, eq=False)
class Place:
    """A machine, its chips, and the space with the styles of its stack."""

    machine: _core.Machine
    chips: int
    ranks_per_chip: int
    space: Space

    def allows(self, model: Model, global_batch: int) -> bool:
        """Whether the rules leave a layout of such a step."""
        space = replace(self.space, global_batch=global_batch)
        per_chip = self.ranks_per_chip
        return bool(candidates(model, self.machine, self.chips, per_chip, space, Refused()))

    def units(self, model: Model) -> set[int]:
        """The smallest batches that the rules allow, one for each way to use the chips: every other
        one is a multiple of one of them."""
        found: set[int] = set()
        per_chip = self.ranks_per_chip
        ranks = self.chips * per_chip
        pod_ranks = self.machine.pod_chips * per_chip
        for degrees in degrees_of(model, pod_ranks, ranks, self.space):
            most = ranks // (degrees["tp"] * degrees["pp"] * degrees["cp"])
            round_of = degrees["micro_batch"] * (degrees["pp"] if degrees["vp"] > 1 else 1)
            for dp in range(most, max(0, int(self.space.least_used * most) - 1), -1):
                if dp * round_of in found:
                    continue
                space = replace(self.space, global_batch=dp * round_of)
                asked = (model, self.machine, self.chips, per_chip, space, degrees, Refused())
                if candidate_of(*asked) is not None:
                    found.add(dp * round_of)
        return {one for one in found if not any(one % o == 0 for o in found if o != one)}


def batches_for_all(model: Model, places: Sequence[Place], asked: int) -> list[int]:
    """The batches nearest to `asked`, one below it and one above, that every place has a layout
    for; fewer where there is none from 1 to 4 times of it. Places that no batch suits do not
    count."""
    units = {place: of for place in places if (of := place.units(model))}
    below, above = range(asked - 1, 0, -1), range(asked + 1, _FARTHEST * asked + 1)
    nearest = (_first(model, units, batches) for batches in (below, above))
    return [batch for batch in nearest if batch is not None]


def _first(model: Model, units: Mapping[Place, set[int]], batches: Iterable[int]) -> int | None:
    """The first of the batches that suits all places; None where it would be a long search."""
    suit = (
        batch
        for batch in batches
        if all(any(batch % unit == 0 for unit in of) for of in units.values())
    )
    for batch in itertools.islice(suit, _MOST_CHECKED):
        if all(place.allows(model, batch) for place in units):
            return batch
    return None
