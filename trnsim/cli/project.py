# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim project`: projects a saved run again, on this or another machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trnsim.cli import options, output


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="project",
        epilog="Example: trnsim project out/train.trnsim --machine h100-efa. It takes as many "
        "ranks as the script ran as: a run of 64 goes on trn2-ultra, rainier, h100 or tpu-v5p.",
    )(project)


def project(
    run: options.Run,
    machine: options.OtherMachine = None,
    chips: options.ChipsOfRun = None,
    ranks_per_chip: options.RanksPerChipOfRun = None,
    step: options.StepOfRun = None,
    top: options.Top = 10,
    overrides: options.Overrides = None,
    stack: options.Stack = None,
    tokens_per_step: options.TokensPerStep = None,
    samples_per_step: options.SamplesPerStep = None,
    no_fold: options.NoFold = False,
    collectives: options.Collectives = None,
    slow_chips: options.SlowChips = None,
    faults: options.Faults = None,
    assumptions: options.Assumptions = None,
    out: options.Out = None,
    chakra: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Leave the step as Chakra execution traces here, one a rank, for ASTRA-sim and "
            "others.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Project a run file without running its script. Processes that torchrun starts share the work.

    RUN may be Chakra execution traces too: their folder, or NAME of NAME.0.et, and --machine.

    What is not given is as in the run that wrote the file. --machine begins anew: figures that the
    run changed by --set, its ranks per chip, slow chips and faults are left out.
    """
    options.let_threads_sleep()
    import trnsim
    from trnsim.simulate.processes import torchrun_group
    from trnsim.workload import load_run

    output.check_out(out)
    if assumptions is not None:
        from trnsim.report.assumptions import check_path, write_assumptions

        check_path(assumptions)
    output.check_out(chakra, "--chakra")
    loaded = load_run(run)
    group = torchrun_group()
    speaks = group is None or group.rank() == 0
    document = output.claim_json(as_json and speaks)
    projection = trnsim.project(
        loaded, machine, chips=chips, ranks_per_chip=ranks_per_chip, overrides=overrides or [],
        stack=stack, step=step, tokens_per_step=tokens_per_step,
        samples_per_step=samples_per_step, top=top,
        fold=not no_fold, collectives=collectives, slow_chips=slow_chips or (),
        faults=faults or (), group=group,
    )  # fmt: skip
    if not speaks:
        return
    if out is not None:
        projection.write(out, run.stem)
    if assumptions is not None:
        write_assumptions(assumptions, projection.machine, projection)
    if chakra is not None:
        for line in projection.write_chakra(chakra, run.stem).lines:
            print(f"[trnsim] {line}", file=sys.stderr)
    output.finish(projection, document)
