# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Automatic mixed precision on the simulated device."""

from __future__ import annotations

from typing import Any

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast`` may run in: as CUDA's, float32 too, which scripts ask for
    around a part that is to be computed in it, inside of another autocast."""
    return [torch.bfloat16, torch.float16, torch.float32]


class autocast(torch.autocast):
    """``torch.autocast`` for this device."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.bfloat16,
        cache_enabled: bool = True,
    ) -> None:
        name = torch._C._get_privateuse1_backend_name()
        super().__init__(name, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler`` for this device."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(torch._C._get_privateuse1_backend_name(), *args, **kwargs)
