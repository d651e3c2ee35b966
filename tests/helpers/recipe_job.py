# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trains small recipes on the CPU, in one process or in several that talk by gloo."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from processes import ran_in

from trnsim.recipes import STYLES, Layout, Model, Trainer

STEPS = 3
WHOLE = Layout(sequence=16, micro_batch=1, global_batch=4, precision="fp32")


@dataclass(frozen=True)
class Case:
    """A model, what its layout has other than WHOLE, and the name of its style."""

    model: Model
    changes: tuple[tuple[str, Any], ...] = ()
    style: str = "megatron"

    @property
    def layout(self) -> Layout:
        return WHOLE.with_(**dict(self.changes))


def batches(case: Case, trainer: Trainer) -> Any:
    """A rank's part of the same global batch, whatever the layout: inputs and targets by number."""
    from trnsim.recipes.attention import positions_of

    layout, place = case.layout, trainer.place
    generator = torch.Generator().manual_seed(7)
    shape = (layout.global_batch, layout.sequence + 1)
    every = torch.randint(0, case.model.vocab, shape, generator=generator)
    own = every.chunk(layout.dp)[place.dp_rank].split(layout.micro_batch)
    at = positions_of(layout.sequence, layout.cp, place.cp_rank)
    return lambda number: (own[number][:, :-1][:, at], own[number][:, 1:][:, at])


def train(case: Case) -> list[float]:
    """Losses of a few steps, summed over ranks where there are some."""
    trainer = Trainer(case.model, case.layout, STYLES[case.style])
    tokens = batches(case, trainer)
    losses = []
    for _ in range(STEPS):
        loss = trainer.step(tokens).detach().clone()
        if case.layout.world > 1:
            if not trainer.place.is_last or trainer.place.tp_rank:
                loss.zero_()
            dist.all_reduce(loss)
        losses.append(float(loss))
    return losses


def main(rank: int, ranks: int, folder: str) -> None:
    """What one of several processes runs: all cases, one after another."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    cases = torch.load(f"{folder}/cases", weights_only=False)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
    losses = [train(case) for case in cases]
    if rank == 0:
        torch.save(losses, f"{folder}/losses")
    dist.destroy_process_group()


def losses_of(cases: list[Case]) -> list[list[float]]:
    """Losses of cases that all have as many ranks."""
    ranks = cases[0].layout.world
    if ranks == 1:
        return [train(case) for case in cases]
    with ran_in(ranks, "recipe_job", cases) as folder:
        return torch.load(f"{folder}/losses")
