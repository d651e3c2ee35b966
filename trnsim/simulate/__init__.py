# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""simulate: from a placed System to a Timeline, and the block that records and simulates one.

Calling the package is `trnsim.simulate.simulate`: `with trnsim.simulate("trn2", chips=4) as sim:`.
"""

from trnsim._callable import make_callable
from trnsim.simulate.context import Simulation, simulate
from trnsim.simulate.processes import simulate_seeds, simulate_system

__all__ = ["Simulation", "simulate", "simulate_seeds", "simulate_system"]

make_callable(__name__, simulate)
