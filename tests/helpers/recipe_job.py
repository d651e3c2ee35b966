# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trains a small recipe on the CPU, in one process or in several that talk by gloo."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trnsim.recipes import Layout, Model, Style, Trainer

STEPS = 3


def batches(model: Model, layout: Layout, trainer: Trainer) -> Any:
    """A rank's part of the same global batch, whatever the layout: inputs and targets by number."""
    from trnsim.recipes.attention import positions_of

    generator = torch.Generator().manual_seed(7)
    shape = (layout.global_batch, layout.sequence + 1)
    every = torch.randint(0, model.vocab, shape, generator=generator)
    place = trainer.place
    own = every.chunk(layout.dp)[place.dp_rank].split(layout.micro_batch)
    at = positions_of(layout.sequence, layout.cp, place.cp_rank)
    return lambda number: (own[number][:, :-1][:, at], own[number][:, 1:][:, at])


def train(model: Model, layout: Layout, style: Style) -> list[float]:
    """Losses of a few steps as this rank sees them; summed over ranks where there are some."""
    torch.set_num_threads(1)
    trainer = Trainer(model, layout, style)
    tokens = batches(model, layout, trainer)
    losses = []
    for _ in range(STEPS):
        loss = trainer.step(tokens).detach().clone()
        if dist.is_initialized():
            if not trainer.place.is_last or trainer.place.tp_rank:
                loss.zero_()
            dist.all_reduce(loss)
        losses.append(float(loss))
    return losses


def _process(rank: int, layout: Layout, case: tuple[Model, Style], folder: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=layout.world
    )
    losses = train(case[0], layout, case[1])
    if rank == 0:
        torch.save(losses, f"{folder}/losses")
    dist.destroy_process_group()


def losses_of(model: Model, layout: Layout, style: Style) -> list[float]:
    """Losses of the job, in as many processes as it has ranks."""
    if layout.world == 1:
        return train(model, layout, style)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_process, (layout, (model, style), folder), layout.world)
        return torch.load(f"{folder}/losses")
