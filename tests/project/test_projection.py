# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Projections of a small step: sums that must hold, and changes whose direction is known."""

import json
import re

import pytest
from small_workload import Script, train

import trnsim
from trnsim import _core
from trnsim import machine as machines
from trnsim.errors import MachineError, ProjectError, WorkloadError


def quick(workload, machine="trn2", **options):
    return trnsim.project(workload, machine, advise=False, interval=False, **options)


@pytest.fixture(scope="module")
def one_chip():
    return trnsim.project(train(), "trn2")


@pytest.fixture(scope="module")
def pod():
    return trnsim.project(train(world_size=64), "trn2-ultra")


def test_the_room_is_a_verb_and_a_package():
    from trnsim.project import Projection, project

    assert isinstance(quick(train()), Projection)
    assert (
        quick(train()).to_dict() == project(train(), "trn2", advise=False, interval=False).to_dict()
    )


@pytest.mark.parametrize("which", ["one_chip", "pod"])
def test_the_breakdown_and_the_memory_sum_exactly(which, request):
    p = request.getfixturevalue(which).figures
    parts = p.breakdown
    assert p.step_ps == (
        parts.compute_ps + parts.exposed_communication_ps + parts.bubble_ps + parts.host_ps
        + parts.stall_ps
    )  # fmt: skip
    assert sum(p.exposed_by_group_ps.values()) == parts.exposed_communication_ps
    assert sum(p.memory_by_kind.values()) == p.memory_peak_bytes
    assert p.step_ps == request.getfixturevalue(which).timeline.makespan_ps
    assert p.interval_low_ps <= p.step_ps <= p.interval_high_ps


def test_one_chip_has_no_communication(one_chip):
    p = one_chip.figures
    assert p.breakdown.exposed_communication_ps == 0
    assert p.exposed_by_group_ps == {}
    assert not any("link" in advice.change for advice in p.advice)
    assert "links" not in {op.bound for op in p.top_ops}


def test_a_pod_communicates_over_the_world(pod):
    assert pod.figures.breakdown.exposed_communication_ps > 0
    assert set(pod.figures.exposed_by_group_ps) == {"world"}
    assert pod.figures.chips_used == pod.figures.ranks == 64


def test_folding_changes_no_figure(pod):
    folded, unfolded = pod, trnsim.project(train(world_size=64), "trn2-ultra", fold=False)
    assert folded.to_dict() == unfolded.to_dict()
    assert folded.figures.exposed_by_group_ps == unfolded.figures.exposed_by_group_ps
    assert [rank.count for rank in folded.cohorts.system.ranks] == [64]
    assert folded.cohorts.class_of_rank == [0] * 64
    assert len(unfolded.timeline.system.ranks) == 64
    for rank in (0, 63):
        ends = unfolded.timeline.rank_ends_ps(rank)
        assert (folded.timeline.rank_ends_ps(0) == ends).all()


def test_the_files_of_a_folded_run_show_any_rank(pod, tmp_path):
    from pyarrow import parquet

    from trnsim.report import write_outputs

    unfolded = quick(train(world_size=64), "trn2-ultra", fold=False)
    tables = []
    for projection, name in ((pod, "folded"), (unfolded, "unfolded")):
        paths = write_outputs(projection, tmp_path / name, trace_ranks=[0, 63])
        tables.append(parquet.read_table(paths[1]))
        assert b"rank 63 on chip 63" in paths[2].read_bytes()
    assert tables[0].equals(tables[1])
    assert set(tables[0]["rank"].to_pylist()) == {0, 63}


def test_a_script_without_a_process_group_uses_one_chip(one_chip):
    p = quick(train(), "trn2-ultra", chips=64).figures
    assert (p.chips, p.chips_used, p.ranks) == (64, 1, 1)
    assert p.breakdown.exposed_communication_ps == 0
    assert any(
        value == "1 of 64 chips used: the script is not distributed" for _, value, _ in p.guesses
    )


