# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim disturb`: the step of a run file under what goes wrong in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trnsim.cli import options, output

With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="WHAT",
        help="jitter:sigma=S; straggler:factor=F,chips=K; throttle:factor=F,chips=K; "
        "slow-link:share=S,tier=T,links=K; dead-link:tier=T,links=K; dead-chip:chips=K; "
        "dead-domain:pods=P,domains=K; dead-switch:tier=T,switches=K,by=spray|ecmp; ecmp-hash; "
        "several at once with + between; repeatable, a row each.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="disturb",
        epilog="Example: trnsim disturb out/train.trnsim --with jitter:sigma=0.01 --with "
        "straggler:chips=2,factor=1.1 --with dead-chip --spares 1",
    )(disturb)


def disturb(
    run: options.Run,
    disturbances: With = None,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Draws of each.")] = 100,
    first_seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, help="The first seed; others follow it.")
    ] = 0,
    spares: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Idle pods that replace pods out of service."),
    ] = 0,
    smaller: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="A run file of the job on fewer pods, as which it goes on without spares; "
            "repeatable.",
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Jitter rank by rank on any job, not by bounds.")
    ] = False,
    machine: options.OtherMachine = None,
    chips: Annotated[
        int | None, typer.Option(metavar="N", help="Chips of the job (default: the run's own).")
    ] = None,
    ranks_per_chip: options.RanksPerChip = None,
    step: options.Step = None,
    overrides: options.Overrides = None,
    stack: options.Stack = None,
    collectives: options.Collectives = None,
    as_json: options.Json = False,
) -> None:
    """Simulate the step of a run file under disturbances: how its time is distributed.

    Each seed decides by chance which chips, links, switches or pods are struck. The table has
    percentiles of the step over the seeds, and by how much those are above the undisturbed step.
    A job that cannot go on stops: that is a result.
    """
    options.let_threads_sleep()
    from trnsim.plan.disturbance import disturb as disturb_run
    from trnsim.report.disturbance import disturbance_lines, disturbance_table

    document = output.claim_json(as_json)
    done = disturb_run(
        run, disturbances or [], machine, seeds=seeds, first_seed=first_seed, spares=spares,
        smaller=smaller or [], chips=chips, ranks_per_chip=ranks_per_chip, step=step,
        overrides=overrides or [], stack=stack, collectives=collectives, exact=exact,
    )  # fmt: skip
    if document is not None:
        document.write(done.to_dict())
    else:
        output.print_report(disturbance_table(done), disturbance_lines(done))
