# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""plan: one job on several machines, or at several sizes.

`trnsim.compare` and `trnsim.scale`. Each run of a script is `trnsim run` in a process of its own;
what a machine or a size cannot do is a row with the reason.
"""

from trnsim.plan.comparison import Comparison, ComparisonRow, compare
from trnsim.plan.scaling import Point, Scaling, Stop, scale
from trnsim.plan.script_runs import RunOptions

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Point",
    "RunOptions",
    "Scaling",
    "Stop",
    "compare",
    "scale",
]
