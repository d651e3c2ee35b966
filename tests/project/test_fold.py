# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Jobs projected with ranks that behave the same simulated as one, and rank by rank: nothing that
a projection says differs, nor what it leaves in files."""

import re

import pytest
from small_workload import RECV, SEND, step_of_calls, train

import trnsim
from trnsim.errors import SimulateError


def tensor_and_data_parallel(world, pod):
    groups = {
        "tp": f"0..{pod - 1}",
        "dp": f"start 0 axes {pod}x{world // pod}",
        "near": "start 0 axes 1x4",
    }
    sizes = [(1 << 20, "tp"), (1 << 22, "dp"), (1 << 12, "near"), (1 << 16, ""), (1 << 24, "tp")]
    return step_of_calls(world, groups, [(0, *at) for at in sizes])


def ring_of_messages(world, stride, count, receives=True):
    """Every rank sends to the next one in its group, and receives from the one before."""
    calls = [(0, 1 << 16, ""), (SEND, 1 << 20, "line", stride)]
    if receives:
        calls.append((RECV, 1 << 20, "line", stride * (count - 1)))
    return step_of_calls(world, {"line": f"start 0 axes {stride}x{count}"}, calls)


SLOWED = ["chip.interference.dma=0.7,guessed", "chip.interference.tensor=0.9"]
JOBS = {
    "a pod": ("trn2-ultra", {}, lambda: train(world_size=64)),
    "4 ranks a chip": ("trn2-ultra", {"ranks_per_chip": 4}, lambda: train(world_size=256)),
    "a server of a switch": ("h100", {}, lambda: train(world_size=8)),
    "two pods": ("rainier", {}, lambda: train(world_size=128)),
    "pods": ("rainier", {}, lambda: train(world_size=2048)),
    "engines slowed by transfers": (
        "rainier", {"overrides": SLOWED},
        lambda: train(world_size=128, layers=8, width=1024, tokens=8192)),
    "and 4 ranks a chip": (
        "trn2-ultra", {"overrides": SLOWED, "ranks_per_chip": 4}, lambda: train(world_size=256)),
    "not distributed": ("rainier", {"chips": 2048}, train),
    "tensor and data parallel": ("rainier", {}, lambda: tensor_and_data_parallel(512, 64)),
    "blocks of two pods": ("rainier", {}, lambda: tensor_and_data_parallel(1024, 128)),
    "several servers": ("h100-efa", {}, lambda: tensor_and_data_parallel(128, 8)),
    "servers under rails": ("h100", {}, lambda: tensor_and_data_parallel(1024, 8)),
    "64 of each rack": ("gb200-nvl72", {}, lambda: tensor_and_data_parallel(128, 64)),
    "a slice that closes": ("tpu-v5e", {}, lambda: train(world_size=256)),
    "a slice of lines": ("tpu-v5p", {}, lambda: tensor_and_data_parallel(32, 8)),
    "slices": (
        "tpu-v5p", {"overrides": ["scale_up.job_chips=64"]},
        lambda: tensor_and_data_parallel(256, 64)),
    "a switch of many servers": ("trn3", {}, lambda: tensor_and_data_parallel(288, 144)),
    "messages in a pod": ("rainier", {}, lambda: ring_of_messages(256, 1, 64)),
    "messages between pods": ("rainier", {}, lambda: ring_of_messages(512, 64, 8)),
}  # fmt: skip


def both_ways(name):
    machine, options, workload = JOBS[name]
    made = workload()
    return [trnsim.project(made, machine, fold=fold, **options) for fold in (True, False)]


@pytest.mark.parametrize("name", JOBS)
def test_every_figure_is_the_same(name):
    folded, unfolded = both_ways(name)
    assert folded.to_dict() == unfolded.to_dict()
    for field in ("timeline_hash", "exposed_by_group_ps", "memory_by_kind", "engine_busy"):
        assert getattr(folded.figures, field) == getattr(unfolded.figures, field)
    ranks = folded.figures.ranks
    counts = [rank.count for rank in folded.cohorts.system.ranks]
    assert len(unfolded.timeline.system.ranks) == ranks == sum(counts)
    assert len(counts) < ranks or ranks == 1
    classes = folded.cohorts.class_of_rank
    for rank in {0, 1, ranks // 3, ranks - 1} & set(range(ranks)):
        for times in ("rank_starts_ps", "rank_ends_ps"):
            seen = getattr(folded.timeline, times)(classes[rank])
            assert (seen == getattr(unfolded.timeline, times)(rank)).all()


def of_two_roles(extra):
    """4 ranks x 4 replicas, of which rank 0 plays a role of its own and reduces `extra` times more
    in its row."""

    def role(rank, ranks, times):
        row, column = rank - rank % 4, rank % 4
        groups = {"tp": f"{row}..{row + 3}", "dp": f"start {column} axes 4x4"}
        calls = [(0, 1 << 20, "tp"), (0, 1 << 22, "dp")] + [(0, 1 << 24, "")] * times
        made = step_of_calls(16, groups, calls)
        made.rank, made.role, made.played_by = rank, f"rank{rank}", ranks
        return made

    return [role(0, "0", 1 + extra), role(6, "1..15", 1)]


def test_a_rank_of_its_own_is_in_the_groups_of_the_others():
    alike = trnsim.project(of_two_roles(0), "trn2", advise=False, interval=False)
    plain = trnsim.project(
        step_of_calls(16, {"tp": "0..3", "dp": "start 0 axes 4x4"},
             [(0, 1 << 20, "tp"), (0, 1 << 22, "dp"), (0, 1 << 24, "")]),
        "trn2", advise=False, interval=False,
    )  # fmt: skip
    assert alike.figures.step_ps == plain.figures.step_ps
    assert [role.rank_count for role in alike.figures.roles] == [1, 15]
    unfolded = trnsim.project(of_two_roles(0), "trn2", advise=False, interval=False, fold=False)
    assert unfolded.to_dict() == alike.to_dict()
    with pytest.raises(SimulateError, match="which never calls it"):
        trnsim.project(of_two_roles(1), "trn2", advise=False, interval=False)


def trace_of(projection, path):
    """Everything in the trace but how counters of links round."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    from trnsim import _core

    ranks = sorted({0, 1, projection.figures.ranks - 1} & set(range(projection.figures.ranks)))
    _core.write_trace(projection.run, ranks, str(path))
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    loads = []
    for packet in trace.packet:
        if packet.track_event.HasField("double_counter_value"):
            loads.append(packet.track_event.double_counter_value)
            packet.track_event.ClearField("double_counter_value")
    return trace.SerializeToString(deterministic=True), loads


@pytest.mark.parametrize("name", ["pods", "blocks of two pods", "messages between pods"])
def test_the_trace_of_any_rank_is_the_same(name, tmp_path):
    (folded, loads), (unfolded, other) = (
        trace_of(each, tmp_path / "trace") for each in both_ways(name)
    )
    assert folded == unfolded
    assert len(loads) > 4
    assert loads == pytest.approx(other)


def test_a_run_that_cannot_end_names_ranks_of_the_job():
    stuck = ring_of_messages(256, 64, 4, receives=False)
    messages = []
    for fold in (True, False):
        with pytest.raises(SimulateError) as raised:
            trnsim.project(stuck, "rainier", advise=False, interval=False, fold=fold)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert re.search("waits for rank 64, which never calls it", messages[0])
