# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The small training step of tests/project serves the reports too."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "project"))


@pytest.fixture(scope="session")
def four_chips():
    """A data-parallel step on four chips of trn2."""
    import small_workload

    import trnsim

    return trnsim.project(small_workload.train(world_size=4), "trn2")
