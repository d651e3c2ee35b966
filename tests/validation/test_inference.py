# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Rows of inference: two figures each, ranks on chips, and constants that a fit finds again."""

from __future__ import annotations

import math

import pytest

from trnsim import machine as machines
from trnsim.validation import Settings, figures, summary
from trnsim.validation.fit_inference import CONSTANTS, fit_inference
from trnsim.validation.inference import (
    FIRST,
    LATER,
    captured_steps,
    figures_of,
    ranks_per_chip_of,
)
from trnsim.validation.predict import Skipped, machine_of, predict
from trnsim.validation.rows import Row

ROW = {
    "id": "A", "kind": "infer", "system": "Trn1", "chips": "16", "framework":
    "Transformers NeuronX", "model": "Llama3-8B", "layers": "4", "seq": "2048", "TP": "32",
    "precision": "FP16", "batch": "1", "in_len": "1024", "out_len": "1024", "ttft_ms": "30",
    "tpot_ms": "2", "notes": "weights stored bf16",
}  # fmt: skip
TRN2 = {"system": "Trn2", "framework": "NxD Inference", "chips": "1", "TP": "4"}


def row(**changes) -> Row:
    return Row({**ROW, **changes})


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(captures=tmp_path)


def test_a_row_has_an_outcome_for_each_of_its_figures(settings):
    outcome = predict(row(), settings)
    assert not outcome.skipped and outcome.stack == "neuronx"
    assert (outcome.quantity, outcome.published) == (LATER, 2.0)
    (first,) = outcome.also
    assert (first.quantity, first.published, first.id) == (FIRST, 30.0, "A")
    assert outcome.predicted < first.predicted, "one token against 1024"
    assert outcome.low < outcome.predicted < outcome.high
    spread = [math.log(each.high / each.predicted) for each in (outcome, first)]
    known = machines.fitted_constants()["inference"]
    assert spread[0] == pytest.approx(float(known["sheet"]["neuronx"]["stack"]["error"]["value"]))
    assert spread[1] == pytest.approx(float(known["prefill"]["neuronx"]["error"]["value"]))

    document = outcome.to_dict()
    assert document["quantity"] == LATER and document["also"][0]["quantity"] == FIRST
    assert [each.quantity for each in figures([outcome])] == [LATER, FIRST]
    found = summary([outcome])
    assert found["by_quantity"][FIRST]["n"] == found["by_quantity"][LATER]["n"] == 1


def test_a_row_with_one_figure_has_no_other():
    assert [each.name for each in row(tpot_ms="").quantities] == [FIRST]
    assert predict(row(ttft_ms="", tpot_ms=""), Settings()).skipped
    skipped = predict(row(notes="throughput mode"), Settings())
    assert "throughput mode" in skipped.skipped and skipped.also[0].skipped == skipped.skipped


def test_ranks_share_chips_as_the_row_says(settings):
    for changes, expected in (
        ({}, 2), (TRN2, 4), ({**TRN2, "chips": ""}, 4), ({**TRN2, "TP": "8"}, 8)
    ):  # fmt: skip
        of = row(**changes)
        machine = machine_of(of, settings)
        assert ranks_per_chip_of(of, captured_steps(of, settings), machine) == expected
    of = row(chips="8")
    with pytest.raises(Skipped, match="32 ranks on 8 chips"):
        ranks_per_chip_of(of, captured_steps(of, settings), machine_of(of, settings))


def test_facts_alone_have_no_fitted_figure():
    load = machines.load
    fitted = {f.key: f.value for f in load("trn1", (), "neuronx").figures}
    facts = {f.key: f.value for f in load("trn1", (), "neuronx", constants={}).figures}
    training = {f.key: f.value for f in load("trn1", (), "neuron").figures}
    assert float(fitted["collectives.base_latency"]) > 0
    assert facts["collectives.base_latency"] == training["collectives.base_latency"] == "0"
    assert "stack.link_factor" not in facts
    assert fitted["stack.link_factor"] != training["stack.link_factor"]


def test_a_fit_finds_the_constants_that_made_the_figures(settings, tmp_path):
    truth = {"collectives.base_latency": 45.0, "stack.link_factor": 0.3}
    made = []
    for name, prompt, batch in (("Llama3-8B", 512, 1), ("Llama2-7B", 1024, 2)):
        of = row(model=name, in_len=str(prompt), batch=str(batch), id=name)
        changes = tuple(
            f"{c.key}={truth[c.key]}" + c.unit.removeprefix("1")
            for c in CONSTANTS if c.key in truth
        )  # fmt: skip
        found = figures_of(of, Settings(settings.captures, overrides=changes))
        columns = {**of.columns, "tpot_ms": f"{found[LATER]:.6f}", "ttft_ms": f"{found[FIRST]:.6f}"}
        made.append(Row(columns))
    found = fit_inference(made, settings)
    for constant, value in zip(CONSTANTS, found.values, strict=True):
        if constant.key in truth:
            assert value == pytest.approx(truth[constant.key], rel=0.1), constant.key
        else:
            assert value == pytest.approx(constant.start), "no row moves it"
    assert max(abs(error) for _, _, error, _ in found.errors) < 0.05
    found.write(tmp_path / "inference.toml")
    text = (tmp_path / "inference.toml").read_text()
    assert '[sheet."neuronx".stack]\nlink_factor = { value = 0.' in text
    assert len(found.held_out) == 4 and found.error_of("neuronx", LATER)[1] == 2
