# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Documents of plan as parquet tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trnsim.errors import ReportError
from trnsim.files import write_whole

_ROWS = ("rows", "points", "simulated")


def rows_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Flat rows: what stands inside of something has both names, and lists that are not of numbers
    are JSON."""
    rows = next((document[key] for key in _ROWS if key in document), [document])
    return [dict(_flat(row)) for row in rows]


def _flat(row: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{inside}{name}.")
        elif isinstance(value, (list, tuple)):
            numbers = all(isinstance(each, (int, float)) for each in value)
            yield inside + name, [float(x) for x in value] if numbers else json.dumps(value)
        else:
            yield inside + name, None if isinstance(value, Mapping) else value


def write_rows(document: Mapping[str, Any], path: Path) -> Path:
    """Writes the document's rows; returns the path. Raises ReportError."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = rows_of(document)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    table = pa.table(columns)
    write_whole(path, lambda part: parquet.write_table(table, part), ReportError)
    return path


def _column(values: list[Any]) -> Any:
    """Of one type: whole numbers beside others are floats, and what is mixed is JSON."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        values = [None if value is None else float(value) for value in values]
    elif len(kinds) > 1:
        values = [None if value is None else json.dumps(value) for value in values]
    return pa.array(values)
