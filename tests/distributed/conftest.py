# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Both modes, one after the other; jobs.py of this folder is imported by its name."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))


@pytest.fixture(params=["compute", "phantom"])
def mode(request):
    """The capture mode; no tensor of another test may be alive when it changes."""
    gc.collect()
    return request.param
