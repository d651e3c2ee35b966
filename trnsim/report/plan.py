# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Comparisons and scaling curves as tables, and the lines that belong below them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnsim.errors import MachineError
from trnsim.report import words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trnsim.plan import Comparison, ComparisonRow, Point, Scaling

UNKNOWN = "-"
NO_RUN = "no run"
LARGE_WAIT = 0.1  # of the step: exposed communication of skewed experts that a line explains


@dataclass(frozen=True)
class Table:
    """Cells as text. right: columns to align so; less: columns that a narrow terminal leaves out,
    the first ones first."""

    header: list[str]
    rows: list[list[str]]
    right: tuple[int, ...]
    less: tuple[str, ...]

    def __str__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if i in self.right else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


def _shown(write: Callable[[Any], str], value: Any) -> str:
    return UNKNOWN if value is None else write(value)


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _interval(document: Mapping[str, Any]) -> str:
    return " to ".join(words.duration(end) for end in document["step_time_interval_s"])


def _memory(document: Mapping[str, Any]) -> str:
    peak, capacity = document["memory_peak_bytes"], document["memory_capacity_bytes"]
    over = "" if document["fits"] else f" > {words.size(capacity)}"
    return words.size(peak) + over


def _exposed(document: Mapping[str, Any]) -> str:
    if not document["step_time_s"]:
        return UNKNOWN
    return words.percent(document["breakdown_s"]["exposed_communication"] / document["step_time_s"])


DEGREES = ("tp", "pp", "vp", "cp", "ep", "dp")


def layout_words(layout: Mapping[str, Any] | None) -> str:
    """The layout of a named model's step: "tp8 pp16 dp128 mb1 zero1 full", "tp8 mb1 zero1
    offload12" where 12 layers' activations go to the host."""
    if layout is None:
        return UNKNOWN
    degrees = [f"{name}{layout[name]}" for name in DEGREES if layout[name] > 1]
    sizes = [f"mb{layout['micro_batch']}", f"zero{layout['zero']}"]
    kept = layout["recompute"]
    again = [] if kept == "none" else [kept if isinstance(kept, str) else "some"]
    host = layout.get("offload_layers", 0)  # documents from before it have none
    away = [f"offload{host}"] if host else []
    return " ".join([*degrees, *sizes, *again, *away])


