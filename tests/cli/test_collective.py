# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim collective`: nccom-test's columns from a simulated call."""

import json
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from command import ROOT, python, trnsim

from trnsim.project import progress


def collective(*arguments):
    """The document that `trnsim collective ARGUMENTS --json` prints."""
    done = trnsim("collective", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_document_has_what_is_promised():
    document = collective("all_reduce", "--machine", "trn2", "-r", 16, "-b", "1K", "-e", "1M",
                          "-f", 32)  # fmt: skip
    assert document.keys() >= {"machine", "op", "ranks", "chips", "rows"}
    assert (document["op"], document["ranks"], document["chips"]) == ("all_reduce", 16, 16)
    assert [row["size_bytes"] for row in document["rows"]] == [1024, 32768, 1 << 20]
    for row in document["rows"]:
        assert row["algbw_GBps"] == pytest.approx(row["size_bytes"] / row["time_us"] / 1000)
        assert row["busbw_GBps"] == pytest.approx(row["algbw_GBps"] * 2 * 15 / 16)
        assert row["algorithm"] and 0 <= row["contention_loss"] < 1
        low, high = row["time_interval_us"]
        assert low < row["time_us"] < high
    assert document["interval_basis"] == "inputs (unvalidated)"


def test_a_large_all_reduce_takes_what_the_links_take():
    # KangaRing there and back: 31 of 32 shares over four links of 128 GB/s, and 2 x 31 x 2 us
    (row,) = collective("allr", "--machine", "trn2", "--ranks", 16, "-b", "1G")["rows"]
    assert row["algorithm"] == "kanga"
    seconds = 2 * (1 << 30) * 31 / 32 / 512e9 + 2 * 31 * 2e-6
    assert row["time_us"] == pytest.approx(seconds * 1e6, rel=1e-6)
    assert row["contention_loss"] == pytest.approx(0, abs=1e-9)


def test_transfers_of_an_all_to_all_contend_for_links():
    ask = ["alltoall", "--machine", "trn2", "--ranks", 16, "-b", "64M"]
    (row,) = collective(*ask)["rows"]
    assert row["contention_loss"] > 0.5
    (axis_by_axis,) = collective(*ask, "--algorithm", "dimension_ordered")["rows"]
    assert axis_by_axis["algorithm"] == "dimension_ordered"
    assert axis_by_axis["time_us"] > row["time_us"]


def test_large_all_reduces_of_gpus_happen_in_the_switch():
    rows = collective("all_reduce", "--machine", "h100", "--ranks", 8, "-b", "1M", "-e", "1G",
                      "-f", "1024")["rows"]  # fmt: skip
    assert [row["algorithm"] for row in rows] == ["ring", "nvls"]
    assert rows[1]["busbw_GBps"] == pytest.approx(464, rel=0.02)  # measured on 8 H200


# github.com/AI-Hypercomputer/tpu-recipes at c8cfe2f6, microbenchmarks; all-reduces of racks and of
# B200: github.com/stas00/ml-engineering at 744d01e1, network/README.md
MEASURED = [
    ("all_gather", "tpu-7x", 4, 8388608, 6291456 / 129.19),
    ("all_gather", "tpu-7x", 4, 33554432, 25165824 / 161.90),
    ("all_gather", "tpu-7x", 4, 536870912, 402653184 / 178.77),
    ("all_reduce", "tpu-v6e", 256, 606000000, 2 * 255 / 256 * 606000000 / 235.76),
    ("all_reduce", "gb200-nvl72", 72, 4294967296, 10094e3),
    ("all_reduce", "b200", 8, 536870912, 1364e3),
    ("all_reduce", "a100", 8, 2147483648, 16240e3),
]


@pytest.mark.parametrize(("op", "machine", "ranks", "size", "measured_ns"), MEASURED)
def test_large_collectives_take_what_was_measured(op, machine, ranks, size, measured_ns):
    (row,) = collective(op, "--machine", machine, "--ranks", ranks, "-b", size)["rows"]
    assert row["time_us"] == pytest.approx(measured_ns / 1e3, rel=0.06)


def test_everybody_sends_to_the_next():
    # one hop on a ring of 4 at 128 GB/s; 4 chips are a row
    (row,) = collective("sendrecv", "--machine", "trn2", "--ranks", 4, "-b", "128M")["rows"]
    assert row["time_us"] == pytest.approx((128 << 20) / 128e9 * 1e6, rel=0.01)
    assert row["busbw_GBps"] == row["algbw_GBps"] and row["contention_loss"] == pytest.approx(0)


def test_the_answer_changes_with_everything_that_it_depends_on():
    def time_us(*arguments):
        return collective(*arguments)["rows"][0]["time_us"]

    base = ["all_gather", "--machine", "trn2-ultra", "--ranks", 64, "-b", "64M"]
    times = [
        time_us(*base),
        time_us(*base, "--algorithm", "axis_rings"),
        time_us(*base, "--set", "scale_up.bandwidth_z=32GB/s"),
        time_us("all_gather", "--machine", "trn2-ultra", "--ranks", 32, "-b", "64M"),
        time_us("all_gather", "--machine", "trn2-ultra", "--ranks", 64, "-b", "128M"),
        time_us("all_gather", "--machine", "h100-efa", "--ranks", 64, "-b", "64M"),
    ]
    assert len(set(times)) == len(times)


def test_a_ring_of_1024_ranks_in_steps_takes_as_long_as_the_fluid():
    ask = [
        "all_reduce",
        "--machine",
        "h100-efa",
        "--ranks",
        1024,
        "-b",
        "64M",
        "--algorithm",
        "ring",
    ]
    (fluid,), (steps,) = (collective(*ask, *how)["rows"] for how in ([], ["--collectives", "step"]))
    assert fluid["time_us"] <= steps["time_us"] <= fluid["time_us"] + 2 * 1023 * 1e-6


def test_a_slow_link_slows_what_passes_it():
    ask = ["all_reduce", "--machine", "trn2", "--ranks", 16, "-b", "64M"]
    all_half = ["--set", "scale_up.bandwidth_x=64GB/s", "--set", "scale_up.bandwidth_y=64GB/s"]
    healthy, half, dead, everywhere = (
        collective(*ask, *changed)["rows"][0]["time_us"]
        for changed in ([], ["--fault", "x+ 0>1=0.5"], ["--fault", "x+ 0>1=0"], all_half)
    )
    assert healthy < half <= everywhere and healthy < dead
    faulty = collective(*ask, "--fault", "x+ 0>1=0.5")
    assert faulty["faults"] == ["x+ 0>1=0.5"]
    assert faulty["rows"][0]["fault_loss"] == pytest.approx(1 - healthy / half, abs=1e-9)
    said = trnsim("collective", *ask, "--fault", "x+ 0>1=0.5").stdout.splitlines()
    assert said[1] == "# with fault x+ 0>1=0.5" and "lost to faults" in said[2]
    assert f"{100 * (1 - healthy / half):.1f} %" in said[3]


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
@pytest.mark.parametrize(
    ("machine", "ranks"),
    [("trn2", 16), ("trn2", 6), ("trn2-ultra", 64), ("rainier", 192), ("h100", 8),
     ("h100-efa", 24)],
)  # fmt: skip
def test_a_broadcast_is_never_slower_than_an_all_reduce(op, machine, ranks):
    sweep = ["--machine", machine, "--ranks", ranks, "-b", "1", "-e", "1G", "-f", "4"]
    one, all_of_them = collective(op, *sweep)["rows"], collective("all_reduce", *sweep)["rows"]
    for faster, slower in zip(one, all_of_them, strict=True):
        assert faster["time_us"] <= slower["time_us"], (faster, slower)


def test_400_000_ranks_reduce_in_seconds():
    (row,) = collective("all_reduce", "--machine", "rainier", "--ranks", 400_000, "-b", "1M")[
        "rows"
    ]
    assert row["algorithm"].startswith("hierarchical_")
    assert 26 * 15 < row["time_us"] < 1000  # 2 x 13 steps of 15 us, where a flat ring takes minutes


def test_in_a_pipe_the_table_is_plain():
    done = trnsim("collective", "all_reduce", "--ranks", 16, "-b", "8", "-e", "32")
    assert done.returncode == 0, done.stderr
    title, header, *rows, mean, helps, no_limit = done.stdout.splitlines()
    said = "# all_reduce on trn2: 16 ranks on 16 chips; interval by inputs (unvalidated)"
    assert title == said
    assert header.split()[:6] == [
        "size(B)", "count(elems)", "type", "time(us)", "algbw(GB/s)", "busbw(GB/s)"
    ]  # fmt: skip
    assert [row.split()[0] for row in rows] == ["8", "16", "32"]
    assert all(re.search(r" [0-9.]+ to [0-9.]+$", row) for row in rows)
    assert re.fullmatch(r"Avg bus bandwidth: [0-9]+\.[0-9]{2} GB/s", mean)  # digits of the table

    assert helps.startswith("Would help 32 B: no latency of collective steps and hops (-")
    assert "twice the bandwidth of the links on axis x" in no_limit


def test_popular_experts_are_waited_for(tmp_path):
    ask = ["all_to_all", "--machine", "trn2-ultra", "--ranks", 64, "-b", "64M"]
    (even,), (alike,), (skewed,) = (
        collective(*ask, *how)["rows"]
        for how in ([], ["--routing", "zipf:0"], ["--routing", "zipf:1.2"])
    )
    assert alike == even
    assert skewed["time_us"] > 4 * even["time_us"]
    routing = tmp_path / "routing"
    routing.write_text("3 " * 63 + "0\n")
    (without_last,) = collective(*ask, "--routing", routing)["rows"]
    assert even["time_us"] < without_last["time_us"] < 1.1 * even["time_us"]
    # All of 7 others' buffers come over the one link of rank 0.
    (hot,) = collective("all_to_all", "--machine", "h100", "--ranks", 8, "-b", "64M",
                        "--routing", "zipf:16")["rows"]  # fmt: skip
    seconds = 7 * (64 << 20) * (1 - 2**-16) / 370e9
    assert hot["time_us"] == pytest.approx(14 + 2 * 1.9 + seconds * 1e6, rel=1e-3)


def test_what_did_not_matter_is_said():
    ask = ["--machine", "rainier", "--ranks", 128, "-b", "256M"]
    whole = collective("all_reduce", *ask)
    reliefs = whole["rows"][0]["relieved_us"]
    time_us = whole["rows"][0]["time_us"]
    assert reliefs["twice the bandwidth of every link"] < 0.9 * time_us
    assert reliefs["twice the bandwidth between switches"] == time_us
    said = trnsim("collective", "all_reduce", *ask, "--set", "chip.hbm.bandwidth=1TB/s").stdout
    helps, no_limit, not_used = said.splitlines()[-3:]
    assert "twice the bandwidth of every link (-" in helps
    assert "twice the bandwidth between switches" in no_limit
    assert not_used == "No collective alone depends on: chip.hbm.bandwidth"


def test_links_that_help_only_together_are_named_together():
    said = trnsim("collective", "all_reduce", "--machine", "trn2", "--ranks", 16, "-b", "1G").stdout
    helps, no_limit = said.splitlines()[-2:]
    assert "twice the bandwidth of the links on axes x and y (-" in helps
    assert no_limit.endswith("axis x; twice the bandwidth of the links on axis y")


def test_advice_says_where_another_algorithm_is_chosen():
    ask = ["all_reduce", "--machine", "h100", "--ranks", 16, "-b", "4M"]
    (row,) = collective(*ask)["rows"]
    relief = "no latency of collective steps and hops"
    assert row["relieved_algorithm"][relief] == "rail_ring" != row["algorithm"]
    assert f"{relief} (-71.7 %, by rail_ring)" in trnsim("collective", *ask).stdout


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_narrow_terminal_cuts_no_number(columns):
    ask = ["all_reduce", "--machine", "rainier", "--ranks", 1024, "-b", "1G", "-e", "1G"]
    plain = trnsim("collective", *ask).stdout.splitlines()
    numbers = plain[2].split()
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns), "TERM": "dumb"}
    subprocess.run(
        [sys.executable, "-m", "trnsim", "collective", *map(str, ask)],
        env=environment, stdout=theirs, timeout=300, check=True,
    )  # fmt: skip
    os.close(theirs)
    text = b"".join(iter(lambda: read(ours), b"")).decode()
    row = next(line for line in text.splitlines() if line.strip().startswith("1073741824"))
    narrow = columns < 100
    shown = numbers if not narrow else [numbers[0], numbers[3], *numbers[5:]]
    assert row.split() == shown
    assert ("a wider terminal shows type, count(elems), algbw(GB/s) too" in text) == narrow


