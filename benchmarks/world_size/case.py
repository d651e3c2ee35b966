# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Seconds that parallel training takes to set up and capture, against the size of the world.

One process stands for all ranks. Each column is one thing that a script does, imports aside (all of
them ran once before): the default group; DistributedDataParallel around a model; FSDP2 over the
whole width with two training steps; a mesh of W/8 x 8 (1 x 1 for one rank) with FSDP2 and tensor
parallelism on it, two steps; objects gathered from all ranks. The peer in the same run is torch's
own fake process group on CPU tensors, which computes nothing of other ranks either. The last row is
the slope from the smallest world to the largest, in microseconds a rank.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

SIZES = (1, 8, 64, 512, 4096, 16384, 65536)
WIDTH = 512


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


def _model(device: str) -> nn.Sequential:
    with torch.device(device):
        return nn.Sequential(_Layer(), _Layer())


def _two_steps(model: nn.Module, device: str) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        model(torch.ones(4, WIDTH, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def _ddp(device: str, size: int) -> None:
    DistributedDataParallel(_model(device))


def _fsdp2(device: str, size: int) -> None:
    model = _model(device)
    mesh = init_device_mesh(device, (size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    _two_steps(fully_shard(model, mesh=mesh), device)


def _mesh(device: str, size: int) -> None:
    model = _model(device)
    tensor = min(8, size)
    mesh = init_device_mesh(device, (size // tensor, tensor), mesh_dim_names=("dp", "tp"))
    for layer in model:
        parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["dp"])
    _two_steps(fully_shard(model, mesh=mesh["dp"]), device)


def _objects(device: str, size: int) -> None:
    dist.all_gather_object([None] * size, {"rank": dist.get_rank()})


@contextmanager
def _ours(size: int) -> Iterator[float]:
    from trnsim.capture.script import start_capture, stop_capture
    from trnsim.capture.world import World

    start_capture(World(0, size, 16), "phantom")
    try:
        began = time.perf_counter()
        dist.init_process_group()
        yield time.perf_counter() - began
    finally:
        stop_capture()
        dist.destroy_process_group()


@contextmanager
def _fake(size: int) -> Iterator[float]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    began = time.perf_counter()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        yield time.perf_counter() - began
    finally:
        dist.destroy_process_group()


def _seconds(work: Callable[[str, int], None], device: str, size: int) -> float:
    gc.collect()
    began = time.perf_counter()
    work(device, size)
    return time.perf_counter() - began


def _row(size: int) -> dict[str, float]:
    row: dict[str, float] = {"ranks": size}
    for name, world, device in (("", _ours, "trn"), ("fake_", _fake, "cpu")):
        with world(size) as seconds:
            row[f"{name}init_s"] = seconds
            for work in (_ddp, _fsdp2, _mesh, _objects):
                if world is _fake and work is _objects:
                    continue  # what the fake group gathers cannot be read
                row[f"{name}{work.__name__.strip('_')}_s"] = _seconds(work, device, size)
        gc.collect()
    return row


def run() -> list[dict[str, object]]:
    """One row a world size, and the slope."""
    import trnsim.device  # noqa: F401

    _row(8)
    rows = [_row(size) for size in SIZES]
    first, last = rows[0], rows[-1]
    slope: dict[str, object] = {"ranks": "slope in us a rank"}
    for name in first:
        if name != "ranks":
            slope[name] = round(1e6 * (last[name] - first[name]) / (SIZES[-1] - SIZES[0]), 3)
    shown = [{k: round(v, 4) if k != "ranks" else v for k, v in row.items()} for row in rows]
    return [*shown, slope]
