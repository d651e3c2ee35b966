# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Versions of the data of machines: what changed in it, and which of it a machine was made of."""

from __future__ import annotations

import functools
import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import MachineError
from . import loader

_HERE = Path(__file__).parent
_CHANGES = _HERE / "changes.toml"
_FOLDERS = ("data", "stacks", "transports")
_FITTED = ("constants", "inference")


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
        number: from 1, over all sheets.
        date: YYYY-MM-DD.
        sheets: names of machine files, stack sheets, transports or fits that it changed.
        what: in words.
    """

    number: int
    date: str
    sheets: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class DataVersion:
    """Which data a machine was made of.

    Attributes:
        sheets: the machine's file and those that it extends, its stack's, its transport, and the
            fits that a stack lays over it; a file of one's own by its path.
        number: how many changes of these sheets there were; files of one's own have none.
        date: of the last of them; None without any.
    """

    sheets: tuple[str, ...]
    number: int
    date: str | None

    def __str__(self) -> str:
        if self.date is None:
            return f"no version: {', '.join(self.sheets)}"
        own = [name for name in self.sheets if name.endswith(".toml")]
        beside = f" and {', '.join(own)}, which has none" if own else ""
        return f"version {self.number} of {self.date}{beside}"


def changes(machine: str | None = None, stack: str | None = None) -> list[Change]:
    """What changed, the last change first: of all sheets, or of those that a machine (and a stack)
    is made of.

    Raises:
        MachineError: no machine or stack is called so.
    """
    found = _all()
    if machine is not None:
        mine = set(_sheets(machine, stack))
        found = [change for change in found if mine & set(change.sheets)]
    return found[::-1]


def version_of(machine: _core.Machine) -> DataVersion:
    """The version of the data that a machine was loaded from."""
    named = {figure.key: figure.value for figure in machine.figures}
    try:
        sheets = _sheets(machine.name, named.get("stack.name"), named.get("fabric.transport.kind"))
    except MachineError:  # made by hand, or its file is gone
        return DataVersion((machine.name,), 0, None)
    mine = [change for change in _all() if set(sheets) & set(change.sheets)]
    return DataVersion(sheets, len(mine), max((one.date for one in mine), default=None))


def digests() -> dict[str, str]:
    """The first 12 digits of the SHA-256 of each sheet, by its name."""
    paths = [path for folder in _FOLDERS for path in sorted((_HERE / folder).glob("*.toml"))]
    paths += [_HERE / f"{name}.toml" for name in _FITTED]
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in paths}


def recorded() -> dict[str, str]:
    """Those that `digests` gave when the last change was written."""
    return dict(_document().get("digests", {}))


@functools.cache  # every JSON asks for a version
def _document() -> dict[str, Any]:
    return tomllib.loads(_CHANGES.read_text(encoding="utf-8"))


def _all() -> list[Change]:
    return [
        Change(number, one["date"], tuple(one["sheets"]), one["what"])
        for number, one in enumerate(_document()["change"], 1)
    ]


def _sheets(machine: str, stack: str | None, transport: str | None = None) -> tuple[str, ...]:
    names = list(loader.sheets_of_machine(machine))
    if stack is not None:
        names += [*loader.sheets_of(stack), *_FITTED]
    if transport in loader.transports():
        names.append(str(transport))
    return tuple(dict.fromkeys(names))
