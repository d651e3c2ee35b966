# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Progress of long simulations on stderr, from a counter that the simulating threads write.

Simulations that have ended are counted; of one alone, its tasks. Nothing appears in the first two
seconds. On a terminal a rich bar follows; elsewhere one plain line every ten seconds,
which a log can keep.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnsim import _core

FIRST_S, EVERY_S, POLL_S = 2.0, 10.0, 0.1


@contextlib.contextmanager
def watch(counter: _core.ProjectProgress, what: str) -> Iterator[None]:
    """Shows `counter` while the block runs."""
    ended = threading.Event()
    show = _bar if sys.stderr.isatty() else _lines
    teller = threading.Thread(
        target=show, args=(counter, what, ended), daemon=True, name="trnsim-progress"
    )
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _lines(counter: _core.ProjectProgress, what: str, ended: threading.Event) -> None:
    began = time.monotonic()
    wait = FIRST_S
    while not ended.wait(wait):
        wait = EVERY_S
        print(
            f"[trnsim] {what}: {counter.done} of {counter.total} simulations"
            f"{_tasks(counter)}, {time.monotonic() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )


def _tasks(counter: _core.ProjectProgress) -> str:
    """How far the only simulation is."""
    if counter.total > 1 or not counter.tasks_total:
        return ""
    return f", {counter.tasks_ended:,} of {counter.tasks_total:,} tasks"


def _bar(counter: _core.ProjectProgress, what: str, ended: threading.Event) -> None:
    if ended.wait(FIRST_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(what), BarColumn(), MofNCompleteColumn(),
        TextColumn("simulations{task.fields[tasks]}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=counter.total, tasks="")
        while not ended.wait(POLL_S):
            bar.update(task, completed=counter.done, total=counter.total, tasks=_tasks(counter))
