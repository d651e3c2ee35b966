# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim compare`: run files beside each other, or one job on several machines."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnsim.cli import layouts, options, output
from trnsim.cli.options import parse_share
from trnsim.errors import PlanError

if TYPE_CHECKING:
    from trnsim.plan import Comparison, ComparisonRow


What = Annotated[
    str,
    typer.Argument(
        metavar="RUN|SCRIPT|MODEL", help="A run file, or with --machines a script or a model."
    ),
]
Others = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN]...|[-- ARGS]...",
        help="Run files to compare with the first; the script's own arguments, after --.",
    ),
]
Machines = Annotated[
    str | None,
    typer.Option(
        metavar="M,M,...",
        help="Machines to run or project on, each a name or a .toml file, with its stack after "
        "a colon where it has one (h100:nemo).",
    ),
]
ChipsOfFirst = Annotated[
    int | None,
    typer.Option(metavar="N", help="Chips of the first machine (of a run: its own)."),
]
Batch = Annotated[
    int | None,
    typer.Option(
        metavar="B",
        help="Of a model: sequences of a step, on every machine (default: 16 Mi tokens, as Llama "
        "3).",
    ),
]
Equal = Annotated[
    str,
    typer.Option(
        metavar="chips|dollars|watts|peak",
        help="What the others have as much of: chips, dollars an hour, watts, or published dense "
        "BF16 peak; to the nearest count that they can be cut to.",
    ),
]
FailOver = Annotated[
    str | None,
    typer.Option(
        metavar="X%",
        help="Exit with 1 where a later run's step takes more than this longer than the first's.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="compare",
        epilog="Examples: trnsim compare before.trnsim after.trnsim --fail-over 2%; trnsim compare "
        "train.py --machines trn2-ultra,h100:nemo --chips 64 --equal dollars -- --batch-size 8. "
        "The script's own arguments follow after --. trnsim compare llama3-70b --machines "
        "trn2-ultra,h100:nemo --chips 64 --global-batch 256.",
    )(compare)


def compare(
    what: What,
    others: Others = None,
    machines: Machines = None,
    chips: ChipsOfFirst = None,
    equal: Equal = "chips",
    fail_over: FailOver = None,
    is_module: options.IsModule = False,
    ranks_per_chip: options.RanksPerChip = None,
    step: options.Step = None,
    stop_after_step: options.StopAfterStep = False,
    overrides: options.OverridesOfMachines = None,
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
    """Compare run files, or run one job on several machines: time, memory, dollars, joules.

    Run files: each on its own machine, against the first. With --machines: a script runs anew for
    each machine, on as many ranks as the chips hold; a run file is projected on each; a model, by
    its name or its config.json, trains on each in the fastest layout of those that are asked for.
    A machine that cannot take the job is a row with the reason; exit 1 where none can.
    """
    options.let_threads_sleep()
    from trnsim.plan import RunOptions
    from trnsim.plan import compare as compare_all

    limit = None if fail_over is None else parse_share(fail_over)
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
    of_machines = {"chips": chips, "is_module": is_module, "out": out, "space": space,
                   "jobs": jobs}  # fmt: skip
    _check(machines, limit, [*of_machines.values(), equal != "chips", asked != RunOptions()])
    output.check_out(out)
    document = output.claim_json(as_json)
    if machines is None:
        done = compare_all([what, *(others or [])])
    else:
        done = compare_all(what, machines=machines.split(","), equal=equal, arguments=others or [],
                           options=asked, **of_machines)  # fmt: skip
    over = [] if limit is None else done.slower(limit)
    if document is not None:
        labels = [row.label for row in over]
        document.write({**done.to_dict(), "fail_over": fail_over, "over": labels})
    else:
        _print(done, over, fail_over)
    if over or done.base is None:
        raise typer.Exit(1)


def _check(machines: str | None, limit: Fraction | None, of_machines: list[Any]) -> None:
    """Refuses what belongs to the other of the verb's two forms."""
    if machines is not None and limit is not None:
        raise PlanError("--fail-over is for run files: leave it out, or leave out --machines")
    if machines is None and any(each not in (None, False) for each in of_machines):
        raise PlanError(
            "without --machines, run files are compared as they are: give --machines, or leave out "
            "what a run is asked for"
        )


def _print(done: Comparison, over: list[ComparisonRow], fail_over: str | None) -> None:
    from trnsim.report.plan import comparison_lines, comparison_table

    output.print_report(comparison_table(done), comparison_lines(done))
    for row in over:
        share = 100 * (done.change(row, "step_time_s") or 0.0)
        typer.echo(f"SLOWER: {row.label}: +{share:.2f} %, more than {fail_over}")
