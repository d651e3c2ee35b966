# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim compare`: run files beside each other, and one job on several machines."""

import json
import textwrap
from fractions import Fraction

import pytest
from command import trnsim as command
from small_workload import train

import trnsim
from trnsim import machine as machines
from trnsim.cli.compare import parse_share
from trnsim.errors import MachineError, PlanError
from trnsim.plan import Comparison, ComparisonRow, RunOptions
from trnsim.plan.script_runs import targets_of
from trnsim.plan.sizes import equal_counts, nearest_legal
from trnsim.report.json import PROMISED
from trnsim.report.plan import comparison_table

SLOWER = ["chip.hbm.bandwidth=1TB/s"]
SCRIPT = """
    import os, sys
    import torch
    if os.environ["WORLD_SIZE"] in sys.argv[1:]:
        raise ValueError("no batch for this world")
    torch.distributed.init_process_group()
    tokens = torch.nn.Embedding(512, 64).to("trn")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(tokens))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.zeros(8, 16, dtype=torch.long, device="trn")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
QUICK = RunOptions(check_ranks=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run files of one step: as it is, on slower memory, and of 64 ranks; and a script."""
    made = tmp_path_factory.mktemp("compare")
    options = {"advise": False, "interval": False, "tokens_per_step": 1000}
    step = train(world_size=4)
    trnsim.project(step, "trn2", **options).write(made, "before")
    trnsim.project(step, "trn2", overrides=SLOWER, **options).write(made, "after")
    trnsim.project(train(world_size=64), "trn2-ultra", **options).write(made, "pod")
    (made / "train.py").write_text(textwrap.dedent(SCRIPT))
    return made


