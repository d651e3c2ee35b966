# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Memory of the simulated device, as the model of PyTorch's caching allocator counts it.

Bytes are plain integers. Peaks are since the last `reset_peak_memory_stats`.
"""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from typing import Any

import torch

from . import _C
from ._utils import Device, _get_device_index


def _index(device: Device) -> int:
    return _get_device_index(device, optional=True)


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """torch's flat dictionary: "active_bytes.all.peak", "num_ooms", ..."""
    return torch.accelerator.memory.memory_stats(_index(device))


def memory_allocated(device: Device = None) -> int:
    """Bytes in live tensors, rounded as the allocator rounds."""
    return torch.accelerator.memory.memory_allocated(_index(device))


def max_memory_allocated(device: Device = None) -> int:
    """The peak of `memory_allocated`."""
    return torch.accelerator.memory.max_memory_allocated(_index(device))


def memory_reserved(device: Device = None) -> int:
    """Bytes in segments that the allocator holds."""
    return torch.accelerator.memory.memory_reserved(_index(device))


def max_memory_reserved(device: Device = None) -> int:
    """The peak of `memory_reserved`."""
    return torch.accelerator.memory.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Peaks start again from the present values."""
    torch.accelerator.memory.reset_peak_memory_stats(_index(device))


def reset_max_memory_allocated(device: Device = None) -> None:
    """The same as `reset_peak_memory_stats`, as in torch.cuda."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Counts of what was ever allocated and freed start again from zero."""
    torch.accelerator.memory.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of the device."""
    return torch.accelerator.memory.get_memory_info(_index(device))


def empty_cache() -> None:
    """Gives back the segments that hold no live block."""
    torch.accelerator.memory.empty_cache()


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "python",
    max_entries: int = 2**63 - 1,
    device: Device = None,
    **unused: Any,
) -> None:
    """Keeps who allocated and freed what from here on; forgets what was kept before.

    Args:
        enabled: None stops; "state" and "all" start.
        context: None keeps no stacks.
        stacks: Python's frames are kept, whatever it says.
        max_entries: of each device's trace; older ones are dropped.
        device: for torch.cuda's signature; every device is recorded.
    """
    if enabled is None:
        _C.stop_memory_history()
        return
    if enabled not in ("state", "all"):
        raise ValueError(f"enabled is {enabled!r}: use None, 'state' or 'all'")
    _C.start_memory_history(max_entries if enabled == "all" else 0, context is not None)


def _snapshot(device: Device = None) -> dict[str, Any]:
    """Segments, blocks and the trace, as ``torch.cuda.memory._snapshot`` gives them."""
    count = torch.accelerator.device_count()
    wanted = range(count) if device is None else [_index(device)]
    segments, traces = [], [[] for _ in range(count)]
    for index in wanted:
        of_device, traces[index] = _C.memory_snapshot(index)
        segments += of_device
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {},
        "external_annotations": [],
    }


def _dump_snapshot(filename: str | os.PathLike[str] = "dump_snapshot.pickle") -> None:
    """Writes `_snapshot()` for torch's memory viewer, which reads pickles of protocol 4."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file, protocol=4)
