# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Fresh interpreters, and the command as a user runs it."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A script whose step is one product and its gradient.
PRODUCT = """
import torch
layer = torch.nn.Linear(4096, 4096, device="trn", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(3):
    layer(torch.ones(8192, 4096, device="trn", dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def interpreter(*arguments, cwd=None, **variables):
    """Runs Python with these arguments and environment variables, and returns what it did."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRNSIM_")}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def python(code, cwd=None, **variables):
    """Runs the lines in an interpreter of their own: one device per process."""
    return interpreter("-c", textwrap.dedent(code), cwd=cwd, **variables)


def trnsim(*arguments, cwd=None, **variables):
    """Runs `trnsim ARGUMENTS`."""
    return interpreter("-m", "trnsim", *arguments, cwd=cwd, **variables)