def compare(folder, *arguments, code=0):
    """The document of `trnsim compare --json ARGUMENTS`."""
    done = command("compare", "--json", *arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


# --- run files -----------------------------------------------------------------------------------


def test_rows_are_the_projections_of_their_run_files(folder):
    document = compare(folder, "before.trnsim", "after.trnsim")
    steps = []
    for row, name in zip(document["rows"], ("before", "after"), strict=True):
        alone = trnsim.project(folder / f"{name}.trnsim").to_dict()
        assert {key: row[key] for key in alone} == json.loads(json.dumps(alone))
        assert row["label"] == f"{name}.trnsim" and row["reason"] is None
        steps.append(alone["step_time_ps"])
    assert steps[1] > steps[0]
    assert document["rows"][0]["step_time_change"] is None
    assert document["rows"][1]["step_time_change"] == pytest.approx(steps[1] / steps[0] - 1)


def test_dollars_and_joules_are_price_and_power_times_time(folder):
    (row, _) = compare(folder, "before.trnsim", "after.trnsim")["rows"]
    step_s = row["step_time_s"]  # 4 chips at 2.235 USD/h and 843.75 W, 1000 tokens a step
    assert row["usd_per_hour"] == pytest.approx(4 * 2.235)
    assert row["watts"] == pytest.approx(4 * 843.75)
    assert row["usd_per_million_tokens"] == pytest.approx(4 * 2.235 * step_s / 3600 / 1000 * 1e6)
    assert row["joules_per_token"] == pytest.approx(4 * 843.75 * step_s / 1000)
    assert row["exposed_communication_s"] == row["breakdown_s"]["exposed_communication"]


def test_co2_is_the_energy_of_the_site_times_its_grid(folder):
    site = ["--set", "site.pue=1.2", "--set", "site.grid_intensity=500g/kWh"]
    asked = ["before.trnsim", "--machines", "trn2,rainier"]
    rows = compare(folder, *asked, *site)["rows"]
    network_w = 460 / 32 + 1090 / 64 + 2180 / 256  # a chip's ports of ToR, leaf and spine
    for row, watts in zip(rows, (843.75, 750 + network_w), strict=True):
        kwh = 4 * watts * 1.2 * row["step_time_s"] / 3.6e6
        assert row["carbon_kg_per_step"] == pytest.approx(kwh * 0.5)
        assert row["carbon_kg_per_million_tokens"] == pytest.approx(kwh * 0.5 / 1000 * 1e6)
    said = command("compare", *asked, *site[2:], cwd=folder).stdout
    assert "kg CO2/M tokens" in said
    assert "trn2: CO2 of cooling and losses of the site: not counted: no PUE is known" in said
    assert "rainier: CO2" not in said


def test_a_slower_run_fails_over_its_share_and_not_below(folder):
    share = 100 * compare(folder, "before.trnsim", "after.trnsim")["rows"][1]["step_time_change"]
    below, above = f"{share * 0.99:.4f}%", f"{share * 1.01:.4f}%"
    files = ("before.trnsim", "after.trnsim")
    assert compare(folder, *files, "--fail-over", below, code=1)["over"] == ["after.trnsim"]
    assert compare(folder, *files, "--fail-over", above)["over"] == []
    assert compare(folder, *reversed(files), "--fail-over", "0%")["over"] == []
    said = command("compare", *files, "--fail-over", below, cwd=folder)
    assert said.returncode == 1
    assert f"SLOWER: after.trnsim: +{share:.2f} %, more than {below}" in said.stdout


def made_up(*steps_ps):
    """Rows of which only the time of a step is known."""
    return Comparison(tuple(
        ComparisonRow(str(i), "m", None, 1, {"step_time_ps": ps, "step_time_s": ps / 1e12})
        for i, ps in enumerate(steps_ps)
    ))  # fmt: skip


def test_the_share_itself_is_not_over():
    done = made_up(1000, 1020, 1021, 900)
    assert [row.label for row in done.slower(parse_share("2%"))] == ["2"]
    assert [row.label for row in done.slower(parse_share("0 %"))] == ["1", "2"]
    assert parse_share("2.5%") == Fraction(1, 40) and parse_share(" .5 %") == Fraction(1, 200)


def test_other_work_is_said(folder):
    said = command("compare", "before.trnsim", "after.trnsim", "pod.trnsim", cwd=folder)
    assert said.returncode == 0, said.stderr
    assert "not the work of before.trnsim: pod.trnsim (trnsim diff says where)" in said.stdout
    assert "no stack" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "'RUN|SCRIPT|MODEL'"),
        (["before.trnsim"], "a run file, has nothing to be compared with"),
        (["before.trnsim", "absent.trnsim"], "no file 'absent.trnsim'"),
        (["before.trnsim", "train.py"], "'train.py' is not a run file"),
        (["before.trnsim", "after.trnsim", "--fail-over", "2"], "write it in percent, as 2%"),
        (["before.trnsim", "after.trnsim", "--chips", "4"], "compared as they are"),
        (["train.py", "--machines", "trn2"], "--chips 64"),
        (["train.py", "--machines", "trn2,h10", "--chips", "4"], "did you mean h100"),
        (["train.py", "--machines", "trn2,trn2", "--chips", "4"], "trn2 is listed twice"),
        (["train.py", "--machines", "trn2,", "--chips", "4"], "a machine has no name"),
        (["train.py", "--machines", "trn2", "--chips", "4", "--lr", "3"], "follow after --"),
        (["absent.py", "--machines", "trn2", "--chips", "4"], "no script 'absent.py'"),
        (["train.py", "--machines", "trn2", "--chips", "4", "--equal", "x"], "dollars, watts"),
        (["train.py", "--machines", "trn1,trn2", "--chips", "4", "--equal", "watts"],
         "the power of a chip of trn1 is not known"),
        (["train.py", "--machines", "trn2", "--chips", "4", "--fail-over", "2%"], "run files"),
        (["train.py", "--machines", "trn2,h100", "--chips", "4", "--set", "chip.gpu.sms=1"],
         "for one machine alone write trn2:KEY=VALUE"),
        (["train.py", "--machines", "trn2", "--chips", "4", "--set", "h100:price.per_chip_hour=1"],
         "of no machine that is listed"),
        (["before.trnsim", "--machines", "trn2", "--", "-x"], "takes no arguments"),
        (["before.trnsim", "--machines", "trn2", "--check-ranks", "0"], "--check-ranks is for a"),
        (["before.trnsim", "--machines", "trn2", "--out", "kept"], "leave out --out"),
        (["before.trnsim", "after.trnsim", "--out", "kept"], "compared as they are"),
        (["train.py", "--machines", "trn2", "--chips", "0"], "use at least 1"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_one_line(folder, arguments, words):
    done = command("compare", *arguments, cwd=folder)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("trnsim: ") and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr


# --- counts that are equal -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trn2-ultra", "h100", "tpu-v6e"])
def test_the_nearest_count_is_the_nearest_of_all(name):
    machine = machines.load(name)
    for tenths in range(1, 700, 7):
        ideal = tenths / 10
        best = min(machine.legal_chip_counts, key=lambda count: (abs(count - ideal), count))
        assert nearest_legal(machine, ideal) == best


def test_far_above_the_largest_count_is_no_count():
    pod = machines.load("trn2-ultra")  # 48 and 64
    assert nearest_legal(pod, 72) == 64
    with pytest.raises(MachineError, match="trn2-ultra is one pod of 64 chips"):
        nearest_legal(pod, 73)


@pytest.mark.parametrize(
    ("equal", "ideal", "chips"),
    [
        ("chips", 32, 32),
        ("dollars", 32 * 2.0 / 6.0, 8),  # 10.67: 8 or 16
        ("watts", 32 * 500 / 1000, 16),
        ("peak", 32 * 667 / 989, 24),  # 21.6: 16 or 24
    ],
)
def test_equal_counts_are_those_of_hand_arithmetic(equal, ideal, chips):
    first = machines.load("trn2-ultra", ["price.per_chip_hour=2USD/h", "power.per_chip=0.5kW"])
    other = machines.load("h100", ["price.per_chip_hour=6USD/h", "power.per_chip=1000W"])
    one, two = equal_counts([first, other], 32, equal)
    assert (one.chips, one.off) == (32, 0)
    assert two.ideal == pytest.approx(ideal) and two.chips == chips
    assert two.off == pytest.approx(chips / ideal - 1)


def test_others_are_equal_to_what_the_first_is_cut_to():
    first = machines.load("trn2-ultra", ["price.per_chip_hour=2USD/h"])
    other = machines.load("h100", ["price.per_chip_hour=1USD/h"])
    one, two = equal_counts([first, other], 30, "dollars")
    assert one.chips == 32 and two.chips == two.ideal == 64


def test_a_figure_of_one_machine_is_set_for_it_alone():
    options = RunOptions(overrides=("h100:price.per_chip_hour=1USD/h", "power.per_chip=1kW"))
    one, two = targets_of(["trn2", "h100:nemo"], options)
    assert (one.machine.price_usd_per_chip_hour, two.machine.price_usd_per_chip_hour) == (2.235, 1)
    assert one.machine.power_per_chip_w == two.machine.power_per_chip_w == 1000
    assert (one.stack, two.stack) == (None, "nemo")


# --- several machines ----------------------------------------------------------------------------


def test_a_run_file_is_projected_on_each_machine(folder):
    document = compare(folder, "pod.trnsim", "--machines", "trn2-ultra,h100,trn2")
    run = folder / "pod.trnsim"
    for row, name in zip(document["rows"], ("trn2-ultra", "h100"), strict=False):
        alone = trnsim.project(run, name, chips=64).to_dict()
        assert row["step_time_ps"] == alone["step_time_ps"] and row["machine"] == name
        assert row["chips"] == 64 and row["chips_off"] == 0
    refused = document["rows"][2]
    assert "trn2 is one pod of 16 chips" in refused["reason"]
    assert refused["machine"] == "trn2" and refused["step_time_s"] is None
    assert refused.keys() >= set(PROMISED) and refused["guesses"][0]["effect"] == refused["reason"]


def test_a_run_file_keeps_its_ranks(folder):
    document = compare(folder, "pod.trnsim", "--machines", "trn2-ultra,h100,gb200-nvl72",
                       "--equal", "dollars")  # fmt: skip
    _, fewer, unknown = document["rows"]
    assert fewer["ideal_chips"] == pytest.approx(64 * 2.235 / 6.88) and fewer["chips"] == 24
    assert "the script ran as 64 ranks, but 24 chips hold 24" in fewer["reason"]
    assert "the price of a chip of gb200-nvl72 is not known" in unknown["reason"]
    assert unknown["chips"] is None
    assert document["base"] == "trn2-ultra"


def test_a_power_of_the_chip_alone_is_marked_beside_one_of_the_server(folder):
    machines = ["trn2-ultra", "h100:nemo"]
    done = trnsim.compare(folder / "pod.trnsim", machines=machines, equal="watts")
    table, below = str(done).split("\n^ ")
    assert "h100:nemo^ " in table and "trn2-ultra^" not in table
    assert len(table.splitlines()) == 3  # nothing stands between
    said = below.splitlines()[0]
    assert "the power is of the chip alone" in said and "equal watts are too many chips" in said
    assert "--set h100:power.per_chip=...W" in said
    whole = RunOptions(overrides=("h100:power.per_chip=1.2kW",))
    given = trnsim.compare(folder / "pod.trnsim", machines=machines, equal="watts", options=whole)
    assert "^" not in str(given) and given.rows[1].chips < done.rows[1].chips
    alone = trnsim.compare(folder / "pod.trnsim", machines=["h100", "h200"])
    assert "^" not in str(alone)  # they leave out the same


def test_machines_that_were_never_calibrated_are_marked(folder):
    done = trnsim.compare(folder / "pod.trnsim", machines=["trn2-ultra:neuron", "h100:nemo"])
    assert [row.is_calibrated for row in done.rows] == [False, True]
    low, high = done.rows[0].figure("step_time_interval_s")
    assert low < done.rows[0].figure("step_time_s") < high
    said = str(done)
    assert "* trn2-ultra:neuron: never calibrated: no published step of the chip" in said
    assert "power of h100:nemo: 700 W a chip, guessed: TDP alone" in said
    assert "no stack" not in said


def test_a_script_runs_anew_on_each_machine(folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = trnsim.compare("train.py", machines=["trn2", "h100:nemo", "tpu-v6e"], chips=8,
                          equal="chips", arguments=["99"], options=QUICK)  # fmt: skip
    for row, name in zip(done.rows, ("trn2", "h100", "tpu-v6e"), strict=True):
        assert row.reason == "" and row.figure("machine") == name
        assert row.figure("chips_used") == row.figure("ranks") == 8
        assert row.in_a_step("tokens") == pytest.approx(8 * 8 * 16)
        assert row.seconds > 0
    assert [row.is_calibrated for row in done.rows] == [False, True, False]
    first, second, _ = done.rows
    change = second.figure("tokens_per_s") / first.figure("tokens_per_s") - 1
    assert done.to_dict()["rows"][1]["tokens_per_s_change"] == pytest.approx(change)
    table = comparison_table(done)
    assert [cells[0] for cells in table.rows] == ["trn2*", "h100:nemo^", "tpu-v6e*"]
    assert table.rows[1][table.header.index("vs first")] == f"{100 * change:+.1f} %"


def test_the_row_of_a_script_is_what_trnsim_run_says(folder):
    arguments = ["--check-ranks", "0", "--machine", "trn2", "--chips", "4", "train.py"]
    ran = command("run", "--json", *arguments, cwd=folder)
    rows = compare(folder, "train.py", "--machines", "trn2", "--chips", 4,
                   "--check-ranks", 0)["rows"]  # fmt: skip
    alone = json.loads(ran.stdout)
    assert {key: rows[0][key] for key in alone} == alone


def test_a_script_that_fails_on_one_machine_is_a_row_with_the_reason(folder):
    document = compare(folder, "train.py", "--machines", "trn2,h100", "--chips", 4, "--equal",
                       "peak", "--check-ranks", 0, "--", 3)  # fmt: skip
    assert document["rows"][1]["chips"] == 3  # 4 x 667 / 989 = 2.7
    assert document["rows"][1]["chips_off"] == pytest.approx(3 / (4 * 667 / 989) - 1)
    reason = document["rows"][1]["reason"]
    assert reason == "the script ended with exit code 1: ValueError: no batch for this world"
    assert document["rows"][0]["step_time_s"] > 0


def test_where_no_machine_can_nothing_is_right(folder):
    done = command("compare", "train.py", "--machines", "trn2,trn2-ultra", "--chips", 1000,
                   cwd=folder)  # fmt: skip
    assert done.returncode == 1
    assert "trn2: no run: " in done.stdout and "trn2-ultra: no run: " in done.stdout


def test_the_first_that_has_a_run_is_what_others_are_compared_with(folder):
    done = trnsim.compare(folder / "pod.trnsim", machines=["trn2", "trn2-ultra", "h100"])
    assert [done.change(row, "step_time_s") is None for row in done.rows] == [True, True, False]
    assert done.base is done.rows[1]
    assert "compared with trn2-ultra, the first that has a run" in str(done)


def test_python_refuses_what_the_command_refuses(folder):
    with pytest.raises(PlanError, match="no run file"):
        trnsim.compare([])
    with pytest.raises(PlanError, match="several runs on several machines"):
        trnsim.compare([folder / "before.trnsim", folder / "after.trnsim"], machines=["trn2"])
    with pytest.raises(PlanError, match="tokens_per_rank -1"):
        RunOptions(tokens_per_rank=-1)
