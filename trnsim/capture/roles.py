# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Which ranks of a job are captured, and which ranks do the same as they.

Rank 0 is captured first, then every rank that it exchanges messages with in the measured step, and
theirs, until nobody is missing: one pipeline, say. Where all that a group's messages lead to ask
for the same, but for being moved along (a ring), its other members are taken to do so too. The
other ranks of the job are copies of the set that was found, moved along; a few of them, chosen at
random, are captured to see whether they are. If not, rank 0's set may be the odd one (it writes
logs): the rest is then taken to be as the set of the rank that differs, and that is checked at
other ranks. If it is not, and nobody exchanges messages, ranges of ranks may do the same (FSDP's
parts of a parameter with fewer rows than ranks): they are found by halving, and checked. A script
whose ranks differ otherwise is refused, with the first difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trnsim import _core
from trnsim.errors import CaptureError
from trnsim.workload import Workload

Capture = Callable[[Sequence[int], bool], dict[int, Workload]]
CHECKED, CHECKED_AGAIN = 2, 3  # ranks: at first, and after one that differs
MOST_RANGES = 8  # of ranks that do the same


def members_of(pattern: str) -> list[int]:
    """The ranks that a pattern such as "0..63" names, in its order."""
    return _core.ranks_of_pattern(pattern)


@dataclass
class Role:
    """A captured rank and the ranks that do as it does."""

    workload: Workload
    ranks: list[int]


