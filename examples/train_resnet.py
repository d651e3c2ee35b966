# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trains a ResNet to tell gratings apart, with plain PyTorch on one device.

    python train_resnet.py --device cpu --depth 18 --size 64 --batch 16 --steps 60
    trnsim run --machine trn2 train_resnet.py

An image shows stripes in noise; its class is their direction. The defaults are ResNet-50 on images
of 224 by 224.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

# depth: (blocks of each stage, whether a block is a bottleneck)
DEPTHS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
}


def convolution(channels_in, channels_out, kernel, stride=1):
    """A convolution that keeps the size, but for its stride, and its norm."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels_out),
    )


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 as a bottleneck, beside a residual."""

    def __init__(self, channels_in, width, stride, bottleneck):
        super().__init__()
        channels_out = 4 * width if bottleneck else width
        if bottleneck:
            self.layers = nn.ModuleList(
                [
                    convolution(channels_in, width, 1),
                    convolution(width, width, 3, stride),
                    convolution(width, channels_out, 1),
                ]
            )
        else:
            self.layers = nn.ModuleList(
                [convolution(channels_in, width, 3, stride), convolution(width, channels_out, 3)]
            )
        self.shortcut = None
        if stride != 1 or channels_in != channels_out:
            self.shortcut = convolution(channels_in, channels_out, 1, stride)

    def forward(self, x):
        residual = x if self.shortcut is None else self.shortcut(x)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x), inplace=True)
        return F.relu(self.layers[-1](x) + residual, inplace=True)


class ResNet(nn.Module):
    """A stem, four stages that halve the image and double the channels, and a linear head."""

    def __init__(self, depth, classes):
        super().__init__()
        counts, bottleneck = DEPTHS[depth]
        self.stem = convolution(3, 64, 7, stride=2)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        stages, channels = [], 64
        for i, count in enumerate(counts):
            width, blocks = 64 << i, []
            for j in range(count):
                blocks.append(Block(channels, width, 2 if i and not j else 1, bottleneck))
                channels = 4 * width if bottleneck else width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images):
        x = self.pool(F.relu(self.stem(images), inplace=True))
        x = self.stages(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def batches(batch, size, classes, device, seed):
    """Images of stripes, [batch, 3, size, size], and the index of their direction, for ever."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.linspace(-1, 1, size)
    while True:
        labels = torch.randint(classes, (batch,), generator=generator)
        angles = labels.view(-1, 1, 1) * (math.pi / classes)
        across = place * torch.cos(angles) + place.view(-1, 1) * torch.sin(angles)
        phases = 2 * math.pi * torch.rand(batch, 1, 1, generator=generator)
        stripes = torch.sin(12 * math.pi * across + phases).unsqueeze(1)
        images = stripes + 0.5 * torch.randn(batch, 3, size, size, generator=generator)
        yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def choose_device(name):
    """The device that was asked for, else the accelerator, else the CPU."""
    if name:
        return torch.device(name)
    if torch.accelerator.is_available():
        return torch.accelerator.current_accelerator()
    return torch.device("cpu")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="cpu, cuda, trn, ... (default: the accelerator)")
    parser.add_argument("--depth", type=int, choices=sorted(DEPTHS), default=50)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--size", type=int, default=224, help="images are size x size")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = choose_device(args.device)
    torch.manual_seed(args.seed)
    model = ResNet(args.depth, args.classes).to(device)
    count = sum(p.numel() for p in model.parameters())
    print(f"ResNet-{args.depth} of {count / 1e6:.1f} million parameters on {device}")

    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=args.dtype == "bfloat16")
    source = batches(args.batch, args.size, args.classes, device, args.seed)
    for step in range(args.steps):
        images, labels = next(source)
        with autocast:
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        if step % args.log_every == 0 or step == args.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
