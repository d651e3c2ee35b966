# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What the CUDA mode cannot serve, refused by name where a script asks for it."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from trnsim.errors import CaptureError

RUNTIME = "it calls NVIDIA's runtime, and there is no GPU behind the simulated device"
SEVERAL = (
    "one process with several devices is not simulated: use DistributedDataParallel, one rank a "
    "device"
)

# Functions of torch._C beside those of torch.cuda, and why each is refused.
C_FUNCTIONS = {
    "_broadcast": SEVERAL,
    "_broadcast_out": SEVERAL,
    "_broadcast_coalesced": SEVERAL,
    "_scatter_out": SEVERAL,
    "_gather": SEVERAL,
    "_gather_out": SEVERAL,
    "_nccl_all_gather": SEVERAL,
    "_nccl_all_reduce": SEVERAL,
    "_nccl_broadcast": SEVERAL,
    "_nccl_init_rank": RUNTIME,
    "_nccl_reduce": SEVERAL,
    "_nccl_reduce_scatter": SEVERAL,
    "_nccl_unique_id": RUNTIME,
}


def refuse(what: str, why: str) -> NoReturn:
    """Raises CaptureError in one line, with the script's line."""
    raise CaptureError(f"{script_line()}{what} is not served in the CUDA mode: {why}")


def refusing(what: str, why: str) -> Callable[..., Any]:
    """A function that refuses."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(what, why)

    refused.__name__ = what.rpartition(".")[2]
    return refused


def script_line() -> str:
    """ "train.py:12: ", the innermost line outside of libraries and of ours, if there is one."""
    for frame in reversed(traceback.extract_stack(sys._getframe())):
        if is_script_file(frame.filename):
            return f"{frame.filename}:{frame.lineno}: "
    return ""


@functools.cache
def is_script_file(name: str) -> bool:
    """Whether a file belongs to the user: to no installed library, and not to trnsim."""
    import os
    import sysconfig

    import trnsim

    path = os.path.abspath(name)
    if name.startswith("<") or not os.path.exists(path):
        return False
    libraries = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    libraries |= {
        os.path.dirname(trnsim.__file__),
        os.path.dirname(os.path.dirname(torch.__file__)),
    }
    return not any(path.startswith(folder + os.sep) for folder in libraries)
