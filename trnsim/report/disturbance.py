# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A step under disturbances as a table, and the lines that belong below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnsim.report import words
from trnsim.report.blast import blast_line, blast_of
from trnsim.report.plan import UNKNOWN, Table

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.plan.disturbance import Disturbance, DisturbedRow

STOPS = "stops"


def _step(row: DisturbedRow, percentile: float) -> str:
    outcome, _ = row.at(percentile)
    if outcome.stops:
        return STOPS
    low, high = (words.duration(ps / 1e12) for ps in (outcome.low_ps, outcome.high_ps))
    return high if low == high else f"{low} to {high}"


def _slowdown(row: DisturbedRow, percentile: float) -> str:
    outcome, _ = row.at(percentile)
    if outcome.stops:
        return STOPS
    share = row.slowdown(outcome)
    return UNKNOWN if share is None else f"{100 * share:+.2f} %"


def disturbance_table(done: Disturbance) -> Table:
    """A line a disturbance: percentiles of the step over seeds, and what they are above the
    undisturbed step."""
    header = ["disturbance", "p5", "p50", "p95", "p99", "worst", "+p50", "+p99", "affected",
              "stops"]  # fmt: skip
    rows = [
        [
            row.text,
            *(_step(row, at) for at in (5, 50, 95, 99, 100)),
            *(_slowdown(row, at) for at in (50, 99)),
            words.percent(row.affected),
            words.percent(row.stopped),
        ]
        for row in done.rows
    ]
    return Table(header, rows, tuple(range(1, len(header))), ("p5", "p95", "worst", "stops"))


def disturbance_lines(done: Disturbance) -> list[str]:
    """What has to be said below the table."""
    base, figures = done.jobs[0], done.projection.figures
    ends = " to ".join(words.duration(end) for end in done.projection.step_time_interval_s)
    lines = [
        (
            f"undisturbed: {words.duration(base.step_s)} ({ends}, {figures.interval_basis}) on "
            f"{base.chips:,} chips of {done.projection.machine.name}; {done.seeds} seeds from "
            f"{done.first_seed}"
        )
    ]
    for row in done.rows:
        lines += _row_lines(done, row)
    for job in done.jobs[1:]:
        work = _work(done, job.tokens, base.tokens, "tokens") or _work(
            done, job.samples, base.samples, "samples"
        )
        lines.append(
            f"{job.label}: {words.duration(job.step_s)} undisturbed on {job.chips:,} chips, "
            + (work or "work of a step not known, so that no slowdown is")
        )
    works = [job.work_of(base) for job in done.jobs[1:]]
    if any(work is not None and work != 1 for work in works):
        lines.append("percentiles and slowdowns are of a token (sample): steps hold other work")
    if any(one.stops for row in done.rows for one in row.found.outcomes):
        lines.append(
            "what a job that stops and starts again loses is no step: trnsim goodput RUN --tokens "
            "N has failures, restarts and repairs in days and dollars"
        )
    return [*lines, *(f"assumed: {each['value']}; {each['effect']}" for each in done.guesses)]


def _work(done: Disturbance, mine: float | None, whole: float | None, unit: str) -> str:
    if not mine or not whole:
        return ""
    kept = "the same batch" if round(mine) == round(whole) else "a smaller batch"
    kept = "a larger batch" if round(mine) > round(whole) else kept
    return f"{kept}: {words.count(round(mine))} {unit} a step, of {words.count(round(whole))}"


def _row_lines(done: Disturbance, row: DisturbedRow) -> list[str]:
    machine, chips = done.projection.machine, done.projection.figures.chips
    lines = [f"{row.text}: {blast_line(one)}" for one in blast_of(machine, chips, row.text)]
    outcome, breakdown = row.at(99)
    if breakdown is not None:
        lines.append(f"{row.text}: at p99 {_goes(done, outcome, breakdown)}")
    elif not outcome.stops:
        lines.append(f"{row.text}: where p99 goes is not kept of so many ranks")
    stopped = [one for one in row.found.outcomes if one.stops]
    if stopped:
        seeds = f"{len(stopped)} of {done.seeds} seeds"
        lines.append(f"{row.text}: {seeds} stop, such as {stopped[0].seed}: {stopped[0].stops}")
    if row.widest_bounds > 0:
        lines.append(f"{row.text}: bounds of a seed are {words.percent(row.widest_bounds)} apart")
    return lines


def _goes(done: Disturbance, outcome: _core.Outcome, breakdown: _core.Breakdown) -> str:
    from trnsim.plan.disturbance import parts_s

    before, now = done.projection.breakdown_s, parts_s(breakdown)
    parts = [
        f"{name.replace('_', ' ')} {words.change(now[name] - before[name])}"
        for name in now
        if abs(now[name] - before[name]) >= 1e-3 * done.jobs[0].step_s
    ]
    what = "; ".join(outcome.drawn.what[:2]) + ("; ..." if len(outcome.drawn.what) > 2 else "")
    return (", ".join(parts) or "no part changes") + (f" ({what})" if what else "")


def disturbance_text(done: Disturbance) -> str:
    """The table and its lines as plain text."""
    return "\n".join([str(disturbance_table(done)), *disturbance_lines(done)])
