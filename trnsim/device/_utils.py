# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Device indices as torch's modules read them."""

from __future__ import annotations

import torch

from . import _C

Device = torch.device | str | int | None


def _get_device_index(device: Device, optional: bool = False) -> int:
    """The index that `device` names; the current one for None or a device without index.

    Raises ValueError for a device of another type, and, unless `optional`, for a missing index.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device if device >= 0 else torch._C._accelerator_getDeviceIndex()
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        name = _C.device_name()
        if device.type != name:
            raise ValueError(f"expected a {name} device, got {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise ValueError(f"expected a device, an index or None, got {device!r}")
    if not optional:
        raise ValueError(f"expected a device with an index, got {device}")
    return torch._C._accelerator_getDeviceIndex()
