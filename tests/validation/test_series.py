# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Series of one configuration at several sizes, and efficiencies by hand."""

import dataclasses

import pytest

from trnsim.validation import Outcome, scaled, scaling_page, series_of
from trnsim.validation.rows import Row
from trnsim.validation.series import summary_line, summary_of

BLANK = (
    "notes", "derived_step_time_s", "global_batch_tokens", "FSDP_ZeRO", "VP", "EP", "DP",
    "recompute", "model_tflops_per_chip", "grad_accum", "experts", "source_version", "layers",
    "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "topk",
)  # fmt: skip
LLAMA = {
    **dict.fromkeys(BLANK, ""),
    "kind": "train", "system": "H100", "framework": "NeMo", "model": "Llama3-8B", "seq": "8192",
    "mbs": "1", "TP": "1", "PP": "1", "CP": "2", "precision": "bf16",
}  # fmt: skip


def row(name, chips, batch, seconds, **more):
    return Row({
        **LLAMA, "id": name, "chips": str(chips), "global_batch_seqs": str(batch),
        "step_time_s": str(seconds), **more,
    })  # fmt: skip


def outcome(name, predicted):
    return Outcome(name, "H100", "train", "c", "f", "", "step_time", "s", 1.0, predicted)


ROWS = [
    row("large", 128, 2048, 12.5),
    row("small", 8, 128, 10.0),
    row("middle", 32, 512, 10.4),
    row("twin", 32, 512, 10.5),
    row("more work", 64, 2048, 20.0),
    row("other layout", 16, 256, 9.0, TP="2"),
    row("other precision", 16, 256, 7.0, precision="fp8"),
]


def test_a_series_is_one_configuration_with_the_same_work_a_chip():
    (series,) = series_of(ROWS)
    assert [each.id for each in series] == ["small", "middle", "twin", "large"]
    assert series_of(ROWS[:1]) == [] and series_of(ROWS[2:4]) == []


def test_efficiencies_by_hand():
    points = scaled(ROWS, [outcome("small", 9.0), outcome("middle", 9.2), outcome("large", 12.0)])
    found = {point.id: point for point in points}
    assert list(found) == ["middle", "twin", "large"]
    assert found["middle"].published == pytest.approx(10.0 / 10.4)
    assert found["middle"].predicted == pytest.approx(9.0 / 9.2)
    assert found["middle"].residual == pytest.approx(9.0 / 9.2 * 10.4 / 10.0 - 1)
    assert found["twin"].predicted is None and found["twin"].residual is None
    assert (found["large"].base_chips, found["large"].chips) == (8, 128)
    summary = summary_of(points)
    off = sorted(abs(found[name].residual) for name in ("middle", "large"))
    assert summary["n"] == 2
    assert summary["median"] == pytest.approx(sum(off) / 2)
    assert summary["p90"] == pytest.approx(off[1])
    assert summary["lossless_p90"] == pytest.approx(0.25)


def test_the_page_has_every_row_and_what_saying_nothing_would_give():
    points = scaled(ROWS, [outcome("small", 9.0), outcome("middle", 9.2)])
    page = scaling_page(points, "trnsim validate CSV --scaling --page scaling.md")
    assert "8 to 32" in page and "96.2 %" in page and "97.8 %" in page and "+1.7 %" in page
    assert "1 efficiencies: half within 1.7 %" in page and "is within 4.0 %" in page
    none = [dataclasses.replace(point, predicted=None) for point in points]
    assert summary_line(none).startswith("no series") and summary_of(none)["n"] == 0
