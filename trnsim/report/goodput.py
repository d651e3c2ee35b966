# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A goodput as tables, the lines that belong below them, and the document of --json."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trnsim.report import words
from trnsim.report.blast import blast_line
from trnsim.report.plan import UNKNOWN, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnsim.plan.goodput import DataLoading, Goodput, Training
    from trnsim.plan.goodput_inputs import Input

_DAY_S = 86_400.0
_PARTS = (
    ("kept", "kept work (goodput)"),
    ("checkpoints", "blocked by checkpoints"),
    ("redone", "work done again"),
    ("restarts", "restarts"),
    ("waiting", "waiting for repairs"),
)


def _percent(share: float) -> str:
    """97.1 %, and nearer to all of it 99.988 %: two digits of what is missing."""
    if not 0.9 < share < 1:
        return words.percent(share)
    digits = 1 - math.floor(math.log10(100 * (1 - share)))
    return f"{100 * share:.{min(max(digits, 1), 6)}f} %"


def _to(write: Callable[[float], str], interval: tuple[float, float, float]) -> str:
    return f"{write(interval[1])} to {write(interval[2])}" if interval[1] != interval[2] else ""


def _days(days: float) -> str:
    if not math.isfinite(days):
        return "never"
    if days < 2:
        return words.duration(_DAY_S * days)
    return f"{days:,.1f} days" if days >= 100 else f"{words.significant(days)} days"


def _dollars(dollars: float) -> str:
    if not math.isfinite(dollars):
        return UNKNOWN
    return f"${words.count(dollars)}" if dollars >= 1e5 else words.money(dollars)


def _energy(mwh: float) -> str:
    if not math.isfinite(mwh):
        return UNKNOWN
    return words.count(1e6 * mwh, "Wh")


def _tonnes(tonnes: float) -> str:
    return words.count(1e6 * tonnes, "g") if tonnes < 1 else f"{words.count(tonnes)} t"


