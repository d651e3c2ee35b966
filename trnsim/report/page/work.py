# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Sections of ops, modules, what would help, and what the times of ops rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnsim.report import terminal, words
from trnsim.report.page.parts import Absent, Block, Section, Table

if TYPE_CHECKING:
    from trnsim.project import Projection
    from trnsim.report.page.step import Pictures

_CLASSES = {
    "measured": "A: a formula that was checked against measured kernels",
    "formula": "B: a formula from documentation, not checked against measurements",
    "fallback": "C: no rule of its own, costed by the bytes that it moves",
}
LEAST_GAIN = 0.001  # of the step: what moves it by less is no help


def advice_section(projection: Projection) -> Section | Absent:
    """What would help."""
    p = projection.figures
    title = "What would help"
    if not p.advice:
        return Absent(title, "nothing was tried (advise=False)")
    rows = [
        (advice.change, words.duration(advice.step_ps / 1e12), words.shift(-advice.gain))
        for advice in p.advice
        if abs(advice.gain) >= LEAST_GAIN
    ]
    left = len(p.advice) - len(rows)
    blocks: list[Block] = ["The step simulated again with one thing of the machine changed."]
    if rows:
        names = ("change", "step", "step time")
        blocks.append(Table("The step with one thing changed", names, rows, (1, 2)))
    if left:
        of_others = "other " if rows else ""
        changes = "change that moves" if left == 1 else "changes that move"
        least = words.percent(LEAST_GAIN)
        blocks.append(f"Left out: {left} {of_others}{changes} the step by less than {least}.")
    return Section("advice", title, blocks)


def ops_section(projection: Projection) -> Section | Absent:
    """Ops and modules by exclusive time."""
    p = projection.figures
    title = "Ops and modules"
    ops = [op for op in p.top_ops if op.time_ps]
    if not ops or not p.step_ps:
        return Absent(title, "none were listed")
    rows = [
        (
            terminal._short(op.name), op.module, op.phase, words.duration(op.time_ps / 1e12),
            words.percent(op.time_ps / p.step_ps), f"{op.count:,}",
            words.size(op.read_bytes + op.write_bytes) if op.read_bytes + op.write_bytes else "",
            words.count(op.flops, "FLOP") if op.flops else "",
            terminal._engine(projection, op.bound),
            words.percent(op.roofline_fraction) if op.roofline_fraction else "",
        )
        for op in ops
    ]  # fmt: skip
    header = ("op", "module", "phase", "time", "share", "n", "bytes", "FLOP", "bound", "roof")
    modules = [
        (module.module or "(outside modules)", words.duration(module.time_ps / 1e12),
         words.percent(module.time_ps / p.step_ps), f"{module.count:,}",
         words.size(module.read_bytes + module.write_bytes),
         words.count(module.flops, "FLOP") if module.flops else "")
        for module in p.top_modules
        if module.time_ps
    ]  # fmt: skip
    blocks: list[Block] = [
        (
            "Exclusive time on the critical rank, the lowest that ends last. Bound: what the op "
            "keeps busy longest. Roof: its time at peak FLOP/s and HBM bandwidth, as a share of it."
        ),
        Table("Ops by exclusive time", header, rows, (3, 4, 5, 6, 7, 9)),
    ]
    if len(modules) > 1:
        names = ("module", "time", "share", "n", "bytes", "FLOP")
        blocks.append(Table("Modules by exclusive time", names, modules, range(1, 6)))
    return Section("ops", title, blocks)


def classes_section(projection: Projection, pictures: Pictures) -> Section | Absent:
    """What the times of ops rest on."""
    p = projection.figures
    title = "What the times of ops rest on"
    if not p.step_ps:
        return Absent(title, "the step takes no time")
    rules = pictures.step.rules
    total_ps = sum(rule.time_ps for rule in rules)
    if not total_ps:
        return Absent(title, "no op takes time on the critical rank")
    rows = []
    for name, text in _CLASSES.items():
        mine = [rule for rule in rules if rule.rule_class == name]
        time_ps = sum(rule.time_ps for rule in mine)
        rows.append((text, f"{sum(rule.op_count for rule in mine):,}",
                     words.duration(time_ps / 1e12),
                     words.percent(time_ps / total_ps)))  # fmt: skip
    detail = [
        (rule.rule, _CLASSES[rule.rule_class][0], f"{rule.op_count:,}",
         words.duration(rule.time_ps / 1e12), words.percent(rule.time_ps / total_ps))
        for rule in rules
    ]  # fmt: skip
    blocks: list[Block] = [
        "Exclusive time of ops on the critical rank, without its waits.",
        Table("By class", ("class", "ops", "time", "share of ops' time"), rows, (1, 2, 3)),
        Table("By cost rule", ("rule", "class", "ops", "time", "share of ops' time"), detail,
              (2, 3, 4), folded="By cost rule"),
    ]  # fmt: skip
    if p.fallback_ops:
        listed = [(terminal._short(f.name), f"{f.count:,}", words.percent(f.share))
                  for f in p.fallback_ops]  # fmt: skip
        names = ("op", "count", "share of the step")
        blocks.append(Table("Ops of class C", names, listed, (1, 2)))
    else:
        blocks.append("Every op of the critical rank has a cost rule of its own.")
    return Section("classes", title, blocks)
