# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Whether `trnsim._torch` fits the torch that is installed.

Torch's C++ interface changes with each minor, and a library that was built for another one fails to
load with a missing symbol, or worse, loads. The build leaves its minor in lib/torch_minor.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from trnsim.errors import CaptureError

_FILE = Path(__file__).parent / "lib" / "torch_minor"
WAY_OUT = "install trnsim again with: pip install --no-build-isolation ."


def minor_of(version: str) -> str:
    """ "2.14" of "2.14.1+cpu"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def built_for() -> str | None:
    """The minor that `_torch` was built for, or None when it was not built."""
    return _FILE.read_text(encoding="ascii").strip() if _FILE.exists() else None


def check_torch() -> None:
    """Raises CaptureError when `_torch` was built for another minor of torch, or not at all."""
    built, installed = built_for(), metadata.version("torch")
    if built is None:
        raise CaptureError(f"trnsim was built without its device: {WAY_OUT}")
    if built != minor_of(installed):
        raise CaptureError(
            f"trnsim was built for torch {built}, and torch {installed} is installed: {WAY_OUT}"
        )
