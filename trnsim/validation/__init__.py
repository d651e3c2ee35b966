# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Our figures beside published ones (`trnsim validate`) and beside the user's own (`trnsim
calibrate`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import as_completed

from trnsim.pool import worker_pool
from trnsim.validation.calibrate import Calibration, calibrate
from trnsim.validation.page import ablation_page, accuracy_page, scaling_page
from trnsim.validation.predict import Settings, own_error, predict
from trnsim.validation.rows import Row, read
from trnsim.validation.score import Outcome, Statistics, figures, statistics, summary
from trnsim.validation.series import Scaled, scaled, series_of

__all__ = [
    "Calibration", "Outcome", "Row", "Scaled", "Settings", "Statistics", "ablation_page",
    "accuracy_page", "calibrate", "figures", "own_error", "read", "scaled", "scaling_page",
    "series_of", "statistics", "summary", "validate",
]  # fmt: skip


def validate(
    rows: Iterable[Row],
    settings: Settings | None = None,
    *,
    processes: int | None = None,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """An outcome for every row, in their order; rows that cannot be predicted say why.

    Args:
        rows: what `read` gives.
        settings: how to predict; the defaults when None.
        processes: that work side by side; one a core when None, and this one alone for 1.
        on_done: called here with each outcome as it comes.
    """
    rows = list(rows)
    settings = settings or Settings()
    processes = min(processes or os.cpu_count() or 1, max(1, len(rows)))
    if processes == 1:
        outcomes = []
        for row in rows:
            outcomes.append(predict(row, settings))
            on_done(outcomes[-1])
        return outcomes
    with worker_pool(processes) as pool:
        waiting = {pool.submit(predict, row, settings): i for i, row in enumerate(rows)}
        found: dict[int, Outcome] = {}
        for future in as_completed(waiting):
            found[waiting[future]] = future.result()
            on_done(future.result())
    return [found[i] for i in range(len(rows))]
