# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""plan: one job on several machines, at several sizes, or disturbed.

`trnsim.compare`, `trnsim.scale` and `trnsim.disturb`. Each run of a script is `trnsim run` in a
process of its own; what a machine or a size cannot do is a row with the reason.
"""

from trnsim.plan.comparison import Comparison, ComparisonRow, compare
from trnsim.plan.disturbance import Disturbance, DisturbedJob, DisturbedRow, disturb
from trnsim.plan.scaling import Point, Scaling, Stop, scale
from trnsim.plan.script_runs import RunOptions

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Disturbance",
    "DisturbedJob",
    "DisturbedRow",
    "Point",
    "RunOptions",
    "Scaling",
    "Stop",
    "compare",
    "disturb",
    "scale",
]
