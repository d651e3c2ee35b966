# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim info`: every figure of a machine, with its source and how sure it is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trnsim.cli import options, output


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(name="info", epilog="Example: trnsim info trn2-ultra")(info)


def info(
    machine: Annotated[
        str | None,
        typer.Argument(metavar="[MACHINE]", help="A machine's name or file; all names without."),
    ] = None,
    toml: Annotated[
        bool, typer.Option("--toml", help="Print it as a file to start your own from.")
    ] = False,
    overrides: options.Overrides = None,
    stack: options.Stack = None,
    as_json: options.Json = False,
) -> None:
    """Print a machine: each figure with its unit, its source and our confidence in it."""
    from trnsim import machine as machines

    if machine is None:
        rows = [
            {"name": name, "description": machines.load(name).description}
            for name in machines.presets()
        ]
        if as_json:
            output.JsonOutput().write({"machines": rows, "stacks": machines.stacks()})
        else:
            output.print_table(["machine", "description"], [list(row.values()) for row in rows])
            typer.echo("stacks: " + ", ".join(machines.stacks()))
        return
    loaded = machines.load(machine, overrides or [], stack)
    if toml:
        typer.echo(machines.to_toml(loaded), nl=False)
    elif as_json:
        output.JsonOutput().write(_document(loaded))
    else:
        figures = machines.figures(loaded)
        typer.echo(f"{loaded.name}: {loaded.description}")
        output.print_table(
            ["figure", "value", "unit", "confidence", "source"],
            [
                [row[key] for key in ("figure", "value", "unit", "confidence", "source")]
                for row in figures
            ],
        )


def _document(machine: Any) -> dict[str, Any]:
    from trnsim import machine as machines

    rows = machines.figures(machine)
    return {
        "machine": machine.name,
        "description": machine.description,
        "hash": machine.hash,
        "max_chips": machine.max_chips,
        "legal_chip_counts": list(machine.legal_chip_counts),
        "figures": {
            row["figure"]: {key: row[key] for key in ("value", "unit", "source", "confidence")}
            for row in rows
        },
    }
