# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Shares against a linear program: lexicographic max-min on small networks, exact to rounding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from trnsim._core import find_violation, solve_max_min

MOST_LINKS, MOST_FLOWS = 5, 8
SOLVERS = ["reference", "heap", "dp", "repair"]


@st.composite
def networks(draw):
    """Capacities, and for each flow its links with weights."""
    count = draw(st.integers(1, MOST_LINKS))
    capacities = draw(st.lists(st.integers(10**9, 10**12), min_size=count, max_size=count))
    uses = st.dictionaries(st.integers(0, count - 1), st.integers(1, 4), min_size=1)
    flows = draw(st.lists(uses, min_size=1, max_size=MOST_FLOWS))
    return capacities, [sorted(flow.items()) for flow in flows]


def lexicographic_max_min(capacities, flows):
    """Raises the smallest rate as far as it goes, fixes the flows that cannot rise, and so on.

    A flow is fixed when no feasible point gives it more than the common level.
    """
    load = np.zeros((len(capacities), len(flows)))
    for flow, uses in enumerate(flows):
        for link, weight in uses:
            load[link, flow] = weight
    scale = max(capacities)
    limits = np.array(capacities) / scale
    fixed = {}
    while len(fixed) < len(flows):
        free = [f for f in range(len(flows)) if f not in fixed]
        # variables: the rates, then the level t; free rates are at least t
        rows = np.zeros((len(free), len(flows) + 1))
        for row, flow in enumerate(free):
            rows[row, flow], rows[row, -1] = -1, 1
        above = np.vstack([np.hstack([load, np.zeros((len(capacities), 1))]), rows])
        bounds = [(fixed[f], fixed[f]) if f in fixed else (0, None) for f in range(len(flows))]
        limit = np.concatenate([limits, np.zeros(len(free))])
        level = linprog([0] * len(flows) + [-1], above, limit, bounds=[*bounds, (0, None)]).x[-1]
        for flow in free:
            aim = np.zeros(len(flows) + 1)
            aim[flow] = -1
            at_least = [
                (level * (1 - 1e-9), None) if f in free else b for f, b in enumerate(bounds)
            ]
            best = linprog(aim, above[: len(capacities)], limits, bounds=[*at_least, (0, None)])
            if -best.fun <= level * (1 + 1e-6):
                fixed[flow] = level
    return np.array([fixed[f] for f in range(len(flows))]) * scale


@settings(max_examples=80, deadline=None)
@given(networks())
def test_shares_are_the_lexicographic_maximum(network):
    capacities, flows = network
    expected = lexicographic_max_min(capacities, flows)
    for solver in SOLVERS:
        rates = solve_max_min(capacities, flows, solver)
        np.testing.assert_allclose(rates, expected, rtol=1e-5, err_msg=solver)


@settings(max_examples=300, deadline=None)
@given(networks())
def test_all_solvers_give_the_certified_allocation(network):
    capacities, flows = network
    rates = solve_max_min(capacities, flows, "reference")
    for solver in SOLVERS:
        assert solve_max_min(capacities, flows, solver) == rates, solver
    assert find_violation(capacities, flows, rates) == ""


@settings(max_examples=200, deadline=None)
@given(networks(), st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(network, random):
    capacities, flows = network
    order = list(range(len(flows)))
    random.shuffle(order)
    rates = solve_max_min(capacities, flows, "repair")
    shuffled = solve_max_min(capacities, [flows[i] for i in order], "repair")
    assert shuffled == [rates[i] for i in order]


def test_an_unknown_solver_is_named():
    with pytest.raises(
        ValueError, match="no solver 'simplex': choose reference, heap, dp or repair"
    ):
        solve_max_min([1], [[(0, 1)]], "simplex")


def test_one_unit_more_or_less_is_no_allocation():
    # link 0: 2 u >= 5 at 3; link 1: 2 u >= 4 at 2, which stops flows 0 and 2; flow 1 gets 5 - 2
    capacities, flows = [5, 4], [[(0, 1), (1, 1)], [(0, 1)], [(1, 1)]]
    assert solve_max_min(capacities, flows, "repair") == [2, 3, 2]
    assert find_violation(capacities, flows, [2, 2, 2]) == "flow 1 is stopped by no link"
    assert find_violation(capacities, flows, [2, 4, 2]) == "link 0 was full one level lower"
