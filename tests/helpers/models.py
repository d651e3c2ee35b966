# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Small models that the capture tests train on the CPU and on the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """A transformer layer with fused attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = [
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, 2)
        ]
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        y = self.proj(y.transpose(1, 2).reshape(batch, length, width))
        x = x + F.dropout(y, self.dropout, self.training)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A GPT whose head shares the embedding's weight."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(64, 64), nn.Embedding(64, 64)
        self.layers = nn.ModuleList(Layer(64, 4, dropout) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 64, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class ResNet(nn.Module):
    """Two residual blocks with BatchNorm, a strided one and a pooled head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.first = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16),
        )
        self.second = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32))
        self.shortcut = nn.Conv2d(16, 32, 1, stride=2)
        self.head = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(images), 2)
        x = F.relu(x + self.first(x))
        x = F.relu(self.shortcut(x) + self.second(x))
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), labels)


def gpt_batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and targets of 8 sequences."""
    ids = torch.randint(0, 64, (8, 65), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def resnet_batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """8 images and labels."""
    images = torch.randn(8, 3, 32, 32, generator=generator)
    return images, torch.randint(0, 10, (8,), generator=generator)


def train(
    make: Callable[[], nn.Module],
    batch: Callable[[torch.Generator], tuple[torch.Tensor, ...]],
    device: str,
    steps: int,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    **options: object,
) -> list[float]:
    """Trains from the same seed and returns the losses."""
    torch.manual_seed(0)
    model = make().to(device)
    stepper = optimizer(model.parameters(), lr=1e-3, **options)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        loss = model(*(part.to(device) for part in batch(generator)))
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses
