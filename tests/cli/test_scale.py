# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim scale`: a script at several sizes, each captured anew, and none twice."""

import json
import textwrap
import time

import pytest
from command import trnsim as command

import trnsim
from trnsim.errors import PlanError
from trnsim.plan import Point, RunOptions, Scaling, progress
from trnsim.plan.sizes import parse_sizes
from trnsim.report.plan import scaling_lines, scaling_table

# Each run leaves a line in `ran`: the world that it ran as, and its arguments.
SCRIPT = """
    import os, sys
    import torch
    from settings import WIDTH
    world = os.environ["WORLD_SIZE"]
    with open("ran", "a") as log:
        print(world, *sys.argv[1:], file=log)
    layers = int(open("layers.txt").read())
    if world in sys.argv[2:]:
        raise ValueError("no batch for this world")
    torch.distributed.init_process_group()
    parts = [torch.nn.Embedding(512, WIDTH)]
    parts += [torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*parts).to("trn"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        ids = torch.zeros(int(sys.argv[1]), 16, dtype=torch.long, device="trn")
        model(ids).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
ALONE = """
    import torch
    weight = torch.ones(64, 64, device="trn", requires_grad=True)
    (weight @ weight).sum().backward()
"""
QUICK = RunOptions(check_ranks=0)
SLOWER = ("chip.hbm.bandwidth=1TB/s",)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The present folder, with the script, a module that it imports and a file that it reads."""
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "settings.py").write_text("WIDTH = 64\n")
    (tmp_path / "layers.txt").write_text("1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scale(chips, arguments=("8",), options=QUICK, **asked):
    return trnsim.scale("train.py", machine="trn2", chips=chips, arguments=arguments,
                        options=options, **asked)  # fmt: skip


def ran(folder):
    """What ran since the last call."""
    log = folder / "ran"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


@pytest.mark.parametrize(
    ("text", "points", "sizes"),
    [
        ("64..400000", None, [64 * 2**k for k in range(13)] + [400_000]),
        ("64..256", None, [64, 128, 256]),
        ("5..5", None, [5]),
        ("256,64, 64", None, [64, 256]),
        ("1..10000", 3, [1, 100, 10_000]),
        ("2..4", 9, [2, 3, 4]),
    ],
)
def test_sizes(text, points, sizes):
    assert parse_sizes(text, points) == sizes


def test_points_are_what_runs_say_and_efficiency_is_throughput_of_a_chip(folder):
    done = command("scale", "--json", "train.py", "--machine", "trn2", "--chips", "2..8",
                   "--check-ranks", 0, "--", 8)  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert ran(folder) == ["2 8", "4 8", "8 8"]
    assert document["efficiency_basis"] == "tokens" and document["scaling"] == "weak"
    assert [point["chips"] for point in document["points"]] == [2, 4, 8]
    first = document["points"][0]
    for point in document["points"]:
        assert point["ranks"] == point["chips"] and point["fits"] and point["bottleneck"]
        low, high = point["step_time_interval_s"]
        assert low < point["step_time_s"] < high
        assert point["memory_peak_bytes"] > 0 and point["seconds_to_simulate"] > 0
        assert point["tokens_per_s"] * point["step_time_s"] == pytest.approx(
            8 * 16 * point["chips"]
        )
        weak = first["step_time_s"] / point["step_time_s"]  # a rank does the same at every size
        assert point["efficiency"] == pytest.approx(weak)
    last, share = document["points"][-1], "exposed_communication"
    before, after = (each["breakdown_s"][share] / each["step_time_s"] for each in (first, last))
    assert document["stop"]["part"] == share and document["stop"]["group"] == "world"
    assert document["stop"]["first_share"] == pytest.approx(before)
    assert document["stop"]["last_share"] == pytest.approx(after)
    assert after > before and last["efficiency"] < 1


def test_a_point_is_what_trnsim_run_says(folder):
    ran_alone = command("run", "--json", "--machine", "trn2", "--chips", 2, "--check-ranks", 0,
                        "train.py", 8)  # fmt: skip
    (point,) = scale("2").points
    assert dict(point.document) == json.loads(ran_alone.stdout)


def test_points_that_are_kept_do_not_run_again(folder):
    first = scale("2,4", out="curve")
    assert ran(folder) == ["2 8", "4 8"]
    again = scale("2,4,8", out="curve")
    assert ran(folder) == ["8 8"]
    assert [point.reused for point in again.points] == [True, True, False]
    assert [point.document for point in again.points[:2]] == [p.document for p in first.points]
    assert again.points[0].seconds_to_simulate == first.points[0].seconds_to_simulate
    kept = json.loads((folder / "curve" / "scaling.json").read_text())
    assert kept == json.loads(json.dumps(again.to_dict()))


def change_the_script(folder):
    with open(folder / "train.py", "a") as file:
        file.write("# another line\n")


def change_a_module(folder):
    (folder / "settings.py").write_text("WIDTH = 128\n")


def change_what_it_reads(folder):
    (folder / "layers.txt").write_text("2")


def break_what_is_kept(folder):
    (kept,) = (folder / "curve" / "points").iterdir()
    kept.write_text(kept.read_text()[:-100])


def change_nothing(folder):
    (folder / "other.py").write_text("WIDTH = 128\n")
    (folder / "ran").write_text("")


@pytest.mark.parametrize(
    ("change", "asked", "runs"),
    [
        (change_nothing, {}, []),
        (change_the_script, {}, ["2 8"]),
        (change_a_module, {}, ["2 8"]),
        (change_what_it_reads, {}, ["2 8"]),
        (break_what_is_kept, {}, ["2 8"]),
        (change_nothing, {"arguments": ["4"]}, ["2 4"]),
        (change_nothing, {"options": RunOptions(check_ranks=0, overrides=SLOWER)}, ["2 8"]),
    ],
)
def test_what_changed_runs_again(folder, change, asked, runs):
    (before,) = scale("2", out="curve").points
    ran(folder)
    change(folder)
    (after,) = scale("2", out="curve", **asked).points
    assert ran(folder) == runs
    assert after.reused == (not runs)
    if change in (change_nothing, break_what_is_kept) and not asked:
        assert after.document == before.document


def test_a_size_that_fails_is_a_point_with_the_reason_and_is_tried_again(folder):
    for _ in range(2):
        done = scale("2,4,8", arguments=("8", "4"), out="curve")
        assert "4 8 4" in ran(folder)
    reasons = [point.reason for point in done.points]
    assert reasons == ["", "the script ended with exit code 1: ValueError: no batch for this world",
                       ""]  # fmt: skip
    assert [point.reused for point in done.points] == [True, False, True]
    assert done.efficiency(done.points[1]) is None and done.efficiency(done.points[2]) < 1
    point = done.to_dict()["points"][1]
    assert point["step_time_s"] is None and point["guesses"][0]["effect"] == point["reason"]
    assert scaling_table(done).rows[1][:2] == ["4", "no run"]


def test_sizes_are_rounded_aloud_and_what_is_too_large_says_why(folder):
    done = command("scale", "train.py", "--machine", "trn2-ultra", "--chips", "2,20,100",
                   "--check-ranks", 0, "--", 8)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ran(folder) == ["2 8", "16 8"]
    assert "rounded to what trn2-ultra can be cut to: 20 -> 16" in done.stdout
    assert "100 chips: no run: trn2-ultra cannot run on 100 chips" in done.stdout


def test_strong_scaling_shares_out_a_total(folder):
    done = scale("2,3,4", arguments=["{share}"], strong=16)
    assert ran(folder) == ["2 8", "4 4"]
    assert done.points[1].reason == "16 samples do not divide over 3 ranks"
    two, _, four = done.points
    assert two.in_a_step("samples") == pytest.approx(16) == four.in_a_step("samples")
    by_time = 2 * two.figure("step_time_s") / (4 * four.figure("step_time_s"))
    assert done.efficiency(four) == pytest.approx(by_time)
    assert done.notes == []


def test_a_total_that_is_not_kept_is_said(folder):
    done = scale("2,4", arguments=["8", "{share}"], strong=64)
    note = "a step has 16 to 32 samples, by size: the total is not the same everywhere"
    assert done.notes == [f"{note}: no strong scaling"]
    done = scale("4,8", arguments=["{share}"], strong=16, replica=2)
    assert ran(folder)[-2:] == ["4 8", "8 4"]
    assert "a step has 32 samples, not 16" in done.notes[0]


def test_a_module_is_scaled_and_kept_too(folder):
    for is_reused in (False, True):
        (point,) = trnsim.scale("train", is_module=True, machine="h100:nemo", chips=[2],
                                arguments=["8"], options=QUICK, out="curve").points  # fmt: skip
        assert point.reason == "" and point.figure("machine") == "h100"
        assert point.reused == is_reused
    assert ran(folder) == ["2 8"]


def test_a_script_that_is_not_distributed_has_no_curve(folder):
    (folder / "train.py").write_text(textwrap.dedent(ALONE))
    done = command("scale", "train.py", "--chips", "2,4")
    assert done.returncode == 1
    assert "2 chips: no run: 1 of 2 chips used: the script is not distributed" in done.stdout


# --- without running -----------------------------------------------------------------------------


def made_up(*figures):
    """Points of (chips, parts of the step in seconds, exposed by group)."""
    points = []
    for chips, parts, groups in figures:
        document = {
            "step_time_s": sum(parts.values()), "breakdown_s": parts, "exposed_by_group": groups,
            "bottleneck": "links", "fits": True, "mfu": None, "memory_peak_bytes": 1,
            "step_time_interval_s": [1.0, 2.0],
        }  # fmt: skip
        points.append(Point(chips, document))
    return tuple(points)


def parts(compute, exposed, bubble):
    return {"compute": compute, "exposed_communication": exposed, "bubble": bubble}


def test_what_stops_the_scaling_is_the_share_that_grew_most():
    points = made_up(
        (8, parts(8.0, 1.0, 1.0), {"tp": 0.8, "dp": 0.2}),
        (16, parts(8.0, 9.0, 3.0), {"tp": 0.8, "dp": 8.2}),
    )
    stop = Scaling(points, "trn2").stop
    assert (stop.part, stop.group) == ("exposed_communication", "dp")
    assert (stop.first_share, stop.last_share) == pytest.approx((0.1, 0.45))
    lines = scaling_lines(Scaling(points, "trn2"))
    assert (
        "what stops the scaling: exposed communication: 10.0 % of the step on 8 chips, 45.0 % on "
        "16, of which dp 2.0 % to 41.0 %, tp 8.0 % to 4.0 %; limited there by links"
    ) in lines


def test_one_group_alone_has_the_whole_of_what_stops_the_scaling():
    points = made_up(
        (8, parts(8.0, 1.0, 1.0), {"dp": 1.0}), (16, parts(8.0, 9.0, 3.0), {"dp": 9.0})
    )
    assert (
        "what stops the scaling: exposed communication on dp: 10.0 % of the step on 8 chips, "
        "45.0 % on 16; limited there by links"
    ) in scaling_lines(Scaling(points, "trn2"))


def test_a_bubble_can_stop_it_and_a_share_of_compute_that_grows_stops_nothing():
    more = made_up((8, parts(8.0, 2.0, 0.0), {}), (16, parts(8.0, 2.0, 5.0), {}))
    assert Scaling(more, "trn2").stop.part == "bubble"
    less = made_up((8, parts(8.0, 2.0, 0.0), {}), (16, parts(9.0, 1.0, 0.0), {}))
    assert Scaling(less, "trn2").stop.part is None
    assert "nothing up to 16 chips" in scaling_lines(Scaling(less, "trn2"))[1]
    assert Scaling(less[:1], "trn2").stop is None


def test_by_step_time_weak_and_strong_scaling_differ_and_it_is_said():
    points = made_up((8, parts(10.0, 0.0, 0.0), {}), (16, parts(8.0, 0.0, 0.0), {}))
    weak, strong = Scaling(points, "trn2"), Scaling(points, "trn2", strong=64)
    assert weak.basis == strong.basis == "step time"
    assert weak.efficiency(points[1]) == pytest.approx(10 / 8)
    assert strong.efficiency(points[1]) == pytest.approx(10 * 8 / (8 * 16))
    assert "a rank's work to be the same at every size" in weak.notes[0]
    assert "the work of all ranks together to be the same" in strong.notes[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train.py"], "'--chips'"),
        (["train.py", "--chips", "4..x"], "'4..x' is no list of sizes"),
        (["train.py", "--chips", "0..4"], "'0..4' is no list of sizes"),
        (["train.py", "--chips", "8..4"], "write 4..8"),
        (["train.py", "--chips", "1,2", "--points", "3"], "--points 3 needs a range"),
        (["train.py", "--chips", "1..4", "--points", "1"], "use at least 2"),
        (["train.py", "--chips", "4", "--machine", "trn"], "no machine is called 'trn'"),
        (["absent.py", "--chips", "4"], "no script 'absent.py'"),
        (["train.py", "--chips", "4", "--lr", "1"], "follow after --"),
        (["train.py", "--chips", "4", "--strong", "64"], "write {share}"),
        (["train.py", "--chips", "4", "--strong", "64", "--weak"], "contradict"),
        (["train.py", "--chips", "4", "--strong", "0", "--", "{share}"], "shares out nothing"),
        (["train.py", "--chips", "4", "--replica", "2"], "give --strong"),
        (["train.py", "--chips", "4", "--", "{share}"], "give --strong"),
        (["train.py", "--chips", "4", "--out", "train.py"], "is not a folder"),
    ],
)
def test_a_wrong_request_is_one_line(folder, arguments, words):
    done = command("scale", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("trnsim: ") and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr
    assert ran(folder) == []


def test_python_refuses_sizes_that_are_none(folder):
    with pytest.raises(PlanError, match="chips has 2.5"):
        trnsim.scale("train.py", chips=[2.5])
    with pytest.raises(PlanError, match="at least one"):
        trnsim.scale("train.py", chips=[])


def test_slow_runs_say_how_far_they_are(capfd, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_S", 0.05)
    teller = progress.Teller(4)
    teller.skip()
    for slow in (True, False, True):
        with teller.running("trn2 on 8 chips"):
            time.sleep(0.3 if slow else 0.0)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "[trnsim] trn2 on 8 chips: run 2 of 4"
    assert lines[1].startswith("[trnsim] trn2 on 8 chips: run 4 of 4, ")
    assert lines[1].endswith("to go") and len(lines) == 2
