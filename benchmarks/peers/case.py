# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A training step asked of trnsim and of PyTorch's own tools, on the same model in one run.

The tools are FakeTensorMode with RuntimeEstimator (a roofline of each op on PyTorch's figures of an
H100, summed) and with MemTracker (memory by kind). The model is a GPT of GPT-2's shape in bfloat16,
AdamW, 8 x 1,024 tokens; its first step is not timed. host_cpu_s is what a tool takes for one more
step: ours is recorded in phantom mode, then projected on `h100` with all advice and the interval.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, VOCABULARY, BATCH, TOKENS = 12, 768, 12, 50_304, 8, 1024
DEVICE = "trn"


class Layer(nn.Module):
    """A transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (
            part.view(BATCH, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(WIDTH, 2)
        )
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def make_step() -> tuple[Callable[[], None], nn.Module, torch.optim.Optimizer]:
    """One training step, its model and its optimizer, made under the mode that is on."""
    with torch.device(DEVICE):
        model = nn.Sequential(
            nn.Embedding(VOCABULARY, WIDTH), *(Layer() for _ in range(LAYERS)),
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False),
        )  # fmt: skip
        ids = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, model, optimizer


def ask_torch() -> list[dict[str, object]]:
    """What RuntimeEstimator and MemTracker say, and how long each took for a step."""
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.distributed._tools.runtime_estimator import RuntimeEstimator

    rows = []
    with FakeTensorMode():
        step, model, optimizer = make_step()
        step()
        began = time.process_time()
        estimator = RuntimeEstimator(gpu_type="NVIDIA H100")
        with (
            contextlib.redirect_stdout(io.StringIO()),  # it prints its result, too
            estimator(estimate_mode_type="operator-level-cost-model"),
        ):
            step()
        seconds = time.process_time() - began
        rows.append(_row("RuntimeEstimator", seconds, step_ms=estimator.total_runtime))
        began = time.process_time()
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            step()
        seconds = time.process_time() - began
        peak = next(
            kinds["Total"]
            for device, kinds in tracker.get_tracker_snapshot("peak").items()
            if device.type == DEVICE
        )
        rows.append(_row("MemTracker", seconds, peak_bytes=peak))
    return rows


def ask_trnsim() -> list[dict[str, object]]:
    """What a projection on one H100 says, and how long recording a step and projecting it took."""
    import trnsim

    with trnsim.simulate("h100", mode="phantom") as simulation:
        step, *_ = make_step()
        step()
        began = time.process_time()
        step()
        recorded = time.process_time() - began
    began = time.process_time()
    projection = simulation.projection
    projected = time.process_time() - began
    step_ms, peak = 1e3 * projection.step_time_s, projection.memory_peak_bytes
    return [
        _row("trnsim, recording", recorded, peak_bytes=peak),
        _row("trnsim, all", recorded + projected, step_ms=step_ms, peak_bytes=peak),
    ]


def _row(tool: str, seconds: float, step_ms: float | None = None, peak_bytes: int = 0) -> dict:
    return {
        "tool": tool, "host_cpu_s": round(seconds, 4),
        "step_ms": "" if step_ms is None else round(step_ms, 3),
        "peak_MiB": round(peak_bytes / 2**20, 1) if peak_bytes else "",
    }  # fmt: skip


def run() -> list[dict[str, object]]:
    """Rows: PyTorch's tools, then ours; ratio: how many times as long a tool of theirs took as the
    recording of ours."""
    import trnsim.device  # noqa: F401

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.bfloat16)
    ours, theirs = ask_trnsim(), ask_torch()
    recording = ours[0]["host_cpu_s"]
    return [row | {"ratio": round(row["host_cpu_s"] / recording, 2)} for row in theirs + ours]
