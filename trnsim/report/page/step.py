# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Sections of the step itself: what it takes, where it goes, and how full things are."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trnsim.report import palette, terminal, words
from trnsim.report.page import charts
from trnsim.report.page.parts import Absent, Block, Card, Section, Table

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.project import Projection

BINS = 240
MOST_ROWS = 16  # of roles in a picture
MOST_ENTRIES = 64  # of roles in a table
GIB = 1 << 30


class Pictures:
    """What the core draws of a projection, once."""

    def __init__(self, projection: Projection) -> None:
        self._run = projection.run

    @functools.cached_property
    def step(self) -> _core.StepPicture:
        """The step in BINS bins."""
        from trnsim import _core

        return _core.picture_step(self._run, BINS)

    def memory(self, role: int) -> _core.MemoryPicture:
        """Of a role by its number."""
        from trnsim import _core

        return _core.picture_memory(self._run, role, BINS)


def cards(projection: Projection) -> list[Card]:
    """The figures that a reader looks for first."""
    p = projection.figures
    low, high = (words.duration(end) for end in projection.step_time_interval_s)
    interval = f"{low} to {high}, {p.interval_basis}" if low != high else "no interval"
    rate = next(
        (
            f"{words.count(value)} {unit}/s"
            for value, unit in ((p.tokens_per_s, "tokens"), (p.samples_per_s, "samples"))
            if value is not None
        ),
        "unknown",
    )
    bound = "; an upper bound" if p.memory_is_upper_bound else ""
    cost = [Card("cost of a million steps", "unknown")]
    if p.cost_usd_per_step is not None and p.price_usd_per_chip_hour is not None:
        at = f"{p.chips_used:,} chips at ${p.price_usd_per_chip_hour:.6g} an hour"
        ends = projection.cost_usd_per_step_interval
        if ends is not None and ends[0] != ends[1]:
            at = " to ".join(words.money(1e6 * end) for end in ends) + f"; {at}"
        cost = [Card("cost of a million steps", words.money(1e6 * p.cost_usd_per_step), at)]
        if p.tokens_per_s:
            per = 1e6 * p.cost_usd_per_step / (p.tokens_per_s * projection.step_time_s)
            cost.append(Card("cost of a million tokens", words.money(per)))
    energy = "unknown" if p.energy_j_per_step is None else words.count(p.energy_j_per_step, "J")
    mfu = "unknown" if p.mfu is None else words.percent(p.mfu)
    mfu_note = "" if p.mfu is None else f"of the published dense {p.peak_dtype} peak"
    share = f"{words.percent(p.bottleneck_share)} of the step on the critical rank"
    return [
        Card("step time", words.duration(projection.step_time_s), interval),
        Card("throughput", rate, "all ranks"),
        Card("MFU", mfu, mfu_note),
        Card(
            "peak memory of a rank",
            words.size(p.memory_peak_bytes),
            f"of {words.size(p.memory_capacity_bytes)}: {'fits' if p.fits else 'DOES NOT FIT'}"
            + bound,
            bad=not p.fits,
        ),
        *cost,
        Card("energy of a step", energy, "" if p.energy_j_per_step is None else "of the chips"),
        *_site_cards(p),
        Card("limited by", p.bottleneck, share),
        Card("guessed", f"{len(p.guesses)} things", "listed under What was guessed"),
    ]


def _site_cards(p: Any) -> list[Card]:
    """Energy of the site and CO2 of a step, where a PUE and a grid are known."""
    found = []
    if p.energy_site_j_per_step is not None:
        energy = words.count(p.energy_site_j_per_step, "J")
        found.append(Card("energy of the site, a step", energy, f"{_drawn_by(p)}, times its PUE"))
    if p.carbon_kg_per_step is not None:
        has_site = p.energy_site_j_per_step is not None
        of = "of the site's energy" if has_site else f"of {_drawn_by(p)} alone, no PUE is known"
        found.append(Card("CO2 of a step", words.count(1e3 * p.carbon_kg_per_step, "g"), of))
    return found


def _drawn_by(p: Any) -> str:
    has_switches = p.energy_network_j_per_step is not None
    return "chips and switches between servers" if has_switches else "chips without switches"


def summary_section(projection: Projection) -> Section:
    """All figures of the step, as the terminal has them."""
    rows = [(name.strip(), text) for name, text in terminal.summary(projection)]
    first = (
        "Step time is the makespan of the device's work alone, from all engines idle to the last "
        "task of any rank: no Python, data loading or logging."
    )
    return Section("figures", "All figures of the step", [
        first, Table("Figures of the step", ("figure", "value"), rows),
    ])  # fmt: skip