class Finder:
    """Finds the roles of one job.

    Args:
        capture: runs the script as other ranks; True for ranks that are only compared.
        step: the whole step that is measured, from 0; None as `trnsim run` chooses.
        max_roles: how many ranks may be captured before it is given up.
        checked: how many ranks are compared with what they are taken to do.
        at_once: how many ranks take no longer than one.
    """

    def __init__(
        self, capture: Capture, *, step: int | None = None, max_roles: int = 64,
        checked: int = CHECKED, at_once: int = 1,
    ) -> None:  # fmt: skip
        self._capture, self._max_roles, self._checked = capture, max_roles, checked
        self._at_once = at_once
        self._step = step
        self._index = -1 if step is None else step  # of the measured step among whole ones
        self._known: dict[int, Workload] = {}  # ranks whose whole script was captured
        self._met: dict[int, list[tuple[list[int], int]]] = {}
        self._compared: dict[tuple[int, int], list[str]] = {}
        self.notes: list[str] = []

    def find(self, first: Workload) -> list[Role]:
        """All roles of the job of rank 0's Workload, that of rank 0 first."""
        self._known[first.rank] = first
        self._index = first.index_among_whole(first.choose_step(self._index))
        world = first.world_size
        found = self._closed(first.rank)
        roles = _spread(found, range(world), world)
        captured = {role.workload.rank for role in roles}
        odd = self._first_difference(roles, self._choose(world, captured, self._checked))
        if odd is None:
            return roles
        return self._with_odd_first(found, *odd)

    # --- who exchanges messages with whom --------------------------------------------------------

    def _closed(self, first: int) -> list[Role]:
        """The roles of the ranks that messages lead to; their ranks are those of one set."""
        mine = {first}
        while wanted := self._missing(mine):
            if len(mine | wanted) > self._max_roles:
                raise CaptureError(
                    f"messages lead to more than {self._max_roles} ranks that do not do the same, "
                    f"as rank {max(wanted)}: give a larger --max-roles, or fewer chips"
                )
            unknown = wanted - set(self._known)
            if len(mine) > 1 and unknown:  # no ring: run others at once that come later
                ahead = [rank for rank in self._further_on(mine) if rank not in self._known]
                unknown |= set(ahead[: max(0, self._at_once - len(unknown))])
            self._fetch(unknown)
            mine |= wanted
        return self._merged(sorted(mine, key=lambda rank: (rank != first, rank)))

    def _messages(self, rank: int) -> list[tuple[list[int], int]]:
        """Members of the group and peer, of all messages in the rank's measured step."""
        if rank not in self._met:
            workload = self._known[rank]
            groups = workload.groups
            peers = workload.peers_in_step(workload.choose_step(self._index))
            self._met[rank] = [(members_of(groups[group][1]), peer) for group, peer in peers]
        return self._met[rank]

    def _missing(self, mine: set[int]) -> set[int]:
        wanted = set()
        for rank in mine:
            for members, peer in self._messages(rank):
                if peer not in mine and not self._is_ring(members, mine):
                    wanted.add(peer)
        return wanted

    def _further_on(self, mine: set[int]) -> list[int]:
        """Where messages probably lead next: as far on in a group as they went before."""
        found = set()
        for rank in mine:
            for members, peer in self._messages(rank):
                own, other = members.index(rank), members.index(peer)
                found |= set(members[other :: other - own])
        return sorted(found - mine)

    def _is_ring(self, members: list[int], mine: set[int]) -> bool:
        """Whether the captured members ask for the same, one of them with all that it meets."""
        there = [rank for rank in members if rank in mine]
        if len(there) < 2:
            return False
        peers = [[peer for of, peer in self._messages(rank) if of == members] for rank in there]
        if not any(met and mine.issuperset(met) for met in peers):
            return False
        return not any(self._differences(there[0], rank) for rank in there[1:])

    def _merged(self, ranks: list[int]) -> list[Role]:
        """A role a rank, but one for all members of a ring."""
        mine, taken, roles = set(ranks), set(), []
        for rank in ranks:
            if rank in taken:
                continue
            same, grown = {rank}, True
            while grown:
                rings = [
                    set(members)
                    for at in same & mine
                    for members, _ in self._messages(at)
                    if self._is_ring(members, mine)
                ]
                grown = not all(ring <= same for ring in rings)
                same = same.union(*rings)
            taken |= same
            roles.append(Role(self._known[rank], sorted(same)))
        return roles

    # --- captures --------------------------------------------------------------------------------

    def _fetch(self, ranks: Iterable[int]) -> None:
        unknown = sorted(set(ranks) - set(self._known))
        if not unknown:
            return
        captured = self._capture(unknown, False)
        for rank, workload in captured.items():
            count = workload.whole_step_count
            if count <= self._index:
                raise CaptureError(
                    f"rank {rank} ran {count} whole steps, and step {self._index} of rank 0 is to "
                    "be measured: let every rank run the same steps, or choose one by --step"
                )
            self._met.pop(rank, None)  # one that ran before may be among them
        self._known |= captured
        self._compared = {
            pair: found
            for pair, found in self._compared.items()
            if captured.keys().isdisjoint(pair)
        }

    def _differences(self, a: int, b: int) -> list[str]:
        if (a, b) not in self._compared:
            self._compared[a, b] = _differences(self._known[a], self._known[b], self._index)
        return self._compared[a, b]

    # --- ranks that are taken to do the same -----------------------------------------------------

    @staticmethod
    def _choose(world: int, captured: set[int], count: int) -> list[int]:
        """Ranks that are not captured, at random but the same in each run: odd and even ones."""
        free = [rank for rank in range(world) if rank not in captured]
        dice = random.Random(f"{world} {len(captured)}")
        chosen: list[int] = []
        for i in range(min(count, len(free))):
            left = [rank for rank in free if rank not in chosen]
            part = [rank for rank in left if rank % 2 != i % 2]
            chosen.append(dice.choice(part or left))
        return chosen

    def _first_difference(self, roles: list[Role], ranks: list[int]) -> tuple[int, str] | None:
        """The first of the ranks that does not do as its role, and in what."""
        if not ranks:
            return None
        unknown = [rank for rank in ranks if rank not in self._known]
        captured = self._known | (self._capture(unknown, True) if unknown else {})
        for rank in ranks:
            role = next(role for role in roles if rank in role.ranks)
            if differences := _differences(role.workload, captured[rank], self._index):
                return rank, (
                    f"rank {rank} (b) does not do as rank {role.workload.rank} (a): "
                    f"{_short(differences[0])}"
                )
        return None

    def _with_odd_first(self, found: list[Role], rank: int, difference: str) -> list[Role]:
        """Roles when only the set of rank 0 is odd."""
        world = found[0].workload.world_size
        odd = {each for role in found for each in role.ranks}
        self._known.pop(rank, None)
        self._fetch([rank])
        others = self._closed(rank)
        try:
            rest = _spread(others, [r for r in range(world) if r not in odd], world)
        except CaptureError:
            raise CaptureError(_differ(difference)) from None
        captured = {role.workload.rank for role in [*found, *rest]} | odd
        near = min(set(range(world)) - captured, default=None)
        chosen = self._choose(world, captured | {near}, CHECKED_AGAIN - 1)
        again = self._first_difference(rest, chosen if near is None else [near, *chosen])
        if again is not None:
            return self._in_ranges(world, f"{difference}; {again[1]}")
        of = ", ".join(str(each) for each in sorted(odd))
        self.notes.append(
            f"rank {of} alone differs from the others, which are taken to be alike: {difference}"
        )
        return [*found, *rest]

    def _in_ranges(self, world: int, difference: str) -> list[Role]:
        """Roles as ranges of ranks: where the two ends of one do the same, so does the rest."""
        self._fetch([world - 1])
        pending, begins = [(0, world - 1)], [0]
        while pending:
            unlike = [ends for ends in pending if self._differences(*ends)]
            begins += [last for first, last in unlike if last == first + 1]
            halves = {ends: sum(ends) // 2 for ends in unlike if ends[1] > ends[0] + 1}
            if len(begins) + len(halves) > MOST_RANGES:
                raise CaptureError(_differ(difference))
            self._fetch(halves.values())
            pending = [(first, middle) for (first, _), middle in halves.items()]
            pending += [(middle, last) for (_, last), middle in halves.items()]
        if any(self._messages(rank) for rank in self._known):
            raise CaptureError(_differ(difference))
        ranges = [range(*ends) for ends in pairwise([*sorted(begins), world])]
        roles: list[Role] = []
        for each in ranges:
            rank = next(rank for rank in each if rank in self._known)
            same = (of for of in roles if not self._differences(of.workload.rank, rank))
            role = next(same, None)
            if role is None:
                roles.append(Role(self._known[rank], list(each)))
            else:
                role.ranks += each
        chosen = self._choose(world, set(self._known), CHECKED_AGAIN)
        again = self._first_difference(roles, chosen)
        if again is not None:
            raise CaptureError(_differ(f"{difference}; {again[1]}"))
        named = ", ".join(f"{each[0]}..{each[-1]}" for each in ranges)
        self.notes.append(
            f"ranks {named} do different work, found by halving and checked at {len(chosen)} more: "
            f"{difference}"
        )
        return roles


def _short(difference: str, most: int = 400) -> str:
    """What can be read in a line."""
    return difference if len(difference) <= most else f"{difference[:most]}..."


def _differ(difference: str) -> str:
    return (
        f"ranks do different things, and which ranks do what cannot be told: {difference}; "
        "--check-ranks 0 takes all to be as those that are captured"
    )


def _differences(a: Workload, b: Workload, index: int) -> list[str]:
    counts = [each.whole_step_count for each in (a, b)]
    if index >= 0 and min(counts) <= index:
        return [f"number of whole steps: a has {counts[0]}, b has {counts[1]}"]
    return a.compare_step(a.choose_step(index), b, b.choose_step(index), 1)


def _spread(found: list[Role], ranks: Iterable[int], world: int) -> list[Role]:
    """The roles with all ranks of the job that are copies of their set, moved along.

    The smallest rank that is not covered yet can only be the smallest of its set, so there is one
    way at most.
    """
    shape = sorted(rank for role in found for rank in role.ranks)
    free = bytearray(world)
    for rank in ranks:
        free[rank] = 1
    moves = []
    for at in range(world):
        if not free[at]:
            continue
        move = at - shape[0]
        for rank in shape:
            if rank + move >= world or not free[rank + move]:
                listed = ", ".join(map(str, shape[:8])) + (", ..." if len(shape) > 8 else "")
                raise CaptureError(
                    f"ranks {listed} exchange messages, and the {world} ranks of the job cannot be "
                    f"cut into sets like theirs (rank {at} is in none): use a number of chips "
                    "that the pipeline divides"
                )
            free[rank + move] = 0
        moves.append(move)
    if shape[0] not in {shape[0] + move for move in moves} or 0 not in moves:
        raise CaptureError(
            "the ranks of the job cannot be cut into sets like that of rank 0: "
            "use a number of chips that the pipeline divides"
        )
    return [
        Role(role.workload, sorted(rank + move for move in moves for rank in role.ranks))
        for role in found
    ]


def as_workloads(roles: list[Role]) -> list[Workload]:
    """Their Workloads, each with its name, and its ranks where there are several."""
    for role in roles:
        role.workload.role = f"rank{role.workload.rank}"
        if len(roles) > 1:
            role.workload.played_by = _core.pattern_of_ranks(role.ranks)
    return [role.workload for role in roles]
