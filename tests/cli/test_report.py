# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim report`: a run file as one HTML file, or one line that says why not."""

import json

import pytest
import small_workload
from command import trnsim as command

import trnsim

pytest.importorskip("matplotlib", reason="the report needs matplotlib: trnsim[report]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with run.trnsim and its projection, of two ranks on trn2."""
    made = tmp_path_factory.mktemp("runs")
    trnsim.project(small_workload.train(world_size=2), "trn2", advise=False).write(
        made, "run", ["train.py", "--layers", "2"]
    )
    return made


def test_the_report_is_of_the_machine_that_is_asked_for(folder):
    done = command("report", "run.trnsim", "--out", "a.html", "--no-figures", "--machine", "trn1",
                   "--set", "chip.hbm.bandwidth=500GB/s", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a.html: ") and done.stdout.endswith(" MB\n")
    text = (folder / "a.html").read_text()
    assert "train.py: a training step on " in text and " of trn1</h1>" in text
    assert "Set by hand: chip.hbm.bandwidth=500GB/s." in text
    assert "train.py --layers 2" in text
    assert "trnsim report run.trnsim --out a.html --no-figures --machine trn1" in text


def test_single_figures_are_moved_unless_nobody_wants_it(folder):
    done = command("report", "run.trnsim", "--out", "b.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    text = (folder / "b.html").read_text()
    assert "with one figure at a time" in text and "Single figures were not moved" not in text


def test_faults_are_in_it(folder):
    done = command("report", "run.trnsim", "--out", "c.html", "--no-figures", "--slow-chip",
                   "1=1.5", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "engines of chip 1 take 1.5 times as long" in (folder / "c.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.trnsim", "--out", "x.html"], "missing.trnsim"),
        (["run.trnsim"], "--out"),
        (["run.trnsim", "--out", "no/x.html"], "there is no folder"),
        (["run.trnsim", "--out", "."], "it is a folder: name a file"),
        (["run.trnsim", "--out", "x.html", "--machine", "trn9"], "trn9"),
        (["run.trnsim", "--out", "x.html", "--chips", "3"], "ranks"),
        (["run.trnsim", "--out", "x.html", "--scaling", "missing.json"], "cannot read"),
        (["run.trnsim", "--out", "x.html", "--scaling", "projection.json"],
         "no document of trnsim scale: 'points' is missing"),
        (["run.trnsim", "--out", "x.html", "--comparison", "projection.json"],
         "no document of trnsim compare: 'rows' is missing"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(folder, arguments, says):
    before = sorted(path.name for path in folder.iterdir())
    done = command("report", *arguments, cwd=folder)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("trnsim: ") and len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_report_that_is_there_stays_when_the_next_one_fails(folder):
    (folder / "kept.html").write_text("the old one")
    (folder / "no.json").write_text(json.dumps({"points": 3}))
    done = command("report", "run.trnsim", "--out", "kept.html", "--scaling", "no.json", cwd=folder)
    assert done.returncode == 2 and (folder / "kept.html").read_text() == "the old one"
