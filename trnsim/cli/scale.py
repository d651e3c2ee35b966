# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim scale`: a script at several sizes, each captured anew."""

from __future__ import annotations

from typing import Annotated

import typer

from trnsim.cli import options, output

Script = Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, or with -m a module.")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS]...", help="The script's own arguments, after --."),
]
Sizes = Annotated[
    str,
    typer.Option(
        metavar="FROM..TO|N,N,...",
        help="Sizes: FROM, doublings, and TO; or a list; each rounded to what the machine can be "
        "cut to.",
    ),
]
Points = Annotated[
    int | None,
    typer.Option(metavar="K", help="Sizes of a range, each the same factor apart."),
]
Weak = Annotated[
    bool, typer.Option("--weak", help="The script as it is at each size (the default).")
]
Strong = Annotated[
    int | None,
    typer.Option(
        metavar="TOTAL",
        help="Samples of a step of all ranks: {share} in the script's arguments becomes a rank's "
        "share.",
    ),
]
Replica = Annotated[
    int,
    typer.Option(
        metavar="R",
        help="With --strong: ranks that work on the same samples (tensor, pipeline and context "
        "parallel degrees multiplied).",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="scale",
        epilog="Examples: trnsim scale train.py --machine rainier --chips 64..400000 --out curve; "
        "trnsim scale train.py --machine trn2-ultra --chips 4..64 --strong 512 -- --batch-size "
        "{share}. The script's own arguments follow after --.",
    )(scale)


def scale(
    script: Script,
    chips: Sizes,
    arguments: Arguments = None,
    is_module: options.IsModule = False,
    machine: options.Machine = "trn2",
    points: Points = None,
    weak: Weak = False,
    strong: Strong = None,
    replica: Replica = 1,
    ranks_per_chip: options.RanksPerChip = None,
    step: options.Step = None,
    stop_after_step: options.StopAfterStep = False,
    overrides: options.Overrides = None,
    stack: options.Stack = None,
    tokens_per_rank: options.TokensPerRank = None,
    samples_per_rank: options.SamplesPerRank = None,
    collectives: options.Collectives = None,
    max_roles: options.MaxRoles = 64,
    check_ranks: options.CheckRanks = 2,
    cuda: options.Cuda = None,
    out: options.KeepOut = None,
    as_json: options.Json = False,
) -> None:
    """Run a script at several sizes, and say what is left of each chip, and what stops the scaling.

    Efficiency is tokens (or samples, or else steps) a second and chip against the first size. With
    --out, points are kept and do not run again while script, arguments, machine and version are the
    same. What cannot run is a point with the reason; exit 1 where none can.
    """
    options.let_threads_sleep()
    from trnsim.errors import PlanError
    from trnsim.plan import RunOptions
    from trnsim.plan import scale as scale_all
    from trnsim.report.plan import scaling_lines, scaling_table

    if weak and strong is not None:
        raise PlanError("--weak and --strong contradict each other: give one of them")
    output.check_out(out)
    asked = RunOptions(
        ranks_per_chip=ranks_per_chip, step=step, overrides=tuple(overrides or ()), stack=stack,
        collectives=collectives, max_roles=max_roles, check_ranks=check_ranks, cuda=cuda,
        stop_after_step=stop_after_step, tokens_per_rank=tokens_per_rank,
        samples_per_rank=samples_per_rank,
    )  # fmt: skip
    document = output.claim_json(as_json)
    done = scale_all(
        script, machine=machine, chips=chips, points=points, strong=strong, replica=replica,
        arguments=arguments or [], is_module=is_module, options=asked, out=out,
    )  # fmt: skip
    if document is not None:
        document.write(done.to_dict())
    else:
        output.print_report(scaling_table(done), scaling_lines(done))
    if not done.ran:
        raise typer.Exit(1)
