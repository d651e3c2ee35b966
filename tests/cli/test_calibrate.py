# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim calibrate`: the sheet that it writes gives the step that was measured."""

from __future__ import annotations

import json
import math

import pytest
from command import PRODUCT, trnsim

import trnsim as package
from trnsim.validation import calibrate, own_error


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(PRODUCT)
    done = trnsim(
        "run", "--machine", "h100", "--stack", "megatron", "--out", str(folder),
        str(folder / "train.py"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "train.trnsim"


def test_the_sheet_gives_the_step_that_was_measured(run, tmp_path):
    before = package.project(run).step_time_s
    sheet = tmp_path / "mine.toml"
    done = trnsim(
        "calibrate", str(run), "--measured", f"{1200 * before:.6f}ms", "--out", str(sheet), "--json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["constant"], said["chip"], said["stack"]) == (
        "gemm_factor",
        "H100 SXM",
        "megatron",
    )
    assert said["value"] < said["before"]
    after = package.project(run, stack=str(sheet)).step_time_s
    assert after == pytest.approx(1.2 * before, rel=1e-4)
    assert package.project(run, "a100", stack=str(sheet)).step_time_s == pytest.approx(
        package.project(run, "a100", stack="megatron").step_time_s
    )


def test_the_constant_can_be_chosen_and_must_matter(run):
    before = package.project(run).step_time_s
    done = calibrate(run, 1.1 * before, constant="gemm_factor")
    assert done.constant == "gemm_factor"
    assert done.step_time_s == pytest.approx(1.1 * before, rel=1e-4)
    assert 'extends = "megatron"' in done.sheet()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--measured", "soon"), "--measured 'soon' is no time: write it as 1.23s, 340ms or 80us"),
        (("--measured", "0s"), "a measured step of 0.0 s: give a positive time"),
        (("--measured", "1h"), "--measured '1h' is no time"),
        (("--measured", "1000s"), "no gemm_factor between 0.0625 and 4 gives a step of 1000 s"),
        (("--measured", "1s", "--constant", "attention_factor"), "does not depend on attention"),
        (("--measured", "1s", "--constant", "luck"), "no constant 'luck': use one of gemm_factor"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_writes_nothing(run, tmp_path, arguments, said):
    sheet = tmp_path / "mine.toml"
    done = trnsim("calibrate", str(run), "--out", str(sheet), *arguments)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_none_is_refused(run, tmp_path):
    for out, said in (("mine.txt", "ends in .toml"), ("none/mine.toml", "there is no folder")):
        done = trnsim("calibrate", str(run), "--measured", "1s", "--out", str(tmp_path / out))
        assert done.returncode == 2 and said in done.stderr


def test_our_own_error_on_published_steps_is_in_the_interval(run):
    known = package.project(run)
    assert known.figures.interval_basis == "inputs+validated"
    error = own_error(known.machine)
    low, high = known.step_time_interval_s
    assert high >= known.step_time_s * math.exp(error)
    assert low <= known.step_time_s / math.exp(error) * (1 + 1e-9)
    unknown = package.project(run, "trn2", stack="neuron")
    assert unknown.figures.interval_basis == "inputs (unvalidated)"
    assert any("no published step of Trainium2" in str(guess) for guess in unknown.figures.guesses)
    width = own_error(unknown.machine)
    assert width > error
    assert unknown.step_time_interval_s[1] >= unknown.step_time_s * math.exp(width)
    bare = package.project(run, "h100")
    assert own_error(bare.machine) is None
    assert bare.figures.interval_basis == "inputs (unvalidated)"
