# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trains the GPT of train_gpt.py on many devices with DistributedDataParallel.

    torchrun --nproc-per-node 2 train_gpt_ddp.py --device cpu --layers 2 --width 128 --context 64
    trnsim run --machine trn2-ultra --chips 64 train_gpt_ddp.py

Each rank has a copy of the model and its own part of the batch; gradients are averaged while the
backward pass is still running.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from train_gpt import GPT, arguments, choose_device, parameter_groups, text, train


def join(device):
    """Joins the job that torchrun set up, and returns this rank's device."""
    local_rank = int(os.environ["LOCAL_RANK"])
    if device.type != "cpu":
        device = torch.device(device.type, local_rank)
        torch.accelerator.set_device_index(local_rank)
    dist.init_process_group(dist.get_default_backend_for_device(device))
    return device


def main():
    args = arguments(__doc__.splitlines()[0])
    device = choose_device(args.device)
    distributed = "RANK" in os.environ
    if distributed:
        device = join(device)
    rank = dist.get_rank() if distributed else 0
    ranks = dist.get_world_size() if distributed else 1

    torch.manual_seed(args.seed)  # the same weights everywhere
    model = GPT(args.layers, args.width, args.heads, args.context, dropout=args.dropout)
    model.to(device)
    parameters = parameter_groups(model, args.weight_decay)
    if distributed:
        model = DistributedDataParallel(
            model, device_ids=None if device.type == "cpu" else [device.index]
        )
    if rank == 0:
        count = sum(p.numel() for p in model.parameters())
        print(f"GPT of {count / 1e6:.1f} million parameters on {ranks} x {device.type}")

    def log(step, loss):
        if rank == 0:
            print(f"step {step:4d}  loss {loss:.4f}", flush=True)

    train(model, parameters, text(), args, device, seed=args.seed + rank, log=log)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