def test_sixty_four_chips_are_never_faster_than_sixty_four_times_one(pod, one_chip):
    # the same work on every rank: 64 ranks can do at most 64 times the tokens of one
    one = quick(train(), "trn2-ultra").figures
    assert pod.figures.step_ps >= one.step_ps
    assert pod.figures.tokens_per_s <= 64 * one.tokens_per_s
    assert pod.figures.model_flops == 64 * one.model_flops


def test_twice_the_bandwidth_of_every_link_is_never_slower(pod):
    machine = pod.machine
    for axis in "xyz":
        machine = machine.scaled(f"link.{axis}", "2")
    faster = quick(train(world_size=64), machine)
    assert faster.figures.step_ps <= pod.figures.step_ps
    changes = {advice.change: advice.step_ps for advice in pod.figures.advice}
    assert changes["twice the bandwidth of every link"] == faster.figures.step_ps


def test_advice_is_what_a_simulation_with_the_change_says(one_chip):
    steps = [advice.step_ps for advice in one_chip.figures.advice]
    assert steps == sorted(steps)
    hbm = quick(train(), machines.load("trn2").scaled("hbm", "2")).figures.step_ps
    assert {a.change: a.step_ps for a in one_chip.figures.advice}["twice the HBM bandwidth"] == hbm
    for advice in one_chip.figures.advice:
        assert advice.gain == pytest.approx(1 - advice.step_ps / one_chip.figures.step_ps)


def test_what_is_set_by_hand_and_moves_nothing_is_named():
    """A planner who sets a latency that this step never waits for must not read it as an answer."""
    idle, felt = "scale_up.hop_latency=100s", "chip.hbm.bandwidth=3TB/s"
    projection = trnsim.project(
        train(layers=1), "trn2", interval=False, overrides=[idle, felt, "chip.name=mine"]
    )
    assert projection.figures.idle_overrides == [idle]
    assert f"{idle}: the step takes as long with half of it, and with twice" in str(projection)
    assert projection.to_dict()["overrides_without_effect"] == [idle]


def test_the_interval_grows_with_what_is_guessed_and_not_with_what_is_given():
    workload, key = train(layers=1), "chip.hbm.bandwidth"
    figure = next(f for f in machines.load("trn2").figures if f.key == key)
    same = f"{key}={figure.value}{figure.unit}"

    def with_(*overrides):
        return trnsim.project(workload, "trn2", advise=False, overrides=overrides)

    plain, given, guessed = with_(), with_(same), with_(f"{same},guessed")
    assert given.figures.step_ps == guessed.figures.step_ps == plain.figures.step_ps
    widths = [
        p.figures.interval_high_ps - p.figures.interval_low_ps for p in (given, plain, guessed)
    ]
    assert widths[0] < widths[1] < widths[2]
    assert list(given.figures.overrides) == [same]
    assert list(guessed.figures.overrides) == [f"{same},guessed"]
    assert re.search(f"set by hand +{re.escape(same)}\n", str(given))
    assert "set by hand" not in str(plain)
    assert "--set" not in [name for name, _, _ in given.figures.guesses]
    assert trnsim.machine.load("trn2", guessed.figures.overrides) == guessed.machine


def test_engines_that_transfers_slow_take_longer_and_everything_still_sums():
    workload = train(world_size=64, layers=8, width=1024, tokens=8192)  # hides its transfers
    steps = [quick(workload, "trn2-ultra").figures.step_ps]
    for share in ("0.9", "0.5", "0.1"):
        overrides = [f"chip.interference.{engine}={share}" for engine in ("tensor", "dma")]
        slowed = quick(workload, "trn2-ultra", overrides=overrides).figures
        parts = slowed.breakdown
        assert slowed.step_ps == (
            parts.compute_ps + parts.exposed_communication_ps + parts.bubble_ps + parts.host_ps
            + parts.stall_ps
        )  # fmt: skip
        assert slowed.step_ps > steps[-1]
        steps.append(slowed.step_ps)
    alone = ["chip.interference.dma=0.1"]
    assert quick(train(), overrides=alone).figures.step_ps == quick(train()).figures.step_ps


