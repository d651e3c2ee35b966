# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.profiler reads the device's simulated time, as csrc/capture/profiler tells it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from trnsim import _torch


def with_device_time(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``torch.autograd.profiler.profile.__init__``.

    For our device it asks Kineto for device activities, and there is no such tracer; torch's other
    way, events around each op, is what the device has. It gives "self device time" and its totals
    in ``key_averages()``, and no rows of device kernels in an exported trace.
    """

    @functools.wraps(original)
    def __init__(profile: Any, *args: Any, **kwargs: Any) -> None:
        original(profile, *args, **kwargs)
        from torch._C._profiler import ProfilerActivity, ProfilerState

        if getattr(profile, "profiler_kind", None) == ProfilerState.KINETO_PRIVATEUSE1:
            profile.profiler_kind = ProfilerState.KINETO_PRIVATEUSE1_FALLBACK
            profile.kineto_activities.discard(ProfilerActivity.PrivateUse1)
        is_cuda = _torch.device_name() == "cuda" and getattr(profile, "use_device", None) == "cuda"
        if is_cuda and profile.profiler_kind == ProfilerState.KINETO:
            profile.profiler_kind = ProfilerState.KINETO_GPU_FALLBACK
            profile.kineto_activities.discard(ProfilerActivity.CUDA)

    return __init__
