# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The data-parallel GPT example, small, captured once: what must hold on any machine."""

import json

import command
import pytest

import trnsim

SMALL = ["--layers", "2", "--width", "128", "--context", "64", "--batch", "2", "--steps", "3"]


def run(*options):
    """What `trnsim run --json` says of the small example on trn2-ultra."""
    script = command.ROOT / "examples" / "train_gpt_ddp.py"
    done = command.trnsim("run", "--machine", "trn2-ultra", "--json", *options, script, *SMALL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ddp")


@pytest.fixture(scope="module")
def document(folder):
    """On 64 chips; the run file stays in the folder."""
    return run("--chips", 64, "--out", folder)


@pytest.fixture(scope="module")
def workload(document, folder):
    return trnsim.load(folder / "train_gpt_ddp.trnsim")


def quick(workload, machine):
    return trnsim.project(workload, machine, advise=False, interval=False).figures


def test_the_main_job_names_where_the_step_goes(document, folder):
    assert document["chips_used"] == document["ranks"] == 64
    assert sum(document["breakdown_ps"].values()) == document["step_time_ps"]
    assert document["breakdown_s"]["exposed_communication"] > 0
    assert document["tokens_per_s"] == pytest.approx(64 * 2 * 64 / document["step_time_s"])
    assert document["samples_per_s"] == pytest.approx(64 * 2 / document["step_time_s"])
    assert document["fits"] is True
    assert document["memory_by_kind"]["parameters"] >= 4 * document["parameters"]
    assert 0 < document["mfu"] < 1
    assert {p.name for p in folder.iterdir()} == {
        "projection.json", "timeline.parquet", "torch_profiler", "trace.pftrace",
        "train_gpt_ddp.trnsim",
    }  # fmt: skip


def test_the_run_file_projects_to_the_same_digit(document, workload):
    again = trnsim.project(workload, "trn2-ultra").to_dict()
    assert again["timeline_hash"] == document["timeline_hash"]
    assert again["step_time_ps"] == document["step_time_ps"]
    assert again["step_time_interval_s"] == document["step_time_interval_s"]


def test_twice_the_bandwidth_of_every_link_is_never_slower(workload):
    plain = trnsim.machine.load("trn2-ultra")
    faster = plain
    for axis in "xyz":
        faster = faster.scaled(f"link.{axis}", "2")
    assert quick(workload, faster).step_ps <= quick(workload, plain).step_ps


def test_sixty_four_chips_are_never_faster_than_sixty_four_times_one(document):
    one = run()
    assert one["chips_used"] == 1
    assert one["breakdown_s"]["exposed_communication"] == 0
    assert one["exposed_by_group"] == {}
    assert document["tokens_per_s"] <= 64 * one["tokens_per_s"]
    assert document["model_flops"] == 64 * one["model_flops"]
