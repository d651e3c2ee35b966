# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The simulated device: this package is what becomes ``torch.trn``.

Importing it (or ``import torch`` where trnsim is installed, see `_autoload`) makes
``torch.device("trn")`` known. The names are those of ``torch.cuda``, ``torch.xpu`` and the like;
``torch.accelerator`` works as well. Nothing runs on hardware: in compute mode the CPU computes the
values, in phantom mode tensors have shapes only. ``TRNSIM_MODE`` (phantom or compute) chooses,
compute where nobody says; ``trnsim run`` sets it.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from trnsim import capture

from . import _install

_name = _install.device_name()
_install.check_slot(_name)
_install.check_name(_name)
_C = _install.load_extension()

from . import _utils as _utils
from . import amp, memory, properties, random, storages, streams
from ._utils import Device, _get_device_index
from .amp import get_amp_supported_dtype
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from .properties import (
    DeviceProperties,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
)
from .random import (
    _is_in_bad_fork as _is_in_bad_fork,
)
from .random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    set_stream,
    stream,
)


def is_available() -> bool:
    """True: a simulated device is always there."""
    return True


def init() -> None:
    """Nothing to do: the device is ready once it is known."""


# torch.utils.checkpoint keeps and restores the generators of devices whose module has this.
_initialized = True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """Devices of this server: the ranks of one server of the machine, 1 before one is chosen."""
    return _C.device_count()


def current_device() -> int:
    """Index of the device that tensors are made on when none is named."""
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: Device) -> None:
    """Makes `device` current in this thread. RuntimeError when there is no such device."""
    torch._C._accelerator_setDeviceIndex(
        properties.check_index(_get_device_index(device, optional=True))
    )


def synchronize(device: Device = None) -> None:
    """Records that the host waits here for everything issued to `device`."""
    torch._C._accelerator_synchronizeDevice(_get_device_index(device, optional=True))


class device:
    """Context manager: `device` is current inside. None, or a negative index, changes nothing."""

    def __init__(self, device: Device) -> None:
        is_none = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if is_none else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)

    def __exit__(self, *unused: object) -> None:
        if self.idx >= 0:
            torch._C._accelerator_setDeviceIndex(self.prev_idx)


class device_of(device):
    """Context manager: the device of a tensor or storage is current inside."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == _name else None)


def step(tokens: int | None = None) -> None:
    """Marks the end of a step by hand, for a script whose steps no optimizer ends.

    Args:
        tokens: tokens that this rank's step worked on, for tokens per second.
    """
    if tokens is not None and tokens < 0:
        raise ValueError(f"tokens is {tokens}: it counts tokens, or is left out")
    if _C.is_recording():
        _C.mark_step(-1 if tokens is None else int(tokens))


globals().update(storages.storage_classes(_name))

_install.choose_mode(_C)
_C.install_fault_handler()
_install.install(sys.modules[__name__])
_C.set_host_clock_warning(streams._warn_host_clock)
capture.install()
_is_installed = True

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "StreamContext",
    "amp",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "step",
    "stream",
    "streams",
    "synchronize",
]
