# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A projection on a terminal: colours and bars there, the same as plain text in a pipe."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from trnsim.report import words

if TYPE_CHECKING:
    from rich.console import Console

    from trnsim.project import Projection

PLAIN_COLUMNS = 120
MIN_GAIN = 0.01
# Of the parts of the breakdown.
_COLOURS = {
    "compute": "green",
    "exposed_communication": "yellow",
    "bubble": "magenta",
    "host": "cyan",
    "stall": "red",
}
NOT_MODELLED = "What is not modelled: trnsim/report/not_modelled.md."


def render_terminal(projection: Projection, console: Console) -> None:
    """Prints the projection on `console`; as plain text when that is no terminal (a pipe, a file),
    where nothing says how wide a line may be."""
    if console.is_terminal:
        _sections(projection, console)
    else:
        console.file.write(to_text(projection) + "\n")


def to_text(projection: Projection, columns: int = PLAIN_COLUMNS) -> str:
    """The plain text that a pipe gets: no colours, bars of "#", no spaces at the ends of lines."""
    from rich.console import Console

    buffer = io.StringIO()
    console = Console(file=buffer, width=columns, force_terminal=False, color_system=None)
    _sections(projection, console)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _sections(projection: Projection, console: Console) -> None:
    sections = (
        _head, _breakdown, _roles, _memory, _advice, _ops, _modules, _guesses, _identity,
    )  # fmt: skip
    for section in sections:
        section(projection, console)


def _set_by_hand(assignment: str, idle: list[str]) -> str:
    without_effect = ": the step takes as long with half of it, and with twice"
    return assignment + (without_effect if assignment in idle else "")


def summary(projection: Projection) -> list[tuple[str, str]]:
    """The figures of the step as (name, text), unknown ones as "unknown"."""
    p = projection.figures
    low, high = projection.step_time_interval_s
    rows = [("step time", words.duration(projection.step_time_s))]
    if high > low:
        rows.append(
            ("  interval", f"{words.duration(low)} to {words.duration(high)}, {p.interval_basis}")
        )
    rows += [("  careful", f"{what}; {way}") for name, what, way in p.guesses if name == "step"]
    rows += _against_healthy(projection)
    rows += [("  set by hand", _set_by_hand(text, p.idle_overrides)) for text in p.overrides]
    rows += _bottleneck(projection)
    rows.append(("MFU", _mfu(p)))
    rows.append(("model FLOPs", f"{words.count(p.model_flops, 'FLOP')} a step, all ranks"))
    rates = [
        f"{words.count(value)} {unit}"
        for value, unit in ((p.tokens_per_s, "tokens/s"), (p.samples_per_s, "samples/s"))
        if value is not None
    ]
    rows.append(("throughput", ", ".join(rates) or "unknown"))
    rows += _cost(projection)
    rows += _energy(p)
    verdict = "fits" if p.fits else "DOES NOT FIT"
    bound = " (upper bound: compiler reuse not modelled)" if p.memory_is_upper_bound else ""
    memory = f"{words.size(p.memory_peak_bytes)} of {words.size(p.memory_capacity_bytes)} a rank"
    if len(p.roles) > 1:
        memory += f" ({p.memory_role}, which takes most)"
    held = f"{memory}, {verdict}{bound}" if p.memory_peak_bytes else "unknown: none is recorded"
    rows.append(("peak memory", held))
    if p.outside_step_ps:
        rows.append(
            (
                "outside the step",
                f"{words.duration(p.outside_step_ps / 1e12)} (evaluation, logging, set-up)",
            )
        )
    return rows


def _against_healthy(projection: Projection) -> list[tuple[str, str]]:
    """What is slow or dead, and what the step loses by it."""
    p, added_ps = projection.figures, projection.slowdown_ps
    if added_ps is None:
        return []
    gain = p.step_ps - p.healthy_step_ps
    share = gain / p.healthy_step_ps if p.healthy_step_ps else 0.0
    parts = sorted(added_ps.items(), key=lambda part: -abs(part[1]))
    why = ", ".join(
        f"{name.replace('_', ' ')} {words.change(time_ps / 1e12)}"
        for name, time_ps in parts
        if time_ps
    )
    lost = f"{words.change(gain / 1e12)} ({100 * share:+.2f} %)"
    rows = [("  with", fault) for fault in p.faults]
    without = f"{words.duration(p.healthy_step_ps / 1e12)}, {lost}"
    return [*rows, ("  without", f"{without}: {why}" if why else without)]


