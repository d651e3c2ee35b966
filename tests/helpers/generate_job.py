# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Generates with small recipes on the CPU, in one process or in several that talk by gloo."""

from __future__ import annotations

import warnings

import torch
import torch.distributed as dist
from processes import ran_in
from torch import Tensor

from trnsim.recipes import Model
from trnsim.recipes.generator import Generator
from trnsim.recipes.serving import Serving

Case = tuple[Model, Serving, str]
WHOLE, PROMPT, BATCH = 12, 8, 2


def tokens(model: Model) -> Tensor:
    """The same sequences everywhere, [BATCH, WHOLE]."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, model.vocab, (BATCH, WHOLE), generator=generator)


def served(case: Case) -> list[Tensor]:
    """Logits after the prompt, and after each token of the rest."""
    model, serving, style = case
    generator, given = Generator(model, serving, style), tokens(model)
    found = [generator.prefill(given[:, : serving.prompt])]
    return found + [generator.decode(given[:, at]) for at in range(serving.prompt, WHOLE)]


def main(rank: int, ranks: int, folder: str) -> None:
    """What one of several processes runs: all cases, one after another."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    cases = torch.load(f"{folder}/cases", weights_only=False)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
    torch.save([served(case) for case in cases], f"{folder}/logits{rank}")
    dist.destroy_process_group()


def served_in(ranks: int, cases: list[Case]) -> list[list[list[Tensor]]]:
    """By rank and case."""
    with ran_in(ranks, "generate_job", cases) as folder:
        return [torch.load(f"{folder}/logits{rank}") for rank in range(ranks)]
