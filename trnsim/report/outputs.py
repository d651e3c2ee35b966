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
from trnsim.files import make_folder, write_whole
from trnsim.report.json import to_json
from trnsim.report.words import size

if TYPE_CHECKING:
    from trnsim.project import Projection

MAX_TRACE_BYTES = 500_000_000  # browsers fail near 1 GB
PROFILES = "torch_profiler"  # a folder of its own: tools read every JSON file of a folder


def write_outputs(
    projection: Projection,
    directory: str | os.PathLike[str],
    *,
    trace_ranks: Sequence[int] | None = None,
) -> list[Path]:
    """Writes projection.json, timeline.parquet, trace.pftrace and torch_profiler/rank<R>_trace.json
    into `directory`: the last, one a rank, as torch.profiler's own traces are read.

    Args:
        projection: of trnsim.project.
        directory: made when it is not there.
        trace_ranks: the ranks that timeline and trace show; one of each role when None, since all
            ranks of a role do the same, as far as a browser opens that.

    Returns:
        The paths, in the order above; of the last the folder.

    Raises:
        ReportError: a path that cannot be written, a rank that is not of the run, or a trace that
            no browser would open.
    """
    from trnsim import _core

    folder = Path(directory)
    ranks = list(trace_ranks) if trace_ranks is not None else _captured_ranks(projection)
    expected = _estimate(projection, ranks)
    if expected > MAX_TRACE_BYTES:
        raise ReportError(
            f"the trace of {len(ranks)} ranks would take {size(expected)}, and browsers fail near "
            f"{size(MAX_TRACE_BYTES)}: choose fewer ranks"
        )
    make_folder(folder, ReportError)
    document, timeline, trace = (
        folder / name for name in ("projection.json", "timeline.parquet", "trace.pftrace")
    )
    text = json.dumps(to_json(projection), allow_nan=False, indent=2) + "\n"
    write_whole(document, lambda part: part.write_text(text, encoding="utf-8"), ReportError)
    write_whole(timeline, lambda part: _write_timeline(projection, ranks, part), ReportError)
    _core.write_trace(projection.run, ranks, os.fspath(trace))
    return [document, timeline, trace, _write_profiles(projection, ranks, folder / PROFILES)]


def _estimate(projection: Projection, ranks: list[int]) -> int:
    """Bytes of the larger of the two kinds of traces."""
    from trnsim import _core

    run = projection.run
    return max(_core.estimate_trace_bytes(run, ranks), _core.estimate_profile_bytes(run, ranks[:1]))


def _write_profiles(projection: Projection, ranks: list[int], folder: Path) -> Path:
    """Those of as many of the ranks as a browser opens; what another run left there goes."""
    from trnsim import _core

    while len(ranks) > 1 and (
        _core.estimate_profile_bytes(projection.run, ranks) > MAX_TRACE_BYTES
    ):
        ranks = ranks[: len(ranks) // 2]
    try:
        folder.mkdir(exist_ok=True)
        for old in folder.glob("rank*_trace.json"):
            old.unlink()
    except OSError as error:
        raise ReportError(f"cannot write '{folder}': {error.strerror or error}") from None
    _core.write_profiles(projection.run, ranks, os.fspath(folder))
    return folder


def _captured_ranks(projection: Projection) -> list[int]:
    if projection.figures.ranks == 1:
        return [0]
    ranks = sorted(workload.rank for workload in projection.workloads)
    while len(ranks) > 1 and _estimate(projection, ranks) > MAX_TRACE_BYTES:
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