def title(projection: Projection) -> str:
    """Machine and counts in one line."""
    p = projection.figures
    if p.chips_used < p.chips:
        used = f"{p.chips_used} of {p.chips} chips used: the script is not distributed"
    else:
        used = f"{p.chips} {'chip' if p.chips == 1 else 'chips'}"
    ranks = f"{p.ranks} {'rank' if p.ranks == 1 else 'ranks'}"
    parameters = f", {words.count(p.parameters)} parameters" if p.parameters else ""
    return f"{p.machine}, {used}, {ranks}{parameters}, {p.mode} mode"


def _relief(p: Any) -> Any:
    """The best advice against what limits the step, or None."""
    return next((advice for advice in p.advice if advice.relieves == p.bottleneck_kind), None)


def _bottleneck(projection: Projection) -> list[tuple[str, str]]:
    """What most of the step waits for, and what the step would be if that were faster."""
    p = projection.figures
    share = f"{words.percent(p.bottleneck_share)} of the step"
    said = {
        "links": f"{p.bottleneck}: the critical rank waits for transfers in {share}",
        "host": f"{p.bottleneck}: the critical rank waits for launches in {share}",
        "bubble": f"{p.bottleneck}: the critical rank waits for other ranks in {share}",
        "nothing": p.bottleneck,
    }.get(p.bottleneck_kind, f"{p.bottleneck}: slowest part of the ops that take {share}")
    rows = [("limited by", said)]
    advice = _relief(p)
    if advice is None:
        if p.advice:
            rows.append(("  if faster", "not tried: no figure of the machine makes it faster"))
        return rows
    after = f"{advice.change}: {words.duration(advice.step_ps / 1e12)}, {_gain(advice)}"
    most = p.bottleneck_share if p.bottleneck_kind == "host" else p.bottleneck_share / 2
    best = p.advice[0]
    if advice.gain < MIN_GAIN <= best.gain:  # its ops are short, and wait for something else
        after += f"; {best.change}: {_gain(best)}"
    elif advice.gain < 0.9 * most:
        after += f" (-{words.percent(most)} if those ops waited for nothing else)"
    return [*rows, ("  if faster", after)]


def _gain(advice: Any) -> str:
    sign = "-" if advice.gain > 0 else "+" if advice.gain < 0 else ""
    return f"{sign}{words.percent(abs(advice.gain))}"


def _cost(projection: Projection) -> list[tuple[str, str]]:
    """Dollars, by which price, and for which chips."""
    p = projection.figures
    if p.cost_usd_per_step is None:
        return [("cost", "unknown")]
    low, high = (words.money(1e6 * dollars) for dollars in projection.cost_usd_per_step_interval)
    cost = f"{words.money(1e6 * p.cost_usd_per_step)} a million steps"
    price = next(f for f in projection.machine.figures if f.key == "price.per_chip_hour")
    used = f"{p.chips_used} {'chip' if p.chips_used == 1 else 'chips'} in use"
    rows = [
        ("cost", f"{cost}, {low} to {high} by the interval" if low != high else cost),
        ("  counts", f"{used} at ${float(p.price_usd_per_chip_hour):.6g} an hour each"),
        ("  price", f"{price.confidence}: {price.source}"),
    ]
    whole = projection.cost_usd_per_step_of_instances
    if whole is not None and whole > p.cost_usd_per_step:
        rows.append((
            "  rented whole",
            f"{words.money(1e6 * whole)} a million steps, in instances of {p.instance_chips} chips",
        ))  # fmt: skip
    return rows


def _energy(p: Any) -> list[tuple[str, str]]:
    """Of the chips with what the machine's file counts to them, and of what is around them."""
    if p.energy_j_per_step is None:
        return [("energy", "unknown a step")]
    rows = [("energy", f"{words.count(p.energy_j_per_step, 'J')} a step")]
    more = []
    if p.energy_network_j_per_step is not None:
        more.append(f"{words.count(p.energy_network_j_per_step, 'J')} of switches between pods")
    if p.energy_site_j_per_step is not None:
        more.append(f"{words.count(p.energy_site_j_per_step, 'J')} of the site by its PUE, in all")
    if more:
        rows.append(("  beside it", ", ".join(more)))
    if p.carbon_kg_per_step is not None:
        rows.append(("CO2", f"{words.count(1e3 * p.carbon_kg_per_step, 'g')} a step"))
    return rows


def _mfu(p: Any) -> str:
    if p.mfu is None:
        return "unknown"
    causal = ""
    if p.mfu_causal is not None and abs(p.mfu_causal - p.mfu) > 5e-5:
        causal = f" ({words.percent(p.mfu_causal)} with causal attention halved)"
    peak = (
        f"{words.count(p.peak_flops, 'FLOP/s')} a chip, the published dense peak in {p.peak_dtype}"
    )
    return f"{words.percent(p.mfu)} of {peak}{causal}"


