# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Whether this process could reach a real GPU."""

from __future__ import annotations

import ctypes

# CUDA's driver, wherever the loader finds it.
LIBRARY = "libcuda.so.1"


def real_gpu_count() -> int:
    """GPUs that the driver reports to this process; 0 without a driver."""
    try:
        driver = ctypes.CDLL(LIBRARY)
        initialize, count_devices = driver.cuInit, driver.cuDeviceGetCount
    except (OSError, AttributeError):
        return 0
    count = ctypes.c_int(0)
    if initialize(0) != 0 or count_devices(ctypes.byref(count)) != 0:
        return 0
    return max(0, count.value)
