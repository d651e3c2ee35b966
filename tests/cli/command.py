# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The command as a user runs it."""

import subprocess
import sys


def trnsim(*arguments, cwd=None):
    """Runs the command and returns what it did."""
    return subprocess.run(
        [sys.executable, "-m", "trnsim", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