def test_a_guessed_interference_widens_the_interval():
    workload = train(world_size=64, layers=8, width=1024, tokens=8192)

    def width(confidence):
        overrides = [f"chip.interference.{e}=0.5{confidence}" for e in ("tensor", "dma")]
        p = trnsim.project(workload, "trn2-ultra", advise=False, overrides=overrides).figures
        return p.interval_high_ps - p.interval_low_ps

    assert width(",guessed") > width(",measured") > width("")


def test_a_bare_number_is_refused_with_the_unit_to_write():
    with pytest.raises(MachineError, match="no unit: write chip.hbm.bandwidth=3.2TB/s if TB/s is"):
        quick(train(), "trn2", overrides={"chip.hbm.bandwidth": 3.2})
    assert quick(train(), "trn2", overrides={"chip.hbm.efficiency": 0.5}).figures.overrides


def machine_value(name, key):
    return next(f.value for f in machines.load(name).figures if f.key == key)


# Figures that move no time: sizes, counts, shapes, prices, and the peaks that MFU divides by.
EXACT = {
    "fabric.tor.power", "fabric.leaf.power", "fabric.spine.power", "site.pue",
    "chip.name", "chip.architecture", "chip.ranks_per_chip", "chip.hbm.total", "chip.hbm.reserved",
    "server.chips", "server.host_memory", "scale_up.kind", "scale_up.slices", "scale_up.job_chips",
    "price.per_chip_hour", "price.instance_chips", "power.per_chip", "power.package",
    "collectives.library", "scale_up.multicast", "fabric.kind", "fabric.pods", "fabric.rails",
    "fabric.ecmp", "fabric.nic.count", "fabric.spine.radix",
    *(f"fabric.{tier}.{key}" for tier in ("tor", "leaf")
      for key in ("radix", "oversubscription", "links")),
}  # fmt: skip
EXACT_NEURON = {
    "cores", "cores_per_logical", "tensor_rows", "tensor_columns", "moving_max", "min_cycles",
    "tensor_fp32_factor", "gpsimd_start_cycles", "dynamic_cycles", "partitions", "sbuf_partition",
    "psum_partition", "dma_engines", "dge_count", "collective_streams", "tensor_fp8_speedup",
    "narrow_copy_speedup", "narrow_activation_speedup",
}  # fmt: skip
EXACT_GPU = {
    "multiprocessors", "tile_rows", "tile_columns", "collective_streams", "attention_kernel",
}  # fmt: skip
EXACT_TPU = {"cores", "mxu", "sublanes", "vmem", "collective_streams", "attention_kernel"}


@pytest.mark.parametrize("name", machines.presets())
def test_every_figure_moves_the_interval_or_is_exact(name):
    exact = EXACT | {f"chip.neuroncore.{k}" for k in EXACT_NEURON}
    exact |= {f"chip.gpu.{k}" for k in EXACT_GPU} | {f"chip.tpu.{k}" for k in EXACT_TPU}
    left = [
        figure.key
        for figure in machines.load(name).figures
        if not _core.input_group_of(figure.key)
        and figure.key not in exact
        and not figure.key.startswith(("chip.peak.published.", "chip.engine.", "scale_up.chips"))
        and not figure.key.endswith(".half_length")
    ]
    assert left == []