def breakdown_section(projection: Projection) -> Section | Absent:
    """The waterfall of the step."""
    p = projection.figures
    title = "Where the step goes"
    if not p.step_ps:
        return Absent(title, "the step takes no time")
    bars, rows, at = [], [], 0.0
    for name, time_ps in projection.breakdown_ps.items():
        groups = p.exposed_by_group_ps if name == "exposed_communication" else {}
        parts = {f"communication on {group}": ps for group, ps in groups.items() if ps} or {
            name.replace("_", " "): time_ps
        }
        for label, ps in sorted(parts.items(), key=lambda part: -part[1]):
            if not ps:
                continue
            seconds = ps / 1e12
            text = f"{words.duration(seconds)}, {words.percent(ps / p.step_ps)}"
            bars.append(charts.Bar(label, at, at + seconds, text, palette.PARTS[name]))
            rows.append((label, words.duration(seconds), words.percent(ps / p.step_ps)))
            at += seconds
    whole = words.duration(projection.step_time_s)
    bars.append(charts.Bar("step", 0.0, projection.step_time_s, whole, palette.Fill("#FFFFFF")))
    rows.append(("step", whole, "100.0 %"))
    said = "; ".join(f"{name} {text} ({share})" for name, text, share in rows)
    blocks: list[Block] = [
        ("Mean over ranks. At each instant a rank counts for the first that holds: an engine is "
        "busy (compute); it waits for the host; for a message that is not sent yet, or it is done "
        "(bubble); for a transfer or for a later member of a collective (communication); for a "
        "member that a slow chip, a fault or jitter made late (stall)."),
        charts.chart("waterfall", f"Waterfall of the step: {said}.", charts.waterfall(bars),
                     0.7 + 0.3 * len(bars)),
        Table("Where the step goes, mean over ranks", ("part", "time", "share"), rows, (1, 2)),
    ]  # fmt: skip
    if projection.slowdown_ps is not None:
        lost = [(name.strip(), text) for name, text in terminal._against_healthy(projection)]
        blocks.append(Table("What is slow or dead, and what that costs", ("", ""), lost))
    return Section("breakdown", title, blocks)


def tenths(values: Sequence[float]) -> list[float]:
    """The means of ten equal parts."""
    width = len(values) // 10
    return [sum(values[i * width : (i + 1) * width]) / width for i in range(10)]


_TENTHS = [f"{10 * i} to {10 * i + 10} %" for i in range(10)]


def engines_section(projection: Projection, pictures: Pictures) -> Section | Absent:
    """How busy engines are, over the step."""
    from trnsim import _core

    title = "Engines over time"
    p = projection.figures
    if not p.step_ps:
        return Absent(title, "the step takes no time")
    step = pictures.step
    names = {
        kind: projection.machine.engine_name(kind).removesuffix(" engine") for kind in step.engines
    }
    order = sorted(step.engines, key=lambda kind: -p.engine_busy.get(kind, 0.0))
    engines = {names[kind]: step.engines[kind] for kind in order}
    doing = {
        name: values for name, values in zip(_core.DOINGS, step.doing, strict=True) if any(values)
    }
    busy = ", ".join(f"{names[kind]} {words.percent(p.engine_busy[kind])}" for kind in order)
    rows = [(name, *(words.percent(v) for v in tenths(values)))
            for name, values in [*doing.items(), *engines.items()]]  # fmt: skip
    return Section("engines", title, [
        ("Above: what ranks do, as shares of all ranks. Below: the share of the time in which each "
        "engine runs, mean over ranks. Engines run at the same time, so their shares may add up to "
        "more than the whole."),
        charts.chart(
            "engines", f"Over the whole step engines run: {busy}.",
            charts.over_time(projection.step_time_s, doing, palette.DOINGS, engines),
            (2.3 + 0.55 * len(engines), 2.9 + 0.55 * len(engines)),
        ),
        Table("Engines over the whole step", ("engine", "busy"),
              [(names[kind], words.percent(p.engine_busy[kind])) for kind in order], (1,)),
        Table("In tenths of the step", ("", *_TENTHS), rows, range(1, 11),
              folded="The chart as a table, in tenths of the step"),
    ])  # fmt: skip


