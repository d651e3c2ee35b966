# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Makes our library serve CUDA; before torch is imported, since torch keeps what it finds then.

torch's own libraries are loaded first, by their path, so that their registrations for CUDA come
before ours, which replace them. The library is told by an environment variable, for the time of the
load only: child processes of the script are no part of it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from trnsim import torch_version
from trnsim.capture.cuda import driver
from trnsim.errors import CaptureError

_VARIABLE = "TRNSIM_SERVES"  # csrc/capture/runtime/device_type.h
_OURS = Path(torch_version.__file__).parent / "lib" / "libtrnsim_torch.so"

_is_loaded = False


def is_loaded() -> bool:
    """Whether this process is in the CUDA mode."""
    return _is_loaded


def load() -> None:
    """Puts this process into the CUDA mode.

    Raises:
        CaptureError: where a GPU is present, or torch was imported before.
    """
    global _is_loaded
    if _is_loaded:
        return
    count = driver.real_gpu_count()
    if count:
        raise CaptureError(
            f"the CUDA mode serves 'cuda' itself, and this process has {count} real GPU"
            f"{'s' if count > 1 else ''} of that name: hide them by CUDA_VISIBLE_DEVICES= (empty)"
        )
    if "torch" in sys.modules:
        raise CaptureError(
            "the CUDA mode must begin before torch is imported: start it by `trnsim run --cuda`"
        )
    torch_version.check_torch()
    libraries = Path(importlib.util.find_spec("torch").origin).parent / "lib"
    os.environ[_VARIABLE] = "cuda"
    try:
        ctypes.CDLL(str(libraries / "libtorch.so"))
        ctypes.CDLL(str(_OURS))
    except OSError as error:
        raise CaptureError(
            f"the compiled part of the device does not load ({error}): {torch_version.WAY_OUT}"
        ) from error
    finally:
        del os.environ[_VARIABLE]
    _is_loaded = True
