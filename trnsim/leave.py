# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The end of a process in which a training script ran."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Ends the process with `code`, as `sys.exit` does but without taking the interpreter apart.

    Python ends a thread that asks for the interpreter's lock after that began. The threads of
    torch's backward may do so when they drop what they held, where C++ cannot end a thread: the
    process would abort, and its exit code not be the script's. So what must happen at the end
    happens here: other threads are joined, what was registered runs, and output is written.
    """
    if "torch" not in sys.modules:
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # a script may have closed or replaced it
            code = code or 120  # as Python itself has it
    os._exit(code)