def _chosen(count: int, most: int) -> list[int]:
    """Up to `most` of so many, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def roles_section(projection: Projection, pictures: Pictures) -> Section | Absent:
    """The pipeline: roles as rows, what each does over time."""
    from trnsim import _core

    p = projection.figures
    title = "Pipeline"
    if len(p.roles) < 2:
        return Absent(title, "the job has one role: every rank does the same")
    if not p.step_ps:
        return Absent(title, "the step takes no time")
    roles = pictures.step.roles
    is_pipeline = any(role.has_messages for role in roles)
    shown = [roles[i] for i in _chosen(len(roles), MOST_ROWS)]
    rows = {f"rank {role.rank}": [_core.DOINGS[d] for d in role.doing] for role in shown}
    used = [d for d in range(len(_core.DOINGS)) if any(role.total_ps[d] for role in roles)]
    listed = [roles[i] for i in _chosen(len(roles), MOST_ENTRIES)]
    table = [
        (f"rank {role.rank}", f"{role.rank_count:,}",
         *(words.percent(role.total_ps[d] / p.step_ps) for d in used))
        for role in listed
    ]  # fmt: skip
    first = (
        f"Each row is the captured rank of a role. A cell is 1/{BINS} of the step and shows what "
        "most of it is; what is shorter shows in the table only. Communication is transfers and "
        "waits for later members of a collective."
    )
    if len(shown) < len(roles):
        first += f" {len(shown)} of {len(roles)} roles are drawn."
    bubbles = [role.total_ps[_core.DOINGS.index("bubble")] / p.step_ps for role in roles]
    alt = (
        f"What {len(shown)} roles do over the step. Bubbles take from "
        f"{words.percent(min(bubbles))} to {words.percent(max(bubbles))} of the step, by role."
    )
    return Section("pipeline", "The pipeline, stage by stage" if is_pipeline else "Roles", [
        first,
        charts.chart("pipeline", alt,
                     charts.rows_over_time(projection.step_time_s, rows, palette.DOINGS),
                     (1.3 + 0.2 * len(rows), 1.7 + 0.2 * len(rows))),
        Table("Shares of the step, by role", ("", "ranks", *(_core.DOINGS[d] for d in used)),
              table, range(1, len(used) + 2)),
    ])  # fmt: skip


def _tier_name(tier: str, axes: Sequence[str]) -> str:
    return f"axis {tier}" if tier in axes else tier


def links_section(projection: Projection, pictures: Pictures) -> Section | Absent:
    """The heat map of the network."""
    title = "Links"
    if not projection.figures.step_ps:
        return Absent(title, "the step takes no time")
    step = pictures.step
    tiers = [tier for tier in step.tiers if tier.used_count]
    if not tiers:
        return Absent(title, "no transfer crosses a link")
    named = {_tier_name(tier.tier, ("x", "y", "z", "w")): tier for tier in tiers}
    step_s = projection.step_time_s
    size, unit = charts.time_unit(step_s)
    notes = [words.percent(tier.mean) for tier in named.values()]
    means = ", ".join(f"{name} {note}" for name, note in zip(named, notes, strict=True))
    rows = [
        (name, f"{tier.link_count:,}", f"{tier.used_count:,}", f"{words.count(tier.rate_Bps)}B/s",
         words.size(tier.bytes), words.percent(tier.mean), words.percent(tier.percentiles[10]),
         words.percent(tier.percentiles[-1]), words.percent(max(tier.most_over_time)))
        for name, tier in named.items()
    ]  # fmt: skip
    header = ("tier", "links", "used", "rate of one", "carried by all", "mean load", "median link",
              "busiest link", "its busiest moment")  # fmt: skip
    blocks: list[Block] = [
        ("The load of a link is the bytes that it carries, as a share of what it could carry in "
        "that time. Each row is the mean over all links of a tier: an axis of the torus, the way "
        "to a switch, or a level of the fabric. The figure at a row is its mean over the step."),
        charts.chart(
            "links", f"Mean load of links over the step: {means}.",
            charts.heat({name: tier.mean_over_time for name, tier in named.items()},
                        (0, step_s / size), f"time ({unit})", notes),
            1.3 + 0.26 * len(named),
        ),
        Table(
            f"Loads over the step; a moment is 1/{BINS} of it", header, rows, range(1, len(header))
        ),
    ]  # fmt: skip
    idle = [tier.tier for tier in step.tiers if not tier.used_count]
    if idle:
        blocks.append("Tiers that carry nothing: " + ", ".join(idle) + ".")
    if step.pod is not None:
        blocks += _pod_blocks(step.pod)
    return Section("links", title, blocks)


def _pod_blocks(pod: Any) -> list[Block]:
    last = pod.first_chip + pod.chip_count - 1
    rows = dict(zip(pod.directions, pod.loads, strict=True))
    spread = [
        (name, words.percent(min(known)), words.percent(max(known)))
        for name, loads in rows.items()
        if (known := [load for load in loads if load >= 0])
    ]
    where = f"chips {pod.first_chip} to {last}" if last > pod.first_chip else "one chip"
    said = "; ".join(f"{name} {low} to {high}" for name, low, high in spread)
    return [
        (f"The links that leave each chip of the pod with the busiest link ({where}), mean over "
        "the step; white is no link, or no load."),
        charts.chart(
            "pod", f"Load of the links that leave a chip, least to most by direction: {said}.",
            charts.heat(rows, (pod.first_chip - 0.5, last + 0.5), "chip",
                        [high for _, _, high in spread]),
            1.2 + 0.24 * len(rows),
        ),
        Table("Loads over the step by direction", ("direction", "least", "most"), spread, (1, 2)),
    ]  # fmt: skip


def memory_section(projection: Projection, pictures: Pictures) -> Section | Absent:
    """What memory holds over the step, in the role that takes most."""
    p = projection.figures
    title = "Memory"
    if not p.memory_peak_bytes:
        return Absent(title, "nothing was allocated")
    table = Table(
        "At the peak of the run", ("kind", "", "share"),
        [(kind, words.size(size), words.percent(size / p.memory_peak_bytes))
         for kind, size in sorted(p.memory_by_kind.items(), key=lambda kind: -kind[1]) if size]
        + [("peak", words.size(p.memory_peak_bytes), "100.0 %"),
           ("capacity of a rank", words.size(p.memory_capacity_bytes), "")],
        (1, 2),
    )  # fmt: skip
    role = [role.name for role in p.roles].index(p.memory_role)
    blocks: list[Block] = [
        "Live blocks of one rank by PyTorch's caching allocator"
        + (f", of the role that takes most ({p.memory_role})" if len(p.roles) > 1 else "")
        + ". "
        + ("It fits." if p.fits else "IT DOES NOT FIT.")
        + (" An upper bound: the compiler's reuse is not modelled."
           if p.memory_is_upper_bound else "")
    ]  # fmt: skip
    if p.step_ps:
        blocks += _memory_blocks(projection, pictures.memory(role))
    blocks.append(table)
    if len(p.roles) > 1:
        rows = [(r.name, f"{r.rank_count:,}", words.size(r.memory_peak_bytes))
                for r in (p.roles[i] for i in _chosen(len(p.roles), MOST_ENTRIES))]  # fmt: skip
        blocks.append(Table("Peak of each role", ("role", "ranks", "peak memory"), rows, (1, 2)))
    return Section("memory", title, blocks)


def _memory_blocks(projection: Projection, picture: Any) -> list[Block]:
    p = projection.figures
    if not picture.peak_bytes:
        return []
    by_kind = {
        kind: [max(0, size) / GIB for size in sizes]
        for kind, sizes in zip(picture.kinds, picture.by_kind, strict=True)
        if any(size > 0 for size in sizes)
    }
    peak_s = picture.peak_ps / 1e12
    made_of = ", ".join(
        f"{kind} {words.size(size)}"
        for kind, size in zip(picture.kinds, picture.peak_by_kind, strict=True)
        if size
    )
    alt = (
        f"Memory over the step by kind; highest {words.size(picture.peak_bytes)} at "
        f"{words.duration(peak_s)}: {made_of}."
    )
    blocks: list[Block] = [
        charts.chart(
            "memory", alt,
            charts.memory(projection.step_time_s, by_kind, palette.KINDS,
                          p.memory_capacity_bytes / GIB, (peak_s, picture.peak_bytes / GIB)),
            (3.2, 3.6),
        ),
        Table("GiB in tenths of the step", ("kind", *_TENTHS),
              [(kind, *(words.significant(v) for v in tenths(values)))
               for kind, values in by_kind.items()],
              range(1, 11), folded="The chart as a table, in tenths of the step"),
    ]  # fmt: skip
    if picture.peak_bytes < p.memory_peak_bytes:
        blocks.append(
            f"The highest of the measured step is {words.size(picture.peak_bytes)}; the peak of "
            f"the whole run, {words.size(p.memory_peak_bytes)}, is outside of that step."
        )
    return blocks
