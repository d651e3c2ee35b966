# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The end of a process in which a training script ran."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Ends the process with `code`, as `sys.exit` does but without taking the interpreter apart.

    Python ends a thread that asks for the interpreter's lock after that began. The threads of
    torch's backward may do so when they drop what they held, where C++ cannot end a thread: the
    process would abort, and its exit code not be the script's. So what must happen at the end
    happens here: other threads are joined, what was registered runs, and what is in the buffers of
    files that nobody closed is written.
    """
    if "torch" not in sys.modules:
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for kind in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):  # what is in text first
        for file in gc.get_objects():
            if type(file) is not kind:
                continue
            try:
                file.flush()
            except (OSError, ValueError):  # closed, or the reader has gone
                if file in (sys.stdout, sys.stderr):
                    code = code or 120  # as Python itself has it
    os._exit(code)
