# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Storages of the CUDA mode: torch makes and resizes those of CUDA by libcudart, in C++."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from trnsim import _torch
from trnsim.capture.cuda import limits

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


def _share(storage: torch.UntypedStorage, *unused: Any) -> NoReturn:
    """Replaces ``UntypedStorage._share_cuda_``, by which a tensor goes to another process."""
    limits.refuse(
        "a CUDA tensor for another process of torch.multiprocessing",
        "only one process of the script is simulated: use DistributedDataParallel, one rank a "
        "device",
    )


# By their names in torch.UntypedStorage.
METHODS = {"__new__": staticmethod(_new), "resize_": _resize, "_share_cuda_": _share}
