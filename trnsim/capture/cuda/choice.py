# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Which name the simulated device has in a run: "trn", or in the CUDA mode "cuda"."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from trnsim.capture.cuda import early
from trnsim.capture.cuda.request import Request
from trnsim.errors import CaptureError

# How torch says, without the CUDA mode, that there is no GPU.
_NO_GPU = (
    "NVIDIA driver",
    "not compiled with CUDA",
    "CUDA driver",
    "backend 'nccl'",
    "CUDA device",
)
# How CUDA's libraries say it, in the CUDA mode.
_RUNTIME = ("CUDA error", "CUDA driver", "cudaError", "NVIDIA driver", "active drivers", "libcuda")


@dataclass(frozen=True)
class DeviceChoice:
    """Made before anything runs.

    Attributes:
        asked: --cuda (True), --no-cuda (False) or neither.
        request: what the script's source says.
        name: of the device without the CUDA mode.
    """

    asked: bool | None
    request: Request
    name: str

    @property
    def is_cuda(self) -> bool:
        """Whether the run is in the CUDA mode."""
        return self.request.wants_cuda if self.asked is None else self.asked

    def enter(self) -> None:
        """Puts the process into the mode. CaptureError where a real GPU is in the way."""
        if not self.is_cuda:
            return
        try:
            early.load()
        except CaptureError as error:
            if self.asked:
                raise
            raise CaptureError(
                f"the script asks for CUDA ({self.request.line}): {error}; or --no-cuda"
            ) from None

    def notes(self) -> list[str]:
        """What the report says of it."""
        if not self.is_cuda:
            return []
        why = (
            "asked for by --cuda" if self.asked else f"the script asks for it: {self.request.line}"
        )
        return [f"CUDA mode: the simulated device is called cuda ({why})"]

    def advice(self, error: CaptureError) -> str:
        """The end of an error's line, where the other mode may be the way out."""
        if self.is_cuda:
            return ""
        if self.request.line is not None:
            return f"; or run with --cuda, since the script names CUDA ({self.request.line})"
        if self.asked is None and str(error).startswith("no op of "):
            return "; or run with --cuda, where something that it imports looks for CUDA alone"
        return ""

    def explain(self, exception: BaseException | None) -> str | None:
        """One line about an exception that ended the script, where the mode has to do with it."""
        if exception is None:
            return None
        text = str(exception)
        where = _last_line(exception)
        if self.is_cuda:
            what = None if isinstance(exception, CaptureError) else _what_was_asked(exception)
            return what and (
                f"{where}{what}: the CUDA mode serves what goes through PyTorch's own kernels"
            )
        if any(each in text for each in _NO_GPU):
            return f"{where}asks for CUDA, and the simulated device is {self.name}: use --cuda"
        return None


def _what_was_asked(exception: BaseException) -> str | None:
    """What of CUDA's an exception comes from."""
    files = [frame.filename for frame in traceback.extract_tb(exception.__traceback__)]
    if any(file.endswith("torch/utils/cpp_extension.py") for file in files):
        return "builds an extension of CUDA code"
    if any("/triton/" in file for file in files):
        return "launches a Triton kernel"
    if any(each in str(exception) for each in _RUNTIME):
        return "calls NVIDIA's runtime, by a kernel or a library of its own"
    return None


def _last_line(exception: BaseException) -> str:
    from trnsim.capture.cuda.limits import is_script_file

    for frame in reversed(traceback.extract_tb(exception.__traceback__)):
        if is_script_file(frame.filename):
            return f"{frame.filename}:{frame.lineno} "
    return "the script "