def _layout_lines(name: str, reported: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Who chose the layouts, what is in one, and which leave chips idle."""
    layouts = [document["layout"] for _, document in reported]
    if not layouts:
        return []
    searched = [layout["allowed"] for layout in layouts if layout["chosen_by"] == "search"]
    lines = [f"{name}: layout as asked for"]
    if searched:
        ends = sorted({min(searched), max(searched)})
        of = " to ".join(f"{count:,}" for count in ends)
        some = "" if len(searched) == len(layouts) else f" in {len(searched)} rows, else as asked"
        lines = [f"{name}: layout chosen by search, the fastest that fits of {of} allowed{some}"]
    lines[0] += (
        f"; {layouts[0]['sequence']:,} tokens a sequence, {layouts[0]['precision']} (mb: sequences "
        "of a micro-batch; zero: what data parallel ranks divide)"
    )
    for label, document in reported:
        if document["chips_used"] < document["chips"]:
            idle = document["chips"] - document["chips_used"]
            lines.append(f"{label}: the layout leaves {idle:,} of {document['chips']:,} chips idle")
        if skew := document["layout"].get("expert_skew"):
            lines.append(
                f"{label}: experts skewed by {skew}: the rank with most tokens gets "
                f"{document['layout']['hottest_over_mean']:.3g} times the mean"
            )
            lines += _waits_for_experts(label, document)
    return lines


def _waits_for_experts(label: str, document: Mapping[str, Any]) -> list[str]:
    """That the time others wait for the fullest expert rank is counted as communication."""
    layout, groups = document["layout"], document["exposed_by_group"]
    # A group of the same ranks as another has one name for both.
    alike = {"dp": layout["dp"], "world": layout["dp"] * layout["tp"] * layout["pp"] * layout["cp"]}
    names = ["ep", *(name for name, size in alike.items() if size == layout["ep"])]
    group = next((name for name in names if name in groups), None)
    if group is None or not document["step_time_s"]:
        return []
    share = groups[group] / document["step_time_s"]
    if share < LARGE_WAIT:
        return []
    what = "the time that ranks wait in an exchange for the fullest expert rank"
    return [
        f"{label}: exposed communication on {group}, {words.percent(share)} of the step, holds "
        + what
        + "; what limits the step is that of the rank that ends last"
    ]


def _suiting(machine: str) -> list[str]:
    """The machine with each stack that trains on it: "trn2:neuron"; with STACK where a document
    names a machine's file that is not here."""
    from trnsim import machine as machines
    from trnsim.plan.layouts import stacks_of

    try:
        stacks = stacks_of(machines.load(machine))
    except MachineError:
        return [f"{machine}:STACK"]
    return [f"{machine}:{stack}" for stack in stacks]


def no_stack_line(machine: str) -> str:
    """That a model's step is by a machine's figures alone, and the stacks that could be named."""
    return (
        "no stack: by the machine's figures alone, which no program reaches: name one, as "
        f"--machine {' or '.join(_suiting(machine))}"
    )


def table_of(columns: dict[str, list[str]], left: tuple[str, ...], less: tuple[str, ...]) -> Table:
    """Of columns by their headers. left: those that are aligned so; less: as of Table."""
    header = list(columns)
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    right = tuple(i for i, name in enumerate(header) if name not in left)
    return Table(header, rows, right, tuple(name for name in less if name in columns))


# --- comparisons ---------------------------------------------------------------------------------


def comparison_table(done: Comparison) -> Table:
    """A line a row. `vs first` is of tokens (or samples) a second between machines, and of the step
    time between run files, or where no run knows tokens or samples."""
    of_machines, unit = done.equal is not None, done.unit
    one = "token" if unit == "tokens" else "sample"
    name = "machine" if of_machines else "run"

    def column(write: Callable[[Any], str]) -> list[str]:
        return [UNKNOWN if row.document is None else write(row) for row in done.rows]

    by_rate = of_machines and unit is not None
    compared = f"{unit}_per_s" if by_rate else "step_time_s"
    columns = {
        name: [row.label + _marks(done, row) for row in done.rows],
        "chips": [_shown("{:,}".format, row.chips) for row in done.rows],
        "step time": [
            NO_RUN if row.document is None else words.duration(row.document["step_time_s"])
            for row in done.rows
        ],
        "interval": column(lambda row: _interval(row.document)),
    }
    if done.model is not None:
        columns["layout"] = column(lambda row: layout_words(row.figure("layout")))
    if by_rate:
        columns[f"{unit}/s"] = column(lambda row: _shown(words.count, row.figure(f"{unit}_per_s")))
    columns["vs first"] = column(lambda row: _shown(_signed, done.change(row, compared)))
    columns["MFU"] = column(lambda row: _shown(words.percent, row.figure("mfu")))
    columns["exposed comm."] = column(lambda row: _exposed(row.document))
    columns["peak memory"] = column(lambda row: _memory(row.document))
    columns["$/M steps"] = column(
        lambda row: _shown(lambda usd: words.money(1e6 * usd), row.figure("cost_usd_per_step"))
    )
    if unit is not None:
        columns[f"$/M {unit}"] = column(lambda row: _shown(words.money, row.usd_per_million(unit)))
        columns[f"J/{one}"] = column(lambda row: _shown(words.significant, row.joules_per(unit)))
        if any(row.figure("carbon_kg_per_step") is not None for row in done.rows):
            columns[f"kg CO2/M {unit}"] = column(
                lambda row: _shown(words.significant, row.carbon_kg_per_million(unit))
            )
    columns["limited by"] = column(lambda row: row.document["bottleneck"])
    less = ("$/M steps", f"J/{one}", "exposed comm.", "peak memory", "MFU", "limited by",
            f"$/M {unit}", "interval")  # fmt: skip
    return table_of(columns, (name, "layout", "limited by"), less)


def comparison_lines(done: Comparison) -> list[str]:
    """What has to be said below the table."""
    lines, base = _power_lines(done), done.base
    if done.equal is not None and done.asked_chips is not None:
        lines += [line for row in done.rows for line in _count_lines(done, row)]
    lines += [f"{row.label}: {NO_RUN}: {row.reason}" for row in done.rows if row.document is None]
    for row in done.rows:
        document = row.document
        if document is None:
            continue
        if document.get("carbon_kg_per_step") is not None:
            lines += _not_in_carbon(row)
        if not document["fits"]:
            lines.append(f"{row.label}: DOES NOT FIT: {_memory(document)} a rank")
        if document["chips_used"] < document["chips"] and done.model is None:
            lines.append(
                f"{row.label}: {document['chips_used']} of {document['chips']} chips used: the "
                "script is not distributed"
            )
    if done.model is not None:
        ran = [(row.label, row.document) for row in done.rows if row.document is not None]
        lines += _layout_lines(done.model, ran)
        if ran:
            count = ran[0][1]["layout"]["global_batch"]
            lines.append(f"a step has {count:,} sequences on every machine")
    if base is not None and base is not done.rows[0]:
        lines.append(f"compared with {base.label}, the first that has a run")
    if base is not None:
        lines += _work_lines(done, base)
    return [*lines, *_calibration_lines(done), *_source_lines(done)]


def _marks(done: Comparison, row: ComparisonRow) -> str:
    calibrated = "*" if row.is_calibrated is False else ""
    return calibrated + ("^" if row in done.with_less_power else "")


def _power_lines(done: Comparison) -> list[str]:
    """That a machine's watts leave out what another's hold."""
    alone = done.with_less_power
    if not alone:
        return []
    what = "J, CO2 and their ratios to the others are too low"
    if done.equal == "watts":
        if alone[0] is done.rows[0]:
            what += ", and the others have too few chips"
        else:
            what += ", and equal watts are too many chips"
    ways = ", ".join(f"--set {row.label.partition(':')[0]}:power.per_chip=...W" for row in alone)
    names = ", ".join(row.label for row in alone)
    why = "the power is of the chip alone, the others' holds a share of the server"
    return [f"^ {names}: {why}: {what} ({ways} sets it)"]


def _source_lines(done: Comparison) -> list[str]:
    """Prices and powers: where they are from, and what renting whole instances adds."""
    lines = []
    for row in done.rows:
        dollars, whole = (
            row.figure(f"cost_usd_per_step{which}") for which in ("", "_of_instances")
        )
        if whole is not None and whole > dollars:
            rented = words.money(1e6 * whole)
            lines.append(f"{row.label}: rented in whole instances {rented} a million steps")
    for what in ("price", "power"):
        for row in done.rows:
            if what in row.sources:
                value, confidence, source = row.sources[what]
                lines.append(f"{what} of {row.label}: {value} a chip, {confidence}: {source}")
    return lines


def _count_lines(done: Comparison, row: ComparisonRow) -> list[str]:
    """That a count was rounded, and how far off it is."""
    if row.chips is None or row.chips_off is None or row.ideal_chips is None:
        return []
    if done.equal == "chips" or row is done.rows[0]:
        if row.chips == done.asked_chips:
            return []
        wanted = f"{done.asked_chips:,} chips asked"
    else:
        what = {"dollars": "cost the same an hour", "watts": "draw the same watts"}
        same = what.get(done.equal or "", "have the same dense BF16 peak")
        wanted = f"{row.ideal_chips:,.1f} chips would {same}"
    nearest = f"{row.chips:,} is the nearest count that it can be cut to"
    return [f"{row.label}: {wanted}, {nearest} ({_signed(row.chips_off)})"]


def _work_lines(done: Comparison, base: ComparisonRow) -> list[str]:
    """Whether the steps can be compared with each other."""
    ran = [row for row in done.rows if row.document is not None]
    if done.equal is None:
        other = [row for row in ran if row.figure("workload_hash") != base.figure("workload_hash")]
        listed = ", ".join(row.label for row in other)
        return [f"not the work of {base.label}: {listed} (trnsim diff says where)"] if other else []
    if done.model is not None or len({row.figure("ranks") for row in ran}) == 1:
        return []
    use = f"compare {done.unit}/s and dollars, not step times"
    if done.unit is None:
        use = "steps cannot be compared, and no run knows its tokens (--tokens-per-rank says it)"
    return [f"the machines run on other numbers of ranks: {use}"]


def _calibration_lines(done: Comparison) -> list[str]:
    lines = []
    bare = [row.label for row in done.rows if row.is_calibrated is False and row.stack is None]
    unseen = [row.label for row in done.rows if row.is_calibrated is False and row.stack]
    if unseen:
        lines.append(
            f"* {', '.join(unseen)}: never calibrated: no published step of the chip was compared, "
            "the interval is wide"
        )
    if bare:
        ways = [" or ".join(_suiting(name)) for name in bare]
        lines.append(
            f"* {', '.join(bare)}: no stack: the interval holds no error on published steps "
            f"(name one in --machines: {'; '.join(ways)})"
        )
    return lines


def comparison_text(done: Comparison) -> str:
    """The table and its lines, as a pipe gets them."""
    return "\n".join([str(comparison_table(done)), *comparison_lines(done)])


# --- scaling -------------------------------------------------------------------------------------


def scaling_table(done: Scaling) -> Table:
    """A line a point."""
    basis = done.basis if done.ran else "step time"

    def column(write: Callable[[Any], str]) -> list[str]:
        return [
            UNKNOWN if point.document is None else write(point.document) for point in done.points
        ]

    of_model = {}
    if done.model is not None:
        of_model["layout"] = column(lambda document: layout_words(document.get("layout")))
    columns = {
        "chips": [f"{point.chips:,}" for point in done.points],
        "step time": [
            NO_RUN if point.document is None else words.duration(point.document["step_time_s"])
            for point in done.points
        ],
        "interval": column(_interval),
        **of_model,
        "efficiency": [_shown(words.percent, done.efficiency(point)) for point in done.points],
        "exposed comm.": column(_exposed),
        "MFU": column(lambda document: _shown(words.percent, document["mfu"])),
        "peak memory": column(_memory),
    }
    if basis != "step time":
        columns[f"{basis}/s"] = column(lambda document: words.count(document[f"{basis}_per_s"]))
        columns |= _costs(done, basis)
    columns["limited by"] = column(lambda document: document["bottleneck"])
    columns["took"] = [_took(point) for point in done.points]
    less = (f"kg CO2/M {basis}", f"J/{basis[:-1]}", f"$/M {basis}", "took", "peak memory", "MFU",
            "limited by", f"{basis}/s", "interval")  # fmt: skip
    return table_of(columns, ("layout", "limited by"), less)


def _not_in_carbon(row: ComparisonRow) -> list[str]:
    """What a row's CO2 leaves out, which another's may hold."""
    names = ("energy of the switches between servers", "CO2 of cooling and losses of the site")
    return [
        f"{row.label}: {guess['name']}: {guess['value']}: {guess['effect']}"
        for guess in row.figure("guesses")
        if guess["name"] in names
    ]


def _costs(done: Scaling, basis: str) -> dict[str, list[str]]:
    """Dollars, joules and CO2 of tokens or samples: those that some point knows."""
    kinds: tuple[tuple[str, str, float, Callable[[float], str]], ...] = (
        (f"$/M {basis}", "cost_usd_per_step", 1e6, words.money),
        (f"J/{basis[:-1]}", "energy_j_per_step", 1.0, words.significant),
        (f"kg CO2/M {basis}", "carbon_kg_per_step", 1e6, words.significant),
    )
    columns = {}
    for name, key, many, write in kinds:
        found = [
            None if (of := point.figure(key)) is None or not (work := point.in_a_step(basis))
            else many * of / work
            for point in done.points
        ]  # fmt: skip
        if any(each is not None for each in found):
            columns[name] = [_shown(write, each) for each in found]
    return columns


def _took(point: Point) -> str:
    if point.seconds_to_simulate is None:
        return UNKNOWN
    return words.duration(point.seconds_to_simulate) + (" (kept)" if point.reused else "")


def scaling_lines(done: Scaling) -> list[str]:
    """What has to be said below the table."""
    lines = []
    if done.ran:
        per = {"step time": "step time"}.get(done.basis, f"{done.basis} a second and chip")
        kind = "weak scaling: the script as it is at each size"
        if done.strong is not None:
            kind = f"strong scaling: {done.strong} samples a step, shared out"
            if done.model is not None:
                kind = f"strong scaling: {done.strong:,} sequences a step at every size"
        elif done.model is not None:
            kind = f"weak scaling: {_sequences(done)} sequences a step, in proportion to the chips"
        lines.append(f"{kind}; efficiency by {per}, of {done.ran[0].chips:,} chips")
    if done.model is not None:
        ran = [(f"{point.chips:,} chips", point.document) for point in done.ran]
        lines += _layout_lines(done.model, ran)
        if done.stack is None:
            lines.append(no_stack_line(done.machine))
    stop = _stop_line(done)
    lines += [stop] if stop else []
    for point in done.points:
        if point.document is None:
            lines.append(f"{point.chips:,} chips: {NO_RUN}: {point.reason}")
        elif not point.document["fits"]:
            lines.append(f"{point.chips:,} chips: DOES NOT FIT: {_memory(point.document)} a rank")
    if len(done.ran) > 1:
        lines.append(
            "chips here are all alike: published efficiencies are lower than ours, most of all "
            "above 1,000 chips (trnsim/validation/scaling.md; trnsim disturb has jitter)"
        )
    return [*lines, *(f"note: {note}" for note in done.notes)]


def _sequences(done: Scaling) -> str:
    """1,024 to 65,536 of the first and last point."""
    ends = [point.figure("layout")["global_batch"] for point in (done.ran[0], done.ran[-1])]
    return " to ".join(f"{count:,}" for count in sorted(set(ends)))


def _stop_line(done: Scaling) -> str:
    stop = done.stop
    if stop is None:
        return ""
    first, last = done.ran[0].chips, done.ran[-1].chips
    if stop.part is None or stop.first_share is None or stop.last_share is None:
        return (
            f"what stops the scaling: nothing up to {last:,} chips: no part of the step but "
            f"compute grew; limited by {stop.limited_by}"
        )
    part = stop.part.replace("_", " ")
    if len(stop.groups) == 1:  # the whole is its own
        part += f" on {stop.group}"
    of_groups = ", ".join(
        f"{name} {words.percent(before)} to {words.percent(after)}"
        for name, (before, after) in stop.groups.items()
    )
    of_which = f", of which {of_groups}" if len(stop.groups) > 1 else ""
    return (
        f"what stops the scaling: {part}: {words.percent(stop.first_share)} of the step on "
        f"{first:,} chips, {words.percent(stop.last_share)} on {last:,}{of_which}; limited there "
        f"by {stop.limited_by}"
    )


def scaling_text(done: Scaling) -> str:
    """The table and its lines, as a pipe gets them."""
    return "\n".join([str(scaling_table(done)), *scaling_lines(done)])