def test_tokens_and_samples_count_all_ranks(pod):
    # 1024 tokens a rank and step, 64 ranks with their own data
    p = pod.figures
    assert p.tokens_per_s == pytest.approx(64 * 1024 / (p.step_ps / 1e12))
    assert p.samples_per_s == pytest.approx(64 * 1024 / (p.step_ps / 1e12))
    counted = ("tokens", "counted from the first embedding, of module embed")
    assert counted in [guess[:2] for guess in map(tuple, p.guesses)]
    given = quick(train(world_size=64), "trn2-ultra", tokens_per_step=10).figures
    assert "tokens" not in [name for name, _, _ in given.guesses]
    assert given.tokens_per_s == pytest.approx(10 / (given.step_ps / 1e12))
    assert given.samples_per_s == p.samples_per_s
    counted = ("samples", "counted from the first input of the model")
    assert counted in [guess[:2] for guess in map(tuple, p.guesses)]
    given = quick(train(world_size=64), "trn2-ultra", samples_per_step=10).figures
    assert "samples" not in [name for name, _, _ in given.guesses]
    assert given.samples_per_s == pytest.approx(10 / (given.step_ps / 1e12))
    assert given.tokens_per_s == p.tokens_per_s


def test_flops_are_those_of_the_matrix_multiplications(one_chip):
    # layers * (forward + two of backward) * 2 n d^2
    expected = 2 * 3 * 2 * 1024 * 512**2
    p = one_chip.figures
    assert p.model_flops == expected
    peak = float(machine_value("trn2", "chip.peak.published.float32")) * 1e12
    assert p.mfu == pytest.approx(expected / (p.step_ps / 1e12 * peak))
    assert 0 < p.mfu_causal <= p.mfu < 1


def test_cost_and_energy_count_the_chips_in_use(pod):
    p = pod.figures
    price = float(machine_value("trn2-ultra", "price.per_chip_hour"))
    assert p.cost_usd_per_step == pytest.approx(64 * price / 3600 * p.step_ps / 1e12)
    assert p.energy_j_per_step > 0
    low, high = pod.cost_usd_per_step_interval
    assert low / p.interval_low_ps == pytest.approx(p.cost_usd_per_step / p.step_ps)
    assert high / p.interval_high_ps == pytest.approx(p.cost_usd_per_step / p.step_ps)
    said = str(pod)
    assert "64 chips in use at $2.235 an hour each" in said and "published: AWS EC2" in said
    assert "rented whole" not in said


def test_chips_of_an_instance_that_stand_idle_are_paid_for():
    one = trnsim.project(train(), "h100", advise=False)
    assert one.cost_usd_per_step_of_instances == pytest.approx(8 * one.figures.cost_usd_per_step)
    assert "rented whole" in str(one) and "in instances of 8 chips" in str(one)
    document = one.to_dict()
    assert document["cost_usd_per_step_of_instances"] == one.cost_usd_per_step_of_instances
    assert document["cost_usd_per_step_interval"] == list(one.cost_usd_per_step_interval)
    assert document["price_usd_per_chip_hour"] == 6.88


@pytest.mark.parametrize("machine", machines.presets())
@pytest.mark.parametrize("world_size", [1, 8])
def test_what_limits_the_step_has_its_row_of_advice(machine, world_size):
    projection = trnsim.project(train(world_size=world_size), machine, interval=False)
    p, text = projection.figures, str(projection)
    assert p.bottleneck_kind in {a.relieves for a in p.advice}, (p.bottleneck, text)
    best = next(a for a in p.advice if a.relieves == p.bottleneck_kind)
    # beside the bottleneck, and among the advice
    assert len(re.findall(rf"(?<!without ){re.escape(best.change)}", text)) == 2
    assert re.search(f"^limited by +{re.escape(p.bottleneck)}: ", text, re.MULTILINE)
    if machine.startswith("h100"):
        assert "vector engine" not in text and "tensor engine" not in text


def test_kernels_of_a_gpu_that_move_bytes_are_bound_by_the_memory():
    script = Script()
    a, b = script.storage(1 << 30), script.storage(1 << 30)
    script.op("aten::relu(self: float32[268435456]) -> (out0: float32[268435456])", [a], [b], 0)
    projection = trnsim.project(script.workload(), "h100", interval=False)
    assert projection.figures.bottleneck == "memory"
    assert projection.figures.advice[0].change == "twice the HBM bandwidth"
    assert projection.figures.top_ops[0].bound == "memory"