def read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["all_rduce", "--ranks", 16], "there is no collective 'all_rduce'"),
        (["all_reduce", "--ranks", 1], "a collective of 1 rank moves nothing"),
        (["all_reduce", "--ranks", 17], "17"),
        (["all_reduce", "--ranks", 16, "-b", "1Q"], "'1Q' is no size"),
        (["all_reduce", "--ranks", 16, "-b", "0"], "'0' is no size"),
        (["all_reduce", "--ranks", 16, "-b", "1000000T"], "to less than 8192T (8 PiB)"),
        (["all_reduce", "--ranks", -1], "ranks -1 is negative: use at least 1"),
        (["all_to_all", "--ranks", 4, "--routing", "/dev/null"], "over 0 ranks does not fit 4"),
        (["all_reduce", "--ranks", 16, "-b", "2M", "-e", "1M"], "-b 2M is more than -e 1M"),
        (["all_reduce", "--ranks", 16, "--algorithm", "nvls"], "use one of mesh, rdh, kanga"),
        (["all_reduce", "--ranks", 16, "--routing", "zipf:1"], "has no uneven routing"),
        (["all_to_all", "--ranks", 16, "--routing", "zipf:x"], "write zipf:1.2"),
        (["all_to_all", "--ranks", 16, "--routing", "nowhere"], "'nowhere' is no routing"),
        (["gather", "--ranks", 16, "--algorithm", "ring"], "has one algorithm only"),
        (["all_reduce", "--ranks", 16, "--machine", "trn9"], "trn9"),
        (["all_reduce"], "ranks"),
        (["all_reduce", "--ranks", 16, "--fault", "q 0=0"], "no link"),
        (["all_reduce", "--ranks", 16, "--fault", "x+ 0>1=0@1us"], "leave out @TIME"),
    ],
)
def test_a_wrong_request_is_one_line(arguments, said):
    done = trnsim("collective", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("trnsim: ") and done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr


def test_a_device_that_is_not_there_is_told():
    ran = python(
        """
        from trnsim import _core
        from trnsim.job import make_job
        job = make_job("trn2", ranks=4)
        asked = "all_reduce", [1 << 20], job.machine, job.placement, "", [], [], False, False
        print(_core.run_collective(*asked, _core.ProjectProgress())[0].engine)
        """,
        TRNSIM_DEVICE="cuda",
    )
    engine = ran.stdout.strip()
    assert engine.startswith("bulk "), ran.stderr
    said = f"trnsim: TRNSIM_DEVICE=cuda, but this ran on {engine}\n"
    done = trnsim("collective", "all_reduce", "--ranks", 4, "-b", "1M", TRNSIM_DEVICE="cuda")
    assert done.stderr == ("" if engine.startswith("bulk cuda") else said)
    plain = trnsim("collective", "all_reduce", "--ranks", 4, "-b", "1M")
    assert (plain.stderr, plain.stdout) == ("", done.stdout)


def test_the_tasks_of_simulations_are_counted():
    done = python("""
        from trnsim import _core
        from trnsim.job import make_job
        job = make_job("trn2-ultra", ranks=64)
        asked = "all_to_all", [1 << 26] * 3, job.machine, job.placement, "", [], [], True, False
        counter = _core.ProjectProgress()
        _core.run_collective(*asked, counter)
        print(counter.done, counter.total, counter.tasks_ended == counter.tasks_total > 0)
    """)
    assert done.stdout == "3 3 True\n", done.stderr


def test_a_long_run_says_how_many_of_its_tasks_have_ended(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    counter = SimpleNamespace(done=0, total=1, tasks_ended=1500, tasks_total=20_000)
    said = ""
    with progress.watch(counter, "all_to_all"):
        while "\n" not in said:
            said += capsys.readouterr().err
    line = r"\[trnsim\] all_to_all: 0 of 1 simulations, 1,500 of 20,000 tasks, \d+ s\n"
    assert re.fullmatch(line, said)


def test_python_returns_an_object():
    done = python("""
        import trnsim
        done = trnsim.collective("allg", "trn2", ranks=16, sizes=[1 << 20, 1 << 26])
        assert [row.size_bytes for row in done.rows] == [1 << 20, 1 << 26]
        assert done.op == "all_gather" and done.chips == 16
        assert "busbw" in str(done)
        try:
            trnsim.collective("all_gather", "trn2", ranks=16, sizes=[])
        except trnsim.TrnSimError as error:
            assert "at least one" in str(error)
        else:
            raise AssertionError("no sizes were taken")
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("machine", "ranks", "algorithm"), [("trn2", 16, "ring"), ("trn2", 16, "axis_rings"),
                                        ("h100", 8, "ring"), ("h100", 6, "rdh")]
)  # fmt: skip
def test_steps_take_as_long_as_the_fluid(machine, ranks, algorithm):
    ask = ["all_reduce", "--machine", machine, "--ranks", ranks, "-b", "64K", "-e", "64M", "-f", 32,
           "--algorithm", algorithm]  # fmt: skip
    fluid, step = (collective(*ask, "--collectives", way)["rows"] for way in ("fluid", "step"))
    for a, b in zip(fluid, step, strict=True):
        assert 0 <= b["time_us"] - a["time_us"] <= 2 * ranks / 1e6 + 1e-9
        assert b["contention_loss"] == pytest.approx(a["contention_loss"], abs=1e-6)
        assert (a["in_steps"], b["in_steps"]) == (False, True)
        assert a["algorithm"] == b["algorithm"] == algorithm


def test_what_has_no_steps_stays_fluid():
    ask = ["all_reduce", "--machine", "trn2", "--ranks", 16, "-b", "64K", "--algorithm", "mesh"]
    fluid, step = (collective(*ask, "--collectives", way)["rows"] for way in ("fluid", "step"))
    assert fluid == step
    assert "mesh as a fluid" in trnsim("collective", *ask, "--collectives", "step").stdout
    wrong = trnsim("collective", *ask, "--collectives", "both")
    assert wrong.returncode == 2
    assert wrong.stderr == "trnsim: there are no collectives 'both': use fluid or step\n"
