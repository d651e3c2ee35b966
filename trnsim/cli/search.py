# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim search`: the layouts of a model on so many chips, and which are the fastest."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from trnsim.cli import options, output
from trnsim.cli.compare import parse_share
from trnsim.errors import PlanError

Model_ = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model's name, or a config.json of Hugging Face.")
]
Chips = Annotated[str, typer.Option(metavar="N[,N...]", help="Chips of the job.")]
Batch = Annotated[
    int | None,
    typer.Option(metavar="B", help="Sequences of a step (default: 16 Mi tokens, as Llama 3)."),
]
Sequence = Annotated[int, typer.Option(metavar="S", help="Tokens of a sequence.")]
Stack = Annotated[
    str | None, typer.Option(metavar="S", help="Stack sheet whose training programs are tried.")
]


_DEGREES = ("tp", "pp", "vp", "cp", "ep", "micro_batch", "zero")


def _degrees(what: str) -> Any:
    return typer.Option(metavar="N[,N...]", help=f"{what} (default: all that suit).")


Tp = Annotated[str | None, _degrees("Tensor parallel degrees to try")]
Pp = Annotated[str | None, _degrees("Pipeline stages")]
Vp = Annotated[str | None, _degrees("Pieces of each stage (interleaving)")]
Cp = Annotated[str | None, _degrees("Context parallel degrees")]
Ep = Annotated[str | None, _degrees("Expert parallel degrees")]
MicroBatch = Annotated[str | None, _degrees("Sequences of a micro-batch")]
Zero = Annotated[str | None, _degrees("0 to 3: what data parallel ranks divide; 3 is FSDP")]
Recompute = Annotated[
    str | None,
    typer.Option(metavar="none,selective,full", help="What is computed again (default: each)."),
]
Precision = Annotated[str, typer.Option(metavar="P", help="Of the products: bf16, fp8, ...")]
Top = Annotated[int, typer.Option(metavar="K", min=1, help="How many of the fastest to find.")]
SlowerBy = Annotated[
    str, typer.Option(metavar="X%", help="How much slower than the fastest the front goes.")
]
LeastUsed = Annotated[
    str, typer.Option(metavar="X%", help="Share of the chips that a layout has to use.")
]
Intervals = Annotated[
    int,
    typer.Option(metavar="K", min=0, help="How many of the fastest get an interval (slow)."),
]
Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help="Simulate every layout, whatever its bound.")
]
Jobs = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Processes (default: one a core).")
]
KeepOut = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Keep what was simulated; it is not simulated again."),
]
Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="RUN", help="Write the fastest layout's step as a run file."),
]


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="search",
        epilog="Examples: trnsim search llama3-405b --machine rainier --chips 16384; trnsim search "
        "mixtral-8x7b --machine h100:nemo --chips 256 --global-batch 256 --sequence 4096 --tp 1,2",
    )(search)


def search(
    model: Model_,
    machine: options.Machine = "trn2",
    chips: Chips = "16",
    global_batch: Batch = None,
    sequence: Sequence = 8192,
    tp: Tp = None,
    pp: Pp = None,
    vp: Vp = None,
    cp: Cp = None,
    ep: Ep = None,
    micro_batch: MicroBatch = None,
    zero: Zero = None,
    recompute: Recompute = None,
    precision: Precision = "bf16",
    stack: Stack = None,
    ranks_per_chip: options.RanksPerChip = None,
    overrides: options.Overrides = None,
    top: Top = 10,
    slower_by: SlowerBy = "10%",
    least_used: LeastUsed = "90%",
    intervals: Intervals = 3,
    exhaustive: Exhaustive = False,
    jobs: Jobs = None,
    out: KeepOut = None,
    save: Save = None,
    as_json: options.Json = False,
) -> None:
    """Try every layout of a model on so many chips: the fastest, and what memory and money buy.

    A layout is tensor, pipeline, context, expert and data parallel degrees, interleaving,
    micro-batch, recomputation, and what data parallel ranks divide. Each that can matter is
    captured from the reference program and simulated; what its bounds rule out is not. Exit 1
    where none fits.
    """
    options.let_threads_sleep()
    from trnsim.plan import RunOptions
    from trnsim.plan.layout_search import search as search_all
    from trnsim.plan.layouts import Space
    from trnsim.report.search import search_lines, search_table

    given = (tp, pp, vp, cp, ep, micro_batch, zero)
    if global_batch == 0:
        raise PlanError("--global-batch 0 is no step: use 1 or more")
    space = Space(
        sequence, global_batch or 0,
        **{name: _numbers(name, text) for name, text in zip(_DEGREES, given, strict=True)},
        recompute=None if recompute is None else tuple(recompute.split(",")),
        precision=precision, least_used=float(parse_share(least_used, "--least-used")),
    )  # fmt: skip
    asked = RunOptions(overrides=tuple(overrides or ()), stack=stack, ranks_per_chip=ranks_per_chip)
    output.check_out(out)
    if save is not None and not save.absolute().parent.is_dir():
        raise PlanError(
            f"--save {save}: no folder '{save.absolute().parent}': choose another place"
        )
    document = output.claim_json(as_json)
    done = search_all(
        model, machine=machine, chips=_numbers("chips", chips) or (), space=space, options=asked,
        top=top, slower_by=float(parse_share(slower_by, "--slower-by")), intervals=intervals,
        prune=not exhaustive, jobs=jobs, out=out, tell=_Progress(),
    )  # fmt: skip
    if document is not None:
        document.write(done.to_dict())
    else:
        output.print_report(search_table(done), search_lines(done))
    if not done.best:
        raise typer.Exit(1)
    if save is not None:
        done.save(save, done.best[0])


def _check_place(save: Path | None) -> None:
    """Refuses, before anything runs, a place in no folder."""
    if save is not None and not save.absolute().parent.is_dir():
        raise PlanError(
            f"--save {save}: no folder '{save.absolute().parent}': choose another place"
        )


def _numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"\d{1,9}", word, re.ASCII) for word in words):
        option = "--" + name.replace("_", "-")
        raise PlanError(f"{option} '{text}' is no list of whole numbers: write 8 or 1,2,4")
    return tuple(sorted({int(word) for word in words}))


class _Progress:
    """Says on stderr how far a search is, every ten seconds."""

    EVERY_S = 10.0

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, searcher: Any) -> None:
        if time.monotonic() - self._said < self.EVERY_S:
            return
        self._said = time.monotonic()
        counts, found = searcher.counts, searcher.answers.found
        best = f", the best takes {found[0].trial.step_time_s:.3g} s" if found else ""
        print(
            f"[trnsim] {counts.simulated} layouts simulated, {len(searcher.heap):,} left{best}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
