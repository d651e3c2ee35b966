# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim search`: the layouts of a model on so many chips, and which are the fastest."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from trnsim.cli import layouts, options, output
from trnsim.cli.options import parse_share

Model_ = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model's name, or a config.json of Hugging Face.")
]
Chips = Annotated[str, typer.Option(metavar="N[,N...]", help="Chips of the job.")]
Batch = Annotated[
    int | None,
    typer.Option(metavar="B", help="Sequences of a step (default: 16 Mi tokens, as Llama 3)."),
]
Stack = Annotated[
    str | None, typer.Option(metavar="S", help="Stack sheet whose training programs are tried.")
]
Top = Annotated[int, typer.Option(metavar="K", min=1, help="How many of the fastest to find.")]
SlowerBy = Annotated[
    str, typer.Option(metavar="X%", help="How much slower than the fastest the front goes.")
]
Intervals = Annotated[
    int,
    typer.Option(metavar="K", min=0, help="How many of the fastest get an interval (slow)."),
]
Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help="Simulate every layout, whatever its bound.")
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
    machine: options.MachineAndStack = "trn2",
    chips: Chips = "16",
    global_batch: Batch = None,
    sequence: layouts.Sequence = 8192,
    tp: layouts.Tp = None,
    pp: layouts.Pp = None,
    vp: layouts.Vp = None,
    cp: layouts.Cp = None,
    ep: layouts.Ep = None,
    micro_batch: layouts.MicroBatch = None,
    zero: layouts.Zero = None,
    recompute: layouts.Recompute = None,
    offload_layers: layouts.Offload = None,
    precision: layouts.Precision = "bf16",
    expert_skew: layouts.ExpertSkew = None,
    stack: Stack = None,
    ranks_per_chip: options.RanksPerChip = None,
    overrides: options.Overrides = None,
    top: Top = 10,
    slower_by: SlowerBy = "10%",
    least_used: layouts.LeastUsed = "90%",
    intervals: Intervals = 3,
    exhaustive: Exhaustive = False,
    jobs: layouts.Jobs = None,
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
    from trnsim.report.search import search_lines, search_table

    space = layouts.space_of(
        global_batch=global_batch, sequence=sequence, tp=tp, pp=pp, vp=vp, cp=cp, ep=ep,
        micro_batch=micro_batch, zero=zero, recompute=recompute, precision=precision,
        offload_layers=offload_layers, expert_skew=expert_skew, least_used=least_used,
    )  # fmt: skip
    asked = RunOptions(overrides=tuple(overrides or ()), stack=stack, ranks_per_chip=ranks_per_chip)
    output.check_out(out)
    output.check_file(save, "--save")
    document = output.claim_json(as_json)
    done = search_all(
        model, machine=machine, chips=layouts.numbers_of("chips", chips) or (), space=space,
        options=asked, top=top, slower_by=float(parse_share(slower_by, "--slower-by")),
        intervals=intervals, prune=not exhaustive, jobs=jobs, out=out, tell=_Progress(),
    )  # fmt: skip
    if document is not None:
        document.write(done.to_dict())
    else:
        output.print_report(search_table(done), search_lines(done))
    if not done.best:
        raise typer.Exit(1)
    if save is not None:
        done.save(save, done.best[0])


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
