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

FREE = [
    *(f"collectives.{name}_step_latency=0us" for name in ("mesh", "rdh", "kanga", "ring")),
    "scale_up.hop_latency=0us", "scale_up.bandwidth_x=1e6GB/s", "scale_up.bandwidth_y=1e6GB/s",
    "scale_up.bandwidth_z=1e6GB/s", "chip.neuroncore.launch_latency=0us",
    "chip.neuroncore.fill_latency=0ns", "chip.neuroncore.drain_latency=0ns",
]  # fmt: skip


def project(workloads, machine="trn2-ultra", **options):
    return trnsim.project(workloads, machine, advise=False, interval=False, **options)


def single(kind):
    return lambda stages, count, loss_fn: kind(stages[0], count, loss_fn=loss_fn)


def multi(kind):
    return lambda stages, count, loss_fn: kind(stages, count, loss_fn=loss_fn)


def looped(chunks):
    return lambda rank, ranks: [rank + i * ranks for i in range(chunks)]


def v_shaped(rank, ranks):
    return [rank, 2 * ranks - 1 - rank]


def pipeline(ranks, schedule, micro_batches, **options):
    return capture(
        lambda rank, count: run_pipeline(
            rank, count, schedule, micro_batches=micro_batches, **options
        ),
        ranks,
    )


def test_print():
    for schedule in (ScheduleGPipe, Schedule1F1B):
        for p, m in ((2, 4), (4, 8), (4, 4)):
            f = project(pipeline(p, single(schedule), m), overrides=FREE).figures
            b = f.breakdown
            print(schedule.__name__, p, m, f.step_ps, b.bubble_ps, b.exposed_communication_ps, b.host_ps, (b.bubble_ps)/(f.step_ps-b.bubble_ps), (p-1)/m)
    for v, p, m in ((2, 2, 4), (2, 4, 8), (3,2,4)):
        f = project(pipeline(p, multi(ScheduleInterleaved1F1B), m, stages=v*p, stage_of=looped(v)), overrides=FREE).figures
        b = f.breakdown
        print("inter", p, m, f.step_ps, b.bubble_ps, b.exposed_communication_ps, b.host_ps, (b.bubble_ps)/(f.step_ps-b.bubble_ps), (p-1)/m/v)
