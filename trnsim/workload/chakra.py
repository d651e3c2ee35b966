# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Chakra execution traces of a step (MLCommons), one a rank, as Workloads.

A COMP node becomes an op that is costed by its num_ops (FLOPs) and tensor_size (bytes), a
communication node a call, and what a node depends on the tensors that it reads. Ranks that do the
same become one role. What a trace says that cannot be kept is refused or said in the notes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trnsim import _core
from trnsim.errors import WorkloadError
from trnsim.workload.chakra_nodes import Trace, read_trace
from trnsim.workload.chakra_records import records_of

_NAME = re.compile(r"(.+)\.(\d+)\.et")


def is_chakra(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds Chakra traces, or NAME of NAME.0.et is given."""
    place = Path(path)
    if place.is_dir():
        return any(_NAME.fullmatch(name) for name in os.listdir(place))
    return not place.exists() and Path(f"{place}.0.et").is_file()


def from_chakra(
    path: str | os.PathLike[str],
    *,
    groups: str | os.PathLike[str] | None = None,
    dims: Sequence[int] | None = None,
    dtype: str = "bfloat16",
) -> list[_core.Workload]:
    """The Workloads of the traces NAME.0.et, NAME.1.et, ..., one of every role.

    Args:
        path: NAME with its folder, or a folder that holds the traces of one NAME.
        groups: a JSON object of pg_name to ranks (ASTRA-sim's comm-group file); NAME.json beside
            the traces when it is there.
        dims: sizes of the network's dimensions, the first one fastest, which involved_dim counts.
        dtype: of the FLOPs of traces that do not say it, which are those of others.

    Raises:
        WorkloadError: no traces, ranks that are missing, a damaged file, nodes that cannot be
            represented, or groups that are not known.
    """
    name, files = _files_of(Path(path))
    members = _read_groups(Path(f"{name}.json") if groups is None else Path(groups), groups is None)
    world, read, cached = len(files), [], {}
    for rank, file in enumerate(files):
        content = file.read_bytes()
        if content not in cached:
            cached[content] = read_trace(file, content)
        read.append(cached[content].placed(rank, world, members, tuple(dims or ())))
    roles: dict[Any, list[int]] = {}
    for rank, trace in enumerate(read):
        roles.setdefault(trace.what_it_does(rank), []).append(rank)
    _check_groups(read, roles.values())
    return [records_of(read[ranks[0]], ranks, world, len(roles), dtype) for ranks in roles.values()]


def _files_of(path: Path) -> tuple[Path, list[Path]]:
    folder = path if path.is_dir() else path.parent
    found: dict[str, dict[int, Path]] = {}
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        if match := _NAME.fullmatch(name):
            found.setdefault(match[1], {})[int(match[2])] = folder / name
    if not path.is_dir():
        found = {name: files for name, files in found.items() if name == path.name}
    if not found:
        raise WorkloadError(f"no Chakra traces '{path}': give a folder, or NAME of NAME.0.et")
    if len(found) > 1:
        raise WorkloadError(
            f"'{path}' holds Chakra traces of {', '.join(found)}: give one, as "
            f"{folder / min(found)}"
        )
    ((name, files),) = found.items()
    for rank in range(len(files)):
        if rank not in files:
            raise WorkloadError(
                f"'{folder / name}' has traces of {len(files)} ranks, and none of rank {rank}: "
                "give those of all ranks"
            )
    return folder / name, [files[rank] for rank in range(len(files))]


def _read_groups(path: Path, may_be_missing: bool) -> dict[str, tuple[int, ...]]:
    if may_be_missing and not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        groups = {str(name): tuple(ranks) for name, ranks in document.items()}
        if not all(type(rank) is int for ranks in groups.values() for rank in ranks):
            raise ValueError("ranks are whole numbers")
    except OSError as error:
        raise WorkloadError(f"cannot read '{path}': {error.strerror or error}") from None
    except (ValueError, AttributeError, TypeError) as error:
        raise WorkloadError(
            f"'{path}' is no file of groups: {error}; write an object of pg_name to ranks"
        ) from None
    return groups


def _check_groups(read: Sequence[Trace], roles: Any) -> None:
    """Members of a group have to name the same one: the rest of a role is placed by its first."""
    for ranks in roles:
        inside = set(ranks)
        for rank in ranks:
            for slot, group in enumerate(read[rank].groups):
                if group.count(rank) != 1:
                    raise WorkloadError(
                        f"the trace of rank {rank} calls on a group of ranks {_few(group)}, which "
                        "it is not in: correct its pg_name or the file of groups"
                    )
                for other in group:
                    if other in inside and read[other].groups[slot] != group:
                        raise WorkloadError(
                            f"ranks {rank} and {other} do the same, but their calls are on groups "
                            f"{_few(group)} and {_few(read[other].groups[slot])}, which overlap"
                        )


def _few(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown + ", ..." if len(ranks) > 8 else shown
