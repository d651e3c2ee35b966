# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""plan: one job on several machines, at several sizes, or for many days.

`trnsim.compare`, `trnsim.scale` and `trnsim.goodput`. Each run of a script is `trnsim run` in a
process of its own; what a machine or a size cannot do is a row with the reason.
"""

from trnsim.plan.comparison import Comparison, ComparisonRow, compare
from trnsim.plan.goodput import Goodput, goodput
from trnsim.plan.goodput_inputs import GoodputOptions
from trnsim.plan.scaling import Point, Scaling, Stop, scale
from trnsim.plan.script_runs import RunOptions

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Goodput",
    "GoodputOptions",
    "Point",
    "RunOptions",
    "Scaling",
    "Stop",
    "compare",
    "goodput",
    "scale",
]
