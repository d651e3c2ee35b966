# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""plan: one job on several machines, at several sizes, in every layout, disturbed, for many days.

`trnsim.compare`, `trnsim.scale`, `trnsim.search`, `trnsim.disturb` and `trnsim.goodput`. Each run
of a script is `trnsim run` in a process of its own, and each layout of a model a capture of the
reference program; what a machine or a size cannot do is a row with the reason.
"""

from trnsim.plan.comparison import Comparison, ComparisonRow, compare
from trnsim.plan.disturbance import Disturbance, DisturbedJob, DisturbedRow, disturb
from trnsim.plan.goodput import Goodput, goodput
from trnsim.plan.goodput_inputs import GoodputOptions
from trnsim.plan.layout_search import Search, search
from trnsim.plan.layouts import Space
from trnsim.plan.scaling import Point, Scaling, Stop, scale
from trnsim.plan.script_runs import RunOptions

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Disturbance",
    "DisturbedJob",
    "DisturbedRow",
    "Goodput",
    "GoodputOptions",
    "Point",
    "RunOptions",
    "Scaling",
    "Search",
    "Space",
    "Stop",
    "compare",
    "disturb",
    "goodput",
    "scale",
    "search",
]
