# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What the core draws of a step, beside slow sums over the tasks and links of the Timeline."""

from collections import defaultdict

import pytest
import small_workload

import trnsim
from trnsim import _core
from trnsim.errors import ReportError

BINS = 17  # divides no step


@pytest.fixture(scope="module")
def unfolded():
    return trnsim.project(small_workload.train(world_size=4), "trn2", fold=False, advise=False)


@pytest.fixture(scope="module")
def picture(unfolded):
    return _core.picture_step(unfolded.run, BINS)


def edges(step_ps):
    return [step_ps * i // BINS for i in range(BINS + 1)]


def test_engines_are_busy_as_their_tasks_say(unfolded, picture):
    step_ps = unfolded.figures.step_ps
    busy = defaultdict(lambda: [0] * BINS)
    for rank in range(4):
        program, timeline = unfolded.program, unfolded.timeline
        starts, ends = timeline.rank_starts_ps(rank), timeline.rank_ends_ps(rank)
        for queue, start, end in zip(program.tasks["queue"], starts, ends, strict=True):
            kind = program.queues[queue][0]
            for i, (left, right) in enumerate(
                zip(edges(step_ps), edges(step_ps)[1:], strict=False)
            ):
                busy[kind][i] += max(0, min(int(end), right) - max(int(start), left))
    widths = [b - a for a, b in zip(edges(step_ps), edges(step_ps)[1:], strict=False)]
    assert picture.engines
    for engine, shares in picture.engines.items():
        expected = [ps / (4 * width) for ps, width in zip(busy[engine], widths, strict=True)]
        assert shares == pytest.approx(expected, abs=1e-12), engine


def test_what_ranks_do_tiles_the_step_and_is_the_breakdown(unfolded, picture):
    p = unfolded.figures
    widths = [b - a for a, b in zip(edges(p.step_ps), edges(p.step_ps)[1:], strict=False)]
    for shares in zip(*picture.doing, strict=True):
        assert sum(shares) == pytest.approx(1, abs=1e-12)
    total = {
        name: sum(s * w for s, w in zip(shares, widths, strict=True))
        for name, shares in zip(_core.DOINGS, picture.doing, strict=True)
    }
    of_part = {"communication": "exposed_communication", "bubble": "bubble", "host": "host",
               "stall": "stall"}  # fmt: skip
    for name, part in of_part.items():
        assert total[name] == pytest.approx(unfolded.breakdown_ps[part], abs=2)
    (role,) = picture.roles
    assert sum(role.total_ps) == p.step_ps
    assert role.rank_count == 4 and not role.has_messages


def test_a_folded_run_gives_the_same_picture(unfolded, picture):
    folded = trnsim.project(small_workload.train(world_size=4), "trn2", advise=False)
    other = _core.picture_step(folded.run, BINS)
    assert other.engines.keys() == picture.engines.keys()
    for engine, busy in other.engines.items():
        assert busy == pytest.approx(picture.engines[engine])
    for mine, its in zip(other.doing, picture.doing, strict=True):
        assert mine == pytest.approx(its)
    for mine, its in zip(other.tiers, picture.tiers, strict=True):
        assert (mine.tier, mine.link_count, mine.used_count) == (
            its.tier, its.link_count, its.used_count,
        )  # fmt: skip
        assert mine.mean == pytest.approx(its.mean) and mine.bytes == pytest.approx(its.bytes)
        assert mine.mean_over_time == pytest.approx(its.mean_over_time)


def test_links_carry_the_bytes_of_the_calls(unfolded, picture):
    timeline = unfolded.timeline
    system = timeline.system
    by_link = defaultdict(float)
    for variable in system.variables:
        count = sum(
            (span.communicator, span.call) == (variable.communicator, variable.call)
            for span in timeline.calls
        )
        for use in variable.uses:
            by_link[use.link] += count * variable.bytes * use.weight / 65536
    carried = sum(tier.bytes for tier in picture.tiers)
    assert carried == pytest.approx(sum(by_link.values())) and carried > 0
    step_s = unfolded.step_time_s
    loads = {
        link: size / (system.links[link].rate / 1024) / step_s for link, size in by_link.items()
    }
    assert max(tier.percentiles[-1] for tier in picture.tiers) == pytest.approx(max(loads.values()))
    for tier in picture.tiers:
        assert tier.percentiles == sorted(tier.percentiles) and len(tier.percentiles) == 21
        assert all(0 <= load <= 1 + 1e-9 for load in tier.most_over_time)
        assert tier.mean <= tier.percentiles[-1] + 1e-12
        assert tier.used_count <= tier.link_count
    pod = picture.pod
    assert pod.chip_count == 4 and pod.first_chip == 0
    seen = [load for loads_of in pod.loads for load in loads_of if load >= 0]
    assert max(seen) == pytest.approx(max(loads.values()))


def test_rules_share_out_the_ops_of_the_critical_rank(unfolded, picture):
    assert sum(rule.op_count for rule in picture.rules) == len(unfolded.program.ops)
    times = [rule.time_ps for rule in picture.rules]
    assert times == sorted(times, reverse=True) and 0 < sum(times) <= unfolded.figures.step_ps


def test_memory_peaks_as_the_allocator_says(unfolded):
    p = unfolded.figures
    memory = _core.picture_memory(unfolded.run, 0, BINS)
    sums = [sum(kinds) for kinds in zip(*memory.by_kind, strict=True)]
    assert len(sums) == BINS and max(sums) == memory.peak_bytes == sum(memory.peak_by_kind)
    assert memory.peak_bytes <= p.memory_peak_bytes
    at = next(i for i in reversed(range(BINS)) if edges(p.step_ps)[i] <= memory.peak_ps)
    assert sums[at] == memory.peak_bytes
    assert set(memory.kinds) == set(p.memory_by_kind)


def test_single_figures_are_the_step_with_that_figure_changed(unfolded):
    effects = _core.figure_effects(unfolded.run, None)
    assert effects
    groups = {name: (f, s) for name, f, s in unfolded.figures.inputs}
    checked = 0
    for effect in effects:
        assert (effect.faster_ps, effect.slower_ps) != (unfolded.figures.step_ps,) * 2
        assert groups[effect.input] != (unfolded.figures.step_ps,) * 2
        figure = next(f for f in unfolded.machine.figures if f.key == effect.key)
        if effect.key not in ("chip.hbm.bandwidth", "chip.neuroncore.tensor_clock"):
            continue
        value = float(figure.value) * (1 + effect.percent / 100)
        again = trnsim.project(
            unfolded.workload, "trn2", overrides=[f"{effect.key}={value:.12g}{figure.unit}"],
            chips=4, advise=False, interval=False,
        )  # fmt: skip
        assert again.figures.step_ps == effect.faster_ps
        checked += 1
    assert checked


def test_without_an_interval_no_figure_is_moved():
    bare = trnsim.project(small_workload.train(), "trn2", advise=False, interval=False)
    assert bare.figures.inputs == [] and _core.figure_effects(bare.run, None) == []


def test_pictures_that_make_no_sense_are_refused(unfolded):
    with pytest.raises(ReportError, match="of 0 bins"):
        _core.picture_step(unfolded.run, 0)
    with pytest.raises(ReportError, match="no role 1"):
        _core.picture_memory(unfolded.run, 1, BINS)
