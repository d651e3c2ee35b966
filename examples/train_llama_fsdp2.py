# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trains a Llama-style model whose parameters are divided over all devices: FSDP2, with or without
tensor parallelism inside it.

    torchrun --nproc-per-node 4 train_llama_fsdp2.py --device cpu --tp 2 --layers 2 --width 128
    trnsim run --machine trn2-ultra --chips 64 train_llama_fsdp2.py --tp 4

The devices form a mesh of two dimensions. Those of a row ("tp") share each matrix multiplication
and, between them, the sequence; those of a column ("dp") have other data, and each keeps its part
of parameters, gradients and optimizer state, gathering a layer's parameters when it is that layer's
turn. The model is built on the meta device, so that no device ever holds all of it.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from train_gpt import BYTES, arguments, batches, choose_device, learning_rate, text
from train_gpt_ddp import join


def rotated(x):
    """Rotary positions: pairs (i, i + half) of x, [batch, heads, length, size], turn with i."""
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.outer(torch.arange(x.shape[-2], device=x.device), rates)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    """Causal self-attention over the heads whose weights this device has."""

    def __init__(self, width, heads):
        super().__init__()
        self.head_size = width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width):
        super().__init__()
        hidden = 256 * -(-8 * width // (3 * 256))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm and beside a residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.feed_forward = Attention(width, heads), FeedForward(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Llama(nn.Module):
    """Token embedding, blocks, norm and head."""

    def __init__(self, layers, width, heads, vocabulary=BYTES):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def share_matrices(model, mesh):
    """Tensor and sequence parallelism over the mesh's one dimension."""
    along_sequence = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    plan = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    in_block = {
        "norm1": SequenceParallel(),
        "attention": along_sequence,
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "norm2": SequenceParallel(),
        "feed_forward": along_sequence,
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    for index in range(len(model.blocks)):
        plan |= {f"blocks.{index}.{name}": style for name, style in in_block.items()}
    parallelize_module(model, mesh, plan)


def divide(model, mesh, dtype):
    """FSDP2: a group of parameters a block, and one of the rest."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def build(args, mesh, device):
    with torch.device("meta"):
        model = Llama(args.layers, args.width, args.heads)
    if args.tp > 1:
        share_matrices(model, mesh["tp"])
    divide(model, mesh["dp"], getattr(torch, args.dtype))
    model.to_empty(device=device)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def main():
    options = {"--tp": {"type": int, "default": 1, "help": "devices that share a layer's matrices"}}
    args = arguments(__doc__.splitlines()[0], options)
    device = join(choose_device(args.device))
    ranks = dist.get_world_size()
    mesh = init_device_mesh(device.type, (ranks // args.tp, args.tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(args.seed)
    model = build(args, mesh, device)
    if dist.get_rank() == 0:
        count = sum(p.numel() for p in model.parameters())
        print(f"Llama of {count / 1e6:.1f} million parameters on {ranks} x {device.type}")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=args.weight_decay
    )
    # Devices that share matrices have the same data.
    seed = args.seed + mesh["dp"].get_local_rank()
    source = batches(text(), args.batch, args.context, device, seed)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr, warm_up=args.steps // 10 + 1)
        tokens, targets = next(source)
        loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if dist.get_rank() == 0 and (step % args.log_every == 0 or step == args.steps - 1):
            print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
