# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trains a small GPT whose saved activations go to pinned host memory, on a stream of their own.

    trnsim run --machine h100 train_gpt_offload.py
    trnsim run --machine h100 train_gpt_offload.py --keep

Saved-tensor hooks send what the layers keep for the backward to the host as soon as it is saved,
as torchtune does. The compute stream waits for a copy only when a few later ones have begun, and
drops the device's memory then. In the backward a tensor comes back on the same side stream when it
is asked for. With --keep all activations stay on the device.
"""

import argparse
import contextlib
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

UNDER_WAY = 5  # copies out that have begun and are not waited for
LEAST_BYTES = 1024  # smaller tensors stay


class Offload(torch.autograd.graph.saved_tensors_hooks):
    """Sends saved tensors of the device to the host until the backward needs them."""

    def __init__(self, parameters):
        self.stream = torch.Stream(torch.accelerator.current_accelerator())
        self.stays = {p.untyped_storage().data_ptr() for p in parameters}
        self.leaving = OrderedDict()  # number of a copy -> the tensor that it reads, its end
        self.count = 0
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor):
        address = tensor.untyped_storage().data_ptr()
        if tensor.device.type == "cpu" or tensor.nbytes < LEAST_BYTES or address in self.stays:
            return tensor
        compute = torch.accelerator.current_stream()
        while len(self.leaving) >= UNDER_WAY:
            _, (_, end) = self.leaving.popitem(last=False)
            compute.wait_event(end)
        self.stream.wait_stream(compute)
        with self.stream:
            host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            host.copy_(tensor, non_blocking=True)
            self.leaving[self.count] = tensor, self.stream.record_event()
        self.count += 1
        return host, tensor.device

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        host, device = packed
        compute = torch.accelerator.current_stream()
        tensor = torch.empty(host.shape, dtype=host.dtype, device=device)
        self.stream.wait_stream(compute)
        with self.stream:
            tensor.copy_(host, non_blocking=True)
        compute.wait_stream(self.stream)
        return tensor

    def end(self):
        """After the forward: nothing more leaves."""
        compute = torch.accelerator.current_stream()
        while self.leaving:
            _, (_, end) = self.leaving.popitem(last=False)
            compute.wait_event(end)


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm and beside a residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).movedim(2, 0)
        q, k, v = (part.transpose(1, 2) for part in qkv)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def main():
    parser = argparse.ArgumentParser()
    for name, value in {
        "layers": 8,
        "width": 2048,
        "heads": 16,
        "context": 4096,
        "steps": 2,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    device = torch.accelerator.current_accelerator()
    with device:
        embedding = nn.Embedding(256, args.width, dtype=torch.bfloat16)
        blocks = nn.ModuleList(Block(args.width, args.heads) for _ in range(args.layers))
        blocks = blocks.to(torch.bfloat16)
        head = nn.Linear(args.width, 256, dtype=torch.bfloat16)
    parameters = [*embedding.parameters(), *blocks.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, fused=True)
    for step in range(args.steps):
        tokens = torch.randint(256, (1, args.context + 1), device=device)
        offload = None if args.keep else Offload(parameters)
        x = embedding(tokens[:, :-1])
        with offload or contextlib.nullcontext():
            for block in blocks:
                x = block(x)
        if offload is not None:
            offload.end()
        loss = F.cross_entropy(head(x).float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} done")


if __name__ == "__main__":
    main()
