# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Steps under the draws of many seeds: in bulk as one by one, and as arithmetic says."""

from fractions import Fraction

import numpy as np
import pytest
import small_workload

import trnsim
from trnsim import _core
from trnsim.errors import MachineError, PlanError, ProjectError
from trnsim.plan import disturbance

CHIPS = 16
QUICK = {"advise": False, "interval": False}
OF_A_POD = [
    "jitter:sigma=0.02",
    "straggler:factor=1.5,chips=2",
    "throttle:factor=2,chips=3",
    "slow-link:share=0.25,links=2",
    "dead-link:tier=x",
    "jitter:sigma=0.01+straggler:factor=1.2+slow-link:share=0.5",
]
OF_A_FABRIC = [
    "dead-switch:tier=leaf",
    "dead-switch:tier=leaf,by=ecmp",
    "slow-link:share=0.1,tier=nic up",
    "straggler:factor=1.5",
    "dead-chip",
    "dead-domain:pods=2",
]
SPINES = ["dead-switch:tier=spine", "dead-switch:tier=spine,by=ecmp", "dead-switch:tier=tor"]


@pytest.fixture(scope="module")
def workload():
    return small_workload.train(world_size=CHIPS)


def steps_of(result):
    return [
        [(one.low_ps, one.high_ps, one.stops, one.drawn.what) for one in row.found.outcomes]
        for row in result.rows
    ]


def test_in_bulk_as_one_by_one(workload):
    asked = {"seeds": 12, "first_seed": 5}
    bulk = trnsim.disturb(workload, OF_A_POD, "trn2", **asked)
    alone = trnsim.disturb(workload, OF_A_POD, "trn2", one_by_one=True, **asked)
    assert steps_of(bulk) == steps_of(alone)
    for row in bulk.rows:
        drawn = {tuple(one.drawn.what) for one in row.found.outcomes}
        assert len(drawn) > 1 or row.text.startswith("jitter"), row.text
        assert row.stopped == 0 and row.widest_bounds == 0


@pytest.mark.parametrize("spec", OF_A_POD[1:5])
def test_a_draw_is_what_project_says_of_it(workload, spec):
    done = trnsim.disturb(workload, [spec], "trn2", seeds=6)
    for outcome in done.rows[0].found.outcomes:
        drawn = outcome.drawn
        again = trnsim.project(workload, "trn2", **QUICK, fold=False,
                               slow_chips=drawn.slow_chips, faults=drawn.faults)  # fmt: skip
        assert outcome.high_ps == outcome.low_ps == again.figures.step_ps
    for percentile in (50, 95, 99):
        outcome, breakdown = done.rows[0].at(percentile)
        drawn = outcome.drawn
        again = trnsim.project(workload, "trn2", **QUICK,
                               slow_chips=drawn.slow_chips, faults=drawn.faults)  # fmt: skip
        assert disturbance.parts_s(breakdown) == again.breakdown_s


# With leaves of 8 ports two pods are a cluster, and the spare pod stands in another.
@pytest.mark.parametrize("leaf_ports", [128, 8])
def test_in_a_fabric_folded_as_one_by_one(leaf_ports):
    workload = small_workload.train(world_size=256)
    specs = OF_A_FABRIC + SPINES * (leaf_ports == 8)
    ports = ["fabric.spine.radix=4096", f"fabric.leaf.radix={leaf_ports}"]
    asked = {"seeds": 4, "chips": 256, "spares": 1, "interval": False, "overrides": ports}
    bulk = trnsim.disturb(workload, specs, "rainier", **asked)
    alone = trnsim.disturb(workload, specs, "rainier", one_by_one=True, **asked)
    assert steps_of(bulk) == steps_of(alone)
    by_name = {row.text: row for row in bulk.rows}
    spared, domain = by_name["dead-chip"], by_name["dead-domain:pods=2"]
    assert spared.stopped == 0 and spared.affected == 1
    assert domain.stopped == 1 and domain.at(5)[0].stops.startswith("2 of 4 pods out of service")
    base_ps = bulk.projection.figures.step_ps
    for spec in OF_A_FABRIC[:4]:
        assert by_name[spec].at(100)[0].high_ps > base_ps, spec


def test_hashed_routes_in_bulk_as_one_by_one():
    workload = small_workload.train(world_size=256)
    asked = {"seeds": 4, "chips": 256, "overrides": ["fabric.ecmp=hashed"], "interval": False}
    specs = ["ecmp-hash", "ecmp-hash+straggler:factor=1.5"]
    bulk = trnsim.disturb(workload, specs, "rainier", **asked)
    alone = trnsim.disturb(workload, specs, "rainier", one_by_one=True, **asked)
    assert steps_of(bulk) == steps_of(alone)
    for row in bulk.rows:
        assert len({one.high_ps for one in row.found.outcomes}) > 1, row.text


