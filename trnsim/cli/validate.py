# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim validate`: our figures beside published ones, row by row."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from trnsim.cli import options, output
from trnsim.errors import ValidationError
from trnsim.files import write_whole

if TYPE_CHECKING:
    from trnsim.validation import Outcome, Row, Settings


Captures = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where captures are kept (default: the user's cache)."),
]
Page = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write all of it as a Markdown page, too.")
]
Fit = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Fit the constants of chips and stacks to these rows and write them to FILE; with "
        "--kind infer those of inference.",
    ),
]
Ablation = Annotated[
    bool,
    typer.Option(
        "--ablation",
        help="Training steps without each term of the model in turn, one row of each family.",
    ),
]

Scaling = Annotated[
    bool,
    typer.Option(
        "--scaling",
        help="Rows of one configuration at several sizes: published and predicted efficiency.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(name="validate", epilog="Example: trnsim validate published.csv --kind collective")(
        validate
    )


def validate(
    table: Annotated[
        Path, typer.Argument(metavar="CSV", help="Measurements, in the format of published.csv.")
    ],
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="K", help="Only rows of this kind (train, ...); repeatable."
        ),
    ] = None,
    systems: Annotated[
        list[str] | None,
        typer.Option("--system", metavar="S", help="Only rows of this system; repeatable."),
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--row", metavar="ID", help="Only this row; repeatable.")
    ] = None,
    facts_only: Annotated[
        bool, typer.Option("--facts-only", help="Without the constants fitted to published steps.")
    ] = False,
    fit: Fit = None,
    ablation: Ablation = False,
    scaling: Scaling = False,
    page: Page = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes (default: one a core).")
    ] = None,
    captures: Captures = None,
    overrides: options.Overrides = None,
    as_json: options.Json = False,
) -> None:
    """Predict every row of a table of published measurements and say how far off we are.

    A training row is configured as the reference program of its framework, captured, and projected
    on its machine under its stack sheet. Rows that cannot be built are listed with the reason.
    """
    options.let_threads_sleep()
    from trnsim import validation

    rows = _chosen(validation.read(table), kinds, systems, ids)
    settings = validation.Settings(
        captures=captures or _cache(),
        constants={} if facts_only else None,
        overrides=tuple(overrides or ()),
    )
    if (ablation, scaling, fit is not None).count(True) > 1:
        raise ValidationError("--fit, --ablation and --scaling are three tasks: give one of them")
    output.check_file(fit, "--fit")
    output.check_file(page, "--page")
    document = output.claim_json(as_json)
    if fit is not None:
        return _fit(rows, settings, processes, fit, document)
    if ablation:
        return _ablate(rows, settings, processes, page, document)
    if scaling:
        return _scaling(rows, settings, processes, page, document)
    with _Progress(len(rows)) as progress:
        outcomes = validation.validate(rows, settings, processes=processes, on_done=progress.step)
    if page is not None:
        text = validation.accuracy_page(outcomes, _command(settings, f"--page {page.name}"))
        write_whole(page, lambda part: part.write_text(text), ValidationError)
    if document is not None:
        document.write(
            {
                "rows": [outcome.to_dict() for outcome in outcomes],
                "summary": validation.summary(outcomes),
            }
        )
        return
    _print(outcomes)


def _command(settings: Settings, *words: str) -> str:
    """What was asked, as a page says it."""
    facts_only = [] if settings.constants is None else ["--facts-only"]
    return " ".join(["trnsim validate CSV", *facts_only, *words])


def _fit(
    rows: list[Row], settings: Settings, processes: int | None, path: Path, document: Any
) -> None:
    from trnsim.validation.fit import fit_constants
    from trnsim.validation.fit_inference import fit_inference

    is_inference = {row.kind for row in rows} == {"infer"}
    constants: Any
    with _Progress(0) as progress:
        if is_inference:
            constants = fit_inference(rows, settings, on_round=progress.say)
        else:
            constants = fit_constants(rows, settings, processes=processes, on_round=progress.say)
    constants.write(path)
    if document is not None:
        document.write({"constants": constants.to_list()})
    else:
        output.print_table(*constants.table())


def _ablate(
    rows: list[Row], settings: Settings, processes: int | None, page: Path | None, document: Any
) -> None:
    from trnsim.validation import ablation_page
    from trnsim.validation.ablation import TERMS, ablate, middle_of_families, table

    with _Progress(len(middle_of_families(rows)) * (1 + len(TERMS))) as progress:
        found = ablate(rows, settings, processes=processes, on_done=progress.step)
    if page is not None:
        shown = _command(settings, "--ablation", f"--page {page.name}")
        write_whole(
            page, lambda part: part.write_text(ablation_page(found, shown)), ValidationError
        )
    if document is not None:
        document.write({"ablation": [each.to_dict() for each in found]})
    else:
        header, lines = table(found)
        output.print_table(header, lines, right=range(1, len(header)))


