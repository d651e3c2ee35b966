# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Engines in a fixed ratio: which of them idle where the work is not a transformer's.

    python examples/studies/engine_ratio.py

One chip trains a transformer, a network of pointwise layers and norms, one of depthwise and
pointwise convolutions, and a recommender of embeddings and narrow products. The table has the
share of the step in which each engine runs.
"""

import common
import torch
from torch import nn

import trnsim
from trnsim.recipes import STYLES, Layout, Model, capture

MACHINE = "trn2"
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "dma")
HALF = 0.5  # of the transformer's share: what we call idling


class Pointwise(nn.Module):
    """Gates, activations and norms without any product."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.gates = nn.ParameterList(torch.ones(width) for _ in range(depth))

    def forward(self, x):
        for norm, gate in zip(self.norms, self.gates, strict=True):
            x = x + nn.functional.gelu(norm(x)) * torch.sigmoid(gate * x)
        return x


class Depthwise(nn.Module):
    """MobileNet's blocks: 3x3 depthwise, then 1x1 convolutions."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
                nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            )
            for _ in range(depth)
        ))  # fmt: skip

    def forward(self, x):
        return self.blocks(x)


class Recommender(nn.Module):
    """DLRM in small: embeddings, and products 64 wide."""

    def __init__(self, rows: int, tables: int, depth: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 64) for _ in range(tables))
        self.layers = nn.Sequential(
            *(layer for _ in range(depth) for layer in (nn.Linear(64, 64), nn.ReLU()))
        )

    def forward(self, ids):
        found = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        return self.layers(torch.stack(found).sum(0))


def train(model, inputs):
    """The Workload of two steps of a module."""
    with trnsim.simulate(MACHINE, mode="phantom", no_oom=True) as simulation:
        with torch.device("trn"):
            module, given = model().bfloat16(), inputs()
        optimizer = torch.optim.AdamW(module.parameters(), fused=True)
        for _ in range(2):
            module(given).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return simulation.workload


def workloads(smoke: bool) -> dict:
    """By name; small ones have the same shapes and fewer layers."""
    depth = 2 if smoke else 12
    model = Model.preset("Llama3-8B").with_(layers=1 if smoke else 4)
    layout = Layout(micro_batch=1, global_batch=2, sequence=8192)
    image = lambda: torch.empty(64, 256, 56, 56, dtype=torch.bfloat16)
    return {
        "transformer": capture(model, layout, STYLES["neuron"].with_(attention="flash")),
        "pointwise": train(
            lambda: Pointwise(4096, depth), lambda: torch.empty(8192, 4096, dtype=torch.bfloat16)
        ),
        "depthwise": train(lambda: Depthwise(256, depth), image),
        "recommender": train(
            lambda: Recommender(100_000, 8, depth),
            lambda: torch.zeros(65536, 8, dtype=torch.int64),
        ),
    }


def busy(workload, engine: str) -> common.Figure:
    """The share of the step in which an engine runs."""

    def share(machine) -> float:
        return common.project(workload, machine, interval=False).engine_busy.get(engine, 0.0)

    figure = common.spread(share, trnsim.machine.load(MACHINE, stack="neuron"))
    return common.Figure(figure.value, max(0.0, figure.low), min(1.0, figure.high))


def main() -> None:
    smoke = common.is_smoke(__doc__)
    rows, tensor, limits, useful = [], {}, {}, {}
    for name, workload in workloads(smoke).items():
        projection = common.project(workload, MACHINE, stack="neuron", interval=False)
        limits[name], useful[name] = projection.bottleneck, projection.mfu or 0.0
        tensor[name] = busy(workload, "tensor")
        shares = [f"{projection.engine_busy.get(engine, 0.0):.1%}" for engine in ENGINES]
        rows.append((
            name, common.duration(projection.step_time_s), *shares, tensor[name],
            f"{useful[name]:.1%}", limits[name],
        ))  # fmt: skip
    common.print_table(
        "Engines run in this share of the step",
        ("workload", "step", *ENGINES, "tensor, interval", "MFU", "limited by"), rows,
    )  # fmt: skip
    usual = tensor.pop("transformer")
    idle = [name for name, figure in tensor.items() if figure.high < HALF * usual.low]
    hollow = [n for n in tensor if n not in idle and useful[n] < HALF * useful["transformer"]]
    common.print_verdict(
        claim="the fixed ratio of Trainium2's engines suits transformers and idles elsewhere",
        found=f"the tensor engine runs in {usual} of a transformer's step and in "
        + ", ".join(f"{figure} of the {name}'s" for name, figure in tensor.items())
        + "; what limits: " + ", ".join(f"{name} {limit}" for name, limit in limits.items()),
        rests_on="documented cycles of instructions; our rules of fusion and of the split over "
        "cores, which the intervals do not hold; one chip, no messages",
        missing="profiles of such models on Trainium2; a GPU's idle share, which has a ratio of "
        "tensor cores to the rest that is as fixed",
        verdict=(
            f"{'holds' if len(idle) == len(tensor) else 'holds only'} for {', '.join(idle)}, where "
            "the tensor engine runs less than half as much as in a transformer" if idle
            else "does not hold for any of them"
        )
        + (f"; for {', '.join(hollow)} it runs, but on tiles that it does not fill: MFU is less "
           "than half of a transformer's" if hollow else ""),
    )  # fmt: skip


if __name__ == "__main__":
    main()
