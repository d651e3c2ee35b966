# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a script gets as a rank that runs after rank 0, of what rank 0 sends to all of them."""

import json
import re
import textwrap

import pytest
from command import trnsim

from trnsim.workload import load_run

START = """
    import os, sys
    import torch, torch.distributed as dist
    dist.init_process_group("cpu:gloo,trn:trn")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("trn", rank)
    x = torch.ones(64, 64, device=device)
    def exchange():  # so that each rank runs whole, as a role of its own
        if rank % 2:
            dist.recv(x, rank - 1)
        else:
            dist.send(x @ x, rank + 1)
"""


def run(folder, lines, *options, chips=2):
    """The script on these chips; its folder gets the logs."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(START) + textwrap.dedent(lines))
    return trnsim("run", "--chips", chips, "--out", folder / "out", *options, script, cwd=folder)


def log(folder, rank):
    return (folder / "out" / "logs" / f"rank{rank}.log").read_text()


def test_without_other_ranks_there_are_no_logs(tmp_path):
    ran = run(tmp_path, "dist.all_reduce(x)", "--machine", "trn2", "--check-ranks", 0, chips=16)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert (tmp_path / "out" / "projection.json").exists()
    assert not (tmp_path / "out" / "logs").exists()


def test_ranks_that_print_nothing_leave_no_logs_and_none_are_named(tmp_path):
    ran = run(tmp_path, "dist.all_reduce(x)", "--machine", "trn2", "--check-ranks", 1, chips=16)
    assert ran.returncode == 0 and "the script runs again as rank" in ran.stderr
    assert "rank*.log" not in ran.stderr and not (tmp_path / "out" / "logs").exists()


@pytest.mark.parametrize("source", ["src=0", "group_src=0", "group=dist.new_group([0, 1])"])
def test_each_rank_gets_its_object_of_those_that_rank_0_scatters(tmp_path, source):
    ran = run(
        tmp_path,
        f"""
        for turn in range(2):
            mine = [None]
            lists = [{{"part": 10 * turn + r}} for r in range(ranks)] if rank == 0 else None
            dist.scatter_object_list(mine, lists, {source})
            print("got", mine, flush=True)
        exchange()
        """,
    )
    assert ran.returncode == 0, ran.stderr
    assert re.findall("got.*", ran.stdout) == ["got [{'part': 0}]", "got [{'part': 10}]"]
    assert log(tmp_path, 1) == "got [{'part': 1}]\ngot [{'part': 11}]\n"


def test_groups_of_other_ranks_get_what_that_of_rank_0_got(tmp_path):
    ran = run(
        tmp_path,
        """
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        first = rank - rank % 2
        mine, said = [None], ["a" if rank == 0 else None]
        lists = ["left", "right"] if rank == 0 else [None, None]
        dist.broadcast_object_list(said, src=first, group=pairs[rank // 2])
        count = torch.full((2,), 7) if rank == 0 else torch.empty(2, dtype=torch.int64)
        dist.broadcast(count, src=first, group=pairs[rank // 2])
        if rank != first:
            dist.scatter_object_list(mine, None, src=first, group=pairs[rank // 2])
        else:
            dist.scatter_object_list(mine, ["left", "right"], src=first, group=pairs[rank // 2])
        print(mine, said, count.tolist(), flush=True)
        dist.all_reduce(x)
        if rank == 0:
            dist.send(x, 3)
        if rank == 3:
            dist.recv(x, 0)
        """,
        "--check-ranks", 0, "--max-roles", 4,
        chips=4,
    )  # fmt: skip
    assert log(tmp_path, 3) == "['right'] ['a'] [7, 7]\n", ran.stderr


def test_what_another_rank_scatters_is_refused_in_a_line(tmp_path):
    ran = run(
        tmp_path,
        """
        mine = [None]
        dist.scatter_object_list(mine, ["a", "b"] if rank == 1 else None, src=1)
        """,
    )
    assert "CaptureError: scatter_object_list: what rank 1 scatters is not known to" in ran.stderr
    assert ran.returncode != 0 and "EOFError" not in ran.stderr


def test_cpu_tensors_have_what_rank_0_broadcast_and_never_what_memory_held(tmp_path):
    ran = run(
        tmp_path,
        """
        garbage = torch.full((5000,), 3.0)
        del garbage
        value = torch.arange(5000.0) if rank == 0 else torch.empty(5000)
        dist.broadcast(value, 0)
        print("is a range", torch.equal(value, torch.arange(5000.0)), flush=True)
        garbage = torch.full((5000,), 3.0)
        del garbage
        value = torch.empty(5000)
        if rank == 1:
            value.fill_(5)
        dist.broadcast(value, 1)
        print("sum", value.sum().item(), flush=True)
        exchange()
        """,
        "--json",
    )
    assert ran.returncode == 0, ran.stderr
    assert log(tmp_path, 1) == "is a range True\nsum 25000.0\n"
    assert "is a range True\nsum 0.0\n" in ran.stderr
    guesses = [guess["value"] for guess in json.loads(ran.stdout)["guesses"]]
    assert any("rank 1 broadcasts in a CPU tensor reads as zeros" in each for each in guesses)


CHECKPOINT = """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("trn", (ranks // 2, 2), mesh_dim_names=("pp", "dp"))
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).to(device)
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):  # the second is measured
        model(torch.ones(8, 64, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            dcp.save({"model": model.state_dict()}, checkpoint_id="saved")
    dcp.load({"model": model.state_dict()}, checkpoint_id="saved")
    print("loaded", flush=True)
"""


def test_distributed_checkpoints_are_saved_as_every_rank(tmp_path):
    ran = run(tmp_path, CHECKPOINT, chips=4)
    assert ran.returncode == 0, ran.stderr
    checked = re.findall(r"runs again as ranks? ([\d, ]+), ", ran.stderr)
    assert checked
    for rank in ", ".join(checked).split(", "):
        assert (tmp_path / "saved" / f"__{rank}_0.distcp").stat().st_size > 0


def test_distributed_checkpoints_are_loaded_as_another_role(tmp_path):
    ran = run(tmp_path, textwrap.dedent(CHECKPOINT) + "exchange()\n")
    assert ran.returncode == 0, ran.stderr
    assert log(tmp_path, 1).endswith("loaded\n")


def test_an_aborted_rank_is_a_line_with_the_signal_and_the_error(tmp_path):
    ran = run(
        tmp_path,
        """
        exchange()
        if rank == 1:
            print("terminate called after throwing an instance of 'c10::Error'", flush=True)
            print("  what():  device 7 of 2\\nException raised from here", flush=True)
            print("frame #0: c10::Error::Error()\\nframe #1: main", flush=True)
            os.abort()
        """,
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == (
        "trnsim: the script failed as rank 1 with SIGABRT: device 7 of 2 "
        f"(its output is in {tmp_path}/out/logs/rank1.log)"
    )


def test_a_group_of_another_size_is_refused_before_other_ranks_run(tmp_path):
    script = tmp_path / "four.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch, torch.distributed as dist
            dist.init_process_group("trn", rank=0, world_size=4)
            x = torch.ones(64, 64, device="trn")
            dist.all_reduce(x @ x)
            """
        )
    )
    ran = trnsim("run", "--chips", 16, script)
    assert ran.returncode == 2
    assert "runs again" not in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith(
        "trnsim: the script formed a group of 4 ranks, and 16 chips hold 16: "
    )


LOOPED = """
    import os
    import torch, torch.distributed as dist
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("trn", rank)
    dist.init_process_group()
    widths = [64, 128, 32, 16, 8, 24, 40, 56, 72]
    stages = []
    for index in (rank, rank + ranks):
        module = nn.Linear(widths[index], widths[index + 1], device=device)
        given = None
        if index == ranks:
            given = torch.empty(2, widths[index], device="meta", requires_grad=True)
        stages.append(PipelineStage(module, index, 2 * ranks, device, input_args=given))
    schedule = ScheduleInterleaved1F1B(stages, 4, loss_fn=nn.functional.mse_loss)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(2):
        x, y = torch.randn(8, 64, device=device), torch.randn(8, 72, device=device)
        schedule.step(*([x] if rank == 0 else []), **({"target": y} if rank == 3 else {}))
        optimizer.step()
        optimizer.zero_grad()
"""


def test_stages_that_guessed_wrongly_run_again_until_all_agree(tmp_path):
    script = tmp_path / "looped.py"
    script.write_text(textwrap.dedent(LOOPED))
    ran = trnsim("run", "--chips", 4, "--json", "--out", tmp_path / "out", script)
    assert ran.returncode == 0, ran.stderr
    sent = {}
    for workload in load_run(tmp_path / "out" / "looped.trnsim").workloads:
        calls = workload.to_columns()["calls"]
        sent[workload.rank] = sorted({each for each in calls["bytes"].tolist() if each > 4})
    # 2 rows of 4 bytes a column: what a rank's two stages take and give; 4 bytes are a vote.
    widths = [64, 128, 32, 16, 8, 24, 40, 56, 72]
    for rank in range(4):
        cuts = [cut for index in (rank, rank + 4) for cut in (index, index + 1) if 0 < cut < 8]
        assert sent[rank] == sorted({8 * widths[cut] for cut in cuts})


def test_the_run_for_shapes_is_no_micro_batch(tmp_path):
    script = tmp_path / "looped.py"
    script.write_text(textwrap.dedent(LOOPED))
    out = tmp_path / "out"
    ran = trnsim("run", "--chips", 4, "--json", "--out", out, "--step", 0, script)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["samples_per_s"] == pytest.approx(8 / document["step_time_s"])
    for workload in load_run(out / "looped.trnsim").workloads:
        first, second, *_ = workload.find_steps()
        counts = []
        for step in (first, second):
            outside = workload.outside_step(step)
            lines = workload.print_records(step.begin, step.end)
            inside = [line for line, out in zip(lines, outside, strict=True) if not out]
            counts.append(sum("aten::addmm" in line for line in inside))
        assert counts == [8, 8]  # 4 micro-batches through 2 stages
    assert document["outside_step_s"] > 0