# Every op of a slow chip ends later than that of any other, so that each call waits for the slowest
# chip alone: under jitter, the step is that of the slowest chip among healthy ones.
def test_jitter_of_a_synchronous_job_is_that_of_its_slowest_chip(workload):
    sigma = 655  # 0.01, rounded up to 2^-16
    done = trnsim.disturb(workload, ["jitter:sigma=655/65536"], "trn2", seeds=20)
    slowest = 0
    for outcome in done.rows[0].found.outcomes:
        factors = [_core.normal_factor(outcome.seed, chip, sigma) for chip in range(CHIPS)]
        worst = max(range(CHIPS), key=factors.__getitem__)
        if factors[worst] < 1 << 16:
            continue
        alone = trnsim.project(workload, "trn2", **QUICK,
                               slow_chips=[f"{worst}={factors[worst]}/65536"])  # fmt: skip
        assert outcome.high_ps >= alone.figures.step_ps * 0.999
        slowest += outcome.high_ps == alone.figures.step_ps
    assert slowest > 0


def test_jitter_is_normal_and_so_is_the_slowest_of_many():
    sigma, chips, seeds = 655, 1024, 150
    drawn = np.array(
        [[_core.normal_factor(seed, chip, sigma) for chip in range(chips)] for seed in range(seeds)]
    )
    z = (drawn / 65536 - 1) / (sigma / 65536)
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs(z.std() - 1) < 0.01
    for level, share in ((1, 0.158655), (2, 0.022750), (3, 0.001350)):
        expected = share * z.size
        assert abs((z > level).sum() - expected) < 5 * np.sqrt(expected), level
    normal = np.random.default_rng(3).standard_normal((4000, chips)).max(axis=1)
    error = normal.std() / np.sqrt(seeds)
    assert abs(z.max(axis=1).mean() - normal.mean()) < 4 * error
    assert 0.75 < z.max(axis=1).std() / normal.std() < 1.25


def test_bounds_hold_what_they_bound(monkeypatch):
    workload = small_workload.train(world_size=512)
    specs = ["jitter:sigma=0.02", "jitter:sigma=0.02+straggler:factor=1.3"]
    asked = {"seeds": 6, "chips": 512}
    exact = trnsim.disturb(workload, specs, "rainier", **asked)
    monkeypatch.setattr(disturbance, "EXACT_TASKS", 0)
    bounds = trnsim.disturb(workload, specs, "rainier", **asked)
    assert any(row.widest_bounds > 0 for row in bounds.rows) or steps_of(bounds) == steps_of(exact)
    for bounded, whole in zip(bounds.rows, exact.rows, strict=True):
        for one, at in zip(bounded.found.outcomes, whole.found.outcomes, strict=True):
            assert one.low_ps <= at.high_ps <= one.high_ps
            assert one.high_ps <= 1.02 * one.low_ps
    forced = trnsim.disturb(workload, specs, "rainier", exact=True, **asked)
    assert steps_of(forced) == steps_of(exact)


# A chip that is slower than any wait: from there on, a factor of one more is one more of all that
# its engines do, and what it sends in the end stays as it is.
def test_a_straggler_scales_the_compute_part_alone():
    job = small_workload.train(world_size=8)
    base = trnsim.project(job, "h100", chips=8, **QUICK)
    specs = [f"straggler:factor={factor}" for factor in (1, 100, 200, 300)]
    done = trnsim.disturb(job, specs, "h100", chips=8, seeds=3)
    one, *far = [row.at(50)[0].high_ps for row in done.rows]
    assert one == base.figures.step_ps
    assert far[1] - far[0] == far[2] - far[1]
    compute_ps = sum(base.figures.engine_busy.values()) * base.figures.step_ps
    assert (far[1] - far[0]) / 100 == pytest.approx(compute_ps, rel=1e-6)
    assert 0 < far[0] - 100 * compute_ps < base.figures.step_ps


