# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim report`: a run as one HTML file that can be sent on."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from trnsim.cli import options


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="report",
        epilog="Example: trnsim report out/train.trnsim --out report.html --scaling scaling.json "
        "--comparison comparison.json --search search.json, with what trnsim scale --json, trnsim "
        "compare --json and trnsim search --json print.",
    )(report)


def report(
    run: options.Run,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML file to write.")],
    scaling: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What trnsim scale --json printed: adds the curve."),
    ] = None,
    comparison: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What trnsim compare --json printed: adds the table."),
    ] = None,
    search: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What trnsim search --json printed: adds the front."),
    ] = None,
    no_figures: Annotated[
        bool,
        typer.Option(
            "--no-figures",
            help="Leave out how far single figures of the machine move the step: for large jobs, "
            "which take minutes for that.",
        ),
    ] = False,
    machine: options.OtherMachine = None,
    chips: options.ChipsOfRun = None,
    ranks_per_chip: options.RanksPerChipOfRun = None,
    step: options.StepOfRun = None,
    top: options.Top = 20,
    overrides: options.Overrides = None,
    stack: options.Stack = None,
    tokens_per_step: options.TokensPerStep = None,
    samples_per_step: options.SamplesPerStep = None,
    no_fold: options.NoFold = False,
    collectives: options.Collectives = None,
    slow_chips: options.SlowChips = None,
    faults: options.Faults = None,
) -> None:
    """Write a run as one HTML file that opens from a mail: no script, nothing fetched.

    What is not given is as in the run that wrote the file, as for trnsim project. Needs matplotlib.
    """
    options.let_threads_sleep()
    import trnsim
    from trnsim.plan.documents import read_comparison, read_scaling, read_search
    from trnsim.report.page import check_page, write_page
    from trnsim.workload import load_run

    check_page(out)
    curve = None if scaling is None else read_scaling(scaling)
    rows = None if comparison is None else read_comparison(comparison)
    layouts = None if search is None else read_search(search)
    loaded = load_run(run)
    projection = trnsim.project(
        loaded, machine, chips=chips, ranks_per_chip=ranks_per_chip, overrides=overrides or [],
        stack=stack, step=step, tokens_per_step=tokens_per_step,
        samples_per_step=samples_per_step, top=top, fold=not no_fold, collectives=collectives,
        slow_chips=slow_chips or (), faults=faults or (),
    )  # fmt: skip
    write_page(
        projection, out, scaling=curve, comparison=rows, search=layouts, figures=not no_figures,
        made_by=shlex.join(["trnsim", *sys.argv[1:]]),
    )  # fmt: skip
    typer.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
