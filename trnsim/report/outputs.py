# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What `--out DIR` leaves beside the run file: each file appears whole, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.errors import ReportError
from trnsim.files import write_whole
from trnsim.report.json import to_json
from trnsim.report.words import size

if TYPE_CHECKING:
    from trnsim.project import Projection

MAX_TRACE_BYTES = 500_000_000  # browsers fail near 1 GB


def write_outputs(
    projection: Projection,
    directory: str | os.PathLike[str],
    *,
    trace_ranks: Sequence[int] | None = None,
) -> list[Path]:
    """Writes projection.json, timeline.parquet and trace.pftrace into `directory`.

    Args:
        projection: of trnsim.project.
        directory: made when it is not there.
        trace_ranks: the ranks that timeline and trace show; one of each role when None, since all
            ranks of a role do the same, as far as a browser opens that.

    Returns:
        The paths, in the order above.

    Raises:
        ReportError: a path that cannot be written, a rank that is not of the run, or a trace that
            no browser would open.
    """
    from trnsim import _core

    folder = Path(directory)
    ranks = list(trace_ranks) if trace_ranks is not None else _captured_ranks(projection)
    expected = _core.estimate_trace_bytes(projection.run, ranks)
    if expected > MAX_TRACE_BYTES:
        raise ReportError(
            f"the trace of {len(ranks)} ranks would take {size(expected)}, and browsers fail near "
            f"{size(MAX_TRACE_BYTES)}: choose fewer ranks"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"cannot make '{folder}': {error.strerror or error}") from None
    document, timeline, trace = (
        folder / name for name in ("projection.json", "timeline.parquet", "trace.pftrace")
    )
    text = json.dumps(to_json(projection), allow_nan=False, indent=2) + "\n"
    write_whole(document, lambda part: part.write_text(text, encoding="utf-8"), ReportError)
    write_whole(timeline, lambda part: _write_timeline(projection, ranks, part), ReportError)
    _core.write_trace(projection.run, ranks, os.fspath(trace))
    return [document, timeline, trace]


def _captured_ranks(projection: Projection) -> list[int]:
    from trnsim import _core

    if projection.figures.ranks == 1:
        return [0]
    ranks = sorted(workload.rank for workload in projection.workloads)
    while len(ranks) > 1 and _core.estimate_trace_bytes(projection.run, ranks) > MAX_TRACE_BYTES:
        ranks = ranks[: len(ranks) // 2]
    return ranks


def _write_timeline(projection: Projection, ranks: list[int], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = projection.run.task_columns(ranks)
    arrays: dict[str, Any] = {"rank": pa.array(columns["rank"])}
    for name, words in (
        ("queue", "queues"),
        ("kind", "kinds"),
        ("name", "names"),
        ("module", "modules"),
    ):
        arrays[name] = pa.DictionaryArray.from_arrays(
            pa.array(columns[name]), pa.array(columns[words], pa.string())
        )
    arrays["start_ps"] = pa.array(columns["start_ps"])
    arrays["end_ps"] = pa.array(columns["end_ps"])
    parquet.write_table(pa.table(arrays), path, compression="zstd")
