# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Libraries of C++ ops (torchvision) bring CUDA kernels of their own: ours stand in for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from trnsim import _torch


def served_after_load(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``torch.ops.load_library``."""
    names, has = torch._C._dispatch_get_all_op_names, torch._C._dispatch_has_kernel_for_dispatch_key

    @functools.wraps(original)
    def load_library(self: Any, path: str) -> None:
        before = set(names())
        original(self, path)
        for name in sorted(set(names()) - before):
            if has(name, "CUDA"):
                _torch.serve_op(name, replace=True)

    return load_library
