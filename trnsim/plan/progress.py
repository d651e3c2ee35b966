# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""How far a series of runs is, on stderr: a line for each that takes longer than two seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from trnsim.report.words import duration

FIRST_S = 2.0


class Teller:
    """Says which run of how many goes on, and how long the rest may take.

    The rest is taken to need what those that ran have needed in the mean; nothing is said of it
    before one has run.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = 0
        self._needed: list[float] = []

    def skip(self) -> None:
        """One of them need not run."""
        self._begun += 1

    @contextlib.contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Counts the block as one run."""
        line = f"[trnsim] {what}: run {self._begun + 1} of {self._total}{self._rest()}"
        self._begun += 1
        timer = threading.Timer(FIRST_S, lambda: print(line, file=sys.stderr, flush=True))
        timer.daemon = True
        timer.start()
        began = time.monotonic()
        try:
            yield
        finally:
            timer.cancel()
            self._needed.append(time.monotonic() - began)

    def _rest(self) -> str:
        if not self._needed:
            return ""
        mean = sum(self._needed) / len(self._needed)
        left = self._total - self._begun
        return f", {duration(mean)} each so far, about {duration(mean * left)} to go"
