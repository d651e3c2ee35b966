# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Where a verb's output goes: results on stdout, progress on stderr, JSON alone on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trnsim.errors import ReportError

_FIRST_S, _EVERY_S = 2.0, 10.0


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


@contextlib.contextmanager
def progress(what: str, count: Callable[[], str] = str) -> Iterator[None]:
    """Says on stderr that `what` goes on: after two seconds, then every ten."""
    ended = threading.Event()
    began = time.monotonic()

    def tell() -> None:
        wait = _FIRST_S
        while not ended.wait(wait):
            wait = _EVERY_S
            state = count()
            elapsed = f"{time.monotonic() - began:.0f} s"
            print(
                f"[trnsim] {what}: {elapsed}{', ' if state else ''}{state}",
                file=sys.stderr,
                flush=True,
            )

    teller = threading.Thread(target=tell, daemon=True, name="trnsim-progress")
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def check_out(directory: Path | None) -> None:
    """Refuses, before anything runs, a place that cannot become a folder."""
    if directory is None:
        return
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise ReportError(f"--out {directory}: '{existing}' is not a folder: choose another place")
    if not os.access(existing, os.W_OK):
        raise ReportError(f"--out {directory}: '{existing}' cannot be written to: choose another")


def show(projection: Any) -> None:
    """Prints a projection: a table on a terminal, plain text in a pipe."""
    from rich.console import Console

    from trnsim.report import render_terminal

    sys.stdout.flush()
    render_terminal(projection, Console(highlight=False))
