# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A run over several Gloo processes gives what one process gives, and none hangs when one dies."""

import json

import pytest
import small_workload
from command import ROOT, interpreter

from trnsim.workload import save_run

JOB = """
import os, sys
import torch.distributed as dist
import small_workload
import trnsim
from trnsim import _core
from trnsim.simulate import simulate_seeds, simulate_system

machine = trnsim.machine.load("rainier")
chips = 256
workload = small_workload.train(world_size=chips)
place = trnsim.machine.placement(machine, chips)
program = _core.lower_step(workload, workload.choose_step(), machine, place, "", "")
system = _core.make_system(program, machine, _core.make_topology(machine, chips), place, chips)
slow = _core.with_jitter(system, 3, 1 << 12)
alone = simulate_system(slow)
dist.init_process_group("gloo")
group, rank = dist.group.WORLD, dist.get_rank()
"""
EQUAL = """
for ranks_per_pod in (1, machine.pod_chips):
    part = simulate_system(slow, group=group, ranks_per_pod=ranks_per_pod)
    assert (part.hash, part.makespan_ps) == (alone.hash, alone.makespan_ps)
    ours = [r for r in range(chips) if len(part.rank_ends_ps(r))]
    assert len(ours) == chips // dist.get_world_size() and ours[0] == rank * len(ours)
    assert all((part.rank_ends_ps(r) == alone.rank_ends_ps(r)).all() for r in ours)
seeds = [5, 1, 4, 2, 3]
steps = simulate_seeds(system, seeds, 1 << 12, group=group)
assert steps == simulate_seeds(system, seeds, 1 << 12) and len(set(steps)) > 1
open(f"{os.path.dirname(__file__)}/equal.{rank}", "w").close()
del group  # one that outlives destroy_process_group can end the process with an abort
dist.barrier()
dist.destroy_process_group()
"""
DEAD = """
if rank == 1:
    os._exit(7)
try:
    simulate_system(slow, group=group)
except trnsim.errors.SimulateError as error:
    print("trnsim:", error, flush=True)
    os._exit(2)
"""


def torchrun(processes, code, tmp_path):
    """Runs the code in so many processes."""
    script = tmp_path / "job.py"
    script.write_text(JOB + code)
    return interpreter(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, script,
        PYTHONPATH=f"{ROOT}:{ROOT / 'tests' / 'helpers'}", OMP_NUM_THREADS="1",
    )  # fmt: skip


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_share_a_run_and_its_seeds(processes, tmp_path):
    done = torchrun(processes, EQUAL, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("equal.*"))) == processes


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_share_what_a_projection_takes(processes, tmp_path):
    """The one document is that of one process; the others say nothing."""
    save_run(tmp_path / "job.trnsim", [small_workload.train(world_size=64)], machine="trn2-ultra")
    command = (
        "-m",
        "trnsim",
        "project",
        tmp_path / "job.trnsim",
        "--json",
        "--fault",
        "x+ 0>1=0.5",
    )
    alone = interpreter(*command)
    shared = interpreter(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, *command,
        OMP_NUM_THREADS="1",
    )  # fmt: skip
    assert (alone.returncode, shared.returncode) == (0, 0), alone.stderr + shared.stderr
    assert len(json.loads(alone.stdout)["advice"]) > 3
    assert shared.stdout == alone.stdout


def test_no_fold_gives_the_same_document_of_many_ranks(tmp_path):
    save_run(tmp_path / "job.trnsim", [small_workload.train(world_size=64)], machine="trn2-ultra")
    command = ("-m", "trnsim", "project", tmp_path / "job.trnsim", "--json")
    folded, unfolded = interpreter(*command), interpreter(*command, "--no-fold")
    assert (folded.returncode, unfolded.returncode) == (0, 0), folded.stderr + unfolded.stderr
    assert json.loads(folded.stdout)["ranks"] == 64
    assert unfolded.stdout == folded.stdout


def test_a_process_that_dies_ends_the_others(tmp_path):
    done = torchrun(2, DEAD, tmp_path)
    assert done.returncode != 0
    line = next(line for line in done.stdout.splitlines() if line.startswith("trnsim: "))
    assert "another process of the run has gone" in line
