# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Comparisons, scaling curves and searches read back from the JSON documents of their verbs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trnsim.errors import PlanError
from trnsim.origin import Origin
from trnsim.plan.comparison import Comparison, ComparisonRow
from trnsim.plan.scaling import Point, Scaling

# What is shown of a row with a run, and what it must be.
_NUMBER = (int, float)
_FIGURES: Mapping[str, tuple[type, ...]] = {
    "step_time_s": _NUMBER, "step_time_interval_s": (list,), "interval_basis": (str,),
    "breakdown_s": (dict,), "exposed_by_group": (dict,), "bottleneck": (str,),
    "mfu": (*_NUMBER, type(None)), "memory_peak_bytes": (int,), "memory_capacity_bytes": (int,),
    "fits": (bool,), "tokens_per_s": (*_NUMBER, type(None)),
    "samples_per_s": (*_NUMBER, type(None)), "cost_usd_per_step": (*_NUMBER, type(None)),
    "energy_j_per_step": (*_NUMBER, type(None)),
}  # fmt: skip


def read_scaling(path: str | os.PathLike[str]) -> Scaling:
    """What `trnsim scale --json` printed, or --out left as scaling.json.

    Raises:
        PlanError: a file that cannot be read, or that is no such document.
    """
    verb, document = "scale", _read(path, "scale")
    points = []
    for i, found in enumerate(_list(path, verb, document, "points")):
        where = f"points[{i}]"
        chips = _get(path, verb, found, "chips", (int,), where)
        figures = _figures(path, verb, found, where)
        points.append(
            Point(
                chips, figures, found.get("reason") or "", found.get("seconds_to_simulate"),
                bool(found.get("reused")),
            )
        )  # fmt: skip
    rounded = {
        _get(path, verb, each, "asked", (int,), "rounded"): _get(
            path, verb, each, "chips", (int,), "rounded"
        )
        for each in _list(path, verb, document, "rounded")
    }
    return Scaling(
        tuple(points),
        _get(path, verb, document, "machine", (str,)),
        _get(path, verb, document, "stack", (str, type(None))),
        _get(path, verb, document, "total", (int, type(None))),
        rounded,
        document.get("model"),
        _origin(document),
    )


def read_comparison(path: str | os.PathLike[str]) -> Comparison:
    """What `trnsim compare --json` printed.

    Raises:
        PlanError: a file that cannot be read, or that is no such document.
    """
    verb, document = "compare", _read(path, "compare")
    rows = []
    for i, found in enumerate(_list(path, verb, document, "rows")):
        where = f"rows[{i}]"
        sources = {
            what: (each["value"], each["confidence"], each["source"])
            for what, each in _get(path, verb, found, "sources", (dict,), where).items()
            if isinstance(each, dict) and {"value", "confidence", "source"} <= each.keys()
        }
        rows.append(
            ComparisonRow(
                _get(path, verb, found, "label", (str,), where),
                _get(path, verb, found, "machine", (str,), where),
                _get(path, verb, found, "stack", (str, type(None)), where),
                _get(path, verb, found, "chips", (int, type(None)), where),
                _figures(path, verb, found, where), found.get("reason") or "",
                found.get("ideal_chips"), found.get("chips_off"),
                found.get("seconds_to_simulate"), sources, bool(found.get("power_is_of_chip")),
            )
        )  # fmt: skip
    return Comparison(
        tuple(rows),
        _get(path, verb, document, "equal", (str, type(None))),
        _get(path, verb, document, "asked_chips", (int, type(None))),
        document.get("model"),
        _origin(document),
    )


def _origin(document: Mapping[str, Any]) -> Origin:
    """What the document is of; one from before it was written has at most a model's name."""
    if "origin" not in document and document.get("model"):
        return Origin(model={"name": document["model"]})
    return Origin.of(document.get("origin"))


# What is shown of a layout, and what it must be.
_LAYOUT: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("tp", "pp", "vp", "cp", "ep", "dp", "zero", "micro_batch", "chips"), (int,)),
    "recompute": (str, list), "step_time_s": _NUMBER,
    "step_time_interval_s": (list, type(None)), "memory_peak_bytes": (int,),
    "memory_capacity_bytes": (int,), "fits": (bool,), "on_front": (bool,),
    "mfu": (*_NUMBER, type(None)), "tokens_per_s": _NUMBER,
    "usd_per_million_tokens": (*_NUMBER, type(None)), "bottleneck": (str,),
}  # fmt: skip


def read_search(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `trnsim search --json` printed: the document, whose rows are as they have to be.

    Raises:
        PlanError: a file that cannot be read, or that is no such document.
    """
    verb, document = "search", _read(path, "search")
    _get(path, verb, document, "machine", (str,))
    _get(path, verb, document, "stack", (str, type(None)))
    _get(path, verb, document, "model", (dict,))
    _get(path, verb, document, "slower_by", _NUMBER)
    _get(path, verb, document, "counts", (dict,))
    _list(path, verb, document, "wrong_bounds")
    for table in ("best", "front", "simulated"):
        for i, row in enumerate(_list(path, verb, document, table)):
            for key, types in _LAYOUT.items():
                _get(path, verb, row, key, types, f"{table}[{i}]")
    return document


def _read(path: str | os.PathLike[str], verb: str) -> dict[str, Any]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"cannot read '{path}': {error.strerror or error}") from None
    except ValueError:
        raise _no_document(path, verb, "it is no JSON") from None
    if not isinstance(document, dict):
        raise _no_document(path, verb, "it is no JSON object")
    return document


def _no_document(path: str | os.PathLike[str], verb: str, why: str) -> PlanError:
    return PlanError(
        f"'{path}' is no document of trnsim {verb}: {why}; give what trnsim {verb} --json prints"
    )


def _get(
    path: str | os.PathLike[str],
    verb: str,
    found: Any,
    key: str,
    types: tuple[type, ...],
    where: str = "",
) -> Any:
    name = f"{where}.{key}" if where else key
    if not isinstance(found, dict) or key not in found:
        raise _no_document(path, verb, f"'{name}' is missing")
    value = found[key]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise _no_document(path, verb, f"'{name}' is {json.dumps(value)[:40]}")
    return value


def _list(
    path: str | os.PathLike[str], verb: str, document: dict[str, Any], key: str
) -> list[dict[str, Any]]:
    entries = _get(path, verb, document, key, (list,))
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise _no_document(path, verb, f"'{key}[{i}]' is no JSON object")
    return list(entries)


def _figures(
    path: str | os.PathLike[str], verb: str, found: dict[str, Any], where: str
) -> dict[str, Any] | None:
    """The row as a document of a run; None where it has no run."""
    if found.get("step_time_s") is None:
        _get(path, verb, found, "reason", (str,), where)
        return None
    for key, types in _FIGURES.items():
        _get(path, verb, found, key, types, where)
    interval = found["step_time_interval_s"]
    if len(interval) != 2 or not all(isinstance(end, _NUMBER) for end in interval):
        raise _no_document(path, verb, f"'{where}.step_time_interval_s' is {json.dumps(interval)}")
    if "exposed_communication" not in found["breakdown_s"]:
        raise _no_document(path, verb, f"'{where}.breakdown_s' is no breakdown")
    return found
