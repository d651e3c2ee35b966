# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Classes of typed storages, ``torch.trn.FloatStorage`` and the like: torch's old names."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.storage import _dtype_to_storage_type_map, _LegacyStorage


class _DeviceStorage(_LegacyStorage):
    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused, as by other devices: buffers are the host's."""
        raise RuntimeError("from_buffer: Not available for device storage")

    _new_with_weak_ptr = _new_shared_filename = from_buffer


def storage_classes(device_name: str) -> dict[str, type]:
    """A class for each dtype that torch has such a class for, by name.

    torch reads the device off the class's module.
    """
    classes = {}
    for dtype, name in _dtype_to_storage_type_map().items():
        if dtype.is_floating_point or dtype.is_complex or not str(dtype).startswith("torch.q"):
            facts = {"dtype": dtype, "_dtype": dtype, "__module__": f"torch.{device_name}"}
            classes[name] = type(name, (_DeviceStorage,), facts)
            torch._storage_classes.add(classes[name])
    return classes
