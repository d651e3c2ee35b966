# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""One small transformer, divided over ranks in each of torch's ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

WIDTH, HEADS, LAYERS, WORDS = 512, 64, 2, 512
BATCH, LENGTH = 8, 64
# Elements: of a layer (four projections, two of the feed-forward, two norms), of what is outside of
# layers (embedding, head, norm), of all norms, of all.
OF_LAYER = 4 * WIDTH**2 + 2 * 4 * WIDTH**2 + 2 * 2 * WIDTH
OF_ROOT = 2 * WORDS * WIDTH + 2 * WIDTH
OF_NORMS = (2 * LAYERS + 1) * 2 * WIDTH
OF_ALL = LAYERS * OF_LAYER + OF_ROOT


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def share_matrices(model: Transformer, mesh, sequence: bool) -> None:
    """Tensor parallelism; `sequence`: activations between the matrices are divided, too."""
    between = Shard(1) if sequence else Replicate()
    plan = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "head": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
    }
    in_layer = {
        **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
        "attention.out": RowwiseParallel(output_layouts=between),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=between),
    }
    if sequence:
        plan["norm"] = SequenceParallel()
        whole = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
        in_layer |= {"norm1": SequenceParallel(), "norm2": SequenceParallel()}
        in_layer |= {"attention": whole, "feed_forward": whole}
    for index in range(len(model.layers)):
        plan |= {f"layers.{index}.{name}": style for name, style in in_layer.items()}
    there = dict(model.named_modules())
    parallelize_module(model, mesh, {name: plan[name] for name in plan if name in there})


def divide(model: Transformer, mesh, **options) -> nn.Module:
    """FSDP2, a group of parameters a layer."""
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fill(model: nn.Module, device: str) -> nn.Module:
    """From the meta device to this one."""
    model.to_empty(device=device)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def build(style: str, size: int, device: str = "trn") -> nn.Module:
    """The model over `size` ranks: plain, fsdp2, hsdp, tp, sp, fsdp2 x sp; two dimensions are
    size / 8 and 8."""
    with torch.device("meta"):
        model = Transformer()
    if style == "fsdp2":
        divide(model, init_device_mesh(device, (size,)))
    elif style == "hsdp":
        names = ("dp_replicate", "dp_shard")
        divide(model, init_device_mesh(device, (size // 8, 8), mesh_dim_names=names))
    elif style in ("tp", "sp"):
        mesh = init_device_mesh(device, (size,), mesh_dim_names=("tp",))
        share_matrices(model, mesh, sequence=style == "sp")
    elif style == "fsdp2 x sp":
        mesh = init_device_mesh(device, (size // 8, 8), mesh_dim_names=("dp", "tp"))
        share_matrices(model, mesh["tp"], sequence=True)
        divide(model, mesh["dp"])
    else:
        assert style == "plain"
    return fill(model, device)


def batch(device: str = "trn", length: int = LENGTH) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and the ids after them."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, WORDS, (BATCH, length + 1), generator=generator)
    return ids[:, :-1].contiguous().to(device), ids[:, 1:].contiguous().to(device)


def train(
    model: nn.Module,
    steps: int,
    device: str = "trn",
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    **options,
) -> list[float]:
    """Losses of so many steps on one batch."""
    stepper = optimizer(model.parameters(), lr=1e-3, **options)
    ids, targets = batch(device)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        stepper.step()
        stepper.zero_grad()
        losses.append(loss.item())
    return losses
