# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Both modes, one after the other."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(params=["compute", "phantom"])
def mode(request):
    """The capture mode; no tensor of another test may be alive when it changes."""
    gc.collect()
    return request.param
