# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What each term of the model is worth: training steps predicted again without it.

A term is left out by making what it depends on free: a rate a million times as fast, a share 0, a
layout without it. Everything else stays as it is. A fit would make up for some of that, as far as a
constant can: beside the errors stand those with the median error of each chip under each stack
taken out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trnsim.validation.score import Outcome, Statistics, statistics

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.recipes import Layout
    from trnsim.validation.predict import Settings
    from trnsim.validation.rows import Row

FREE = 1_000_000
FAST = 1_000  # rates that do not fit 64 bits when FREE times as fast


@dataclass(frozen=True)
class Term:
    """How a term is left out.

    Attributes:
        overrides: figures of the machine to change.
        scaled: things of the machine that are made FREE times as fast, links FAST times, as words
            of Machine.scaled; those that the machine has not are left out.
        layout: fields of the recipe's layout to change.
    """

    overrides: Sequence[str] = ()
    scaled: Sequence[str] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)

    def leave_out(self, machine: _core.Machine) -> _core.Machine:
        """The machine without the term."""
        from trnsim import machine as machines

        machine = machines.apply(machine, self.overrides)
        for word in self.scaled:
            if word in machine.scalable:
                machine = machine.scaled(word, str(FAST if word.startswith("link.") else FREE))
        return machine

    def without(self, layout: Layout) -> Layout:
        """The layout without the term."""
        changed = {k: v for k, v in self.layout.items() if getattr(layout, k) != v}
        return layout.with_(**changed) if changed else layout


TERMS: dict[str, Term] = {
    "attention": Term(overrides=(f"stack.attention_factor={FAST}",)),
    "memory traffic": Term(scaled=("hbm",)),
    "messages inside of pods and servers": Term(
        scaled=("link.x", "link.y", "link.z", "link.switch", "link.cube")
    ),
    "messages between pods and servers": Term(scaled=("link.nic", "link.fabric")),
    "latencies of collectives": Term(scaled=("latency",)),
    "launches": Term(scaled=("launch",)),
    "slower products of experts": Term(overrides=("stack.grouped_factor=1",)),
    "recomputation": Term(layout={"recompute": "none"}),
    "interleaving": Term(layout={"vp": 1}),
}


@dataclass(frozen=True)
class Ablation:
    """A term, or "" for nothing, left out.

    Attributes:
        plain: statistics of the rows as they are predicted then.
        evened: the same without the median error of each chip and stack.
    """

    without: str
    plain: Statistics
    evened: Statistics

    def to_dict(self) -> dict[str, Any]:
        """As `--json` has it."""
        return asdict(self)


def ablate(
    rows: Iterable[Row],
    settings: Settings,
    *,
    processes: int | None = None,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Ablation]:
    """Statistics of the training rows with nothing and then with each of TERMS left out: of every
    configuration family the row in the middle, since its rows differ in little."""
    from trnsim.validation import validate

    chosen = middle_of_families(rows)
    found = []
    for term in ("", *TERMS):
        outcomes = validate(
            chosen, replace(settings, without=term), processes=processes, on_done=on_done
        )
        found.append(Ablation(term, statistics(outcomes), statistics(evened(outcomes))))
    return found


def middle_of_families(rows: Iterable[Row]) -> list[Row]:
    """One training row of each family."""
    families: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.kind == "train" and row.published and row.about:
            families[row.family].append(row)
    return [group[len(group) // 2] for group in families.values()]


def evened(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes without the median error of each system and stack."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.error is not None:
            groups[outcome.system, outcome.stack].append(outcome)
    found = []
    for group in groups.values():
        middle = math.exp(np.median([math.log1p(outcome.error or 0.0) for outcome in group]))
        found += [replace(o, predicted=(o.predicted or 0.0) / middle) for o in group]
    return found


def table(found: Iterable[Ablation]) -> tuple[list[str], list[list[str]]]:
    """Header and rows for a person."""
    header = ["without", "rows", "median %", "90th %", "bias %", "evened median %", "evened 90th %"]
    rows = []
    for each in found:
        plain, even = each.plain, each.evened
        numbers = [_percent(plain.median), _percent(plain.p90), _percent(plain.bias, "+")]
        numbers += [_percent(even.median), _percent(even.p90)]
        rows.append([each.without or "nothing", str(plain.n), *numbers])
    return header, rows


def _percent(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{100 * value:{sign}.1f}"
