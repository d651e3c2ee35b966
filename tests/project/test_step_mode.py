# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Projections whose collectives are made of steps: as fluid ones where nothing disturbs them, kept
in run files, and told in the result."""

import pytest
from small_workload import FORWARD, FORWARD_BEGIN, OPTIMIZER_BEGIN, OPTIMIZER_END, Script, train

import trnsim
from trnsim.errors import LowerError

ALL_REDUCE, ALL_GATHER = 0, 1


def both_ways(workload, machine, **options):
    return [
        trnsim.project(workload, machine, advise=False, interval=False, collectives=way, **options)
        for way in ("fluid", "step")
    ]


def guesses(projection):
    return {name: value for name, value, _ in projection.guesses}


def groups_of_a_box(world):
    """Rows, columns and pairs on a server's torus, one call after the other."""
    script = Script(world)
    script.groups |= {"rows": "0..3", "columns": "start 0 axes 4x4", "pairs": "0..1"}
    script.marker(FORWARD_BEGIN, 1)
    buffer = script.storage(1 << 22)
    for group in ("rows", "columns", "", "pairs", "rows"):
        text = f"aten::gelu(self: float32[{1 << 20}]) -> (out0: float32[{1 << 20}])"
        script.op(text, [buffer], [buffer], FORWARD)
        script.call(ALL_GATHER if group == "columns" else ALL_REDUCE, buffer, group)
    for call in range(5):
        script.wait(call)
    script.marker(OPTIMIZER_BEGIN, 1)
    script.marker(OPTIMIZER_END, 1)
    return script.workload()


JOBS = {
    "data parallel": (lambda: train(world_size=8), "h100", {}),
    "groups of a box": (lambda: groups_of_a_box(16), "trn2", {}),
    "four ranks a chip": (lambda: train(world_size=64), "trn2", {"ranks_per_chip": 4}),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_step_takes_as_long_as_with_fluid_collectives(name):
    workload, machine, options = JOBS[name]
    fluid, step = both_ways(workload(), machine, **options)
    messages = sum(len(call.entry_ps) for call in step.timeline.calls)
    assert fluid.figures.step_ps <= step.figures.step_ps <= fluid.figures.step_ps + messages
    for key in ("memory_peak_bytes", "model_flops", "fits", "chips_used"):
        assert step.to_dict()[key] == fluid.to_dict()[key]
    assert sum(step.breakdown_ps.values()) == step.figures.step_ps
    assert step.breakdown_ps["bubble"] == fluid.breakdown_ps["bubble"]


def test_the_projection_says_what_went_in_steps_and_what_stayed():
    fluid, step = both_ways(train(world_size=8), "h100")
    assert not {"collectives in steps", "step mode"} & set(guesses(fluid))
    assert guesses(step)["collectives in steps"] == "2 calls"
    assert "step mode" not in guesses(step)
    assert "all_reduce in steps on world" in {op.name for op in step.top_ops}
    fluid, step = both_ways(groups_of_a_box(16), "trn2")
    assert guesses(step)["collectives in steps"] == "4 calls"
    assert guesses(step)["step mode"].startswith("1 call stays fluid (")
    assert set(step.figures.exposed_by_group_ps) == set(fluid.figures.exposed_by_group_ps)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("slow_chips", [[], ["1=1.5"]])
def test_folding_changes_no_digit(name, slow_chips):
    workload, machine, options = JOBS[name]
    workload = workload()
    folded, unfolded = (
        trnsim.project(
            workload, machine, advise=False, interval=False, collectives="step", fold=fold,
            slow_chips=slow_chips, **options,
        )
        for fold in (True, False)
    )  # fmt: skip
    assert folded.timeline_hash == unfolded.timeline_hash
    assert folded.to_dict() == unfolded.to_dict()
    if not slow_chips:  # round a ring, everybody is at another distance from it
        assert len(folded.timeline.system.ranks) < len(unfolded.timeline.system.ranks)


def test_steps_in_parts_of_a_group_count_as_the_group():
    """Where a chip of another row is slow, waiting for one's own row is a stall all the same."""
    workload = groups_of_a_box(16)
    fluid, step = both_ways(workload, "trn2", slow_chips=["15=10"])
    assert set(step.figures.exposed_by_group_ps) == set(fluid.figures.exposed_by_group_ps)
    assert step.breakdown_ps["stall"] > 0


def test_a_step_without_collectives_is_as_it_was():
    fluid, step = both_ways(train(), "trn2")
    assert step.to_dict() == fluid.to_dict()


def test_a_slow_chip_is_waited_for_by_its_neighbours():
    fluid, step = both_ways(train(world_size=8), "h100", slow_chips=["3=1.5"])
    assert step.figures.step_ps <= fluid.figures.step_ps + 100
    assert step.breakdown_ps["stall"] > 0 and fluid.breakdown_ps["stall"] > 0
    assert sum(step.slowdown_ps.values()) == step.figures.step_ps - step.figures.healthy_step_ps


def test_a_run_file_keeps_it_and_who_projects_it_may_say_otherwise(tmp_path):
    fluid, step = both_ways(train(world_size=8), "h100")
    step.write(tmp_path)
    assert (tmp_path / "trace.pftrace").stat().st_size > 0
    again, other = (
        trnsim.project(tmp_path / "run.trnsim", advise=False, interval=False, **options)
        for options in ({}, {"collectives": "fluid"})
    )
    assert again.to_dict() == step.to_dict()
    assert other.to_dict() == fluid.to_dict()


def test_another_word_is_refused_in_one_line():
    refused = pytest.raises(
        LowerError, match="^there are no collectives 'steps': use fluid or step$"
    )
    with refused:
        trnsim.project(train(), "trn2", collectives="steps")
    with refused:
        trnsim.simulate("trn2", collectives="steps")
    with refused:
        trnsim.collective("all_reduce", "trn2", ranks=4, collectives="steps")
