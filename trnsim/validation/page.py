# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The accuracy page: how far our figures are from published ones, the misses first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trnsim.validation.ablation import Ablation, table
from trnsim.validation.score import Outcome, figures, summary
from trnsim.validation.series import Scaled, scaling_table, summary_line

WORST = 40  # rows in the first table


def accuracy_page(outcomes: Iterable[Outcome], command: str) -> str:
    """Markdown: the worst rows, the statistics of each group, and what is not predicted and why.

    Args:
        outcomes: what `validate` gives.
        command: that makes the page again.
    """
    outcomes = list(outcomes)
    done = sorted(
        (outcome for outcome in figures(outcomes) if outcome.error is not None),
        key=lambda outcome: -abs(outcome.error or 0),
    )
    skipped = [outcome for outcome in outcomes if outcome.skipped]
    flattered = (
        f"Written by `{command}`. Error is predicted / published - 1: of a time, + is too slow; of "
        "a rate, + is too fast. The constants of chips and stacks "
        "(`trnsim/machine/constants.toml`) were fitted to the training rows among these, so these "
        "errors flatter us: what the fit had not seen is in `[stack_error]` there."
    )
    said = (
        f"{sum(o.error is not None for o in outcomes)} rows of {len(outcomes)} are predicted. Rows "
        "of inference have two figures each, the time of a token and the time to the first one."
    )
    parts = [
        "# How far trnsim is from published measurements",
        flattered,
        said,
        "## The misses",
        _table(
            [
                "row", "system", "class", "stack", "quantity", "published", "predicted", "unit",
                "error",
            ],
            [
                [
                    o.id, o.system, o.case, o.stack or "none", o.quantity, f"{o.published:.4g}",
                    f"{o.predicted:.4g}", o.unit, _percent(o.error),
                ]
                for o in done[:WORST]
            ],
        ),
        *_statistics(summary(outcomes)),
        "## Not predicted",
        _table(["rows", "why", "which"], _reasons(skipped)),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def ablation_page(found: Iterable[Ablation], command: str) -> str:
    """Markdown: what each term of the model is worth on published training steps.

    Args:
        found: what `ablate` gives.
        command: that makes the page again.
    """
    about = (
        f"Written by `{command}`: published training steps, the middle row of each configuration "
        "family, predicted again with one term left out. Nothing is fitted anew; for what a fit "
        "could make up for, the evened columns leave out the median error of each chip under each "
        "stack. What matters little on these rows may matter on others."
    )
    parts = ["# What each term of the model is worth", about, _table(*table(found))]
    return "\n\n".join(parts) + "\n"


def scaling_page(points: Sequence[Scaled], command: str) -> str:
    """Markdown: published efficiencies at several sizes beside ours.

    Args:
        points: what `scaled` gives.
        command: that makes the page again.
    """
    about = (
        f"Written by `{command}`: rows of one configuration at several sizes, each chip with the "
        "same work; efficiency is the step of the smallest size over that of another. Nothing was "
        "fitted to efficiencies; the constants of chips and stacks were fitted to the steps "
        "themselves, unless the command says otherwise. Published steps of one size differ by a "
        "percent and more between runs and releases."
    )
    parts = ["# Scaling: published and predicted", about, f"{summary_line(points)}."]
    return "\n\n".join([*parts, _table(*scaling_table(points))]) + "\n"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


def _statistics(found: Mapping[str, Any]) -> list[str]:
    parts = []
    for name, title in (
        ("kind", "By kind of row"), ("quantity", "By figure"), ("class", "By class"),
        ("stack", "By stack"), ("system", "By system"),
        ("family", "By configuration family"),
    ):  # fmt: skip
        groups = dict(found[f"by_{name}"])
        if name == "kind":
            groups |= {"all": found["overall"], "families, each once": found["families"]}
        rows = [
            [
                key, str(numbers["n"]), f"{100 * numbers['median']:.1f}",
                f"{100 * numbers['p90']:.1f}", f"{100 * numbers['bias']:+.1f}",
                "" if numbers["coverage"] is None else f"{100 * numbers['coverage']:.0f}",
            ]
            for key, numbers in groups.items()
        ]  # fmt: skip
        head = [name, "n", "median %", "90th percentile %", "bias %", "intervals that cover %"]
        parts += [f"## {title}", _table(head, rows)]
    return parts


def _reasons(skipped: Iterable[Outcome]) -> list[list[str]]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for outcome in skipped:
        by_reason[outcome.skipped].append(outcome.id)
    return [
        [str(len(rows)), reason, ", ".join(rows)]
        for reason, rows in sorted(by_reason.items(), key=lambda item: -len(item[1]))
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
