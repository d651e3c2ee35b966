# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim run` of scripts whose ranks do different things: who runs again, and what is said."""

import json
import re
import textwrap

import pytest
from command import ROOT, trnsim

import trnsim as package
from trnsim.workload import load_run

CHAIN = """
    import os, sys
    import torch, torch.distributed as dist
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("trn", int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    print("this is rank", rank, flush=True)
    model = torch.nn.Linear(256, 256, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        x = torch.empty(64, 256, device=device, requires_grad=True)
        if rank % 2:
            dist.recv(x.data, rank - 1)
        y = model(x)
        if rank % 2 == 0:
            dist.send(y.detach(), rank + 1)
            dist.recv(y.data, rank + 1)
        y.sum().backward()
        if rank % 2:
            dist.send(x.grad, rank - 1)
        optimizer.step()
"""


def write(folder, text):
    script = folder / "chain.py"
    script.write_text(textwrap.dedent(text))
    return script


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The chain of two stages on 16 chips, and the folder that it left."""
    folder = tmp_path_factory.mktemp("chain")
    script = write(folder, CHAIN)
    out = folder / "out"
    return trnsim("run", "--chips", 16, "--json", "--out", out, script, cwd=folder), out


def test_rank_0_alone_prints_and_the_others_have_logs(done):
    ran, out = done
    assert ran.returncode == 0, ran.stderr
    assert re.findall("this is rank.*", ran.stderr) == ["this is rank 0"]
    assert (out / "logs" / "rank1.log").read_text() == "this is rank 1\n"
    lines = [line for line in ran.stderr.splitlines() if line.startswith("trnsim: ")]
    assert lines[0] == ("trnsim: the script runs again as rank 1, which does other work")
    assert re.match("trnsim: the script runs again as ranks .*, to see whether they do", lines[1])
    logs = [*(out / "logs").iterdir()]
    assert lines[2] == f"trnsim: output of {len(logs)} ranks that ran again: {out}/logs/rank*.log"
    assert len(lines) == 3


def test_the_document_and_the_run_file_have_every_role(done):
    ran, out = done
    document = json.loads(ran.stdout)
    roles = [(role["name"], role["ranks"], role["which_ranks"]) for role in document["roles"]]
    assert roles == [("rank0", 8, "start 0 axes 2x8"), ("rank1", 8, "start 1 axes 2x8")]
    assert document["memory_peak_bytes"] == max(r["memory_peak_bytes"] for r in document["roles"])
    assert document["parameters"] == 2 * (256 * 256 + 256)
    assert document["breakdown_s"]["bubble"] > 0
    loaded = load_run(out / "chain.trnsim")
    assert [(w.role, w.rank) for w in loaded.workloads] == [("rank0", 0), ("rank1", 1)]
    again = package.project(out / "chain.trnsim").to_dict()
    for key in ("timeline_hash", "workload_hash", "roles", "breakdown_ps", "step_time_interval_s"):
        assert again[key] == document[key]


def test_diff_compares_roles_by_name(done, tmp_path):
    _, out = done
    whole = out / "chain.trnsim"
    same = trnsim("diff", whole, whole)
    assert same.returncode == 0 and same.stdout.startswith("equal: ")
    load_run(whole).workloads[1].save(tmp_path / "one.trnsim")
    differs = trnsim("diff", whole, tmp_path / "one.trnsim")
    assert differs.returncode == 1 and "rank0 is a role of a only" in differs.stdout


def test_the_trace_shows_a_rank_of_each_role_with_arrows_between_them(done):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    _, out = done
    trace = Trace()
    trace.ParseFromString((out / "trace.pftrace").read_bytes())
    names = {p.track_descriptor.process.process_name for p in trace.packet}
    assert {"rank 0 on chip 0", "rank 1 on chip 1"} <= names
    begun = [flow for packet in trace.packet for flow in packet.track_event.flow_ids]
    ended = [flow for packet in trace.packet for flow in packet.track_event.terminating_flow_ids]
    assert len(begun) == 2 and sorted(begun) == sorted(ended)


def test_the_report_lists_the_roles(done):
    text = str(package.project(done[1] / "chain.trnsim", advise=False, interval=False))
    assert "Roles (ranks that do the same)" in text
    assert re.search(r"rank1 +8 .*start 1 axes 2x8", text)
    assert re.search(r"peak memory .*\(rank[01], which takes most\)", text)


def test_a_rank_that_fails_is_one_line_with_its_log(tmp_path):
    script = write(tmp_path, CHAIN + "\n    assert rank == 0, 'only rank 0 may'\n")
    ran = trnsim("run", "--chips", 2, "--out", tmp_path / "out", script)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == (
        "trnsim: the script failed as rank 1 with exit code 1: AssertionError: only rank 0 may "
        f"(its output is in {tmp_path}/out/logs/rank1.log)"
    )
    assert "Traceback" in (tmp_path / "out" / "logs" / "rank1.log").read_text()


def test_odd_ranks_that_do_something_else_are_caught_and_named(tmp_path):
    script = write(
        tmp_path,
        """
        import os
        import torch, torch.distributed as dist
        dist.init_process_group()
        x = torch.ones(64, 64, device="trn")
        for _ in range(1 + int(os.environ["RANK"]) % 2):
            x = x @ x
        dist.all_reduce(x)
        """,
    )
    ran = trnsim("run", "--chips", 16, script)
    assert ran.returncode == 2
    last = ran.stderr.splitlines()[-1]
    assert re.match(r"trnsim: ranks do different things.*: rank \d+ \(b\) does not do as", last)
    assert "aten::mm" in last
    alike = trnsim("run", "--chips", 16, "--check-ranks", 0, "--json", script)
    assert alike.returncode == 0 and json.loads(alike.stdout)["roles"][0]["ranks"] == 16


def test_what_rank_0_alone_does_is_a_role_of_its_own_and_said(tmp_path):
    script = write(
        tmp_path,
        """
        import os
        import torch, torch.distributed as dist
        dist.init_process_group()
        x = torch.ones(64, 64, device="trn")
        dist.all_reduce(x)
        if os.environ["RANK"] == "0":
            print((x @ x).sum().item())
        """,
    )
    ran = trnsim("run", "--chips", 16, "--json", script)
    document = json.loads(ran.stdout)
    assert [role["ranks"] for role in document["roles"]] == [1, 15]
    assert any("rank 0 alone differs" in guess["value"] for guess in document["guesses"])


def test_stages_whose_tensors_differ_know_each_others_shapes(tmp_path):
    script = write(
        tmp_path,
        """
        import os
        import torch, torch.distributed as dist
        from torch import nn
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        device = torch.device("trn", rank)
        dist.init_process_group()
        widths = [64, 128, 32, 16, 8]
        module = nn.Linear(widths[rank], widths[rank + 1], device=device)
        stage = PipelineStage(module, rank, ranks, device)
        schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            x, y = torch.randn(8, 64, device=device), torch.randn(8, 8, device=device)
            inputs = [x] if stage.is_first else []
            schedule.step(*inputs, **({"target": y} if stage.is_last else {}))
            optimizer.step()
            optimizer.zero_grad()
        """,
    )
    ran = trnsim("run", "--chips", 4, "--json", "--out", tmp_path / "out", script)
    assert ran.returncode == 0, ran.stderr
    calls = [w.to_columns()["calls"] for w in load_run(tmp_path / "out" / "chain.trnsim").workloads]
    assert [max(of["bytes"].tolist()) for of in calls] == [1024, 1024, 256, 128]
    assert json.loads(ran.stdout)["parameters"] == 64 * 128 + 128 * 32 + 32 * 16 + 16 * 8 + 184


def test_the_pipeline_example_runs_small():
    ran = trnsim(
        "run", "--machine", "trn2-ultra", "--chips", 16, "--json",
        ROOT / "examples" / "train_gpt_pipeline.py", "--stages", 2, "--micro-batches", 4,
        "--layers", 3, "--width", 128, "--context", 64, "--batch", 4, "--steps", 3,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert [role["ranks"] for role in document["roles"]] == [8, 8]
    assert document["tokens_per_s"] == pytest.approx(8 * 4 * 64 / document["step_time_s"])
    assert document["samples_per_s"] == pytest.approx(8 * 4 / document["step_time_s"])
    assert {"mesh_pp", "mesh_dp"} == set(document["exposed_by_group"])
    assert document["breakdown_s"]["bubble"] > 0 and document["fits"]


# The targets of the next batch are on the device when a run that checks a rank ends, and its
# criterion has not taken them yet.
CRITERION = """
    import os, torch
    torch.distributed.init_process_group()
    device = torch.device("trn", int(os.environ["LOCAL_RANK"]))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        image, target = torch.randn(4, 8), torch.randint(0, 4, (4,))
        image, target = image.to(device), target.to(device)
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_ranks_with_a_criterion_on_the_device_do_the_same(tmp_path):
    ran = trnsim("run", "--chips", 4, "--json", write(tmp_path, CRITERION), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert [role["ranks"] for role in json.loads(ran.stdout)["roles"]] == [4]
    assert "messages it exchanges" not in ran.stderr


def test_ranks_that_put_their_own_among_what_they_gathered_do_the_same(tmp_path):
    """As losses over all ranks' embeddings do, and torchmetrics."""
    script = write(
        tmp_path,
        """
        import os
        import torch, torch.distributed as dist
        dist.init_process_group()
        rank = dist.get_rank()
        model = torch.nn.Linear(256, 64, device=f"trn:{os.environ['LOCAL_RANK']}")
        model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            mine = model(torch.randn(32, 256, device=model.device))
            every = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(every, mine.detach())
            every[rank] = mine
            logits = mine @ torch.cat(every).t()
            labels = torch.arange(32, device=model.device) + 32 * rank
            torch.nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
        """,
    )
    ran = trnsim("run", "--chips", 8, "--json", script)
    assert ran.returncode == 0, ran.stderr
    (role,) = json.loads(ran.stdout)["roles"]
    assert role["ranks"] == 8


# Attention over a sequence whose halves are on two ranks: each embeds its own tokens, and the ranks
# pass keys around. That the gradients are reduced over both says nothing of the samples.
RING = """
    import os
    import torch, torch.distributed as dist
    rank, device = int(os.environ["RANK"]), torch.device("trn", int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    model = torch.nn.Sequential(torch.nn.Embedding(64, 32), torch.nn.Linear(32, 32)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        keys = model(torch.zeros(2, 16, dtype=torch.long, device=device))
        others = torch.empty_like(keys)
        for request in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, keys.detach(), 1 - rank),
            dist.P2POp(dist.irecv, others, 1 - rank),
        ]):
            request.wait()
        (keys @ others.mT).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
"""


def test_tokens_of_ranks_that_pass_messages_are_asked_for(tmp_path):
    script = write(tmp_path, RING)
    ran = trnsim("run", "--chips", 2, "--json", script, cwd=tmp_path)
    document = json.loads(ran.stdout)
    assert document["tokens_per_s"] is None and document["samples_per_s"] is None
    said = {g["name"]: g["effect"] for g in document["guesses"]}
    assert "--samples-per-step gives the samples" in said["samples_per_s"]
    assert "all embed tokens" in said["tokens_per_s"]
    given = ("--tokens-per-step", 64, "--samples-per-step", 2)
    ran = trnsim("run", "--chips", 2, "--json", *given, script, cwd=tmp_path)
    document = json.loads(ran.stdout)
    assert document["tokens_per_s"] == pytest.approx(64 / document["step_time_s"])
    assert document["samples_per_s"] == pytest.approx(2 / document["step_time_s"])
