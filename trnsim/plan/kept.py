# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Documents of runs that ended well, kept in a folder by what they depend on."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trnsim.errors import ReportError
from trnsim.files import make_folder, write_whole
from trnsim.plan import inputs

_VARIABLES = ("PYTHONPATH", "TRNSIM_DEVICE_NAME")
_PACKAGE = Path(__file__).resolve().parents[1]


class Kept:
    """A folder of documents, a file each.

    A document holds as long as its key (see `key_of`) and the files that its run rested on are the
    same. Only runs that ended well are kept: what failed is tried again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, name: str, key: str) -> dict[str, Any] | None:
        """What `keep` was given for the key; None where there is nothing that still holds."""
        try:
            saved = json.loads(self._path(name, key).read_text(encoding="utf-8"))
            holds = saved["key"] == key and inputs.are_unchanged(saved["inputs"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged: none
            return None
        return saved if holds else None

    def keep(self, name: str, key: str, files: Iterable[str], saved: Mapping[str, Any]) -> None:
        """Writes it whole, with the files that the run rested on.

        Raises:
            ReportError: it cannot be written.
        """
        document = {"key": key, "inputs": inputs.digests(files), **saved}
        write_document(self._path(name, key), document)

    def _path(self, name: str, key: str) -> Path:
        return self._folder / f"{name}-{key[:16]}.json"


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Writes JSON, and makes its folder; raises ReportError where that is not possible."""
    text = json.dumps(document, allow_nan=False, indent=1) + "\n"
    make_folder(path.parent, ReportError)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"), ReportError)


def key_of(**asked: Any) -> str:
    """A hash of what was asked (JSON values), the working folder, PYTHONPATH, the device's name,
    and the versions of Python and of every installed package: of trnsim itself, the bytes of its
    files."""
    facts = {
        "folder": os.getcwd(),
        "environment": {name: os.environ.get(name) for name in _VARIABLES},
        "python": sys.version,
        "packages": _packages(),
        "trnsim": _own_digest(),
        **asked,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@functools.cache
def _packages() -> list[str]:
    found = importlib.metadata.distributions()
    return sorted(f"{each.metadata['Name']} {each.version}" for each in found)


@functools.cache
def _own_digest() -> str:
    together = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in (".py", ".toml", ".so"):
            together.update(f"{path.relative_to(_PACKAGE)} {inputs.digest(path)}\n".encode())
    return together.hexdigest()
