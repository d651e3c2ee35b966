# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Pipelines of torch.distributed.pipelining: bubbles as arithmetic has them, roles, memory, errors.

Where transfers and launches cost nothing, a step of equal stages is (m + (p - 1) / v) times one
forward and backward of a rank: the bubble is (p - 1) / (v m) of the rest.
"""

import pytest
import torch
import torch.distributed as dist
from pipelines import capture, run_pipeline
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

import trnsim
from trnsim.errors import SimulateError

# On which transfers, launches and ops of a few bytes cost nothing.
FREE = [
    "chip.gpu.kernel_latency=0us", "chip.gpu.host_launch_latency=0us",
    "collectives.base_latency=0us", "collectives.ring_step_latency=0us",
    "scale_up.hop_latency=0us", "scale_up.port_bandwidth=1e6GB/s",
]  # fmt: skip
# What is left: 10 to 16 MiB at 1e15 B/s a message, and the loss's gradient, a fill of 4 bytes.
CLOSE = 1e-4
LARGE = {"width": 2048, "rows": 2048}


def project(workloads, machine="h100", **options):
    return trnsim.project(workloads, machine, advise=False, interval=False, **options)


def single(kind):
    """A schedule of one stage a rank."""
    return lambda stages, count, loss_fn: kind(stages[0], count, loss_fn=loss_fn)


def multi(kind):
    """A schedule of several."""
    return lambda stages, count, loss_fn: kind(stages, count, loss_fn=loss_fn)


def looped(chunks):
    return {
        "chunks": chunks,
        "stage_of": lambda rank, ranks: [rank + i * ranks for i in range(chunks)],
    }


V_SHAPED = {"chunks": 2, "stage_of": lambda rank, ranks: [rank, 2 * ranks - 1 - rank]}


def pipeline(ranks, schedule, micro_batches, **options):
    return capture(
        lambda rank, count: run_pipeline(
            rank, count, schedule, micro_batches=micro_batches, **options
        ),
        ranks,
    )


def bubble_of_the_rest(projection):
    bubble = projection.figures.breakdown.bubble_ps
    return bubble / (projection.figures.step_ps - bubble)


@pytest.mark.parametrize("kind", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 4), (4, 8)])
def test_the_bubble_of_equal_stages_is_p_minus_1_of_m(kind, p, m):
    projection = project(pipeline(p, single(kind), m, **LARGE), overrides=FREE)
    assert bubble_of_the_rest(projection) == pytest.approx((p - 1) / m, rel=CLOSE)
    assert projection.breakdown_ps["exposed_communication"] < CLOSE * projection.figures.step_ps
    assert sum(projection.breakdown_ps.values()) == projection.figures.step_ps


@pytest.mark.parametrize(("v", "p", "m"), [(2, 2, 4), (2, 4, 8), (3, 2, 4)])
def test_v_chunks_a_rank_divide_the_bubble(v, p, m):
    workloads = pipeline(p, multi(ScheduleInterleaved1F1B), m, **looped(v), **LARGE)
    projection = project(workloads, overrides=FREE)
    assert bubble_of_the_rest(projection) == pytest.approx((p - 1) / (v * m), rel=CLOSE)


@pytest.mark.parametrize(
    ("kind", "places"),
    [(ScheduleInterleavedZeroBubble, looped(2)), (ScheduleZBVZeroBubble, V_SHAPED)],
)
def test_schedules_that_put_off_weights_have_a_smaller_bubble(kind, places):
    class Layers(torch.nn.Sequential):
        def __init__(self, layers, width):
            linear = lambda: torch.nn.Linear(width, width, bias=False, device="trn")
            super().__init__(*(linear() for _ in range(layers)))

    options = {"module": Layers, "layers": lambda stage: 2, **LARGE}
    usual = pipeline(4, multi(ScheduleInterleaved1F1B), 8, **looped(2), **options)
    better = pipeline(4, multi(kind), 8, **places, **options)
    of_usual, of_better = (project(each, overrides=FREE) for each in (usual, better))
    assert 0 < bubble_of_the_rest(of_better) < bubble_of_the_rest(of_usual)
    assert of_better.figures.step_ps < of_usual.figures.step_ps


def test_a_heavy_stage_sets_the_pace_and_the_verdict_on_memory():
    # stage 1 has three products, the others one: sum of all stages + (m - 1) of the heaviest
    m, heavy = 8, 3
    even = project(pipeline(4, single(ScheduleGPipe), m, **LARGE), overrides=FREE).figures
    layers = {"layers": lambda stage: heavy if stage == 1 else 1}
    uneven = project(
        pipeline(4, single(ScheduleGPipe), m, **layers, **LARGE), overrides=FREE
    ).figures
    one = even.step_ps / (m + 3)
    assert uneven.step_ps == pytest.approx((3 + heavy + (m - 1) * heavy) * one, rel=CLOSE)
    peaks = {role.name: role.memory_peak_bytes for role in uneven.roles}
    assert uneven.memory_role == max(peaks, key=peaks.get) == "rank1"
    assert uneven.memory_peak_bytes == peaks["rank1"] == sum(uneven.memory_by_kind.values())


def test_a_stage_keeps_as_many_micro_batches_as_stages_follow():
    # 1F1B: stage i of p has p - i micro-batches in flight; each keeps what its products made.
    p, layers, rows, width = 4, 3, 512, 512
    made = pipeline(p, single(Schedule1F1B), 8, layers=lambda stage: layers)
    peaks = [role.memory_peak_bytes for role in project(made).figures.roles]
    kept = layers * 4 * rows * width
    assert peaks[1] - peaks[2] == kept


@pytest.mark.parametrize(("ranks", "machine"), [(64, "trn2-ultra"), (1024, "rainier")])
def test_a_pipeline_of_many_replicas_is_folded_to_its_stages(ranks, machine):
    workloads = pipeline(ranks, single(Schedule1F1B), 4, replicas=ranks // 4)
    assert [w.played_by for w in workloads] == [
        f"{i * ranks // 4}..{(i + 1) * ranks // 4 - 1}" for i in range(4)
    ]
    folded, unfolded = (project(workloads, machine, fold=fold) for fold in (True, False))
    assert folded.to_dict() == unfolded.to_dict()
    assert [role.rank_count for role in folded.figures.roles] == [ranks // 4] * 4
    assert 4 <= len(folded.cohorts.system.ranks) < ranks == len(unfolded.cohorts.system.ranks)
    assert folded.figures.breakdown.bubble_ps > 0
    assert set(folded.figures.exposed_by_group_ps) == {"mesh_pp", "mesh_dp"}


def two_ranks(script):
    """Projects what script(rank) does on two ranks, whether they fit each other or not."""

    def run(rank, _):
        script(rank, torch.ones(64, 64, device="trn"))
        torch.trn.step()

    return project(capture(run, 2))


def test_two_ranks_that_both_receive_first_are_named_in_a_cycle():
    def script(rank, x):
        dist.recv(x, 1 - rank)
        dist.send(x * x, 1 - rank)

    with pytest.raises(SimulateError) as raised:
        two_ranks(script)
    text = str(raised.value)
    assert text.startswith("deadlock: rank ") and "(cycle)" in text
    assert "recv 0 on message 1>0" in text and "recv 0 on message 0>1" in text


def test_the_same_in_one_batch_runs():
    def script(rank, x):
        into = torch.empty(64, 64, device="trn")
        ops = [dist.P2POp(dist.irecv, into, 1 - rank), dist.P2POp(dist.isend, x, 1 - rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    assert two_ranks(script).figures.breakdown.exposed_communication_ps > 0


def test_messages_of_other_bytes_than_are_expected_are_named():
    def script(rank, x):
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(torch.empty(32, 32, device="trn"), 0)

    with pytest.raises(SimulateError) as raised:
        two_ranks(script)
    assert "rank 0 makes send of 16384 bytes, rank 1 makes recv of 4096 bytes" in str(raised.value)


def test_a_message_that_nobody_receives_is_named():
    def script(rank, x):
        if rank == 0:
            dist.send(x, 1)

    with pytest.raises(SimulateError, match="waits for rank 1, which never calls it"):
        two_ranks(script)
