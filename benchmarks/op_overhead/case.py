# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Microseconds an op costs the host: phantom and compute mode, beside CPU eager and FakeTensorMode.

Tensors are 136 x 136 floats: past the size whose values phantom mode keeps, small enough that the
CPU's own arithmetic stays a small part. Times are the best of several rounds, Python included. The
last rows are whole training steps of a small GPT (4 layers, width 256, 512 tokens).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

SIZE = 136
CALLS, ROUNDS = 300, 9


def _ops(device: str) -> dict[str, Callable[[], object]]:
    x, y = (torch.ones(SIZE, SIZE, device=device) for _ in range(2))
    weight = torch.ones(SIZE, device=device)
    return {
        "add": lambda: x + y,
        "add_": lambda: x.add_(y),
        "mm": lambda: x @ y,
        "layer_norm": lambda: F.layer_norm(x, (SIZE,), weight, weight),
        "gelu": lambda: F.gelu(x),
        "softmax": lambda: torch.softmax(x, 1),
    }


def _best_us(call: Callable[[], object], calls: int, rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best / calls


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, 4, c // 4).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class _Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, 256)
        self.layers = nn.Sequential(*(_Layer(256) for _ in range(4)))
        self.head = nn.Linear(256, 256, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.layers(self.tokens(ids)))
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def _step(device: str) -> Callable[[], None]:
    model = _Gpt().to(device)
    stepper = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 256, (4, 128)).to(device)

    def step() -> None:
        stepper.zero_grad()
        model(ids).backward()
        stepper.step()

    step()
    return step


def _measure(device: str, with_step: bool = True) -> dict[str, float]:
    times = {name: _best_us(call, CALLS) for name, call in _ops(device).items()}
    if with_step:
        times["gpt step"] = _best_us(_step(device), 3, 5)
    return times


def _measure_on_trn(mode: str, recorded: bool) -> dict[str, float]:
    from trnsim import _torch

    gc.collect()
    _torch.set_mode(mode)
    if recorded:
        _torch.start_recording()
    try:
        return _measure("trn")
    finally:
        if recorded:
            _torch.stop_recording()


def run() -> list[dict[str, object]]:
    """One row an op; `ratio` columns are against CPU eager of the same run."""
    import trnsim.device  # noqa: F401

    torch.manual_seed(0)
    torch.set_num_threads(1)
    cpu = _measure("cpu")
    columns = {
        "phantom": _measure_on_trn("phantom", recorded=False),
        "phantom_recorded": _measure_on_trn("phantom", recorded=True),
        "compute": _measure_on_trn("compute", recorded=False),
        "compute_recorded": _measure_on_trn("compute", recorded=True),
    }
    with FakeTensorMode():
        fake = _measure("cpu", with_step=False)
    rows = []
    for name, cpu_us in cpu.items():
        row: dict[str, object] = {"op": name, "cpu_us": round(cpu_us, 2)}
        row["fake_tensor_us"] = round(fake[name], 2) if name in fake else ""
        for column, times in columns.items():
            row[f"{column}_us"] = round(times[name], 2)
        for column in ("phantom_recorded", "compute_recorded"):
            row[f"{column}_ratio"] = round(columns[column][name] / cpu_us, 3)
        rows.append(row)
    return rows
