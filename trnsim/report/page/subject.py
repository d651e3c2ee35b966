# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a report and its sections are of, and where a section is of something else than the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnsim.machine import stack_of
from trnsim.origin import Origin
from trnsim.plan.scaling import SHARE
from trnsim.report import terminal
from trnsim.report.page.parts import Notice, Section
from trnsim.report.plan import layout_words

if TYPE_CHECKING:
    from trnsim.plan import Comparison, Scaling
    from trnsim.project import Projection

SAME = 1e-6  # up to which shares of a batch are the same
NOT_KNOWN = "whether it is the same job is not known"
NOT_SAID = "a job that is not named"


@dataclass(frozen=True)
class Subject:
    """A run, or the rows of a document.

    Attributes:
        targets: machines with their stacks ("" for none), in order.
        works: hashes of the work of each rank, where they are known: equal ones are the same work.
        sequences, batches: tokens of a sequence, and sequences of a step; empty where not known.
        shares: sequences of a step a chip, in place of batches where a step grows with the chips.
        tokens: of a step, all ranks; for where sequences are not known.
    """

    origin: Origin
    targets: Sequence[tuple[str, str]]
    works: frozenset[str] = frozenset()
    sequences: Sequence[int] = ()
    batches: Sequence[int] = ()
    shares: Sequence[float] = ()
    tokens: Sequence[int] = ()

    @property
    def where(self) -> str:
        """Machines with their stacks."""
        return ", ".join(dict.fromkeys(target_words(*target) for target in self.targets))


def target_words(machine: str, stack: str) -> str:
    """ "rainier under megatron"."""
    return f"{machine} under {stack}" if stack else machine


def of_run(projection: Projection, origin: Origin) -> Subject:
    """Of the report's run."""
    p = projection.figures
    layout = origin.layout or {}
    batch = layout.get("global_batch")
    return Subject(
        origin, [(p.machine, stack_of(projection.machine) or "")],
        frozenset([p.workload_hash]), _numbers([layout.get("sequence")]), _numbers([batch]),
        [batch / p.chips] if isinstance(batch, int) else (),
        _tokens([None if not p.tokens_per_s else p.tokens_per_s * projection.step_time_s]),
    )  # fmt: skip


def of_scaling(done: Scaling) -> Subject:
    """Of a curve."""
    layouts = [(point.chips, point.figure("layout") or {}) for point in done.ran]
    is_weak = done.strong is None
    batches = [layout.get("global_batch") for _, layout in layouts]
    return Subject(
        done.origin, [(done.machine, done.stack or "")],
        _hashes([point.document for point in done.ran]),
        _numbers([layout.get("sequence") for _, layout in layouts]), _numbers(batches),
        [batch / chips for batch, (chips, _) in zip(batches, layouts, strict=True)
         if is_weak and isinstance(batch, int)],
        _tokens([point.in_a_step("tokens") for point in done.ran]),
    )  # fmt: skip


def of_comparison(done: Comparison) -> Subject:
    """Of rows."""
    ran = [row for row in done.rows if row.document is not None]
    layouts = [row.figure("layout") or {} for row in ran]
    return Subject(
        done.origin, [(row.machine, row.stack or "") for row in done.rows],
        _hashes([row.document for row in ran]),
        _numbers([layout.get("sequence") for layout in layouts]),
        _numbers([layout.get("global_batch") for layout in layouts]),
        tokens=_tokens([row.in_a_step("tokens") for row in ran]),
    )  # fmt: skip


def of_search(done: Mapping[str, Any]) -> Subject:
    """Of the document of a search."""
    space = done.get("space") or {}
    return Subject(
        Origin(model=done["model"]), [(done["machine"], done["stack"] or "")],
        sequences=_numbers([space.get("sequence")]), batches=_numbers([space.get("global_batch")]),
    )  # fmt: skip


def _numbers(found: Sequence[Any]) -> list[int]:
    return sorted({each for each in found if isinstance(each, int)})


def _tokens(found: Sequence[float | None]) -> list[int]:
    return sorted({round(each) for each in found if each})


def _hashes(documents: Sequence[Mapping[str, Any] | None]) -> frozenset[str]:
    found = [document.get("workload_hash") for document in documents if document is not None]
    return frozenset(each for each in found if isinstance(each, str))


# --- what it is of -------------------------------------------------------------------------------


def _ends(numbers: Sequence[int]) -> str:
    return " to ".join(f"{each:,}" for each in sorted({min(numbers), max(numbers)}))


def batch_words(subject: Subject) -> str:
    """ "64 sequences of 1,024 tokens a step", or its tokens; "" where nothing is known."""
    if subject.batches and subject.sequences:
        return f"{_ends(subject.batches)} sequences of {_ends(subject.sequences)} tokens a step"
    return f"{_ends(subject.tokens)} tokens a step, all ranks" if subject.tokens else ""


def of_words(subject: Subject) -> str:
    """ "Of llama (4 layers, hidden 512) on rainier; 64 sequences of 1,024 tokens a step."."""
    batch = batch_words(subject)
    name = subject.origin.name or NOT_SAID
    return f"Of {name} on {subject.where}" + (f"; {batch}." if batch else ".")


