# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trnsim.errors import TrnSimError


def make_folder(path: Path, error: type[TrnSimError]) -> None:
    """Makes a folder and those above it, where they are not there; raises `error` where it can
    not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise error(f"cannot make '{path}': {problem.strerror or problem}") from None


def check_place(path: Path, error: type[TrnSimError], option: str = "") -> None:
    """Raises `error` where no file can be written, so that a long command says so first.

    Args:
        option: the one that the path is of, for the message.
    """
    what = f"{option} {path}" if option else f"cannot write '{path}'"
    folder = path.absolute().parent
    if not os.path.isdir(folder):  # of names that are too long Path's own raises
        raise error(f"{what}: there is no folder '{folder}': make it first")
    if os.path.isdir(path):
        raise error(f"{what}: it is a folder: name a file in it")
    part = part_of(path)
    try:
        part.touch()
        part.unlink()
    except OSError as problem:
        raise error(
            f"{what}: it cannot be written ({problem.strerror}): choose another place"
        ) from None


def write_whole(path: Path, write: Callable[[Path], Any], error: type[TrnSimError]) -> None:
    """Calls `write` with a path beside `path`, which then takes its name; raises `error` where the
    disk or the folder does not let it, and leaves nothing behind."""
    part = part_of(path)
    try:
        write(part)
        os.replace(part, path)
    except OSError as problem:
        raise error(f"cannot write '{path}': {problem.strerror or problem}") from None
    finally:
        part.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """Where a file is written until it is whole: beside its place."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")
