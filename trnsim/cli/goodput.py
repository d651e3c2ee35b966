# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim goodput`: what a long run keeps of its time, and how long and dear it is."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import typer

from trnsim.cli import options, output
from trnsim.errors import PlanError

if TYPE_CHECKING:
    from trnsim.plan import Goodput

Number = float | None


def _number(metavar: str, text: str) -> typer.models.OptionInfo:
    return typer.Option(metavar=metavar, help=text)


Tokens = Annotated[
    str | None, typer.Option(metavar="N", help="Tokens to train on: 15.6T, 300B, 1e12.")
]
Steps = Annotated[int | None, typer.Option(metavar="N", help="Steps to train, in place of tokens.")]
MtbfHours = Annotated[Number, _number("H", "Hours between interruptions of the whole job.")]
ChipMtbfHours = Annotated[Number, _number("H", "Hours between failures of one chip and its share.")]
EveryMinutes = Annotated[
    Number, _number("M", "Minutes of work between checkpoints (default: the best).")
]
Sync = Annotated[
    bool,
    typer.Option(
        "--sync", help="Stand still until a checkpoint is written, not only until it is copied."
    ),
]
CheckpointGb = Annotated[
    Number, _number("GB", "Size of a checkpoint, in 1e9 bytes (default: by its parameters).")
]
BytesPerParameter = Annotated[Number, _number("B", "Bytes of a checkpoint for a parameter.")]
Way = Annotated[
    str | None, typer.Option("--path", metavar="P", help="Way to storage: ebs or ena, if known.")
]
ServerGbPerS = Annotated[
    Number, _number("GB/s", "What a server writes to storage and reads from it.")
]
StoreGbPerS = Annotated[
    Number, _number("GB/s", "What the storage takes from all servers (default: it keeps up).")
]
BlockingS = Annotated[Number, _number("S", "Seconds for which a checkpoint stops the job.")]
UploadS = Annotated[Number, _number("S", "Seconds that its upload takes beside the work.")]
RestartMinutes = Annotated[
    Number, _number("M", "From a failure to the first step, with the load of the checkpoint.")
]
Spares = Annotated[
    int | None,
    typer.Option(metavar="N", help="Servers (UltraServers) that stand by (default: always one)."),
]
RepairHours = Annotated[Number, _number("H", "Hours until one that failed stands by again.")]
BytesPerToken = Annotated[Number, _number("B", "Bytes that the job reads for a token.")]
BytesPerSample = Annotated[Number, _number("B", "Bytes that it reads for a sample, in place.")]
Pue = Annotated[Number, _number("X", "Power of the site over that of its servers.")]
Grid = Annotated[Number, _number("G", "Grams of CO2 of a kWh of the grid.")]
Draws = Annotated[int, typer.Option(metavar="N", help="Runs to draw at random.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Of the runs that are drawn.")]
CHIPS = typer.Option(metavar="N", help="Chips of the job (default: the run's own).")
RANKS = typer.Option(metavar="K", help="Ranks that share a chip (default: the run's own).")
STEP = typer.Option(metavar="K", min=0, help="Whole step to take (default: the run's own).")


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="goodput",
        epilog="Example: trnsim goodput out/train.trnsim --tokens 15.6T --restart-minutes 8",
    )(goodput)


def goodput(
    run: options.Run,
    tokens: Tokens = None,
    steps: Steps = None,
    mtbf_hours: MtbfHours = None,
    chip_mtbf_hours: ChipMtbfHours = None,
    every_minutes: EveryMinutes = None,
    synchronous: Sync = False,
    checkpoint_gb: CheckpointGb = None,
    bytes_per_parameter: BytesPerParameter = None,
    path: Way = None,
    server_gb_per_s: ServerGbPerS = None,
    store_gb_per_s: StoreGbPerS = None,
    blocking_s: BlockingS = None,
    upload_s: UploadS = None,
    restart_minutes: RestartMinutes = None,
    spares: Spares = None,
    repair_hours: RepairHours = None,
    bytes_per_token: BytesPerToken = None,
    bytes_per_sample: BytesPerSample = None,
    pue: Pue = None,
    grid_g_per_kwh: Grid = None,
    draws: Draws = 2000,
    seed: Seed = 0,
    machine: options.OtherMachine = None,
    chips: Annotated[int | None, CHIPS] = None,
    ranks_per_chip: Annotated[int | None, RANKS] = None,
    step: Annotated[int | None, STEP] = None,
    overrides: options.Overrides = None,
    stack: options.Stack = None,
    tokens_per_step: options.TokensPerStep = None,
    samples_per_step: options.SamplesPerStep = None,
    collectives: options.Collectives = None,
    as_json: options.Json = False,
) -> None:
    """What a long run of a step keeps of its time: failures, checkpoints, restarts, days, dollars.

    The job stops at every failure, and goes on from its last complete checkpoint. Checkpoints are
    copied to the memory of the hosts while the job stands still, and go on to storage beside it.
    """
    options.let_threads_sleep()
    from trnsim.plan.goodput import goodput as goodput_of
    from trnsim.plan.goodput_inputs import GoodputOptions

    document = output.claim_json(as_json)
    asked = GoodputOptions(
        mtbf_hours=mtbf_hours, chip_mtbf_hours=chip_mtbf_hours, every_minutes=every_minutes,
        synchronous=synchronous, checkpoint_gb=checkpoint_gb,
        bytes_per_parameter=bytes_per_parameter, path=path, server_gb_per_s=server_gb_per_s,
        store_gb_per_s=store_gb_per_s, blocking_s=blocking_s, upload_s=upload_s,
        restart_minutes=restart_minutes, spares=spares, repair_hours=repair_hours,
        bytes_per_token=bytes_per_token, bytes_per_sample=bytes_per_sample, pue=pue,
        grid_g_per_kwh=grid_g_per_kwh, draws=draws, seed=seed,
    )  # fmt: skip
    done = goodput_of(
        run, machine, tokens=None if tokens is None else parse_count(tokens), steps=steps,
        options=asked, chips=chips, ranks_per_chip=ranks_per_chip, step=step,
        overrides=overrides or [], stack=stack, tokens_per_step=tokens_per_step,
        samples_per_step=samples_per_step, collectives=collectives,
    )  # fmt: skip
    if document is not None:
        document.write(done.to_dict())
        return
    _print(done)


def _print(done: Goodput) -> None:
    from trnsim.report.goodput import goodput_lines, heading, tables

    typer.echo(heading(done))
    for table in tables(done):
        output.print_table(table.header, table.rows, right=table.right, less=table.less)
        typer.echo("")
    for line in goodput_lines(done):
        typer.echo(line)


_SUFFIXES = {"": 0, "k": 3, "m": 6, "b": 9, "g": 9, "t": 12}


def parse_count(text: str) -> int:
    """15,600,000,000,000 of "15.6T"; raises PlanError for what is no whole number."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(?:e\+?(\d{1,2}))?([kmbgt]?)", text.strip().lower(),
                         re.ASCII)  # fmt: skip
    if found is not None:
        count = Fraction(found[1]) * 10 ** (int(found[2] or 0) + _SUFFIXES[found[3]])
        if count.denominator == 1 and count > 0:
            return int(count)
    raise PlanError(f"'{text}' is no count of tokens: write it as 300B, 15.6T or 1e12")