def title_of(projection: Projection, run: Subject) -> str:
    """Of the page: what ran, and where."""
    chips = projection.figures.chips
    step = f"a training step on {chips:,} {'chip' if chips == 1 else 'chips'} of {run.where}"
    return f"{run.origin.short}: {step}" if run.origin.short else f"A{step[1:]}"


def facts_of(projection: Projection, run: Subject) -> list[tuple[str, str]]:
    """What ran, in which layout and where, by names."""
    origin = run.origin
    facts = []
    if origin.model is not None:
        facts.append(("model", origin.short))
    elif origin.command:
        facts.append(("script", shlex.join(origin.command)))
    else:
        facts.append(("script or model", "the run file does not say it"))
    if origin.layout is not None:
        facts.append(("layout", _layout(origin.layout)))
    if batch := batch_words(run):
        facts.append(("work", batch))
    stack = run.targets[0][1] or "none: by the machine's figures alone"
    return [*facts, ("machine", terminal.title(projection)), ("stack", stack)]


def _layout(layout: Mapping[str, Any]) -> str:
    try:
        return layout_words(layout)
    except (KeyError, TypeError):  # of another version
        return "unknown: the run file's layout is not one of this version"


# --- where it is of something else ----------------------------------------------------------------


def differences(run: Subject, other: Subject) -> list[str]:
    """What a section is of that the report's run is not, most important first."""
    is_same_work = bool(run.works & other.works)
    found = [] if is_same_work else _of_jobs(run, other)
    return [*found, *_of_machines(run, other)]


def notice_of(run: Subject, other: Subject) -> list[Notice]:
    """At the head of a section; none where it is of what the report's run is."""
    found = sorted(differences(run, other), key=lambda each: each.startswith(NOT_KNOWN))
    if not found:
        return []
    how = "Perhaps not" if found[0].startswith(NOT_KNOWN) else "Not"
    return [Notice(f"{how} of this report's run: {'; '.join(found)}.")]


def notices_of(sections: Sequence[Section]) -> list[str]:
    """At the head of the page, of the sections that have one."""
    return [
        f"{section.title}: {block.text[0].lower()}{block.text[1:]}"
        for section in sections
        for block in section.blocks
        if isinstance(block, Notice)
    ]


def _of_jobs(run: Subject, other: Subject) -> list[str]:
    mine, its = run.origin, other.origin
    if not its.name or not mine.name:
        which = "the document does not say what it is of"
        if its.name:
            which = "the run file does not say its script or model"
        return [f"{NOT_KNOWN}: {which}"]
    if (mine.model is None) != (its.model is None):
        jobs = (f"{'script' if each.model is None else 'model'} {each.short}"
                for each in (its, mine))  # fmt: skip
        return [f"another job: {', not '.join(jobs)}"]
    if mine.model is not None and its.model is not None:
        common = mine.model.keys() & its.model.keys()
        other_keys = sorted(key for key in common if mine.model[key] != its.model[key])
        if other_keys:
            names = f"{its.short}, not {mine.short}"
            if its.short == mine.short:
                names = f"{its.short} with other {', '.join(other_keys)}"
            return [f"another model: {names}"]
        return _of_batches(run, other)
    if mine.script != its.script:
        return [f"another script: {its.name}, not {mine.name}"]
    if not _are_alike(mine.arguments, its.arguments):
        given = [shlex.join(each.arguments) or "none" for each in (its, mine)]
        return [f"other arguments of {its.script}: {given[0]}, not {given[1]}"]
    return []


def _are_alike(mine: Sequence[str], its: Sequence[str]) -> bool:
    """Equal, but for what stands where a rank's share of the samples belongs."""
    if len(mine) != len(its):
        return False
    for word, other in zip(mine, its, strict=True):
        begin, share, end = other.partition(SHARE)
        if not (word.startswith(begin) and word.endswith(end) if share else word == other):
            return False
    return True


def _of_batches(run: Subject, other: Subject) -> list[str]:
    found = []
    if run.sequences and other.sequences and set(run.sequences) != set(other.sequences):
        asked = _ends(other.sequences)
        found.append(f"sequences of {asked} tokens, not {_ends(run.sequences)}")
    if other.shares and run.shares:
        (mine,) = run.shares
        if any(abs(share - mine) > SAME * mine for share in other.shares):
            ends = sorted({min(other.shares), max(other.shares)})
            listed = " to ".join(f"{each:.4g}" for each in ends)
            found.append(f"sequences a chip in a step: {listed}, not {mine:.4g}")
    elif run.batches and other.batches and set(run.batches) != set(other.batches):
        found.append(f"steps of {_ends(other.batches)} sequences, not {_ends(run.batches)}")
    return found


def _of_machines(run: Subject, other: Subject) -> list[str]:
    machine, stack = run.targets[0]
    if (machine, stack) in other.targets:
        return []
    stacks = [its or "none" for name, its in other.targets if name == machine]
    if stacks:
        return [f"another stack on {machine}: {', '.join(stacks)}, not {stack or 'none'}"]
    return [f"another machine: {other.where}, not {run.where}"]