def _short(name: str) -> str:
    """Ops of PyTorch itself without their namespace; of a fused op the first two."""
    parts = name.replace("aten::", "").split(" + ")
    hidden = parts[2:]
    if len(hidden) < 2:
        return " + ".join(parts)
    cut = re.fullmatch(r"(\d+) more", hidden[-1])  # the name was cut before
    more = len(hidden) - 1 + int(cut[1]) if cut else len(hidden)
    return f"{parts[0]} + {parts[1]} + {more} more"


def _table(console: Console, *columns: tuple[str, str]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for name, justify in columns:
        text = justify == "left"
        table.add_column(
            name,
            justify=justify,  # type: ignore[arg-type]
            no_wrap=not text,
            overflow="ellipsis",  # a word longer than the column: never broken in the middle
        )
    return table


def _print(console: Console, renderable: Any, style: str | None = None) -> None:
    """Prints without reading brackets of the user's own names as markup."""
    console.print(renderable, style=style, markup=False, highlight=False)


def _heading(console: Console, text: str) -> None:
    console.print()
    _print(console, text, style="bold")


def _rows(console: Console, rows: list[tuple[str, str]]) -> None:
    from rich.text import Text

    table = _table(console, ("", "left"), ("", "left"))
    table.show_header = False
    for name, value in rows:
        bad = "DOES NOT FIT" in value
        table.add_row(Text(name), Text(value, style="bold red" if bad else ""))
    _print(console, table)


def _bar(console: Console, share: float, colour: str, width: int = 24) -> Any:
    """Of whole cells: nothing below half of one."""
    from rich.text import Text

    filled = int(share * width + 0.5)
    return Text(("━" if console.is_terminal else "#") * filled, style=colour)


def _head(projection: Projection, console: Console) -> None:
    _print(console, title(projection), style="bold")
    _rows(console, summary(projection))
    _print(
        console,
        "Step time is the makespan of the device's work: no Python, data loading or logging.",
        style="dim",
    )


def _engine(projection: Projection, kind: str) -> str:
    """What people call an engine of this machine: "tensor cores"; or "tensor", "memory"."""
    return projection.machine.engine_name(kind).removesuffix(" engine")


def _breakdown(projection: Projection, console: Console) -> None:
    from rich.text import Text

    p = projection.figures
    _heading(console, "Where the step goes (mean over ranks)")
    table = _table(console, ("", "left"), ("time", "right"), ("share", "right"), ("", "left"))
    table.show_header = False
    step = p.step_ps or 1
    for name, time_ps in projection.breakdown_ps.items():
        if time_ps == 0 and name not in ("compute", "exposed_communication"):
            continue
        share = time_ps / step
        table.add_row(
            name.replace("_", " "),
            words.duration(time_ps / 1e12),
            words.percent(share),
            _bar(console, share, _COLOURS[name]),
        )
        if name == "exposed_communication" and p.exposed_by_group_ps:
            for group, group_ps in sorted(p.exposed_by_group_ps.items(), key=lambda g: -g[1]):
                table.add_row(
                    Text(f"  on {group}"),
                    words.duration(group_ps / 1e12),
                    words.percent(group_ps / step),
                    "",
                )
    _print(console, table)
    busy = ", ".join(
        f"{_engine(projection, name)} {words.percent(share)}"
        for name, share in sorted(p.engine_busy.items(), key=lambda e: -e[1])
    )
    if busy:
        _print(console, f"engines run, at the same time or in turn, in this share of it: {busy}")


def _roles(projection: Projection, console: Console) -> None:
    """Who does the same as whom, and how full they are."""
    from rich.text import Text

    p = projection.figures
    if len(p.roles) < 2:
        return
    _heading(console, "Roles (ranks that do the same)")
    table = _table(
        console, ("", "left"), ("ranks", "right"), ("peak memory", "right"), ("", "left")
    )
    for role in p.roles:
        table.add_row(
            role.name,
            str(role.rank_count),
            words.size(role.memory_peak_bytes),
            Text("" if role.rank_count == 1 else role.ranks),
        )
    _print(console, table)


def _memory(projection: Projection, console: Console) -> None:
    p = projection.figures
    of = f" ({p.memory_role})" if len(p.roles) > 1 else ""
    _heading(console, f"Peak memory of a rank by kind{of}")
    kinds = [(k, v) for k, v in sorted(p.memory_by_kind.items(), key=lambda e: -e[1]) if v]
    table = _table(console, ("", "left"), ("", "right"), ("", "right"))
    table.show_header = False
    for kind, value in kinds:
        table.add_row(kind, words.size(value), words.percent(value / p.memory_peak_bytes))
    if kinds:
        _print(console, table)
    else:
        _print(console, "nothing allocated")
    if p.memory_reserved_bytes:
        _print(
            console, f"kept back by the runtime, not in the capacity: "
            f"{words.size(p.memory_reserved_bytes)}", style="dim",
        )  # fmt: skip


def _advice(projection: Projection, console: Console) -> None:
    p = projection.figures
    if not p.advice:
        return
    shown = [advice for advice in p.advice if advice.gain >= MIN_GAIN][:6]
    _heading(console, "What would help (the step simulated again with one thing changed)")
    if not shown:
        _print(console, "nothing that is tried changes the step by 1 % or more")
    relief = _relief(p)
    if relief is not None and relief not in shown:  # what limits is there, helpful or not
        shown.append(relief)
    table = _table(console, ("", "left"), ("step", "right"), ("", "right"))
    table.show_header = False
    for advice in shown:
        table.add_row(advice.change, words.duration(advice.step_ps / 1e12), _gain(advice))
    if shown:
        _print(console, table)


def _ops(projection: Projection, console: Console) -> None:
    from rich.text import Text

    p = projection.figures
    rows = [op for op in p.top_ops if op.time_ps]
    if not rows:
        return
    _heading(console, "Ops by exclusive time on the critical rank")
    table = _table(
        console, ("time", "right"), ("share", "right"), ("n", "right"), ("bytes", "right"),
        ("FLOP", "right"), ("bound", "left"), ("roof", "right"), ("op, module, phase", "left"),
    )  # fmt: skip
    for op in rows:
        name = Text(_short(op.name))
        where = " ".join(part for part in (op.module, op.phase) if part)
        if where:
            name.append(f"  {where}", style="dim")
        table.add_row(
            words.duration(op.time_ps / 1e12),
            words.percent(op.time_ps / (p.step_ps or 1)),
            str(op.count),
            words.size(op.read_bytes + op.write_bytes) if op.read_bytes + op.write_bytes else "",
            words.count(op.flops) if op.flops else "",
            _engine(projection, op.bound),
            words.percent(op.roofline_fraction) if op.roofline_fraction else "",
            name,
        )
    _print(console, table)
    _print(
        console,
        "bound: what the op keeps busy longest; roof: its time at peak FLOP/s and HBM bandwidth, "
        "as a share of that",
        style="dim",
    )
    if p.fallback_ops:
        listed = ", ".join(
            f"{_short(f.name)} x{f.count} ({words.percent(f.share)})" for f in p.fallback_ops[:5]
        )
        more = len(p.fallback_ops) - 5
        _print(
            console,
            f"without a cost rule of their own, costed by bytes: {listed}"
            + (f" and {more} more" if more > 0 else ""),
        )


def _modules(projection: Projection, console: Console) -> None:
    from rich.text import Text

    p = projection.figures
    rows = [module for module in p.top_modules if module.time_ps]
    if len(rows) < 2:
        return
    _heading(console, "Modules by exclusive time")
    table = _table(
        console, ("time", "right"), ("share", "right"), ("n", "right"), ("bytes", "right"),
        ("FLOP", "right"), ("module", "left"),
    )  # fmt: skip
    for module in rows:
        table.add_row(
            words.duration(module.time_ps / 1e12),
            words.percent(module.time_ps / (p.step_ps or 1)),
            str(module.count),
            words.size(module.read_bytes + module.write_bytes),
            words.count(module.flops) if module.flops else "",
            Text(module.module or "(outside modules)"),
        )
    _print(console, table)


def _guesses(projection: Projection, console: Console) -> None:
    from rich.text import Text

    p = projection.figures
    _heading(console, "What was guessed")
    table = _table(console, ("", "left"), ("", "left"))
    table.show_header = False
    merged: dict[tuple[str, str], list[str]] = {}  # the same said of several things is one line
    for name, value, effect in p.guesses:
        merged.setdefault((name, effect), []).append(value)
    for (name, effect), values in merged.items():
        text = Text(_short(", ".join(values)))
        if effect:
            text.append(f": {effect}", style="dim")
        table.add_row(Text(name), text)
    if p.guesses:
        _print(console, table)
    else:
        _print(console, "nothing")
    _print(console, NOT_MODELLED, style="dim")


def _identity(projection: Projection, console: Console) -> None:
    import trnsim
    from trnsim.machine import version_of

    p = projection.figures
    console.print()
    _print(
        console,
        f"timeline {p.timeline_hash}, workload {p.workload_hash}, machine "
        f"{projection.machine.hash}, its data {version_of(projection.machine)}, seed {p.seed}, "
        f"trnsim {trnsim.__version__}",
        style="dim",
    )
