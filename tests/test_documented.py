# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Every command that the README shows runs, at its smallest size."""

import functools
import json
import tempfile

import pytest
from command import ROOT, interpreter, trnsim

SMALL_GPT = ["--layers", "2", "--width", "128", "--context", "64", "--batch", "2", "--steps", "3"]
SMALL_RESNET = ["--depth", "18", "--size", "64", "--batch", "2", "--steps", "3"]
EXAMPLES = {
    "train_gpt.py": SMALL_GPT,
    "train_gpt_ddp.py": SMALL_GPT,
    "train_llama_fsdp2.py": [*SMALL_GPT, "--tp", "2"],
    "train_resnet.py": SMALL_RESNET,
}


def run(folder, *command):
    """Runs `trnsim COMMAND` in the folder, which ends well, and returns stdout."""
    done = trnsim(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def document_of(example, mode):
    """What `trnsim run --json` says of the small example on two chips."""
    with tempfile.TemporaryDirectory() as folder:
        printed = run(folder, "run", "--json", "--mode", mode, "--chips", 2,
                      ROOT / "examples" / example, *EXAMPLES[example])  # fmt: skip
    return json.loads(printed)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the outputs of the small DDP example: a run file, a trace."""
    folder = tmp_path_factory.mktemp("documented")
    script = ROOT / "examples" / "train_gpt_ddp.py"
    run(folder, "run", "--machine", "trn2-ultra", "--chips", 64, "--out", "out", script,
        *SMALL_GPT)  # fmt: skip
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_each_example_runs_in_both_modes(example, mode):
    document = document_of(example, mode)
    assert document["step_time_s"] > 0
    assert document["chips_used"] == (2 if "ddp" in example or "fsdp2" in example else 1)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_gives_one_workload_in_both_modes(example):
    phantom, compute = (document_of(example, mode) for mode in ("phantom", "compute"))
    assert phantom["workload_hash"] == compute["workload_hash"]


@pytest.mark.parametrize("example", ["train_gpt.py", "train_resnet.py"])
def test_each_example_runs_on_the_cpu_too(tmp_path, example):
    script = ROOT / "examples" / example
    done = interpreter(script, "--device", "cpu", *EXAMPLES[example], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout


def test_a_script_that_is_not_distributed_uses_one_chip(tmp_path):
    script = ROOT / "examples" / "train_gpt.py"
    said = run(tmp_path, "run", "--machine", "trn2-ultra", "--chips", 64, script, *SMALL_GPT)
    assert "1 of 64 chips used: the script is not distributed" in said


def test_a_run_file_is_projected_again(runs):
    run_file = "out/train_gpt_ddp.trnsim"
    twice = json.loads(
        run(runs, "project", run_file, "--machine", "trn2-ultra", "--chips", 64, "--json",
            "--set", "chip.hbm.bandwidth=5.8TB/s")
    )  # fmt: skip
    once = json.loads(run(runs, "project", run_file, "--machine", "trn2-ultra", "--json"))
    assert twice["step_time_s"] <= once["step_time_s"]
    assert twice["machine_hash"] != once["machine_hash"]
    assert twice["overrides"] == ["chip.hbm.bandwidth=5.8TB/s"] and not once["overrides"]


def test_two_runs_are_compared(runs):
    run_file = "out/train_gpt_ddp.trnsim"
    assert "equal" in run(runs, "diff", run_file, run_file)


def test_two_runs_stand_beside_each_other(runs):
    run_file = "out/train_gpt_ddp.trnsim"
    assert "step time" in run(runs, "compare", run_file, run_file, "--fail-over", "2%")


def test_a_script_is_compared_on_machines_of_equal_dollars(tmp_path):
    script = ROOT / "examples" / "train_gpt_ddp.py"
    document = json.loads(
        run(tmp_path, "compare", "--json", script, "--machines", "trn2-ultra,h100:nemo", "--chips",
            3, "--equal", "dollars", "--check-ranks", 0, "--", *SMALL_GPT)
    )  # fmt: skip
    assert [row["chips"] for row in document["rows"]] == [3, 1]  # 3 x 2.235 / 6.88 = 0.97
    assert all(row["step_time_s"] > 0 for row in document["rows"])


def test_a_script_is_scaled(tmp_path):
    script = ROOT / "examples" / "train_gpt_ddp.py"
    ask = ["scale", script, "--machine", "rainier", "--chips", "2..4", "--check-ranks", 0, "--out",
           "curve", "--strong", 8, "--", *SMALL_GPT, "--batch", "{share}"]  # fmt: skip
    assert "what stops the scaling" in run(tmp_path, *ask)
    assert run(tmp_path, *ask).count("(kept)") == 2


def test_a_model_is_scaled_and_compared_by_its_name(tmp_path):
    ask = ["--sequence", 1024, "--pp", 1, "--cp", 1, "--zero", 1, "--micro-batch", 1,
           "--recompute", "none"]  # fmt: skip
    said = run(tmp_path, "scale", "llama3-8b", "--machine", "rainier", "--chips", "8..16", "--tp",
               8, *ask)  # fmt: skip
    assert "tp8 dp2" in said and "what stops the scaling" in said
    said = run(tmp_path, "compare", "llama3-8b", "--machines", "trn2-ultra,h100:nemo", "--chips",
               8, "--global-batch", 8, "--tp", "1,8", *ask)  # fmt: skip
    assert "layout chosen by search" in said and "8 sequences on every machine" in said


def test_a_long_run_has_a_goodput(runs):
    run_file = "out/train_gpt_ddp.trnsim"
    said = run(runs, "goodput", run_file, "--tokens", "15.6T")
    assert "kept work (goodput)" in said and "15.6 T" in said
    ask = ["--machine", "rainier", "--tokens", "15.6T", "--store-gb-per-s", 2000, "--spares", 8,
           "--repair-hours", 24]  # fmt: skip
    assert "waiting for repairs" in run(runs, "goodput", run_file, *ask)


def test_layouts_are_searched(tmp_path):
    ask = ["search", "llama3-8b", "--machine", "rainier", "--chips", 16, "--global-batch", 16,
           "--tp", "4,8", "--pp", 1, "--cp", 1, "--zero", 1, "--micro-batch", 1, "--intervals", 1,
           "--save", "best.trnsim"]  # fmt: skip
    assert "layouts that the rules allow" in run(tmp_path, *ask)
    assert "step time" in run(tmp_path, "compare", "best.trnsim", "best.trnsim")


def test_a_step_is_disturbed(runs):
    run_file = "out/train_gpt_ddp.trnsim"
    printed = run(
        runs, "disturb", run_file, "--with", "jitter:sigma=0.01", "--with",
        "straggler:chips=2,factor=1.1", "--with", "slow-link:share=0.5", "--seeds", 10,
    )  # fmt: skip
    assert "undisturbed: " in printed and "+p99" in printed


def test_a_dead_chip_is_replaced_or_the_job_shrinks(tmp_path):
    script = ROOT / "examples" / "train_gpt_ddp.py"
    for chips, folder in ((192, "big"), (128, "smaller")):
        run(tmp_path, "run", "--machine", "rainier", "--chips", chips, "--check-ranks", 0, "--out",
            folder, script, *SMALL_GPT)  # fmt: skip
    ask = ["disturb", "big/train_gpt_ddp.trnsim", "--with", "dead-chip", "--with",
           "dead-switch:tier=leaf", "--seeds", 3]  # fmt: skip
    spared = run(tmp_path, *ask, "--spares", 1)
    shrunk = run(tmp_path, *ask, "--smaller", "smaller/train_gpt_ddp.trnsim")
    assert "a smaller batch: " in shrunk and "a smaller batch: " not in spared
    assert "stop, such as" in run(tmp_path, *ask)


def test_a_run_is_reported_with_its_curve_and_comparison(runs):
    pytest.importorskip("matplotlib", reason="the report needs matplotlib: trnsim[report]")
    run_file, script = "out/train_gpt_ddp.trnsim", ROOT / "examples" / "train_gpt_ddp.py"
    printed = run(runs, "compare", "--json", run_file, run_file)
    (runs / "comparison.json").write_text(printed)
    run(runs, "scale", script, "--machine", "trn2", "--chips", "1..2", "--check-ranks", 0, "--out",
        "curve", "--", *SMALL_GPT)  # fmt: skip
    said = run(runs, "report", run_file, "--out", "report.html", "--scaling", "curve/scaling.json",
               "--comparison", "comparison.json", "--no-figures")  # fmt: skip
    assert said.startswith("report.html: ")
    text = (runs / "report.html").read_text()
    assert 'id="scaling"' in text and 'id="comparison"' in text


def test_a_collective_is_simulated_alone(tmp_path):
    printed = run(tmp_path, "collective", "all_reduce", "--machine", "trn2-ultra", "--ranks", 64,
                  "-b", "1M", "-e", "1G", "-f", 4)  # fmt: skip
    assert len(printed.splitlines()) == 2 + 6 + 3 and "busbw(GB/s)" in printed


@pytest.mark.parametrize("machine", ["trn2", "trn2-ultra", "h100"])
def test_a_machine_is_printed_with_sources(tmp_path, machine):
    printed = run(tmp_path, "info", machine)
    assert "published" in printed and "source" in printed
    (tmp_path / "mine.toml").write_text(run(tmp_path, "info", machine, "--toml"))
    assert "chip.hbm.bandwidth" in run(tmp_path, "info", "mine.toml")


def test_the_readme_s_own_machine_loads(tmp_path):
    text = (ROOT / "README.md").read_text()
    block = text.split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(block)
    assert "vendor's letter" in run(tmp_path, "info", "mine.toml")


def test_data_changes_assumptions_and_what_a_switch_takes_out(runs, tmp_path):
    assert "first figures" in run(tmp_path, "info", "trn2", "--changes")
    run(tmp_path, "info", "trn2", "--assumptions", "sign.csv")
    assert "signed off by" in (tmp_path / "sign.csv").read_text().splitlines()[0]
    asked = ["--set", "site.pue=1.2", "--set", "site.grid_intensity=0.35kg/kWh"]
    printed = run(runs, "project", "out/train_gpt_ddp.trnsim", "--assumptions", "sign.md", *asked)
    assert "of the site by its PUE" in printed and "CO2" in printed
    assert "set by hand" in (runs / "sign.md").read_text()
    boxes = run(tmp_path, "info", "rainier", "--blast-radius", 16384, "--box", 1, "--box", 16)
    assert [line.split()[0] for line in boxes.splitlines()[1:7]] == ["tor", "leaf", "spine"] * 2
    told = run(tmp_path, "collective", "all_reduce", "--machine", "rainier", "--ranks", 128, "-b",
               "1M", "-e", "1M", "--set", "fabric.transport.kind=srd")  # fmt: skip
    assert "all_reduce" in told


def test_the_doctor_finds_nothing_wrong(tmp_path):
    run(tmp_path, "doctor")
