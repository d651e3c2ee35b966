# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a projection looks like to people and to programs."""

import copy
import io
import json
import math
import re

import pytest
import small_workload
from rich.console import Console

import trnsim
from trnsim.report import render_terminal, to_json, to_text
from trnsim.report.json import PROMISED
from trnsim.report.terminal import _bar

ESCAPE = re.compile("\x1b")


def numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from numbers(entry)
    elif isinstance(value, float):
        yield value


def test_every_promised_key_is_there_and_plain(four_chips):
    document = json.loads(json.dumps(to_json(four_chips), allow_nan=False))
    assert [key for key in PROMISED if key not in document] == []
    assert all(math.isfinite(number) for number in numbers(document))
    assert document["chips"] == document["chips_used"] == document["ranks"] == 4
    low, high = document["step_time_interval_s"]
    assert low <= document["step_time_s"] <= high
    assert document["interval_basis"] == "inputs (unvalidated)"
    for key in ("timeline_hash", "workload_hash"):
        assert re.fullmatch("[0-9a-f]{16}", document[key])
    assert document["version"] == trnsim.__version__
    assert document["seed"] == 7
    peak = document["memory_peak_bytes"]
    assert document["roles"] == [
        {"name": "rank0", "ranks": 4, "which_ranks": "0..3", "memory_peak_bytes": peak}
    ]


def test_the_breakdown_of_the_document_sums_exactly_in_picoseconds(four_chips):
    document = to_json(four_chips)
    assert sum(document["breakdown_ps"].values()) == document["step_time_ps"]
    assert sum(document["breakdown_s"].values()) == pytest.approx(document["step_time_s"], 1e-12)
    assert set(document["breakdown_s"]) == {
        "compute", "exposed_communication", "bubble", "host", "stall",
    }  # fmt: skip


def test_what_is_unknown_is_null_with_a_reason():
    # a step without a matrix multiplication has no MFU
    script = small_workload.Script()
    a = script.storage(4096)
    script.op("aten::relu(self: float32[1024]) -> (out0: float32[1024])", [a], [a], 0)
    document = to_json(trnsim.project(script.workload(), "trn2", advise=False))
    assert document["mfu"] is None
    assert document["tokens_per_s"] is None
    named = {guess["name"] for guess in document["guesses"]}
    assert {"mfu", "tokens_per_s", "samples_per_s"} <= named


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_the_text_in_a_pipe_is_plain_and_fits(four_chips, columns):
    text = to_text(four_chips, columns)
    assert not ESCAPE.search(text)
    assert max(map(len, text.splitlines())) <= max(columns, 120)
    for word in ("step time", "limited by", "MFU", "peak memory", "fits", "tokens/s", "cost"):
        assert word in text
    assert four_chips.figures.timeline_hash in text
    assert "What is not modelled" in text
    assert not re.search("[━─│]", text)


def test_a_terminal_of_eighty_columns_shows_colours_within_them(four_chips):
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, color_system="standard", width=80)
    render_terminal(four_chips, console)
    text = buffer.getvalue()
    assert ESCAPE.search(text)
    plain = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 80


@pytest.mark.parametrize(
    ("share", "cells"), [(0.0, 0), (0.001, 0), (0.02, 0), (0.5 / 24, 1), (0.5, 12), (1.0, 24)]
)
def test_a_bar_begins_at_half_a_cell(share, cells):
    assert _bar(Console(file=io.StringIO()), share, "green").plain == "#" * cells


def test_no_color_is_respected(four_chips, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    buffer = io.StringIO()
    render_terminal(four_chips, Console(file=buffer, force_terminal=True, width=80))
    assert not re.search("\x1b\\[[0-9;]*3[0-7]m", buffer.getvalue())


def test_brackets_in_names_are_not_markup(four_chips):
    script = small_workload.Script()
    a = script.storage(4096)
    script.op("aten::relu(self: float32[1024]) -> (out0: float32[1024])", [a], [a], 0, "[red]x[/]")
    text = to_text(trnsim.project(script.workload(), "trn2", advise=False))
    assert "[red]x[/]" in text


def test_a_notebook_shows_a_table_and_a_bar(four_chips):
    html = four_chips._repr_html_()
    assert "<table>" in html
    assert "<script" not in html
    widths = [float(width) for width in re.findall(r"width:([0-9.]+)%", html)]
    assert sum(widths) == pytest.approx(100, abs=0.01)
    assert "step time" in html


def test_a_projection_prints_itself(four_chips):
    assert str(four_chips) == to_text(four_chips)
    assert repr(four_chips).startswith("<Projection trn2: step ")
    assert copy.copy(four_chips).step_time_s == four_chips.step_time_s


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_no_name_breaks_in_the_middle_of_a_word(columns):
    name = "_scaled_dot_product_fused_attention_overrideable_backward_of_a_very_long_name"
    script = small_workload.Script()
    a = script.storage(4096)
    script.op(f"aten::{name}(self: float32[1024]) -> (out0: float32[1024])", [a], [a], 0, "layer")
    text = to_text(trnsim.project(script.workload(), "trn2", advise=False), columns)
    (start,) = [line.split("  ")[-1] for line in text.splitlines() if "_scaled_dot" in line][:1]
    assert name.startswith(start.rstrip("…")) and (start == name or start.endswith("…"))
    assert re.search("^ +layer", text, re.MULTILINE)  # what follows is on the next line


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::mm", "mm"),
        ("aten::mm + aten::gelu + aten::add.Tensor", "mm + gelu + add.Tensor"),
        ("aten::a + aten::b + aten::c + aten::d", "a + b + 2 more"),
        ("aten::a + aten::b + aten::c + aten::d + 3 more", "a + b + 5 more"),
    ],
)
def test_long_names_of_fused_ops_are_cut(name, short):
    from trnsim.report.terminal import _short

    assert _short(name) == short
