# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim project`: projects a saved run again, on this or another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trnsim.cli import options, output


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="project",
        epilog="Example: trnsim project out/train.trnsim --machine h100 --chips 8",
    )(project)


def project(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file (trnsim run --out).")],
    machine: Annotated[
        str | None,
        typer.Option(metavar="M", help="A machine's name, or a file ending in .toml."),
    ] = None,
    chips: options.Chips = None,
    ranks_per_chip: options.RanksPerChip = None,
    step: options.Step = None,
    top: options.Top = 10,
    overrides: options.Overrides = None,
    tokens_per_step: options.TokensPerStep = None,
    no_fold: options.NoFold = False,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Project a run file without running its script.

    What is not given is as in the run that wrote the file.
    """
    import trnsim
    from trnsim.job import make_job
    from trnsim.workload import load_run

    output.check_out(out)
    loaded = load_run(run)
    saved = loaded.manifest["options"]
    same_machine = machine is None
    job = make_job(
        machine or loaded.manifest["machine"] or "trn2",
        chips=chips if chips is not None else saved.get("chips"),
        ranks_per_chip=ranks_per_chip
        if ranks_per_chip is not None or not same_machine
        else saved.get("ranks_per_chip"),
        overrides=[*(saved.get("overrides", []) if same_machine else []), *(overrides or [])],
    )
    document = output.claim_json(as_json)
    projection = trnsim.project(
        loaded.workload,
        job.machine,
        chips=job.placement.chips,
        ranks_per_chip=job.placement.ranks_per_chip,
        step=step,
        tokens_per_step=tokens_per_step,
        top=top,
        fold=not no_fold,
    )
    if out is not None:
        from trnsim.report import write_outputs

        write_outputs(projection, out)
    output.finish(projection, document)
