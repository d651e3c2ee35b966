# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What `import torch` runs when trnsim is installed: the `torch.backends` entry point.

It must be quick, silent and harmless: whatever goes wrong becomes one warning, and `import torch`
goes on without the device. Three environment variables decide:

- ``TRNSIM_AUTOLOAD=0``: trnsim stays out until something imports ``trnsim.device``.
- ``TRNSIM_AUTOLOAD=1``: trnsim takes the device although other device plugins are installed.
- ``TORCH_DEVICE_BACKEND_AUTOLOAD=0``: torch loads no plugin at all (torch's own switch).

PyTorch has one free device slot (PrivateUse1) per process. When other plugins are installed that
might want it, trnsim leaves it to them, unless it is told otherwise.
"""

from __future__ import annotations

import os
import sys
import warnings

PACKAGE = "trnsim.device"


def autoload() -> None:
    """Makes the device known to torch. Never raises."""
    choice = os.environ.get("TRNSIM_AUTOLOAD", "")
    if choice == "0":
        return
    module = sys.modules.get(PACKAGE)
    if module is not None and not getattr(module, "_is_installed", False):
        return  # `import trnsim.device` came before `import torch`, and finishes the work itself
    others = [] if choice == "1" else other_plugins()
    if others:
        warnings.warn(
            f"trnsim leaves the device to {' and '.join(others)}: one plugin per process can hold "
            f"it. Set TRNSIM_AUTOLOAD=1 to let trnsim have it, or TRNSIM_AUTOLOAD=0 to silence "
            f"this",
            stacklevel=2,
        )
        return
    try:
        __import__(PACKAGE)
    except Exception as error:  # noqa: BLE001  whatever it is, `import torch` must go on
        warnings.warn(
            f"trnsim: there is no simulated device: {error} (TRNSIM_AUTOLOAD=0 silences this)",
            stacklevel=2,
        )


def other_plugins() -> list[str]:
    """Names of the other installed plugins of the `torch.backends` group."""
    from importlib.metadata import entry_points

    entries = entry_points(group="torch.backends")
    return sorted({e.name for e in entries if e.module.partition(".")[0] != "trnsim"})
