# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Run files: a zip of parquet tables and manifest.json, never pickle.

    manifest.json                    {format, version, trnsim, machine, machine_hash, seed, command,
                                      model, layout, roles: [{name, facts}], options: {...}}
    roles/<name>/<table>.parquet     records, signatures, uses, calls, storages, allocations,
                                     modules, regions, groups

Codes are stored by name, so that a file outlives a change of their numbers. The same Workload gives
the same bytes. A file is written beside its place and renamed, so a reader never sees half of one.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trnsim import _core
from trnsim.errors import WorkloadError
from trnsim.files import write_whole
from trnsim.workload.chakra import from_chakra, is_chakra

FORMAT = "trnsim-run"
CHAKRA = "chakra"
VERSION = (1, 2)  # a reader takes every older version, and every newer minor of its own major
# Columns of calls that hold a list each; "received" is in files of 1.2 that have uneven parts.
_LISTS = ("splits", "received")
TABLES = (
    "records",
    "signatures",
    "uses",
    "calls",
    "storages",
    "allocations",
    "modules",
    "regions",
    "groups",
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's first day: the same run gives the same bytes


@dataclass(frozen=True)
class RunFile:
    """What a run file holds: the Workloads of its roles, and how they were made."""

    workloads: list[_core.Workload]
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def workload(self) -> _core.Workload:
        """The Workload of the first role, which gave the script's prints and exit code."""
        return self.workloads[0]


def save(workload: _core.Workload, path: str | os.PathLike[str], **manifest: Any) -> None:
    """Writes one Workload as a run file at `path`; `manifest` are further keys of its manifest."""
    save_run(path, [workload], **manifest)


def load(path: str | os.PathLike[str]) -> _core.Workload:
    """The Workload of the run file at `path`; raises WorkloadError when it is none."""
    return load_run(path).workload


def save_run(
    path: str | os.PathLike[str], workloads: Sequence[_core.Workload], **manifest: Any
) -> None:
    """Writes the Workloads of a run at `path`, all of it or nothing.

    `manifest` may hold machine, machine_hash, command, model, layout, seed and options, all JSON
    values.
    """
    if len({workload.role for workload in workloads}) != len(workloads) or not workloads:
        raise WorkloadError("a run needs one Workload a role, and roles of different names")
    tables = [(workload.role, workload.to_columns()) for workload in workloads]
    document = {
        "format": FORMAT,
        "version": list(VERSION),
        "machine": None,
        "machine_hash": None,
        "command": None,
        "model": None,
        "layout": None,
        "seed": workloads[0].seed,
        "options": {},
    }
    document |= manifest
    document["roles"] = [{"name": name, "facts": columns["facts"]} for name, columns in tables]

    def write(part: Path) -> None:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            _add(archive, "manifest.json", json.dumps(document, indent=1, sort_keys=True).encode())
            for name, columns in tables:
                for table in TABLES:
                    _add(archive, f"roles/{name}/{table}.parquet", _encode(table, columns[table]))

    write_whole(Path(path), write, WorkloadError)


def load_run(path: str | os.PathLike[str]) -> RunFile:
    """Reads a run file, known by its content, or Chakra traces (a folder of them, or NAME of
    NAME.0.et), which name no machine; raises WorkloadError when it is neither or damaged."""
    if is_chakra(path):
        return RunFile(from_chakra(path), _manifest_of_traces())
    manifest = _manifest(path)
    major = manifest["version"][0]
    if major > VERSION[0]:
        raise WorkloadError(
            f"'{path}' has format {major}, and this trnsim reads up to {VERSION[0]}: upgrade trnsim"
        )
    workloads = []
    try:
        with zipfile.ZipFile(path) as archive:
            for role in manifest["roles"]:
                folder = f"roles/{role['name']}"
                columns = {
                    table: _decode(table, archive.read(f"{folder}/{table}.parquet"))
                    for table in TABLES
                }
                columns["facts"] = role["facts"]
                workloads.append(_core.Workload.from_columns(columns))
    except (KeyError, ValueError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise WorkloadError(f"'{path}' is damaged: {error}") from None
    if not workloads:
        raise WorkloadError(f"'{path}' is damaged: it holds no role")
    return RunFile(workloads, manifest)


def is_run_file(path: str | os.PathLike[str]) -> bool:
    """Whether the file at `path` is a run file, by its content."""
    try:
        _manifest(path)
    except WorkloadError:
        return False
    return True


def _manifest_of_traces() -> dict[str, Any]:
    return {
        "format": CHAKRA, "version": list(VERSION), "machine": None, "machine_hash": None,
        "command": None, "model": None, "layout": None, "seed": 0, "options": {},
    }  # fmt: skip


def _manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    if os.path.isdir(path):
        inside = sorted(str(file) for file in Path(path).glob("*.trnsim"))
        raise WorkloadError(
            f"'{path}' is a folder: give a run file, {' or '.join(inside) or 'NAME.trnsim'}"
        )
    if not os.path.isfile(path):
        raise WorkloadError(f"no file '{path}': give the path of a run file")
    wrong = f"'{path}' is not a run file: trnsim run --out DIR writes one"
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json"))
    except (KeyError, ValueError, OSError, zipfile.BadZipFile):
        raise WorkloadError(wrong) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise WorkloadError(wrong)
    return manifest


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)


def _names(table: str, column: str) -> list[str] | None:
    return _core.workload_enum_names().get(f"{table}.{column}")


def _encode(table: str, columns: dict[str, Any]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    arrays = {}
    for column, values in columns.items():
        names = _names(table, column)
        if column.startswith(_LISTS):
            continue
        if names is not None:
            arrays[column] = pa.DictionaryArray.from_arrays(pa.array(values), pa.array(names))
        elif isinstance(values, list):
            arrays[column] = pa.array(values, pa.string())
        else:
            arrays[column] = pa.array(values)
    for column in _LISTS:
        if f"{column}_offsets" in columns:
            arrays[column] = pa.LargeListArray.from_arrays(
                columns[f"{column}_offsets"], columns[f"{column}_values"]
            )
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(arrays), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _decode(table: str, content: bytes) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    # In this thread alone: a reader's thread that still holds a Python object when the interpreter
    # ends stops the process.
    file = parquet.ParquetFile(pa.BufferReader(content), pre_buffer=False)
    read = file.read(use_threads=False)
    columns: dict[str, Any] = {}
    for column, values in zip(read.column_names, read.columns, strict=True):
        array = values.combine_chunks()
        array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
        names = _names(table, column)
        if names is not None:
            written = array.dictionary.to_pylist()
            if unknown := [name for name in written if name not in names]:
                raise WorkloadError(
                    f"a run file names a {column} '{unknown[0]}' that this trnsim "
                    "does not know: upgrade trnsim"
                )
            codes = np.array([names.index(name) for name in written], dtype=np.uint8)
            columns[column] = codes[array.indices.to_numpy(zero_copy_only=False)]
        elif column in _LISTS:
            columns[f"{column}_offsets"] = array.offsets.to_numpy(zero_copy_only=False)
            columns[f"{column}_values"] = array.values.to_numpy(zero_copy_only=False)
        elif pa.types.is_string(array.type):
            columns[column] = array.to_pylist()
        else:
            columns[column] = array.to_numpy(zero_copy_only=False)
    return columns
