# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Wrong requests: one line that begins `trnsim: `, exit code 2, and nothing written."""

import sys
from pathlib import Path

import pytest
from command import python, trnsim

from trnsim.workload import save
from trnsim.workload.files import load

SCRIPT = "print('the script ran')\n"


def refused(done):
    """The one line of a request that was refused before anything ran."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("trnsim: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--machine", "trn2-ulta"], "did you mean trn2-ultra"),
        (["--machine", "absent.toml"], "does not exist"),
        (["--chips", "0"], "0 chips"),
        (["--chips", "-4"], "chips -4 is negative: use at least 1"),
        (["--ranks", "0"], "0 ranks"),
        (["--ranks-per-chip", "3"], "3 ranks per chip"),
        (["--machine", "trn2-ultra", "--chips", "63"], "use 48 or 64"),
        (["--chips", "17"], "16"),
        (["--machine", "h100", "--chips", "9"], "8"),
        (["--chips", "4", "--ranks", "5"], "contradict"),
        (["--chips", "4", "--ranks", "4", "--ranks-per-chip", "4"], "contradict"),
        (["--chips", "many"], "'--chips'"),
        (["--mode", "fast"], "'--mode'"),
        (["--chps", "4"], "--chips"),
        (["--step", "-1"], "'--step'"),
        (["--top", "-1"], "'--top'"),
        (["--tokens-per-step", "-1"], "'--tokens-per-step'"),
        (["--samples-per-step", "0"], "'--samples-per-step'"),
        (["--set", "chip.hbm.bandwith=3"], "did you mean chip.hbm.bandwidth"),
        (["--set", "nonsense"], "nonsense"),
        (["--slow-chip", "0=nan"], "'0=nan' is no slow chip"),
        (["--slow-chip", "5=1.2"], "chips 0 to 0"),
        (["--chips", "4", "--fault", "x+ 0>9=0"], "x+ 0>9"),
        (["--fault", "foo"], "'foo' is no fault"),
        (["--set", "chip.hbm.bandwidth=3"], "write chip.hbm.bandwidth=3TB/s if TB/s is meant"),
    ],
)
def test_a_wrong_option_is_one_line_and_the_script_does_not_run(script, options, words):
    assert words in refused(trnsim("run", *options, "--out", script.parent / "out", script))
    assert not (script.parent / "out").exists()


def test_a_script_that_does_not_exist_is_named(tmp_path):
    assert "no script 'absent.py'" in refused(trnsim("run", "absent.py", cwd=tmp_path))
    assert "no module 'absent.train'" in refused(trnsim("run", "-m", "absent.train", cwd=tmp_path))
    assert "'SCRIPT'" in refused(trnsim("run"))


def test_a_broken_machine_file_is_named_with_its_line(script):
    broken = script.parent / "mine.toml"
    broken.write_text('extends = "trn2"\n[chip.hbm\n')
    assert "line 2" in refused(trnsim("run", "--machine", broken, script))
    assert "line 2" in refused(trnsim("info", broken))


def test_out_must_be_able_to_become_a_folder(script):
    line = refused(trnsim("run", "--out", script / "below", script))
    assert "is not a folder" in line


def test_a_run_of_more_ranks_than_the_machine_has_chips_is_one_line(tmp_path):
    path = tmp_path / "four.py"
    path.write_text(
        "import torch\ntorch.distributed.init_process_group()\n"
        "torch.distributed.all_reduce(torch.ones(4, device='trn'))\n"
    )
    ran = trnsim("run", "--chips", 4, "--out", tmp_path / "out", path)
    assert ran.returncode == 0, ran.stderr
    run_file = tmp_path / "out" / "four.trnsim"
    line = refused(trnsim("project", run_file, "--machine", "trn2", "--chips", 2))
    assert "the script ran as 4 ranks, but 2 chips hold 2" in line
    line = refused(trnsim("project", run_file, "--machine", "rainier", "--chips", 400_001))
    assert "rainier has 400000 of them" in line


def test_an_unknown_verb_is_one_line():
    assert "'rnu'" in refused(trnsim("rnu"))


def test_help_is_quick_to_import():
    """Nothing heavy is imported for it: that, and not a time, is what keeps it quick."""
    code = (
        "import sys; sys.argv = ['trnsim', '--help']\n"
        "from trnsim.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pyarrow', 'rich', 'trnsim._core'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in ("run", "project", "info", "diff", "doctor"))


def test_the_package_alone_imports_nothing_heavy_and_its_names_resolve():
    code = (
        "import sys, trnsim\n"
        "heavy = {'torch', 'numpy', 'pyarrow', 'rich', 'trnsim._core'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert trnsim.Workload.__name__ == 'Workload' and 'simulate' in dir(trnsim)\n"
        "assert callable(trnsim.load) and callable(trnsim.simulate)\n"
        "try: trnsim.absent\n"
        "except AttributeError as error: assert 'absent' in str(error)\n"
        "else: raise AssertionError"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_info_prints_every_figure_with_its_source():
    import json

    from trnsim import machine

    figures = machine.figures(machine.load("trn2"))
    plain = trnsim("info", "trn2").stdout
    document = json.loads(trnsim("info", "trn2", "--json").stdout)
    assert len(document["figures"]) == len(figures) > 20
    for row in figures:
        assert row["figure"] in plain and row["source"] in plain
        assert document["figures"][row["figure"]]["confidence"] == row["confidence"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["trn2", "--toml", "--changes"], "--toml and --changes are answers of their own"),
        (["rainier", "--box", "1"], "--box is of --blast-radius"),
        (["--assumptions", "sign.csv"], "--assumptions is of one machine"),
        (["rainier", "--blast-radius", str(10**20)], "use at most 2147483647"),
    ],
)
def test_info_leaves_no_option_out(asked, words):
    assert words in refused(trnsim("info", *asked))


def test_info_as_a_file_reads_back_to_the_same_machine(tmp_path):
    from trnsim import machine

    (tmp_path / "mine.toml").write_text(trnsim("info", "trn2-ultra", "--toml").stdout)
    assert machine.load(tmp_path / "mine.toml").hash == machine.load("trn2-ultra").hash


def test_diff_says_equal_or_names_the_record(tmp_path):
    sys.path.insert(0, str(Path(__file__).parent.parent / "workload"))
    from test_files import small

    workload = small()
    save(workload, tmp_path / "a")
    workload.mode, workload.seed = "compute", 8  # no part of what was asked of the device
    save(workload, tmp_path / "b")
    workload.world_size = 4
    save(workload, tmp_path / "c")
    same, other = (
        trnsim("diff", tmp_path / "a", tmp_path / "b"),
        trnsim("diff", tmp_path / "a", tmp_path / "c"),
    )
    assert same.returncode == 0 and load(tmp_path / "a").hash in same.stdout
    assert other.returncode == 1 and other.stdout == "world_size: a has 1, b has 4\n"
    assert "is not a run file" in refused(trnsim("diff", tmp_path / "a", __file__))
    assert "no file" in refused(trnsim("diff", tmp_path / "a", tmp_path / "absent"))
    assert "'--limit'" in refused(trnsim("diff", "--limit", 0, tmp_path / "a", tmp_path / "c"))
