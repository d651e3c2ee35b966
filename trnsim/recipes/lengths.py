# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Steps of very many micro-batches, by two shorter ones.

Once every stage of the pipeline is busy, each further micro-batch takes as long as the one before
it: what a step takes, and what it computes, then lies on the line through two shorter steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from trnsim.recipes.layout import Layout
from trnsim.recipes.models import Model

_MOST_LAYERS = 1500  # times micro-batches: longer steps are simulated by shorter ones


def simulated_lengths(model: Model, layout: Layout) -> list[Layout]:
    """The layout itself, or the same with the batches of two shorter steps."""
    count, stages = layout.micro_batches, layout.pp
    if count * model.layers <= _MOST_LAYERS or count <= 6 * stages:
        return [layout]
    times = 2 if stages >= 16 else 3
    of_one = layout.global_batch // count
    return [layout.with_(global_batch=of_one * stages * n) for n in (times, times + 1)]


def at_length(values: Sequence[float], lengths: Sequence[Layout], layout: Layout) -> float:
    """The value of the layout's step, by the values of its simulated lengths."""
    if len(values) == 1:
        return values[0]
    fewer, more = (length.micro_batches for length in lengths)
    of_one = (values[1] - values[0]) / (more - fewer)
    return values[1] + (layout.micro_batches - more) * of_one
