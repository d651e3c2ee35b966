# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Which files a run rests on: Python files that it ran, and files that Python opened to read."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LARGEST_READ = 64 << 20  # bytes; of a larger file, size and time of change stand for its content
_PACKAGE = Path(__file__).resolve().parents[1]
_SYSTEM = ("/proc/", "/sys/", "/dev/")


def watch(path: str) -> None:
    """Writes the list to `path` when this process ends. To be called once, before anything else.

    Not in it: files that the process wrote, those of installed packages, of Python and of trnsim,
    and what libraries in other languages read.
    """
    read: set[str] = set()
    written: set[str] = set()

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event == "exec" and isinstance(given[0], types.CodeType):
            names, name = read, given[0].co_filename
        elif event == "open" and isinstance(given[1], str):
            names, name = written if set(given[1]) & set("wax+") else read, given[0]
        else:
            return
        if isinstance(name, (str, bytes)):
            with contextlib.suppress(OSError):  # the working folder has gone
                names.add(os.path.abspath(os.fsdecode(name)))

    def write() -> None:
        own = [name for name in sorted(read - written) if _is_of_the_user(name)]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(own, file)

    atexit.register(write)
    sys.addaudithook(hook)


def _is_of_the_user(name: str) -> bool:
    installed = (sys.prefix, sys.base_prefix, sys.exec_prefix, str(_PACKAGE))
    below = tuple(os.path.join(folder, "") for folder in installed)
    if name.startswith((*below, *_SYSTEM)) or "__pycache__" in name:
        return False
    return "site-packages" not in name and os.path.isfile(name)


def digests(paths: Iterable[str]) -> dict[str, str]:
    """What the content of each file is, in a word."""
    return {path: digest(path) for path in paths}


def are_unchanged(known: Mapping[str, str]) -> bool:
    """Whether all files are still as `digests` found them."""
    return all(digest(path) == found for path, found in known.items())


def digest(path: str | os.PathLike[str]) -> str:
    """Of a file's content; "" where there is none to read."""
    try:
        about = os.stat(path)
        if about.st_size > LARGEST_READ:
            return f"{about.st_size} bytes of {about.st_mtime_ns}"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
