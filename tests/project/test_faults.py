# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Slow chips and links that are slow or dead: what they cost, and what is refused."""

import pytest
import small_workload

import trnsim
from trnsim.errors import MachineError, ProjectError, SimulateError

CHIPS = 16


@pytest.fixture(scope="module")
def workload():
    return small_workload.train(world_size=CHIPS)


def step(workload, **faults):
    return trnsim.project(workload, "trn2", advise=False, interval=False, **faults)


def test_a_slow_chip_holds_up_the_others(workload):
    healthy = step(workload)
    slow = step(workload, slow_chips=["5=2"])
    assert slow.figures.healthy_step_ps == healthy.figures.step_ps
    assert healthy.figures.step_ps < slow.figures.step_ps <= 2 * healthy.figures.step_ps
    added = slow.slowdown_ps
    assert sum(added.values()) == slow.figures.step_ps - healthy.figures.step_ps
    assert added["stall"] > 0  # some calls wait for it; others' transfers are exposed by it
    assert healthy.slowdown_ps is None and healthy.figures.faults == []


def test_slower_still_costs_more_and_later_costs_less(workload):
    twice, thrice = (step(workload, slow_chips=[f"0={factor}"]) for factor in (2, 3))
    assert twice.figures.step_ps < thrice.figures.step_ps
    soon_ps = twice.figures.healthy_step_ps // 4
    later = step(workload, slow_chips=[f"0=2@{soon_ps}ps"])
    assert later.figures.healthy_step_ps < later.figures.step_ps < twice.figures.step_ps
    after = step(workload, slow_chips=["0=2@1s"])
    assert after.figures.step_ps == after.figures.healthy_step_ps


@pytest.mark.parametrize(
    "faults",
    [
        {"slow_chips": ["5=1.5"]},
        {"faults": ["x+ 0>1=0"]},
        {"faults": ["x+ 0>1=0.25"]},
        {"slow_chips": ["3=1.25@10us", "7=2"], "faults": ["y+ 0>4=0.5@20us"]},
    ],
)
def test_folding_changes_no_digit(workload, faults):
    folded, unfolded = (step(workload, fold=fold, **faults) for fold in (True, False))
    assert folded.timeline_hash == unfolded.timeline_hash
    assert folded.to_dict() == unfolded.to_dict()


def test_a_dead_link_is_routed_around_and_costs_time(workload):
    dead = step(workload, faults=["x+ 0>1=0"])
    assert dead.figures.step_ps > dead.figures.healthy_step_ps
    assert dead.slowdown_ps["exposed_communication"] > 0
    assert dead.to_dict()["faults"]["what"] == ["x+ 0>1 is dead"]


def test_a_slow_link_costs_no_less_than_a_faster_one(workload):
    steps = [step(workload, faults=[f"x+ 0>1={s}"]).figures.step_ps for s in ("1", "0.5", "0.1")]
    assert steps == sorted(steps) and steps[0] < steps[-1]


def test_a_link_that_dies_with_flows_on_it_is_named(workload):
    with pytest.raises(SimulateError, match=r"x\+ 0>1"):
        step(workload, faults=["x+ 0>1=0@1us"])


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"slow_chips": ["5"]}, ProjectError, "CHIP=FACTOR"),
        ({"slow_chips": ["five=2"]}, ProjectError, "CHIP=FACTOR"),
        ({"slow_chips": ["5=0.5"]}, ProjectError, "from 1 to 1000"),
        ({"slow_chips": ["5=2@soon"]}, ProjectError, "17=1.25@3ms"),
        ({"slow_chips": ["16=2"]}, ProjectError, "chips 0 to 15"),
        ({"faults": ["x+ 0>1"]}, ProjectError, "LINK=SHARE"),
        ({"faults": ["x+ 0>1=1.5"]}, ProjectError, "LINK=SHARE"),
        ({"slow_chips": ["5=2", "5=1.5"]}, ProjectError, "'5=2' and '5=1.5' are of the same time"),
        ({"faults": ["x+ 0>1=0.5", "x+ 0>1=0"]}, ProjectError, "keep one of them"),
        ({"faults": ["x+ 0>9=0"]}, MachineError, "x\\+ 0>9"),
    ],
)
def test_what_makes_no_sense_is_one_line(workload, asked, error, words):
    with pytest.raises(error, match=words) as raised:
        step(workload, **asked)
    assert "\n" not in str(raised.value)


def test_the_report_says_what_is_lost_and_why(workload):
    text = str(step(workload, slow_chips=["5=2"]))
    assert "engines of chip 5 take 2 times as long" in text
    without = text[text.index("without ") : text.index("limited by")]
    assert "%" in without and "exposed communication +" in without and "stall" in without
