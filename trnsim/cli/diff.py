# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim diff`: whether two runs asked the device for the same, or where they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trnsim.cli import options, output
from trnsim.job import LARGEST_COUNT


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="diff",
        epilog="Example: trnsim diff phantom/train.trnsim compute/train.trnsim",
    )(diff)


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run file (trnsim run --out).")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The run file to compare it with.")],
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=LARGEST_COUNT, help="Differences to print a role."),
    ] = 20,
    as_json: options.Json = False,
) -> None:
    """Say that two Workloads are equal (exit 0) or where they differ, op by op (exit 1)."""
    from trnsim.workload import load_run

    left, right = load_run(a).workloads, load_run(b).workloads
    lines = []
    if len(left) == len(right) == 1:
        lines = left[0].compare(right[0], limit)
    else:
        there = [{workload.role: workload for workload in each} for each in (left, right)]
        for name in dict.fromkeys([*there[0], *there[1]]):
            one, other = (each.get(name) for each in there)
            if one is None or other is None:
                lines.append(f"{name} is a role of {'b' if one is None else 'a'} only")
            else:
                lines += [f"{name}: {line}" for line in one.compare(other, limit)]
    if as_json:
        output.JsonOutput().write(
            {
                "equal": not lines,
                "differences": lines,
                "a": [w.hash for w in left],
                "b": [w.hash for w in right],
            }
        )
    elif lines:
        typer.echo("\n".join(lines))
    else:
        hashes = ", ".join(workload.hash for workload in left)
        typer.echo(f"equal: {sum(map(len, left))} records, hash {hashes}")
    if lines:
        raise typer.Exit(1)
