# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Seeds of jitter as lanes of one run, beside one run a seed; CPU seconds, medians of five.

A data-parallel step, recorded here, on a few chips and on a server: alone a seed fills a part of
a tile of lanes. Both ways must give the same makespans.
"""

import statistics
import time

import torch

import trnsim
from trnsim import _core
from trnsim.simulate import simulate_seeds, simulate_system

SEEDS, SPREAD, REPEATS = 256, 3277, 5  # chips are up to 5 % slower
LAYERS, WIDTH, TOKENS = 24, 1024, 4096


def job(chips: int):
    """The System of one step of a network of linear layers under DistributedDataParallel."""
    with trnsim.simulate("trn2-ultra", chips=chips, fold=False) as simulation:
        torch.distributed.init_process_group()
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to("trn"))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.empty(TOKENS, WIDTH, device="trn")).sum().backward()
        optimizer.step()
        torch.distributed.destroy_process_group()
    return simulation.projection.timeline.system


def one_by_one(system, seeds: range) -> list[int]:
    return [
        simulate_system(_core.with_jitter(system, seed, SPREAD), keep_times=False).makespan_ps
        for seed in seeds
    ]


def as_lanes(system, seeds: range) -> list[int]:
    return simulate_seeds(system, seeds, SPREAD)


def run() -> list[dict]:
    """Two rows a job; `ratio` is times as fast as one run a seed."""
    rows = []
    for chips in (1, 4, 16, 64):
        system = job(chips)
        seconds: dict[str, list[float]] = {}
        answers = []
        for _ in range(REPEATS):
            for way in (one_by_one, as_lanes):
                began = time.process_time()
                answers.append(way(system, range(SEEDS)))
                seconds.setdefault(way.__name__, []).append(time.process_time() - began)
        if any(answer != answers[0] for answer in answers):
            raise SystemExit("trnsim: seeds as lanes are not what they are alone")
        medians = {way: statistics.median(each) for way, each in seconds.items()}
        tasks = len(simulate_system(system).ends_ps)
        rows += [
            {
                "chips": chips, "seeds": SEEDS, "tasks_of_a_seed": tasks, "way": way,
                "cpu_s": f"{cpu_s:.4f}", "ratio": f"{medians['one_by_one'] / cpu_s:.2f}",
            }
            for way, cpu_s in medians.items()
        ]  # fmt: skip
    return rows
