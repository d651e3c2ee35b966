# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Pipelines of torch.distributed.pipelining: bubbles as arithmetic has them, roles, memory, errors.

Where transfers and launches cost nothing, a step of equal stages is (m + (p - 1) / v) times one
forward and backward of a rank: the bubble is (p - 1) / (v m) of the rest.
"""

import pytest
import torch
import torch.distributed as dist
from pipelines import Layers, Pointwise, capture, run_pipeline
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

import trnsim
from trnsim.errors import SimulateError

# On which transfers, launches and ops of a few bytes cost nothing.
FREE_H100 = [
    "chip.gpu.kernel_latency=0us", "chip.gpu.host_launch_latency=0us",
    "collectives.base_latency=0us", "collectives.ring_step_latency=0us",
    "scale_up.hop_latency=0us", "scale_up.port_bandwidth=1e6GB/s",
]  # fmt: skip
# Here loads run ahead of what they are for while the engines wait, so they cost nothing, too.
FREE_TRN2 = [
    *(f"chip.neuroncore.{name}_latency=0us" for name in ("launch", "fill", "drain", "dge")),
    *(f"collectives.{name}_step_latency=0us" for name in ("mesh", "rdh", "kanga", "ring")),
    "scale_up.hop_latency=0us", "scale_up.bandwidth_x=8e6GB/s", "scale_up.bandwidth_y=8e6GB/s",
    "chip.neuroncore.dma_descriptor_latency=0us", "chip.neuroncore.dma_engine_bandwidth=1e6GB/s",
    "chip.neuroncore.dma_engine_peak=1e6GB/s", "chip.hbm.bandwidth=8000TB/s",
]  # fmt: skip
FREE = {"h100": FREE_H100, "trn2": FREE_TRN2}
# What is left: 10 to 64 MiB at 1e15 to 8e15 B/s a message, and the loss's gradient, a fill of 4
# bytes; on trn2 of steps of a third of a millisecond.
CLOSE = {"h100": 1e-4, "trn2": 1e-3}
LARGE = {
    "h100": {"width": 2048, "rows": 2048},
    "trn2": {"width": 4096, "rows": 4096, "module": Pointwise},
}
MACHINES = pytest.mark.parametrize("machine", ["h100", "trn2"])


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


@MACHINES
@pytest.mark.parametrize("kind", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 4), (4, 8)])
def test_the_bubble_of_equal_stages_is_p_minus_1_of_m(machine, kind, p, m):
    workloads = pipeline(p, single(kind), m, **LARGE[machine])
    projection = project(workloads, machine, overrides=FREE[machine])
    close = CLOSE[machine]
    assert bubble_of_the_rest(projection) == pytest.approx((p - 1) / m, rel=close)
    assert projection.breakdown_ps["exposed_communication"] < close * projection.figures.step_ps
    assert sum(projection.breakdown_ps.values()) == projection.figures.step_ps


@MACHINES
@pytest.mark.parametrize(("v", "p", "m"), [(2, 2, 4), (2, 4, 8), (3, 2, 4)])
def test_v_chunks_a_rank_divide_the_bubble(machine, v, p, m):
    schedule = multi(ScheduleInterleaved1F1B)
    workloads = pipeline(p, schedule, m, **looped(v), **LARGE[machine])
    projection = project(workloads, machine, overrides=FREE[machine])
    assert bubble_of_the_rest(projection) == pytest.approx((p - 1) / (v * m), rel=CLOSE[machine])


ZERO_BUBBLE = pytest.mark.parametrize(
    ("kind", "places"),
    [(ScheduleInterleavedZeroBubble, looped(2)), (ScheduleZBVZeroBubble, V_SHAPED)],
)


@ZERO_BUBBLE
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8)])
def test_where_weights_wait_only_the_first_forward_of_each_stage_is_waited_for(kind, places, p, m):
    # Forward, backward by inputs and backward by weights are a product each, and adding gradients
    # up costs nothing: a rank has 3 x 2 x m of them, and the last begins p - 1 later. Stage 0 makes
    # no gradient of its inputs: m products less, on one rank of p.
    workloads = pipeline(p, multi(kind), m, **places, module=Layers, **LARGE["h100"])
    free = [*FREE["h100"], "chip.hbm.bandwidth=1e6TB/s"]
    projection = project(workloads, overrides=free)
    step, work = 6 * m + p - 1, 6 * m - m / p
    assert bubble_of_the_rest(projection) == pytest.approx((step - work) / work, rel=CLOSE["h100"])


# torch sends what a paired forward and backward made once both are done: by hand, from the order
# of its actions, two products later than if each were sent at once, where there are four ranks.
@pytest.mark.parametrize(("p", "m", "step"), [(2, 4, 25), (4, 8, 53)])
def test_messages_of_a_paired_forward_and_backward_leave_after_both(p, m, step):
    options = {"module": Layers, **LARGE["h100"]}
    workloads = pipeline(p, multi(ScheduleDualPipeV), m, **V_SHAPED, **options)
    free = [*FREE["h100"], "chip.hbm.bandwidth=1e6TB/s"]
    projection, work = project(workloads, overrides=free), 6 * m - m / p
    assert bubble_of_the_rest(projection) == pytest.approx((step - work) / work, rel=CLOSE["h100"])


@ZERO_BUBBLE
@MACHINES
def test_schedules_that_put_off_weights_have_a_smaller_bubble(machine, kind, places):
    options = {"module": Layers, "layers": lambda stage: 2, **LARGE["h100"]}
    usual = pipeline(4, multi(ScheduleInterleaved1F1B), 8, **looped(2), **options)
    better = pipeline(4, multi(kind), 8, **places, **options)
    of_usual, of_better = (
        project(each, machine, overrides=FREE[machine]) for each in (usual, better)
    )
    assert 0 < bubble_of_the_rest(of_better) < bubble_of_the_rest(of_usual)
    assert of_better.figures.step_ps < of_usual.figures.step_ps


def of_stages(machine, micro_batches, layers):
    """Figures of four stages with so many layers each."""
    schedule = single(ScheduleGPipe)
    workloads = pipeline(4, schedule, micro_batches, layers=layers, **LARGE[machine])
    return project(workloads, machine, overrides=FREE[machine]).figures


def test_a_heavy_stage_sets_the_pace():
    # stage 1 has three products, the others one: sum of all stages + (m - 1) of the heaviest
    m, heavy = 8, 3
    one = of_stages("h100", m, lambda stage: 1).step_ps / (m + 3)
    uneven = of_stages("h100", m, lambda stage: heavy if stage == 1 else 1)
    assert uneven.step_ps == pytest.approx((3 + heavy + (m - 1) * heavy) * one, rel=CLOSE["h100"])


@MACHINES
def test_a_heavy_stage_gives_the_verdict_on_memory(machine):
    uneven = of_stages(machine, 4, lambda stage: 3 if stage == 1 else 1)
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
