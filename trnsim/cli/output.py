# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Where a verb's output goes: results on stdout, JSON alone on stdout."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trnsim.errors import ReportError
from trnsim.files import check_place

if TYPE_CHECKING:
    from trnsim.report.plan import Table


class JsonOutput:
    """Takes file descriptor 1 away from everything else in the process.

    From `claim` on, whatever prints, in Python, in C or in a child, prints on stderr; `write` alone
    reaches the real stdout. It stays so to the end of the process, for exit handlers print too.
    """

    def __init__(self) -> None:
        self._stdout: int | None = None

    def claim(self) -> None:
        """Turns stdout into stderr for everybody else."""
        sys.stdout.flush()
        self._stdout = os.dup(1)
        os.dup2(2, 1)

    def write(self, document: Any) -> None:
        """Prints the one document."""
        text = json.dumps(document, allow_nan=False, indent=2) + "\n"
        if self._stdout is None:
            print(text, end="")
            return
        sys.stdout.flush()
        with os.fdopen(self._stdout, "w") as real:
            real.write(text)


def check_out(directory: Path | None, option: str = "--out") -> None:
    """Refuses, before anything runs, a place that cannot become a folder."""
    if directory is None:
        return
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise ReportError(
            f"{option} {directory}: '{existing}' is not a folder: choose another place"
        )
    if not os.access(existing, os.W_OK):
        raise ReportError(
            f"{option} {directory}: '{existing}' cannot be written to: choose another"
        )


def check_file(path: Path | None, option: str) -> None:
    """Refuses, before anything runs, a place where no file can be written."""
    if path is not None:
        check_place(path, ReportError, option)


def finish(projection: Any, document: JsonOutput | None) -> None:
    """Prints a projection: as JSON, as a table on a terminal, or as plain text in a pipe."""
    if document is not None:
        from trnsim.report import to_json

        document.write(to_json(projection))
        return
    from rich.console import Console

    from trnsim.report import render_terminal

    class Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich itself would exit with 1
            raise BrokenPipeError

    if sys.stdout is None or sys.stdout.closed:
        raise ReportError("the output cannot be written: stdout is closed: see --out and --json")
    sys.stdout.flush()
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("trnsim", _in_ascii)
        sys.stdout.reconfigure(errors="trnsim")
    render_terminal(projection, Terminal(highlight=False))


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """How an encoding without them writes our characters: 5 us for 5 µs."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return text.replace("µ", "u").encode("ascii", "replace").decode(), error.end


def print_table(
    header: list[str],
    rows: list[list[str]],
    *,
    right: Collection[int] = (),
    less: Sequence[str] = (),
) -> None:
    """A rich table on a terminal; in a pipe one line a row, columns apart by two spaces or more.

    right: the columns that are aligned to the right. less: columns to leave out, in this order, of
    a terminal that is too narrow; no number is ever cut.
    """
    if sys.stdout.isatty():
        _print_on_terminal(header, rows, right, less)
        return
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_report(table: Table, lines: Iterable[str]) -> None:
    """A table, and below it what has to be said of it."""
    print_table(table.header, table.rows, right=table.right, less=table.less)
    for line in lines:
        print(line)


def _print_on_terminal(
    header: list[str], rows: list[list[str]], right: Collection[int], less: Sequence[str]
) -> None:
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    console = Console(highlight=False)
    options = console.options.update(max_width=1 << 16)
    for count in range(len(less) + 1):
        left_out = less[:count]
        table = Table(box=None, pad_edge=False, padding=(0, 1))
        shown = [i for i, name in enumerate(header) if name not in left_out]
        for i in shown:
            justify: Literal["left", "right"] = "right" if i in right else "left"
            name = re.sub(r" (?=\S+$)|(?=\()", "\n", header[i])  # before the unit or last word
            table.add_column(name, justify=justify, no_wrap=True)
        for row in rows:
            table.add_row(*(row[i] for i in shown))
        width = Measurement.get(console, options, table).maximum
        if width <= console.width:
            break
    console.width = max(width, console.width)
    console.print(table)
    if left_out:
        console.print(f"(a wider terminal shows {', '.join(left_out)} too)", markup=False)


def claim_json(wanted: bool) -> JsonOutput | None:
    """The one owner of stdout from here on, if --json was given."""
    if not wanted:
        return None
    document = JsonOutput()
    document.claim()
    return document
