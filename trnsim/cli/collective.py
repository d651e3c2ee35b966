# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim collective`: one collective alone on a machine, in the columns of nccom-test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from trnsim.cli import options, output
from trnsim.errors import WorkloadError

if TYPE_CHECKING:
    from trnsim.project.collective import Collective

DEFAULT = "32M"  # of nccom-test

Routing = Annotated[
    str,
    typer.Option(
        metavar="R",
        help="What each rank of an all_to_all gets: uniform, zipf:S as popular experts do "
        "(zipf:1.2), or a file with a whole number for each rank.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="collective",
        epilog="Example: trnsim collective all_reduce --machine trn2-ultra --ranks 64 -b 1K -e 1G",
    )(collective)


def collective(
    op: Annotated[
        str,
        typer.Argument(
            metavar="OP",
            help="all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, "
            "all_to_all or sendrecv.",
        ),
    ],
    ranks: Annotated[int, typer.Option("--ranks", "-r", metavar="N", help="Ranks that take part.")],
    machine: options.Machine = "trn2",
    ranks_per_chip: options.RanksPerChip = None,
    first: Annotated[
        str,
        typer.Option(
            "-b",
            "--minbytes",
            metavar="SIZE",
            help="First size: 8, 64K, 1M, 1G; 32M where no size is given.",
        ),
    ] = "",
    last: Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Last size.")] = "",
    factor: Annotated[
        int,
        typer.Option("-f", "--stepfactor", metavar="N", min=2, help="From size to size, times."),
    ] = 2,
    algorithm: Annotated[
        str,
        typer.Option(metavar="A", help="Force an algorithm; one that does not suit lists those."),
    ] = "",
    routing: Routing = "uniform",
    collectives: options.Collectives = None,
    overrides: options.Overrides = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="LINK=SHARE",
            help="A link, or the links of a node, with SHARE of its bandwidth left ('x+ 0>1=0', "
            "'chip 5=0.5'); repeatable.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Simulate a collective on an idle machine: time and bandwidth by size.

    The column `lost to contention` is the share of the time that transfers of the call lose to one
    another on the links that they share. Below stand what would make the largest size faster, and
    what of the network limits none.
    """
    options.let_threads_sleep()
    import trnsim

    sizes = _sizes(first or last or DEFAULT, last or first or DEFAULT, factor)
    done = trnsim.collective(
        op, machine, sizes=sizes, ranks=ranks, ranks_per_chip=ranks_per_chip, algorithm=algorithm,
        routing=routing, overrides=overrides or [], faults=faults or [],
        collectives=collectives or "fluid",
    )  # fmt: skip
    if as_json:
        from dataclasses import asdict

        output.JsonOutput().write(asdict(done))
        return
    _print(done)


def _print(done: Collective) -> None:
    from trnsim.project.collective import cells_of, header_of

    typer.echo(
        f"# {done.op} on {done.machine}: {done.ranks} ranks on {done.chips} chips; interval by "
        f"{done.interval_basis}"
    )
    routing = [f"routing {done.routing}"] if done.routing != "uniform" else []
    given = [*done.overrides, *(f"fault {fault}" for fault in done.faults), *routing]
    if given:
        typer.echo(f"# with {'; '.join(given)}")
    less = ("type", "count(elems)", "algbw(GB/s)")
    output.print_table(header_of(done), cells_of(done), right=range(6), less=less)
    typer.echo(f"Avg bus bandwidth: {done.mean_busbw_GBps:.2f} GB/s")
    for line in _limits(done):
        typer.echo(line)


def _limits(done: Collective) -> list[str]:
    """What held the largest size up, and what of the network held up none."""
    row = done.rows[-1]
    helps = []
    for what, share in done.limits.items():
        then = row.relieved_algorithm.get(what)
        shown = f"{min(100 * share, 99.9):.1f} %"  # some of the time is always left
        if shown != "0.0 %":
            helps.append(f"{what} (-{shown}{', by ' + then if then else ''})")
    nothing = "nothing of the network alone, at twice its speed"
    lines = [f"Would help {row.size_bytes} B: {'; '.join(helps[:3]) or nothing}"]
    if done.no_limits:
        lines.append(f"No limit by itself, at any size: {'; '.join(done.no_limits)}")
    if done.not_used:
        lines.append(f"No collective alone depends on: {', '.join(done.not_used)}")
    return lines


def _sizes(first: str, last: str, factor: int) -> list[int]:
    size, end = parse_size(first), parse_size(last)
    if size > end:
        raise WorkloadError(f"-b {first} is more than -e {last}: give the smaller one first")
    sizes = []
    while size <= end:
        sizes.append(size)
        size *= factor
    return sizes


def parse_size(text: str) -> int:
    """Bytes of "8", "64K", "1M", "1G", "1MB": powers of 1024, as nccl-tests has them."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    size = int(match[1]) << (10 * " kmgt".index(match[2] or " ")) if match else 0
    from trnsim.project.collective import LARGEST_SIZE

    if not 1 <= size <= LARGEST_SIZE:
        raise WorkloadError(
            f"'{text}' is no size: write 1 byte to less than 8192T (8 PiB) as 8, 64K, 1M or 1G"
        )
    return size
