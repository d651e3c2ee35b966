# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Options that several verbs share, and what they mean."""

from __future__ import annotations

import enum
import os
import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from trnsim.errors import PlanError


class Mode(enum.StrEnum):
    """What an op does on the simulated device."""

    phantom = "phantom"
    compute = "compute"


def let_threads_sleep(mode: Mode = Mode.phantom) -> None:
    """Threads of OpenMP sleep while they wait, unless the script computes or the user says no.

    By default they spin: on a machine that others use too, a large run then takes ten times as
    long. To be called before anything loads OpenMP.
    """
    if mode is Mode.phantom:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


Machine = Annotated[
    str, typer.Option(metavar="M", help="A machine's name, or a file ending in .toml.")
]
MachineAndStack = Annotated[
    str,
    typer.Option(
        metavar="M[:STACK]",
        help="A machine's name, or a file ending in .toml; with its stack after a colon "
        "(trn2-ultra:neuron, h100:nemo).",
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run file (trnsim run --out).")]
OtherMachine = Annotated[
    str | None,
    typer.Option(
        metavar="M", help="A machine's name, or a file ending in .toml (default: the run's own)."
    ),
]
Chips = Annotated[int | None, typer.Option(metavar="N", help="Chips of the job (default 1).")]
Ranks = Annotated[
    int | None, typer.Option(metavar="N", help="Ranks of the job, in place of chips.")
]
RanksPerChip = Annotated[
    int | None,
    typer.Option(metavar="K", help="Ranks that share a chip; the machine's own by default."),
]
Step = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        min=0,
        help="Whole step to measure, from 0 (default: the second; under DDP, which lays its "
        "buckets anew in that, the third).",
    ),
]
ChipsOfRun = Annotated[
    int | None, typer.Option(metavar="N", help="Chips of the job (default: the run's own).")
]
RanksPerChipOfRun = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        help="Ranks that share a chip (default: the run's own; with --machine, the machine's).",
    ),
]
StepOfRun = Annotated[
    int | None,
    typer.Option(
        metavar="K", min=0, help="Whole step to measure, from 0 (default: the run's own)."
    ),
]
Assumptions = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write what was guessed, inferred or set by hand to a .md or .csv file to sign off.",
    ),
]
Top = Annotated[int, typer.Option(metavar="N", min=0, help="Ops and modules to list; 0: none.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a figure of the machine, with its unit (chip.hbm.bandwidth=3.2TB/s); taken as "
        "exact, unless a confidence follows (...=3.2TB/s,guessed); repeatable.",
    ),
]
Stack = Annotated[
    str | None,
    typer.Option(
        metavar="S",
        help="The software that the job runs under: a stack sheet's name (megatron, torchtitan, "
        "...; trnsim info lists them) or a file ending in .toml.",
    ),
]
TokensPerStep = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Tokens of all ranks in a step, where we cannot tell."),
]
SamplesPerStep = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Samples of all ranks in a step, where we cannot tell."),
]
RunMode = Annotated[Mode, typer.Option(help="phantom: shapes only; compute: values too.")]
MaxRoles = Annotated[
    int, typer.Option(metavar="N", min=1, help="Ranks that may be captured before giving up.")
]
CheckRanks = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Ranks to run as, to see whether they do as rank 0 does."
    ),
]
NoOom = Annotated[
    bool, typer.Option("--no-oom", help="Report too little memory instead of raising.")
]
NoFold = Annotated[
    bool,
    typer.Option("--no-fold", help="Simulate every rank, alike or not; the same result, slower."),
]
Collectives = Annotated[
    str | None,
    typer.Option(
        metavar="fluid|step",
        help="fluid (the default): a collective's phases are flows over all of its links at once; "
        "step: rings and halvings are messages between neighbours, and every rank is simulated.",
    ),
]
SlowChips = Annotated[
    list[str] | None,
    typer.Option(
        "--slow-chip",
        metavar="CHIP=FACTOR[@TIME]",
        help="A chip that computes FACTOR times as long, from TIME on (17=1.25@3ms); repeatable.",
    ),
]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="LINK=SHARE[@TIME]",
        help="A link, or the links of a node, with SHARE of its bandwidth left, from TIME on "
        "('x+ 0>1=0', 'nic up 5=0.5@10ms', 'chip 5=0.5'); repeatable.",
    ),
]
Cuda = Annotated[
    bool | None,
    typer.Option(
        "--cuda/--no-cuda",
        help="Call the simulated device cuda, for scripts written for it; by default where the "
        "script's source asks for CUDA and for nothing else.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Leave the run file, projection.json, timeline.parquet, a Perfetto trace and traces "
        "for torch.profiler's tools here.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
IsModule = Annotated[bool, typer.Option("-m", help="SCRIPT is a module's name.")]
StopAfterStep = Annotated[
    bool, typer.Option("--stop-after-step", help="End the script after the measured step.")
]
OverridesOfMachines = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="[M:]KEY=VALUE",
        help="Change a figure of every machine, or of the one that is named, as of trnsim run; "
        "repeatable.",
    ),
]
TokensPerRank = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Tokens of a rank in a step, where we cannot tell."),
]
SamplesPerRank = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Samples of a rank in a step, where we cannot tell."),
]
KeepOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Keep every run of the job here; what is kept does not run again."
    ),
]


def parse_share(text: str, option: str = "--fail-over") -> Fraction:
    """1/50 of "2%"; raises PlanError for what is no share in percent."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*%", text.strip(), re.ASCII)
    if found is None:
        raise PlanError(f"{option} '{text}' is no share: write it in percent, as 2% or 0.5%")
    return Fraction(found[1]) / 100
