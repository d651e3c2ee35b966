# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim info`: every figure of a machine, with its source and how sure it is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trnsim.cli import options, output
from trnsim.errors import MachineError
from trnsim.job import LARGEST_COUNT


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
    changes: Annotated[
        bool,
        typer.Option("--changes", help="What changed in its data (without MACHINE, in all data)."),
    ] = False,
    assumptions: options.Assumptions = None,
    blast_chips: Annotated[
        int | None,
        typer.Option(
            "--blast-radius",
            metavar="N",
            help="What a dead box of switches takes out of a job on N chips.",
        ),
    ] = None,
    boxes: Annotated[
        list[int] | None,
        typer.Option("--box", metavar="K", help="Switches that die together; repeatable."),
    ] = None,
    overrides: options.Overrides = None,
    stack: options.Stack = None,
    as_json: options.Json = False,
) -> None:
    """Print a machine: each figure with its unit, its source and our confidence in it."""
    from trnsim import machine as machines

    _check_asked(machine, toml, changes, assumptions, blast_chips, boxes)
    if changes:
        _print_changes(machine, stack, as_json)
        return
    if machine is None:
        _print_names(as_json)
        return
    loaded = machines.load(machine, overrides or [], stack)
    if assumptions is not None:
        from trnsim.report.assumptions import write_assumptions

        typer.echo(f"{write_assumptions(assumptions, loaded)} assumptions: {assumptions}")
        return
    if blast_chips is not None:
        _print_blast(loaded, blast_chips, boxes or [1], as_json)
        return
    if toml:
        typer.echo(machines.to_toml(loaded), nl=False)
    elif as_json:
        output.JsonOutput().write(_document(loaded))
    else:
        figures = machines.figures(loaded)
        typer.echo(f"{loaded.name}: {loaded.description}")
        typer.echo(f"data: {machines.version_of(loaded)}")
        output.print_table(
            ["figure", "value", "unit", "confidence", "source"],
            [
                [row[key] for key in ("figure", "value", "unit", "confidence", "source")]
                for row in figures
            ],
        )


def _check_asked(
    machine: str | None, toml: bool, changes: bool, assumptions: Any, blast_chips: int | None,
    boxes: list[int] | None,
) -> None:  # fmt: skip
    """Raises MachineError where an option would be left out without a word."""
    options_of = {
        "--toml": toml,
        "--changes": changes,
        "--assumptions": assumptions is not None,
        "--blast-radius": blast_chips is not None,
    }
    given = [name for name, is_given in options_of.items() if is_given]
    if len(given) > 1:
        raise MachineError(f"{' and '.join(given)} are answers of their own: ask for one at a time")
    if boxes and blast_chips is None:
        raise MachineError("--box is of --blast-radius: give it the chips of a job")
    if machine is None and given and not changes:
        raise MachineError(f"{given[0]} is of one machine: name it, as trnsim info trn2 {given[0]}")
    for name, count in (("--blast-radius", blast_chips), *(("--box", box) for box in boxes or [])):
        if count is not None and count > LARGEST_COUNT:
            raise MachineError(f"{name} {count}: use at most {LARGEST_COUNT}")


def _print_names(as_json: bool) -> None:
    from trnsim import machine as machines

    rows = [
        {"name": name, "description": machines.load(name).description}
        for name in machines.presets()
    ]
    if as_json:
        output.JsonOutput().write({"machines": rows, "stacks": machines.stacks()})
    else:
        output.print_table(["machine", "description"], [list(row.values()) for row in rows])
        typer.echo("stacks: " + ", ".join(machines.stacks()))


def _print_changes(machine: str | None, stack: str | None, as_json: bool) -> None:
    from trnsim import machine as machines

    found = machines.changes(machine, stack)
    if as_json:
        rows = [vars(change) | {"sheets": list(change.sheets)} for change in found]
        output.JsonOutput().write({"changes": rows})
        return
    rows = [[str(one.number), one.date, one.what, ", ".join(one.sheets)] for one in found]
    output.print_table(["change", "date", "what", "of"], rows, right=(0,), less=("of",))


def _print_blast(machine: Any, chips: int, boxes: list[int], as_json: bool) -> None:
    from trnsim import _core
    from trnsim.report.blast import NOTES, blast_row, blast_table

    found = [row for box in boxes for row in _core.blast_radius(machine, chips, box)]
    if as_json:
        rows = [blast_row(row) for row in found]
        output.JsonOutput().write({"machine": machine.name, "chips": chips, "rows": rows})
    else:
        output.print_report(blast_table(found), NOTES)


def _document(machine: Any) -> dict[str, Any]:
    from trnsim import machine as machines

    rows = machines.figures(machine)
    return {
        "machine": machine.name,
        "description": machine.description,
        "hash": machine.hash,
        "data_version": str(machines.version_of(machine)),
        "max_chips": machine.max_chips,
        "legal_chip_counts": list(machine.legal_chip_counts),
        "figures": {
            row["figure"]: {key: row[key] for key in ("value", "unit", "source", "confidence")}
            for row in rows
        },
    }