def _failures(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 else words.significant(count)


def shares_table(done: Goodput) -> Table:
    """Where a day goes."""
    shares = done.estimate.shares
    rows = []
    for name, text in _PARTS:
        share = getattr(shares, name)
        if name == "waiting" and done.options.spares is None:
            continue
        interval = _to(_percent, done.goodput) if name == "kept" else ""
        rows.append([text, _percent(share), interval, words.duration(share * _DAY_S)])
    return Table(["time", "share", "interval", "daily"], rows, (1, 2, 3), ())


def choices_table(done: Goodput) -> Table:
    """The best interval between checkpoints beside those of formulas, and the one that is used."""
    step_s = done.projection.step_time_s
    names = {"exact": "the best", "chosen": "--every-minutes"}
    rows = [
        [
            names.get(choice.name, choice.name),
            words.duration(choice.every * step_s),
            f"{choice.every:,}",
            _percent(choice.goodput),
        ]
        for choice in done.estimate.choices
    ]
    return Table(["checkpoint", "every", "steps", "goodput"], rows, (1, 2, 3), ())


def training_table(of: Training) -> Table:
    """The run that was asked for."""
    rows = [["steps", f"{of.steps:,}", ""]]
    if of.tokens is not None:
        rows.insert(0, ["tokens", words.count(of.tokens), ""])
    rows.append(["wall time", _days(of.days[0]), _to(_days, of.days)])
    rows.append(["without failures and checkpoints", _days(of.days_without), ""])
    chance = f"{_days(of.days_by_chance[0])} to {_days(of.days_by_chance[2])}"
    rows.append(["by chance alone, nine in ten", _days(of.days_by_chance[1]), chance])
    rows.append(["failures", _failures(of.failures), ""])
    if of.usd is not None:
        rows.append(["cost", _dollars(of.usd[0]), _to(_dollars, of.usd)])
    if of.mwh is not None:
        rows.append(["energy", _energy(of.mwh[0]), _to(_energy, of.mwh)])
    if of.tonnes_co2 is not None:
        rows.append(["CO2", _tonnes(of.tonnes_co2[0]), _to(_tonnes, of.tonnes_co2)])
    return Table(["training", "expected", "interval"], rows, (1, 2), ())


def tables(done: Goodput) -> list[Table]:
    """All of them, in order."""
    found = [shares_table(done), choices_table(done)]
    return [*found, training_table(done.training)] if done.training is not None else found


def heading(done: Goodput) -> str:
    """Of what it is."""
    projection = done.projection
    low, high = projection.step_time_interval_s
    return (
        f"{projection.figures.machine}: {projection.figures.chips_used:,} chips, step "
        f"{words.duration(projection.step_time_s)} ({words.duration(low)} to "
        f"{words.duration(high)}, {projection.figures.interval_basis})"
    )


# --- lines ---------------------------------------------------------------------------------------


def _rate(bytes_per_s: float) -> str:
    return words.count(bytes_per_s, "B/s")


def _value(of: Input, value: float) -> str:
    if of.unit == "bytes/s":
        return _rate(value)
    if of.unit == "bytes":
        return words.count(value, "B")
    return words.duration(value)


def _input_line(of: Input) -> str:
    if of.unit == "1/h":  # the time between them is what people say
        value, low, high = (3600 / each for each in (of.value, of.high, of.low))
        of = type(of)("between failures", value, low, high, "s", of.confidence, of.source)
    bounds = "" if of.low == of.high else f" ({_value(of, of.low)} to {_value(of, of.high)})"
    return f"{of.name}: {_value(of, of.value)}{bounds}, {of.confidence}: {of.source}"


def _data_line(data: DataLoading) -> str:
    if data.per_server_bytes_per_s is None or data.bytes_per_s is None:
        return f"data loading: {data.source} (--bytes-per-sample)"
    mine = f"{_rate(data.per_server_bytes_per_s)} a server if spread evenly, {data.source}"
    if data.share is None or data.has_bytes_per_s is None:
        return f"data loading: {mine}; what its front end has is not known"
    return (
        f"data loading: {mine}; {words.percent(data.share)} of the {_rate(data.has_bytes_per_s)} "
        "of its front end"
    )


def _moved_line(done: Goodput) -> list[str]:
    moved = sorted(done.estimate.moved, key=lambda one: -abs(one.goodput_high - one.goodput_low))
    names = [
        f"{one.input} ({_percent(min(one.goodput_low, one.goodput_high))} to "
        f"{_percent(max(one.goodput_low, one.goodput_high))})"
        for one in moved[:3]
        if one.goodput_low != one.goodput_high
    ]
    return [f"what moves the goodput most: {', '.join(names)}"] if names else []


def _site_lines(done: Goodput, training: Training) -> list[str]:
    from trnsim.plan import goodput_inputs as inputs

    projection = done.projection
    machine = projection.machine
    sources = {figure.key: figure for figure in machine.figures}
    lines = []
    if training.usd is None:
        lines.append("cost: no price is known: --set price.per_chip_hour=2.50USD/h gives one")
    else:
        price = sources["price.per_chip_hour"]
        lines.append(
            f"price: {price.value} {price.unit} a chip, {price.confidence}: {price.source}"
        )
        whole = training.usd_of_instances
        if whole is not None and whole > training.usd[0] * (1 + 1e-9):
            lines.append(f"rented in whole instances: {_dollars(whole)}")
    if training.mwh is None:
        lines.append("energy: no power is known: --set power.per_chip=900W gives one")
        return lines
    power = sources["power.per_chip"]
    lines.append(
        f"power: {power.value} {power.unit} a chip all the time, {power.confidence}: {power.source}"
    )
    if training.mwh_of_chips is not None and machine.power_per_chip_w != machine.power_package_w:
        lines.append(f"of the energy {_energy(training.mwh_of_chips)} are the chips' packages")
    factor = inputs.pue(machine, done.options)
    if factor is None:
        lines.append("no PUE is known: the energy is that of the servers alone (--pue)")
    else:
        lines.append(f"PUE: {factor.value:g}, {factor.confidence}: {factor.source}")
    network = machine.network_power_per_chip_w
    lines.append(
        "the switches between servers are not in the energy"
        if network is None
        else f"of it the switches between servers take {network:.3g} W a chip, by their ports"
    )
    return lines


def _switch_lines(done: Goodput) -> list[str]:
    """What fails together where a switch of the edge does, beside the spares."""
    from trnsim import _core

    machine, chips = done.projection.machine, done.projection.figures.chips
    has_fabric = any(figure.key == "fabric.kind" for figure in machine.figures)
    if not has_fabric or chips <= machine.pod_chips:
        return []
    edge = _core.blast_radius(machine, chips, 1)[0]
    line = blast_line(edge)
    if done.options.spares is not None and edge.chips_cut > done.spare_chips:
        line += f": more than the {done.spare_chips:,} spare chips"
    return [f"{line}; a failure is taken to hit one part alone"]


def goodput_lines(done: Goodput) -> list[str]:
    """What has to be said below the tables."""
    lines = _moved_line(done)
    if done.failures_by_part:
        total = sum(done.failures_by_part.values())
        parts = ", ".join(
            f"{part} {words.percent(rate / total)}" for part, rate in done.failures_by_part.items()
        )
        lines.append(f"of 100 failures, as in Llama 3's table 5: {parts}")
    lines += [_input_line(one) for one in done.inputs if one.high > 0]
    if done.load is not None:
        lines.append(_input_line(done.load))
    lines += _switch_lines(done)
    lines.append(_data_line(done.data))
    if done.training is not None:
        lines += _site_lines(done, done.training)
    return [*lines, *(f"note: {note}" for note in done.notes)]


def goodput_text(done: Goodput) -> str:
    """The tables and lines, as a pipe gets them."""
    shown = "\n\n".join(str(table) for table in tables(done))
    return "\n".join([heading(done), shown, "", *goodput_lines(done)])


# --- the document --------------------------------------------------------------------------------


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _triple(interval: tuple[float, float, float] | None, name: str) -> dict[str, Any]:
    if interval is None:
        return {name: None, f"{name}_interval": None}
    return {name: _number(interval[0]), f"{name}_interval": [_number(x) for x in interval[1:]]}


def _training_json(of: Training) -> dict[str, Any]:
    p5, p50, p95 = of.days_by_chance
    return {
        "tokens": of.tokens,
        "steps": of.steps,
        **_triple(of.days, "days"),
        "days_by_chance": {"p5": p5, "p50": p50, "p95": p95},
        "days_without_failures_and_checkpoints": of.days_without,
        "failures": of.failures,
        **_triple(of.usd, "usd"),
        "usd_of_instances": of.usd_of_instances,
        **_triple(of.mwh, "mwh"),
        "mwh_of_chips": of.mwh_of_chips,
        **_triple(of.tonnes_co2, "tonnes_co2"),
    }


def to_json(done: Goodput) -> dict[str, Any]:
    """Plain numbers, strings, lists and dicts. Units stand in the names; null is not known."""
    from trnsim.plan.goodput import price_date

    shares, data, projection = done.estimate.shares, done.data, done.projection
    step_s = projection.step_time_s
    figures = projection.figures
    return {
        "machine": figures.machine,
        "chips": figures.chips_used,
        "spare_chips": done.spare_chips,
        "step_time_s": step_s,
        "step_time_interval_s": list(projection.step_time_interval_s),
        "interval_basis": figures.interval_basis,
        "fits": projection.fits,
        **_triple(done.goodput, "goodput"),
        "shares": {name: getattr(shares, name) for name, _ in _PARTS},
        "checkpoint_every_steps": done.every_steps,
        "checkpoint_every_s": done.every_s,
        "checkpoint_choices": [
            {
                "name": choice.name,
                "formula_s": _number(choice.work_s),
                "steps": choice.every,
                "goodput": choice.goodput,
            }
            for choice in done.estimate.choices
        ],
        "moved": [
            {"input": one.input, "goodput": [one.goodput_low, one.goodput_high]}
            for one in done.estimate.moved
            if one.input != "chance"
        ],
        "inputs": [vars(one) for one in (*done.inputs, *([done.load] if done.load else []))],
        "failures_per_hour_by_part": done.failures_by_part or None,
        "training": None if done.training is None else _training_json(done.training),
        "data_loading": {
            "bytes_per_s": data.bytes_per_s,
            "bytes_per_s_a_server": data.per_server_bytes_per_s,
            "front_end_bytes_per_s_a_server": data.has_bytes_per_s,
            "share_of_front_end": data.share,
        },
        "price_usd_per_chip_hour": figures.price_usd_per_chip_hour,
        "price_date": price_date(projection),
        "notes": list(done.notes),
        "workload_hash": figures.workload_hash,
        "timeline_hash": figures.timeline_hash,
        "machine_hash": projection.machine.hash,
        "draws": done.options.draws,
        "seed": done.options.seed,
    }