def _scaling(
    rows: list[Row], settings: Settings, processes: int | None, page: Path | None, document: Any
) -> None:
    from trnsim import validation
    from trnsim.validation.series import scaling_table, summary_line, summary_of

    needed = [row for series in validation.series_of(rows) for row in series]
    with _Progress(len(needed)) as progress:
        outcomes = validation.validate(needed, settings, processes=processes, on_done=progress.step)
    points = validation.scaled(needed, outcomes)
    if page is not None:
        shown = _command(settings, "--scaling", f"--page {page.name}")
        text = validation.scaling_page(points, shown)
        write_whole(page, lambda part: part.write_text(text), ValidationError)
    if document is not None:
        rows_of = [{**vars(point), "residual": point.residual} for point in points]
        document.write({"scaling": rows_of, "summary": summary_of(points)})
    else:
        header, lines = scaling_table(points)
        output.print_table(header, lines, right=range(2, len(header)))
        typer.echo(summary_line(points))


def _chosen(
    rows: list[Row], kinds: list[str] | None, systems: list[str] | None, ids: list[str] | None
) -> list[Row]:
    for what, asked, have in (
        ("kind", kinds, {row.kind for row in rows}),
        ("system", systems, {row.system for row in rows}),
        ("row", ids, {row.id for row in rows}),
    ):
        for each in asked or ():
            if each not in have:
                known = ", ".join(sorted(have)[:12])
                raise ValidationError(f"the table has no {what} '{each}': use one of {known}")
    return [
        row
        for row in rows
        if (not kinds or row.kind in kinds)
        and (not systems or row.system in systems)
        and (not ids or row.id in ids)
    ]


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "trnsim" / "captures"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


def _print(outcomes: list[Outcome]) -> None:
    from trnsim.validation import figures, summary

    done = [outcome for outcome in figures(outcomes) if outcome.error is not None]
    done.sort(key=lambda outcome: -abs(outcome.error or 0))
    output.print_table(
        [
            "row", "system", "class", "stack", "quantity", "published", "predicted", "unit",
            "error", "covered",
        ],
        [
            [
                o.id, o.system, o.case, o.stack, o.quantity, f"{o.published:.5g}",
                f"{o.predicted:.5g}", o.unit, _percent(o.error),
                "" if o.covered is None else "yes" if o.covered else "no",
            ]
            for o in done
        ],
        right=(5, 6, 8),
    )  # fmt: skip
    typer.echo("")
    _print_summary(summary(outcomes))
    reasons = Counter(outcome.skipped for outcome in outcomes if outcome.skipped)
    if reasons:
        typer.echo(f"\nnot predicted: {sum(reasons.values())} rows")
    for reason, count in reasons.most_common():
        rows = [outcome.id for outcome in outcomes if outcome.skipped == reason]
        more = "" if count <= 8 else ", ..."
        typer.echo(f"  {reason}: {', '.join(rows[:8])}{more}")


def _print_summary(found: dict[str, Any]) -> None:
    lines = []
    for name, part in found.items():
        groups = {name: part} if "n" in part else part
        for key, numbers in groups.items():
            if name == "by_family" or not numbers["n"]:
                continue
            coverage = numbers["coverage"]
            lines.append(
                [
                    key if name in ("overall", "families") else f"{name[3:]} {key}",
                    str(numbers["n"]),
                    f"{100 * numbers['median']:.1f}",
                    f"{100 * numbers['p90']:.1f}",
                    f"{100 * numbers['bias']:+.1f}",
                    "" if coverage is None else f"{100 * coverage:.0f}",
                ]
            )
    output.print_table(
        ["rows", "n", "median %", "90th %", "bias %", "covered %"], lines, right=range(1, 6)
    )


class _Progress:
    """A bar on stderr, or a plain line every fifty rows where that is no terminal."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=self._console,
            disable=not self._console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=total)
        self._total, self._done = total, 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._bar.stop()

    def step(self, outcome: Outcome) -> None:
        """One row is done."""
        self._done += 1
        self._bar.advance(self._task)
        if not self._console.is_terminal and self._done % 50 == 0:
            self._console.print(f"{self._done} of {self._total} rows")

    def say(self, line: str) -> None:
        """A line above the bar."""
        self._console.print(line)