def test_percentiles_are_of_a_seed_by_nearest_rank(workload):
    row = trnsim.disturb(workload, ["throttle:factor=3"], "trn2", seeds=40).rows[0]
    steps = sorted(one.high_ps for one in row.found.outcomes)
    for percentile, rank in ((5, 2), (50, 20), (95, 38), (99, 40), (100, 40)):
        assert row.at(percentile)[0].high_ps == steps[rank - 1]
    assert row.mean_s == pytest.approx(np.mean(steps) / 1e12)
    base_ps = row.of.projection.figures.step_ps
    longer = sum(step > base_ps + base_ps // 1000 for step in steps)
    assert row.affected == longer / 40


def test_what_cuts_the_job_apart_stops_it(workload):
    done = trnsim.disturb(workload, ["dead-link:links=30"], "trn2", seeds=20)
    row = done.rows[0]
    stopped = [one for one in row.found.outcomes if one.stops]
    assert 0 < len(stopped) == row.stopped * 20
    assert "cannot reach each other" in stopped[0].stops
    assert row.at(100)[0].stops and row.to_dict()["worst"]["step_time_s"] is None
    assert row.slowdown(stopped[0]) is None


def test_a_smaller_job_goes_on_with_less_work(tmp_path):
    runs = {}
    for chips in (192, 256):
        made = small_workload.train(world_size=chips)
        projection = trnsim.project(made, "rainier", chips=chips, **QUICK)
        projection.write(tmp_path, f"of{chips}")
        runs[chips] = tmp_path / f"of{chips}.trnsim"
    done = trnsim.disturb(runs[256], ["dead-chip"], smaller=[runs[192]], seeds=5)
    row = done.rows[0]
    assert row.stopped == 0 and row.affected == 1
    base, less = done.jobs
    assert (base.chips, less.chips) == (256, 192)
    for outcome in row.found.outcomes:
        assert outcome.job == 1
        if less.samples:
            work = Fraction(round(base.samples), round(less.samples))
            expected = outcome.high_ps / 1e12 / base.step_s * float(work) - 1
            assert row.slowdown(outcome) == pytest.approx(expected)
        else:
            assert row.slowdown(outcome) is None


def test_percentiles_are_of_a_token_where_the_job_loses_work(tmp_path):
    paths = {}
    for chips in (64, 128, 192):
        made = small_workload.train(world_size=chips)
        projection = trnsim.project(made, "rainier", chips=chips, samples_per_step=chips, **QUICK)
        projection.write(tmp_path, f"of{chips}")
        paths[chips] = tmp_path / f"of{chips}.trnsim"
    done = trnsim.disturb(
        paths[192], ["dead-chip:chips=2"], smaller=[paths[64], paths[128]], seeds=20
    )
    (row,) = done.rows
    assert {outcome.job for outcome in row.found.outcomes} == {1, 2}
    shares = sorted(row.slowdown(outcome) for outcome in row.found.outcomes)
    by_rank = {5: 0, 50: 9, 95: 18, 99: 19, 100: 19}
    for percentile, rank in by_rank.items():
        assert row.slowdown(row.at(percentile)[0]) == shares[rank]
    assert shares[0] < shares[-1]
    assert row.at(5)[0].high_ps > row.at(99)[0].high_ps  # a shorter step of much less work
    assert "of a token" in str(done)


def test_what_takes_hours_is_refused(workload, monkeypatch):
    tasks = len(trnsim.project(workload, "trn2", fold=False, **QUICK).timeline.ends_ps)
    monkeypatch.setattr(disturbance, "MOST_TASKS", 10 * tasks)
    trnsim.disturb(workload, ["jitter:sigma=0.01"], "trn2", seeds=10)
    with pytest.raises(ProjectError, match=f"would simulate {11 * tasks} tasks, rank by rank"):
        trnsim.disturb(workload, ["jitter:sigma=0.01"], "trn2", seeds=11)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"disturbances": []}, PlanError, "no disturbance"),
        ({"disturbances": "dead-chip"}, PlanError, "not a list"),
        ({"disturbances": ["gremlins"]}, ProjectError, "no disturbance: use one of"),
        ({"disturbances": ["dead-switch:tier=leaf"]}, ProjectError, "no switch 'leaf'"),
        ({"disturbances": ["straggler:factor=2,chips=17"]}, ProjectError, "17 of 16"),
        ({"disturbances": ["dead-chip"], "seeds": 0}, PlanError, "0 seeds"),
        ({"disturbances": ["dead-chip"], "spares": 1}, MachineError, "1 spare pods"),
    ],
)
def test_what_makes_no_sense_is_refused(workload, asked, error, words):
    with pytest.raises(error, match=words):
        trnsim.disturb(workload, machine="trn2", **asked)


def test_a_run_with_faults_of_its_own_is_refused(tmp_path, workload):
    slow = trnsim.project(workload, "trn2", **QUICK, slow_chips=["3=2"])
    slow.write(tmp_path, "slow")
    with pytest.raises(PlanError, match="faults of its own"):
        trnsim.disturb(tmp_path / "slow.trnsim", ["dead-link"])
    again = trnsim.disturb(tmp_path / "slow.trnsim", ["straggler:factor=1"], "trn2", seeds=2)
    assert again.rows[0].affected == 0