@pytest.mark.parametrize("machine", ["trn2", "h100"])
def test_copies_from_the_host_are_limited_by_its_link(machine):
    script = Script()
    a, b = script.storage(124_000_000), script.storage(124_000_000)
    script.op("trnsim::copy_h2d(src: float32[31000000]) -> (out0: float32[31000000])", [a], [b], 0)
    projection = trnsim.project(script.workload(), machine, interval=False)
    p = projection.figures
    assert p.bottleneck == p.bottleneck_kind == p.top_ops[0].bound == "host link"
    assert p.top_ops[0].roofline_fraction == 1.0
    assert (p.advice[0].relieves, p.advice[0].change) == (
        "host link",
        "twice the bandwidth to the host",
    )
    assert str(projection).count("twice the bandwidth to the host") == 2


@pytest.mark.parametrize("machine", ["trn2", "h100"])
@pytest.mark.parametrize("matters", [True, False])
def test_a_sort_that_takes_a_hundredth_of_the_step_is_a_guess(machine, matters):
    script = Script()
    a, b = script.storage(1 << 30), script.storage(1 << 30)
    if not matters:
        shape = "float32[8192,8192]"
        for _ in range(20):
            script.op(f"aten::mm(self: {shape}, mat2: {shape}) -> (out0: {shape})", [a, a], [b], 0)
    script.op(
        "aten::sort(self: float32[64,500]) -> (out0: float32[64,500], out1: int64[64,500])",
        [a], [b, b], 0,
    )  # fmt: skip
    guesses = [name for name, _, _ in quick(script.workload(), machine).figures.guesses]
    # A kernel as short as this one is hidden behind its launch on a GPU.
    assert ("aten::sort over 500" in guesses) == matters


def test_a_model_that_is_too_large_says_so():
    script = Script()
    huge = script.storage(200 * 2**30, kind=0)
    small = script.storage(4096)
    script.op("aten::relu(self: float32[1024]) -> (out0: float32[1024])", [small], [small], 0)
    script.op("aten::relu(self: float32[1024]) -> (out0: float32[1024])", [huge], [small], 0)
    projection = quick(script.workload())
    assert not projection.fits
    assert projection.figures.memory_peak_bytes > projection.figures.memory_capacity_bytes
    assert "DOES NOT FIT" in str(projection)


def test_owners_of_the_step_sum_to_it(pod):
    p = trnsim.project(train(world_size=64), "trn2-ultra", top=10_000, advise=False,
                       interval=False).figures  # fmt: skip
    # what is left is the time in which the rank has nothing to wait for
    assert sum(op.time_ps for op in p.top_ops) <= p.step_ps
    assert sum(op.time_ps for op in p.top_ops) >= 0.99 * p.step_ps
    assert sum(module.time_ps for module in p.top_modules) <= p.step_ps
    assert {"layers.*.linear", "embed"} <= {module.module for module in p.top_modules}


def test_the_same_input_gives_the_same_document():
    one = trnsim.project(train(world_size=4), "trn2").to_dict()
    other = trnsim.project(train(world_size=4), "trn2").to_dict()
    assert json.dumps(one) == json.dumps(other)


