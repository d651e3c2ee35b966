# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A projection that the reports show."""

import pytest


@pytest.fixture(scope="session")
def four_chips():
    """A data-parallel step on four chips of trn2."""
    import small_workload

    import trnsim

    return trnsim.project(small_workload.train(world_size=4), "trn2")
