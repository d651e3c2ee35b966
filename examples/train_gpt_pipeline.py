# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trains the GPT of train_gpt.py as a pipeline of stages, with copies of the pipeline in parallel.

    torchrun --nproc-per-node 2 train_gpt_pipeline.py --device cpu --stages 2 --layers 2 --width 128
    trnsim run --machine trn2-ultra --chips 64 train_gpt_pipeline.py --stages 4

Each stage has its share of the blocks on devices of its own. A batch goes through them in
micro-batches, one forward and one backward at a time (1F1B); the ranks of a stage average their
gradients. The head has a weight of its own, since the embedding is elsewhere.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from train_gpt import BYTES, GPT, arguments, batches, choose_device, parameter_groups, text
from train_gpt_ddp import join


class Stage(nn.Module):
    """The blocks [begin, end) of a GPT; the first stage embeds, the last one has the head."""

    def __init__(self, gpt, begin, end, dtype):
        super().__init__()
        is_first, is_last = begin == 0, end == len(gpt.blocks)
        self.tokens, self.places = (gpt.tokens, gpt.places) if is_first else (None, None)
        self.blocks = gpt.blocks[begin:end]
        self.norm = gpt.norm if is_last else None
        self.head = nn.Linear(gpt.norm.normalized_shape[0], BYTES, bias=False) if is_last else None
        self.dtype = dtype

    def forward(self, x):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            if self.tokens is not None:
                x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
            for block in self.blocks:
                x = block(x)
            return x if self.head is None else self.head(self.norm(x))


def loss_of(logits, targets):
    """The mean loss of one micro-batch."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def pipeline_arguments():
    """Those of the pipeline, the others left in sys.argv for train_gpt's."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=8)
    mine, sys.argv[1:] = parser.parse_known_args()
    return mine


def train(schedule, stage, module, data, args, device, replica):
    """Trains for args.steps steps; the last stage knows the loss, and its first replica prints."""
    optimizer = torch.optim.AdamW(
        parameter_groups(module, args.weight_decay), lr=args.lr, betas=(0.9, 0.95)
    )
    source = batches(data, args.batch, args.context, "cpu", args.seed + replica)
    for step in range(args.steps):
        tokens, targets = next(source)
        losses = []
        if stage.is_first:
            schedule.step(tokens.to(device))
        elif stage.is_last:
            schedule.step(target=targets.to(device), losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if losses and (step % args.log_every == 0 or step == args.steps - 1):
            loss = torch.stack(losses).mean().item()
            if replica == 0:
                print(f"step {step:4d}  loss {loss:.4f}", flush=True)


def main():
    pipeline = pipeline_arguments()
    args = arguments(__doc__.splitlines()[0])
    if "RANK" not in os.environ:
        sys.exit("a pipeline needs several ranks: start it with torchrun or trnsim run")
    device = join(choose_device(args.device))
    ranks, stages = dist.get_world_size(), pipeline.stages
    if not 2 <= stages <= min(ranks, args.layers) or ranks % stages:
        sys.exit(f"{ranks} ranks and {args.layers} layers do not divide into {stages} stages")
    mesh = init_device_mesh(device.type, (stages, ranks // stages), mesh_dim_names=("pp", "dp"))
    index, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")

    torch.manual_seed(args.seed)  # the same weights in every replica
    gpt = GPT(args.layers, args.width, args.heads, args.context, dropout=args.dropout)
    begin, end = (args.layers * i // stages for i in (index, index + 1))
    module = Stage(gpt, begin, end, args.dtype).to(device)
    if dist.get_rank() == 0:
        print(f"{stages} stages x {ranks // stages} replicas on {device.type}")
    if ranks > stages:
        module = DistributedDataParallel(module, process_group=mesh.get_group("dp"))
    stage = PipelineStage(module, index, stages, device, group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, pipeline.micro_batches, loss_fn=loss_of)
    train(schedule, stage, module, text(), args, device, replica)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