def test_contradictions_are_refused_with_what_to_do():
    with pytest.raises(ProjectError, match="ran as 64 ranks, but 16 chips hold 16"):
        quick(train(world_size=64), "trn2-ultra", chips=16)
    with pytest.raises(ProjectError, match="which trn2-ultra, .* or others can hold"):
        quick(train(world_size=64), "inf2", chips=8)
    with pytest.raises(MachineError, match="64 ranks, which trn2-ultra, .* or others can hold"):
        quick(train(world_size=64), "inf2")
    with pytest.raises(MachineError, match="use up to 16$"):
        quick(train(), "trn2", chips=17)
    with pytest.raises(WorkloadError, match="no step 9"):
        quick(train(), step=9)
    with pytest.raises(WorkloadError):
        quick("missing.trnsim")
    negative = ({"step": -1}, {"tokens_per_step": -5}, {"samples_per_step": -5}, {"top": -1})
    for asked in negative:
        [(name, count)] = asked.items()
        with pytest.raises(WorkloadError, match=f"^{name} {count} is negative: use 0 or more$"):
            quick(train(), **asked)
    with pytest.raises(WorkloadError, match="step -1 is negative"):
        trnsim.simulate("trn2", step=-1)
    with pytest.raises(WorkloadError, match="^step 9+ is too large: use at most 2147483647$"):
        quick(train(), step=10**20 - 1)
    for chips in (2.5, "4"):
        with pytest.raises(MachineError, match=f"^chips {chips!r} is not a whole number: use one$"):
            trnsim.simulate("trn2", chips=chips)
    with pytest.raises(MachineError, match="^ranks 4294967296 is too large"):
        trnsim.simulate("trn2", ranks=2**32)


def test_another_step_can_be_chosen_and_one_that_makes_no_state_says_nothing():
    first = quick(train(), step=0)
    assert not any("first step" in value for _, value, _ in first.figures.guesses)
    assert first.figures.workload_hash == quick(train()).figures.workload_hash


def test_evaluation_is_reported_outside_the_step():
    plain, evaluating = quick(train()).figures, quick(train(evaluates=True)).figures
    assert plain.outside_step_ps == 0
    assert evaluating.step_ps == plain.step_ps
    assert evaluating.outside_step_ps > 0
    assert evaluating.model_flops == plain.model_flops
    assert "outside the step" in str(quick(train(evaluates=True)))


@pytest.mark.parametrize(
    ("machine", "options"),
    [
        ("h100", {"chips": 8}),
        ("trn2", {"chips": 8}),
        ("trn2", {"chips": 2, "ranks_per_chip": 4}),
        ("trn2", {"chips": 1, "ranks_per_chip": 8}),
    ],
)
def test_eight_ranks_project_on_every_kind_of_placement(machine, options):
    p = trnsim.project(train(world_size=8), machine, **options).figures
    assert p.ranks == 8
    assert p.chips_used == options["chips"]
    assert p.exposed_by_group_ps.keys() <= {"world"}
    assert p.memory_capacity_bytes + p.memory_reserved_bytes > 0
    assert 0 < p.interval_low_ps <= p.step_ps <= p.interval_high_ps
    links = [advice for advice in p.advice if "link" in advice.change]
    assert bool(links) == (options["chips"] > 1)


def test_a_latency_of_zero_is_not_said_to_be_without_effect():
    without = trnsim.project(
        train(), "trn2", interval=False, overrides=["chip.neuroncore.fill_latency=0ns"]
    )
    assert without.figures.step_ps < trnsim.project(train(), "trn2", interval=False).figures.step_ps
    assert without.figures.idle_overrides == []


def test_the_peak_that_mfu_divides_by_is_named():
    of_it = quick(train())
    peak = of_it.to_dict()["mfu_peak"]
    seconds = of_it.step_time_s
    assert peak["flops_per_s_per_chip"] * seconds * of_it.figures.mfu == pytest.approx(
        of_it.figures.model_flops
    )
    assert f"published dense peak in {peak['dtype']}" in str(of_it)


def test_steps_that_are_not_taken_apart_take_as_long() -> None:
    from trnsim.project.projection import step_seconds

    workload = train(world_size=16)
    variants = [[], ["chip.hbm.bandwidth=1TB/s"], ["scale_up.bandwidth_x=16GB/s"]]
    loaded = [machines.load("trn2", each) for each in variants]
    whole = [
        trnsim.project(workload, machine, advise=False, interval=False).step_time_s
        for machine in loaded
    ]
    assert step_seconds([workload], loaded) == whole
    assert len(set(whole)) == 3
