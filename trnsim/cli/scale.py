# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim scale`: a script or a model at several sizes, each captured anew."""

from __future__ import annotations

from typing import Annotated

import typer

from trnsim.cli import layouts, options, output

Script = Annotated[
    str,
    typer.Argument(
        metavar="SCRIPT|MODEL",
        help="The script, or with -m a module; or a model: its name, or a config.json of Hugging "
        "Face.",
    ),
]
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
        help="Samples of a step of all ranks, at every size: {share} in the script's arguments "
        "becomes a rank's share.",
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


Batch = Annotated[
    int | None,
    typer.Option(
        metavar="B",
        help="Of a model: sequences of a step at the smallest size, in proportion at the others "
        "(default: one a chip).",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="scale",
        epilog="Examples: trnsim scale train.py --machine rainier --chips 64..400000 --out curve; "
        "trnsim scale train.py --machine trn2-ultra --chips 4..64 --strong 512 -- --batch "
        "{share}. The script's own arguments follow after --. trnsim scale llama3-8b --machine "
        "rainier --chips 64..4096 --tp 8.",
    )(scale)


def scale(
    script: Script,
    chips: Sizes,
    arguments: Arguments = None,
    is_module: options.IsModule = False,
    machine: options.MachineAndStack = "trn2",
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
    global_batch: Batch = None,
    sequence: layouts.Sequence = None, tp: layouts.Tp = None, pp: layouts.Pp = None,
    vp: layouts.Vp = None, cp: layouts.Cp = None, ep: layouts.Ep = None,
    micro_batch: layouts.MicroBatch = None, zero: layouts.Zero = None,
    recompute: layouts.Recompute = None, precision: layouts.Precision = None,
    offload_layers: layouts.Offload = None, expert_skew: layouts.ExpertSkew = None,
    least_used: layouts.LeastUsed = None, jobs: layouts.Jobs = None,
    out: options.KeepOut = None,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Run a script, or train a model, at several sizes: what is left of each chip, and why.

    A model trains at each size in the fastest layout of those that are asked for. Efficiency is
    tokens (or samples, or else steps) a second and chip against the first size. With --out, points
    are kept and do not run again while script, arguments, machine and version are the same. What
    cannot run is a point with the reason; exit 1 where none can.
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
    space = layouts.space_of(
        global_batch=global_batch, sequence=sequence, tp=tp, pp=pp, vp=vp, cp=cp, ep=ep,
        micro_batch=micro_batch, zero=zero, recompute=recompute, precision=precision,
        offload_layers=offload_layers, expert_skew=expert_skew, least_used=least_used,
    )  # fmt: skip
    document = output.claim_json(as_json)
    done = scale_all(
        script, machine=machine, chips=chips, points=points, strong=strong, replica=replica,
        arguments=arguments or [], is_module=is_module, space=space, options=asked, out=out,
        jobs=jobs,
    )  # fmt: skip
    if document is not None:
        document.write(done.to_dict())
    else:
        output.print_report(scaling_table(done), scaling_lines(done))
    if not done.ran:
        raise typer.Exit(1)
