# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A search of layouts as a table, the lines that belong below it, and a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trnsim.recipes.skew import hottest_share
from trnsim.report import words
from trnsim.report.plan import UNKNOWN, Table, no_stack_line, table_of

if TYPE_CHECKING:
    from trnsim.plan.layout_search import Found, Search

DEGREES = ("tp", "pp", "vp", "cp", "ep", "dp", "zero")

Row = Mapping[str, Any]  # of the document


def _shown(write: Callable[[Any], str], value: Any) -> str:
    return UNKNOWN if value is None else write(value)


def _kept(kept: str | Sequence[str]) -> str:
    return kept if isinstance(kept, str) else "all but " + "+".join(kept)


def _ends(ends: Sequence[float]) -> str:
    return " to ".join(words.duration(end) for end in ends)


# What a cell of a column says of a row.
_COLUMNS: Mapping[str, Callable[[Row], str]] = {
    **{name: lambda row, name=name: str(row[name]) for name in DEGREES},
    "micro-batch": lambda row: str(row["micro_batch"]),
    "recompute": lambda row: _kept(row["recompute"]),
    "offload": lambda row: str(row.get("offload_layers", 0)),  # an older document has none
    "chips": lambda row: f"{row['chips']:,}",
    "step time": lambda row: words.duration(row["step_time_s"]),
    "interval": lambda row: _shown(_ends, row["step_time_interval_s"]),
    "MFU": lambda row: _shown(words.percent, row["mfu"]),
    "peak memory": lambda row: words.size(row["memory_peak_bytes"]),
    "tokens/s": lambda row: words.count(row["tokens_per_s"]),
    "$/M tokens": lambda row: _shown(words.money, row["usd_per_million_tokens"]),
    "limited by": lambda row: row["bottleneck"],
}


def _columns(rows: Sequence[Row], left_out: Sequence[str] = ()) -> dict[str, list[str]]:
    columns = {
        name: [write(row) for row in rows]
        for name, write in _COLUMNS.items()
        if name not in left_out
    }
    if set(columns["offload"]) <= {"0"}:
        del columns["offload"]
    return columns


def search_table(done: Search) -> Table:
    """A line for each of the best, and for the rest of the front below them."""
    best = list(done.best)
    known = {one.order() for one in best}
    rows = [
        search_row(done, one)
        for one in best + [one for one in done.front if one.order() not in known]
    ]
    columns = {"": [("*" if row["on_front"] else " ") for row in rows], **_columns(rows)}
    for name in ("ep", "cp", "zero", "vp"):  # a degree that is the same everywhere is no news
        if len(set(columns[name])) == 1 and columns[name][0] == "1":
            del columns[name]
    less = ("limited by", "$/M tokens", "MFU", "tokens/s", "interval", "chips")
    return table_of(columns, ("recompute", "limited by"), less)


def front_table(rows: Sequence[Row]) -> Table:
    """Rows of a search's document, numbered from 1."""
    columns = {"": [str(i + 1) for i in range(len(rows))], **_columns(rows, ("MFU", "tokens/s"))}
    return table_of(columns, ("recompute", "limited by"), ())


def _hottest(done: Search, one: Found) -> float | None:
    """Tokens of the expert parallel rank with most over the mean; None where all get alike."""
    layout = one.candidate.layout
    return hottest_share(done.model, layout) if layout.expert_skew else None


def _usd_per_million(done: Search, one: Found) -> float | None:
    tokens = done.space.global_batch * done.space.sequence
    return None if one.trial.cost_usd is None else 1e6 * one.trial.cost_usd / tokens


