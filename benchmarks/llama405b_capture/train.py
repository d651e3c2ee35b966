# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Llama 3.1 405B under FSDP2 x tensor x pipeline parallelism, two training steps.

Nothing but PyTorch: DTensor's tensor and sequence parallelism with the loss divided over the
vocabulary, `fully_shard` around each layer in bfloat16 with float32 gradients, 1F1B of
torch.distributed.pipelining, fused AdamW, and the norm of the gradients clipped. A rank makes its
stage alone, on the meta device first. The world decides how much is data parallel.

    trnsim run --machine rainier --chips 16384 --no-oom train.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F

LAYERS, WIDTH, FEED, HEADS, KV_HEADS, WORDS = 126, 16384, 53248, 128, 8, 128256
HEAD = WIDTH // HEADS


def rotate(x, table):
    """Rotary embedding of [batch, tokens, heads, HEAD]: the halves of a head are the two parts."""
    cos, sin = table[:, None, : HEAD // 2], table[:, None, HEAD // 2 :]
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).type_as(x)


class Attention(nn.Module):
    """Grouped-query attention."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x, table):
        q, k, v = (part(x).unflatten(-1, (-1, HEAD)) for part in (self.q, self.k, self.v))
        q, k = rotate(q, table), rotate(k, table)
        y = F.scaled_dot_product_attention(
            *(part.transpose(1, 2) for part in (q, k, v)), is_causal=True, enable_gqa=True
        )
        return self.out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, FEED, bias=False)
        self.up = nn.Linear(WIDTH, FEED, bias=False)
        self.down = nn.Linear(FEED, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """A transformer layer."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x, table):
        x = x + self.attention(self.norm1(x), table)
        return x + self.feed_forward(self.norm2(x))


class Stage(nn.Module):
    """Some layers, the embedding in front of the first and the head behind the last of them."""

    def __init__(self, stage, stages, tokens):
        super().__init__()
        # The first and the last stage have an embedding and a head, and a layer less.
        ends = [round((i * (LAYERS + 2)) / stages) - 1 for i in range(stages + 1)]
        ends[0], ends[-1] = 0, LAYERS
        self.words = nn.Embedding(WORDS, WIDTH) if stage == 0 else None
        self.layers = nn.ModuleList(Layer() for _ in range(ends[stage], ends[stage + 1]))
        is_last = stage == stages - 1
        self.norm = nn.RMSNorm(WIDTH) if is_last else None
        self.head = nn.Linear(WIDTH, WORDS, bias=False) if is_last else None
        self.register_buffer("table", torch.empty(tokens, HEAD), persistent=False)

    def fill(self):
        """Its first values."""
        angle = torch.outer(
            torch.arange(self.table.shape[0], device=self.table.device),
            500000.0 ** (-torch.arange(0, HEAD, 2, device=self.table.device) / HEAD),
        )
        self.table.copy_(torch.cat((angle.cos(), angle.sin()), dim=-1))
        for module in self.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x):
        x = x if self.words is None else self.words(x)
        for layer in self.layers:
            x = layer(x, self.table)
        return x if self.head is None else self.head(self.norm(x))


def share(model, mesh):
    """Tensor parallelism; what is between the matrices is divided along the sequence."""
    between, whole = Shard(1), Replicate()
    plan = {}
    if model.words is not None:
        plan["words"] = RowwiseParallel(input_layouts=whole, output_layouts=between)
    if model.head is not None:
        plan["norm"] = SequenceParallel()
        plan["head"] = ColwiseParallel(
            input_layouts=between, output_layouts=Shard(-1), use_local_output=False
        )
    for i in range(len(model.layers)):
        name = f"layers.{i}"
        plan |= {f"{name}.{norm}": SequenceParallel() for norm in ("norm1", "norm2")}
        plan[f"{name}.attention"] = PrepareModuleInput(
            input_layouts=(between, None), desired_input_layouts=(whole, None)
        )
        plan[f"{name}.feed_forward"] = PrepareModuleInput(
            input_layouts=between, desired_input_layouts=whole
        )
        parts = [f"attention.{part}" for part in "qkv"] + ["feed_forward.gate", "feed_forward.up"]
        plan |= {f"{name}.{part}": ColwiseParallel() for part in parts}
        ends = ("attention.out", "feed_forward.down")
        plan |= {f"{name}.{part}": RowwiseParallel(output_layouts=between) for part in ends}
    parallelize_module(model, mesh, plan)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=8)
    parser.add_argument("--pp", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--micro-batches", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    device = torch.accelerator.current_accelerator()
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    replicas = dist.get_world_size() // (options.tp * options.pp)
    mesh = init_device_mesh(
        device.type, (options.pp, replicas, options.tp), mesh_dim_names=("pp", "dp", "tp")
    )
    place = mesh.get_local_rank("pp")
    with torch.device("meta"):
        model = Stage(place, options.pp, options.tokens)
    share(model, mesh["tp"])
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"], mp_policy=half, reshard_after_forward=False)
    fully_shard(model, mesh=mesh["dp"], mp_policy=half, reshard_after_forward=False)
    model.to_empty(device=device)
    with torch.no_grad():
        model.fill()
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-5, weight_decay=0.1, fused=True)

    def loss_of(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    stage = PipelineStage(model, place, options.pp, device, group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, options.micro_batches, loss_fn=loss_of)
    for _ in range(options.steps):
        ids = torch.randint(WORDS, (options.micro_batches, options.tokens + 1)).to(device)
        inputs = [ids[:, :-1]] if stage.is_first else []
        target = {"target": ids[:, 1:]} if stage.is_last else {}
        with loss_parallel():
            schedule.step(*inputs, **target, return_outputs=False)
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        norm = norm**2
        dist.all_reduce(norm, group=mesh.get_group("pp"))
        nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm.sqrt())
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
