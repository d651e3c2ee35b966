# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""NVTX ranges as module names: ops inside of a range belong to a module of its name.

A range lies below the module or the range that it is pushed in: "layers.0.attention". Ranges that
start and end by a handle, across threads or on the device, and marks have no such place and say
nothing.
"""

from __future__ import annotations

import itertools
import threading

from trnsim import _torch

_handles = itertools.count(1)


class _Pushed(threading.local):
    def __init__(self) -> None:
        self.depths: list[int] = []  # how many modules and ranges this thread was in at each push


class Ranges:
    """The functions of ``torch._C._nvtx``."""

    def __init__(self) -> None:
        self._pushed = _Pushed()

    def rangePushA(self, message: str) -> int:
        depths = self._pushed.depths
        above = _torch.module_path()
        depths.append(_torch.module_depth())
        _torch.push_module(f"{above}.{message}" if above else str(message))
        return len(depths) - 1

    def rangePop(self) -> int:
        depths = self._pushed.depths
        if not depths:
            return -1  # as NVTX says it
        # A range that outlives the module that it was pushed in has ended with it.
        if _torch.module_depth() == depths.pop() + 1:
            _torch.pop_module()
        return len(depths)

    def rangeStartA(self, message: str) -> int:
        return next(_handles)

    def rangeEnd(self, handle: int) -> None:
        pass

    def deviceRangeStart(self, message: str, stream: int = 0) -> int:
        return next(_handles)

    def deviceRangeEnd(self, handle: object, stream: int = 0) -> None:
        pass

    def markA(self, message: str) -> None:
        pass
