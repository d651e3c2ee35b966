# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a Workload says that a rank holds and sends."""

from __future__ import annotations

from jobs import calls_of, records_of

from trnsim import _core


def alive(workload, at: int) -> dict[str, int]:
    """Bytes by kind of the storages that are alive at a record."""
    workload.classify_storages()
    storages = workload.to_columns()["storages"]
    names = _core.workload_enum_names()["storages.kind"]
    found = dict.fromkeys(names, 0)
    for size, born, died, kind in zip(
        *(storages[name].tolist() for name in ("bytes", "born", "died", "kind")), strict=True
    ):
        if born <= at and (died < 0 or died > at):
            found[names[kind]] += size
    return found


def markers(workload, word: str) -> list[int]:
    return [i for i, line in enumerate(workload.print_records(0, len(workload))) if word in line]


def last_step(workload) -> tuple[int, int]:
    return markers(workload, "forward_begin")[-1], len(workload)


def messages(workload, phases=("forward", "backward")) -> dict[str, list[int]]:
    """Bytes of the calls of the last step, by group and kind."""
    begin, end = last_step(workload)
    lines = records_of(workload)
    index = {id(line): i for i, line in enumerate(lines)}
    found: dict[str, list[int]] = {}
    calls = iter(call for _, call in calls_of(workload))
    for line in lines:
        if line["kind"] != "call":
            continue
        call = next(calls)
        if begin <= index[id(line)] < end and line["phase"] in phases:
            found.setdefault(f"{call['kind']} {call['group']}", []).append(call["bytes"])
    return found


def kept_for_backward(workload) -> int:
    """Bytes of activations where the last step's first backward op begins."""
    begin, _ = last_step(workload)
    rows = records_of(workload)
    backward = next(i for i in range(begin, len(rows)) if rows[i]["phase"] == "backward")
    return alive(workload, backward)["activation"]


def groups_of(workload) -> list[dict]:
    table = workload.to_columns()["groups"]
    return [
        {"name": name, "ranks": ranks}
        for name, ranks in zip(table["name"], table["ranks"], strict=True)
    ]
