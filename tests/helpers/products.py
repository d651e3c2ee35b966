# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The transformer of parallel.py over 64 ranks in ways that need more than a model: context
parallelism, and pipelines of divided stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import parallel
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

CONTEXT, STAGES, REPLICAS, TENSOR = 8, 2, 4, 8
MICRO_BATCHES = 4
Around = Callable[[nn.Module, torch.optim.Optimizer], Any]


class Stage(parallel.Transformer):
    """The first layer and the embedding, or the last and the head."""

    def __init__(self, is_first: bool) -> None:
        super().__init__()
        self.is_first = is_first
        if is_first:
            del self.layers[1:], self.norm, self.head
        else:
            del self.layers[:-1], self.words

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x) if self.is_first else x
        for layer in self.layers:
            x = layer(x)
        return x if self.is_first else self.head(self.norm(x))


def _steps(model: nn.Module, steps: int, around: Around | None, run: Callable[[], None]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    tracker = around(model, optimizer) if around else None
    for _ in range(steps):
        run()
        optimizer.step()
        optimizer.zero_grad()
        if tracker is not None:
            tracker.reset_mod_stats()


def train_context(steps: int, around: Around | None = None) -> None:
    """FSDP2 over all ranks; 8 of them share a sequence."""
    with torch.device("meta"):
        model = parallel.Transformer()
    mesh = init_device_mesh("trn", (8, CONTEXT), mesh_dim_names=("dp", "cp"))
    parallel.divide(model, mesh["dp", "cp"]._flatten("dp_cp"))
    parallel.fill(model, "trn")

    def run() -> None:
        ids, targets = parallel.batch()
        with context_parallel(mesh["cp"], buffers=[ids, targets], buffer_seq_dims=[1, 1]):
            F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()

    _steps(model, steps, around, run)


def train_hybrid(steps: int) -> None:
    """Copies of FSDP2 over 2 ranks, each of sequence parallelism over 8: HSDP x TP."""
    names = ("copy", "part", "rest")  # that say nothing
    with torch.device("meta"):
        model = parallel.Transformer()
    mesh = init_device_mesh("trn", (REPLICAS, 2, TENSOR), mesh_dim_names=names)
    parallel.share_matrices(model, mesh["rest"], sequence=True)
    parallel.divide(model, mesh["copy", "part"])
    parallel.train(parallel.fill(model, "trn"), steps, foreach=True)


def train_tensor_context(steps: int) -> None:
    """FSDP2 over 8 ranks, of which 4 share a sequence, times tensor parallelism over 8."""
    names = ("few", "several", "rest")
    with torch.device("meta"):
        model = parallel.Transformer()
    mesh = init_device_mesh("trn", (2, 4, TENSOR), mesh_dim_names=names)
    parallel.share_matrices(model, mesh["rest"], sequence=False)
    parallel.divide(model, mesh["few", "several"]._flatten("both"))
    parallel.fill(model, "trn")

    def run() -> None:
        ids, targets = parallel.batch()
        buffers = {"buffers": [ids, targets], "buffer_seq_dims": [1, 1]}
        with context_parallel(mesh["several"], **buffers):
            F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()

    _steps(model, steps, None, run)


def train_stage(rank: int, steps: int, by_copies: bool = False) -> None:
    """1F1B over two stages of sequence parallelism over 8 ranks, each under FSDP2 over 4, or in 4
    copies (DDP)."""
    mesh = init_device_mesh("trn", (STAGES, REPLICAS, TENSOR), mesh_dim_names=("pp", "dp", "tp"))
    place = rank // (REPLICAS * TENSOR)
    with torch.device("meta"):
        model = Stage(is_first=place == 0)
    parallel.share_matrices(model, mesh["tp"], sequence=True)
    if not by_copies:
        parallel.divide(model, mesh["dp"], reshard_after_forward=False)
    parallel.fill(model, "trn")
    if by_copies:
        _pre_dp_module_transform(model)
        model = DistributedDataParallel(model, process_group=mesh.get_group("dp"))
    device = torch.device("trn", torch.accelerator.current_device_index())
    stage = PipelineStage(model, place, STAGES, device, group=mesh.get_group("pp"))
    loss_of = lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=loss_of)

    def run() -> None:
        ids, targets = parallel.batch()
        inputs = [ids] if stage.is_first else []
        more = {"target": targets} if stage.is_last else {}
        schedule.step(*inputs, **more, return_outputs=False)

    _steps(model, steps, None, run)
