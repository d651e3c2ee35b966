# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim disturb`: its document, its table, and what it refuses."""

import json

import pytest
import small_workload
from command import trnsim as command

import trnsim
from trnsim.report.disturbance import disturbance_lines, disturbance_table

ROW = ("disturbance", "affected", "stopped", "mean_step_time_s", "widest_bounds",
       "different_draws", "p5", "p50", "p95", "p99", "worst", "seeds")  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run file of 256 ranks on four pods."""
    folder = tmp_path_factory.mktemp("runs")
    made = small_workload.train(world_size=256)
    projection = trnsim.project(made, "rainier", chips=256, advise=False, interval=False)
    projection.write(folder, "job")
    return folder / "job.trnsim"


def test_one_document(run):
    done = command("disturb", run, "--json", "--seeds", 4, "--seed", 7, "--with",
                   "straggler:factor=1.5", "--with", "dead-chip")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [document[key] for key in ("machine", "chips", "seeds", "first_seed", "spares")] == [
        "rainier", 256, 4, 7, 0,
    ]  # fmt: skip
    slow, dead = document["rows"]
    assert set(ROW) <= set(slow)
    assert [each["seed"] for each in slow["seeds"]] == [7, 8, 9, 10]
    p99 = slow["p99"]
    assert sum(p99["breakdown_s"].values()) == pytest.approx(p99["step_time_s"])
    assert p99["step_time_s"] == p99["step_time_at_least_s"] > document["step_time_s"]
    assert p99["slowdown"] == pytest.approx(p99["step_time_s"] / document["step_time_s"] - 1)
    assert len(p99["slow_chips"]) == 1 and p99["slow_chips"][0].endswith("=1.5")
    assert dead["stopped"] == 1 and dead["mean_step_time_s"] is None
    assert dead["p50"]["step_time_s"] is None and "1 of 4 pods" in dead["p50"]["stops"]
    assert {each["name"] for each in document["guesses"]} == {"dead-chip"}


def test_the_table_and_its_lines(run):
    ask = ["dead-chip", "jitter:sigma=0.01+straggler:factor=2", "slow-link:tier=nic up,share=0.5"]
    done = trnsim.disturb(run, ask, seeds=5, spares=1)
    table, lines = disturbance_table(done), "\n".join(disturbance_lines(done))
    assert [row[0] for row in table.rows] == ask
    assert all(len(row) == len(table.header) for row in table.rows)
    assert table.rows[0][-1] == "0.0 %" and table.rows[1][-2] == "100.0 %"
    assert lines.startswith("undisturbed: ") and "5 seeds from 0" in lines
    assert "engines of chip" in lines and "take 2 times as long" in lines
    assert str(done).startswith(str(table))
    assert "trnsim goodput" not in lines  # the spare goes on


def test_a_job_that_stops_is_sent_to_goodput(run):
    lines = disturbance_lines(trnsim.disturb(run, ["dead-chip"], seeds=2))
    assert any("1 of 4 pods" in line or "seeds stop" in line for line in lines)
    (line,) = [line for line in lines if "trnsim goodput RUN --tokens N" in line]
    assert line.startswith("what a job that stops and starts again loses is no step")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([], "no disturbance: give one or more, such as straggler:factor=1.1"),
        (["--with", "gremlins"], "'gremlins' is no disturbance: use one of jitter"),
        (
            ["--with", "straggler:factor=0.5"],
            "'straggler:factor=0.5' has a factor that is not from",
        ),
        (["--with", "dead-switch:tier=spine"], "have no switch 'spine'"),
        (["--with", "dead-chip", "--spares", "9999"], "9999 spare pods beside 4"),
        (["--with", "dead-chip", "--smaller", "none.trnsim"], "none.trnsim"),
        (["--with", "dead-chip", "--machine", "nowhere"], "nowhere"),
    ],
)
def test_what_is_refused_in_one_line(run, asked, words):
    done = command("disturb", run, *asked)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("trnsim: ")
    assert words in done.stderr
