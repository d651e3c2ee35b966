# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Training scripts in the CUDA mode ask for the work that they ask for on trn."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command import interpreter, trnsim
from jobs import records_of

from trnsim.workload import load

# A small GPT under DistributedDataParallel and autocast; the device's name is its argument.
GPT = """
    import os, sys
    import torch
    import torch.nn.functional as F
    from torch import nn

    kind, rank = sys.argv[1], int(os.environ["LOCAL_RANK"])
    torch.distributed.init_process_group()
    torch.get_device_module(kind).set_device(rank)
    device = torch.device(kind, rank)

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                     nn.Linear(4 * width, width), nn.Dropout(0.1))
        def forward(self, x):
            batch, length, width = x.shape
            parts = self.qkv(self.first(x)).chunk(3, -1)
            q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.second(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(256, 64), nn.Embedding(64, 64)
            self.blocks = nn.ModuleList(Block(64, 4) for _ in range(2))
            self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 256, bias=False)
        def forward(self, ids):
            x = self.tokens(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(GPT().to(device), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(kind)
    for step in range(4):
        ids = torch.randint(0, 256, (4, 65)).to(device)
        with torch.autocast(kind, dtype=torch.bfloat16):
            logits = model(ids[:, :-1]).flatten(0, 1)
            loss = F.cross_entropy(logits, ids[:, 1:].flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print("loss", loss.item())
    torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_the_same_script_asks_for_the_same_work_as_on_trn(
    run: Callable, tmp_path: Path, mode: str
) -> None:
    options = ("--chips", "4", "--mode", mode)
    on_trn = run(GPT, *options, "--out", "trn", arguments=("trn",))
    on_cuda = run(GPT, *options, "--out", "cuda", arguments=("cuda",))
    assert on_trn.code == on_cuda.code == 0, on_trn.prints + on_cuda.prints
    same = trnsim("diff", tmp_path / "trn" / "train.trnsim", tmp_path / "cuda" / "train.trnsim")
    assert same.returncode == 0, same.stdout
    assert "equal" in same.stdout
    for key in ("workload_hash", "timeline_hash", "step_time_s", "memory_peak_bytes"):
        assert on_trn.report[key] == on_cuda.report[key]
    assert re.findall("loss .*", on_trn.prints) == re.findall("loss .*", on_cuda.prints)
    assert "argument cuda" in on_cuda.notes()


def test_compute_mode_gives_the_values_of_the_cpu(run: Callable, tmp_path: Path) -> None:
    text = """
        import sys
        import torch
        from torch import nn
        device = torch.device(sys.argv[1])
        torch.manual_seed(1)
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(8 * 13 * 13, 10)).to(device)
        optimizer = torch.optim.Adadelta(model.parameters())
        for step in range(3):
            images, labels = torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))
            images, labels = images.to(device), labels.to(device)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("loss", loss.item())
    """
    ran = run(text, "--mode", "compute", "--cuda", arguments=("cuda",))
    assert ran.code == 0, ran.prints
    on_cpu = interpreter("train.py", "cpu", cwd=tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    losses = re.findall("loss (.*)", on_cpu.stdout)
    assert len(losses) == 3
    found = re.findall("loss (.*)", ran.prints)
    assert [float(x) for x in found] == pytest.approx([float(x) for x in losses], rel=1e-5)


def test_nccl_is_our_process_group(run: Callable) -> None:
    ran = run("""
        import os, torch, torch.distributed as dist
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = torch.device(f"cuda:{torch.cuda.current_device()}")
        dist.init_process_group("nccl", init_method="env://", device_id=device)
        assert dist.get_backend() == "nccl" and dist.get_world_size() == 8
        x = torch.ones(4, device=device)
        dist.all_reduce(x)
        assert x.tolist() == [8, 8, 8, 8]
        parts = [torch.empty(4, device=device) for _ in range(8)]
        dist.all_gather(parts, x)
        assert parts[7].tolist() == x.tolist()
        again = dist.new_group(range(8), backend="nccl")
        dist.all_reduce(x, group=again)
        assert x[0].item() == 64
        said = [{"rank": rank}]
        dist.broadcast_object_list(said, src=0)
        assert said == [{"rank": 0}]
        dist.barrier()
        mesh = dist.init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
        assert mesh["tp"].size() == 4
        dist.destroy_process_group()
        dist.init_process_group("cpu:gloo,cuda:nccl")
        dist.all_reduce(x)
        dist.all_reduce(torch.ones(2))
    """, "--chips", "8")  # fmt: skip
    assert ran.code == 0, ran.prints
    assert ran.report["ranks"] == 8


GRAPH = """
    import torch
    from torch import nn
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    batch = torch.randn(32, 256, device="cuda")
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    for _ in range(2):
        step()
    if {captures}:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        step = graph.replay
        assert not torch.cuda.is_current_stream_capturing()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
"""


def test_a_replayed_graph_repeats_the_work_in_one_launch(run: Callable, tmp_path: Path) -> None:
    options = ("--machine", "h100", "--step", "4")
    eager = run(GRAPH.format(captures=False), *options)
    graph = run(GRAPH.format(captures=True), *options, "--out", "out")
    assert eager.code == graph.code == 0, eager.prints + graph.prints
    # A graph fuses nothing: its kernels take what they took one by one, and one launch.
    times = [each.report["breakdown_s"] for each in (eager, graph)]
    assert times[1]["compute"] == pytest.approx(times[0]["compute"], rel=0.02)
    assert times[1]["host"] < times[0]["host"] / 4
    workload = load(tmp_path / "out" / "train.trnsim")
    records = records_of(workload)
    by_region: dict[int, list[str]] = {}
    for record in records:
        by_region.setdefault(record["region"], []).append(record["op"])
    captured = by_region[0]
    assert captured.count("aten::addmm") == 2
    assert [by_region[region] for region in (1, 2, 3)] == [captured] * 3


def test_replays_compute_no_values(run: Callable) -> None:
    ran = run(GRAPH.format(captures=True), "--mode", "compute")
    assert ran.code == 1
    assert "replays of CUDA graphs compute no values: run the script with --mode phantom" in (
        ran.prints
    )


def test_a_json_report_names_the_mode(run: Callable) -> None:
    ran = run("import torch\nx = torch.ones(3, device='cuda') + 1\n")
    assert ran.code == 0, ran.prints
    assert "CUDA mode" in json.dumps(ran.report["guesses"])
