# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Storages of the CUDA mode: torch makes and resizes those of CUDA by libcudart, in C++."""

from __future__ import annotations

from typing import Any

import torch

from trnsim import _torch

_Base = torch._C.StorageBase


def _new(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Replaces ``UntypedStorage.__new__``."""
    is_ours = device is not None and torch.device(device).type == "cuda"
    if not is_ours or kwargs or len(args) > 1:
        where = {} if device is None else {"device": device}
        return _Base.__new__(cls, *args, **where, **kwargs)
    content = args[0] if args else 0
    if isinstance(content, int):
        made = torch.empty(content, dtype=torch.uint8, device=device)
    else:
        made = torch.tensor(list(content), dtype=torch.uint8).to(device)
    return made.untyped_storage()


def _resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    """Replaces ``UntypedStorage.resize_``."""
    if storage.device.type != "cuda":
        return _Base.resize_(storage, size)
    view = torch.empty(0, dtype=torch.uint8, device=storage.device)
    view.set_(storage, 0, (0,), (1,))
    _torch.resize_storage(view, size)
    return storage


# By their names in torch.UntypedStorage.
METHODS = {"__new__": staticmethod(_new), "resize_": _resize}