def search_lines(done: Search) -> list[str]:
    """What has to be said below the table."""
    space, counts = done.space, done.counts
    model = done.model.name or "the model"
    lines = []
    if done.front:
        lines.append(
            "* no other layout beats it in step time, memory and chips at once (up to "
            f"{words.percent(done.slower_by)} slower than the fastest)"
        )
    lines.append(
        f"{model}: a step of {space.global_batch:,} sequences of {space.sequence:,} tokens, "
        f"{space.precision}"
        + (f", experts skewed by {space.expert_skew}" if space.expert_skew else "")
    )
    if done.chips != done.asked_chips:
        listed = ", ".join(f"{count:,}" for count in done.chips)
        lines.append(f"chips rounded to what {done.where.machine} can be cut to: {listed}")
    lines.append(
        f"{counts.layouts:,} layouts that the rules allow: {counts.simulated:,} simulated, "
        f"{counts.too_large:,} too large and {counts.not_better:,} not better by their bounds, "
        f"{counts.failed:,} failed"
    )
    for rule, count in done.refused.counts.most_common(5):
        lines.append(f"{count:,} refused: {done.refused.examples[rule]}")
    if not done.best:
        least = min(done.simulated, key=lambda one: one.trial.memory_peak_bytes, default=None)
        by = f": the least is {words.size(least.trial.memory_peak_bytes)}" if least else ""
        is_too_large = counts.too_large or done.simulated
        lines.append(f"NONE FITS into a rank's memory{by}" if is_too_large else "NONE RUNS")
    for candidate, reason in done.failed[:3]:
        lines.append(f"failed: {named(candidate)}: {reason}")
    if done.wrong_bounds:
        lines.append(
            f"NOT PROVEN: {len(done.wrong_bounds)} simulated layouts are below their bounds, so a "
            "better one may have been left out (--exhaustive leaves out none)"
        )
    extended = [one for one in done.best if len(one.trial.simulated_micro_batches) > 1]
    if extended:
        lines.append(
            f"{len(extended)} of the best: a step of very many micro-batches, by two shorter ones"
        )
    lines += sorted({f"guess: {guess}" for one in done.best[:1] for guess in one.trial.guesses})
    if done.where.stack is None:
        lines.append(no_stack_line(done.where.machine))
    basis = {one.trial.interval_basis for one in done.best}
    lines += [f"interval: {each}" for each in sorted(basis) if each]
    return lines


def named(candidate: Any) -> str:
    """tp 8, pp 16, dp 128 of a candidate."""
    layout = candidate.layout
    names = [*DEGREES, "micro_batch"] + ["offload_layers"] * (layout.offload_layers > 0)
    return ", ".join(f"{name} {getattr(layout, name)}" for name in names)


def search_text(done: Search) -> str:
    """The table and its lines, as a pipe gets them."""
    return "\n".join([str(search_table(done)), *search_lines(done)])


def search_row(done: Search, one: Found) -> dict[str, Any]:
    """A layout, as the document has it."""
    return {
        **asdict(one.candidate.layout),
        "style": one.candidate.style.name,
        "chips": one.candidate.chips,
        **one.trial.to_dict(),
        "hottest_over_mean": _hottest(done, one),
        "fits": one.fits,
        "on_front": one.order() in {each.order() for each in done.front},
        "tokens_per_s": done.tokens_per_s(one),
        "usd_per_million_tokens": _usd_per_million(done, one),
        "bound_s": one.bound.seconds,
        "bound_memory_bytes": one.bound.memory_bytes,
    }


def search_document(done: Search) -> dict[str, Any]:
    """Plain numbers, strings, lists and dicts."""
    return {
        "model": done.model.to_dict(),
        "machine": done.where.machine,
        "stack": done.where.stack,
        "overrides": list(done.where.overrides),
        "ranks_per_chip": done.where.ranks_per_chip,
        "asked_chips": list(done.asked_chips),
        "chips": list(done.chips),
        "space": asdict(done.space),
        "slower_by": done.slower_by,
        "best": [search_row(done, one) for one in done.best],
        "front": [search_row(done, one) for one in done.front],
        "simulated": [search_row(done, one) for one in done.simulated],
        "counts": asdict(done.counts),
        "refused": [
            {"rule": rule, "layouts": count, "example": done.refused.examples[rule]}
            for rule, count in done.refused.counts.most_common()
        ],
        "failed": [
            {**asdict(candidate.layout), "reason": reason} for candidate, reason in done.failed
        ],
        "wrong_bounds": [search_row(done, one) for one in done.wrong_bounds],
    }
