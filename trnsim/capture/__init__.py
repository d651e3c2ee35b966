# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Capture: from a training script to a Workload.

``world`` says which job the captured rank is part of, ``script`` runs a script in it, ``hooks``
tells the recorder what only Python knows, ``process_group`` and ``groups`` stand for the other
ranks, ``sharded`` and ``attention_sharding`` know what FSDP and DTensor make of them, and
``patches`` holds every library function that is replaced for all that. Names are resolved when
used, since each of them needs torch.
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "CaptureResult": "trnsim.capture.script",
    "World": "trnsim.capture.world",
    "run_script": "trnsim.capture.script",
    "start_capture": "trnsim.capture.script",
    "stop_capture": "trnsim.capture.script",
}
__all__ = ["CaptureResult", "World", "install", "run_script", "start_capture", "stop_capture"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'trnsim.capture' has no attribute '{name}'")
    return getattr(importlib.import_module(_LAZY[name]), name)


def install() -> None:
    """Makes process groups of the device known to torch.distributed; run when it is loaded."""
    from trnsim.capture import attention_sharding, patches, process_group

    process_group.register_backend()
    patches.install_always()
    attention_sharding.install()
