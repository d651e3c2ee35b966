# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Statistics of outcomes, by hand, and rows of a table."""

from __future__ import annotations

import pytest

from trnsim.errors import ValidationError
from trnsim.validation import Outcome, accuracy_page, read, statistics, summary
from trnsim.validation.rows import Row

HEADER = (
    "id,kind,system,framework,model,chips,step_time_s,derived_step_time_s,op,time_us,busbw_GBps,"
    "experts,precision"
)


def outcome(name: str, published: float, predicted: float | None, **more: object) -> Outcome:
    values = {
        "system": "S", "kind": "train", "case": "c", "family": "f", "stack": "", "quantity": "q",
        "unit": "s", "low": None, "high": None,
    } | more  # fmt: skip
    return Outcome(id=name, published=published, predicted=predicted, **values)


def test_statistics_by_hand() -> None:
    found = statistics(
        [
            outcome("a", 1.0, 1.1, low=0.9, high=1.2),
            outcome("b", 2.0, 1.8, low=1.7, high=1.9),
            outcome("c", 4.0, 4.0),
            outcome("d", 1.0, None, skipped="why"),
        ]
    )
    assert found.n == 3
    assert found.median == pytest.approx(0.1)
    assert found.p90 == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.0)
    assert found.coverage == pytest.approx(0.5)


def test_a_family_counts_once_in_families() -> None:
    many = [outcome(str(i), 1.0, 1.5, family="large") for i in range(9)]
    found = summary([*many, outcome("x", 1.0, 1.1, family="small")])
    assert found["overall"]["n"] == 10
    assert found["families"]["n"] == 2
    assert found["families"]["median"] == pytest.approx(0.3)
    assert found["by_family"]["small"]["median"] == pytest.approx(0.1)


def test_nothing_predicted_has_no_statistics() -> None:
    assert statistics([outcome("a", 1.0, None)]).median is None
    assert summary([outcome("a", 1.0, None)])["by_class"] == {}


def test_skipped_rows_stay_in_the_document() -> None:
    document = outcome("a", 1.0, None, skipped="dimensions unknown").to_dict()
    assert document["skipped"] == "dimensions unknown"
    assert document["class"] == "c"
    assert document["error"] is None and document["covered"] is None
    assert outcome("a", 1.0, 1.0).to_dict()["skipped"] is None


def write(path, *lines: str):
    path.write_text("\n".join((HEADER, *lines)) + "\n")
    return path


def test_rows_of_a_table(tmp_path) -> None:
    rows = read(
        write(
            tmp_path / "t.csv",
            "A,train,H100,NeMo 24.09,llama,8,,1.5,,,,,fp8",
            "B,train,TPU v5e,MaxText,llama,256,2.5,9,,,,,bf16",
            "C,train,GB200,Megatron-Bridge,qwen,64,3,,,,,128,bf16",
            "D,collective,H100,,,8,,,all_reduce,,400,,",
        )
    )
    assert [row.case for row in rows] == ["gpu_dense_fp8", "tpu_dense", "gpu_moe", "collective"]
    assert [row.published.value for row in rows] == [1.5, 2.5, 3, 400]
    assert [row.published.unit for row in rows] == ["s", "s", "s", "GB/s"]
    assert [row.about.stack for row in rows] == ["nemo-26.04", "maxtext", "nemo-26.04", ""]
    assert rows[0].family == "H100/NeMo/llama"


@pytest.mark.parametrize(
    ("framework", "version", "release", "stack"),
    [
        ("NeMo 24.09", "", (24, 9), "nemo-26.04"),
        ("Megatron-Bridge", "067f, release 26.04.01", (26, 4, 1), "nemo-26.04"),
        ("Megatron-Bridge", "067f, release 26.06", (26, 6), "nemo"),
        ("Megatron-Bridge", "", (), "nemo-26.04"),
        ("llm-foundry MPT", "release 26.06", (26, 6), "llm-foundry"),
    ],
)
def test_releases_have_the_sheets_of_their_generation(framework, version, release, stack) -> None:
    row = Row({"system": "H100", "framework": framework, "source_version": version})
    assert row.release == release
    assert row.about.stack == stack


def test_the_page_has_the_worst_row_first_and_every_reason() -> None:
    page = accuracy_page(
        [
            outcome("near", 1.0, 1.01), outcome("far", 1.0, 2.0, low=0.5, high=1.5),
            outcome("no", 1.0, None, skipped="dimensions | unknown"),
        ],
        "trnsim validate CSV --page FILE",
    )  # fmt: skip
    assert page.index("| far |") < page.index("| near |")
    assert "+100.0 %" in page
    assert "| 1 | dimensions \\| unknown | no |" in page
    assert "2 rows of 3 are predicted" in page


def test_every_system_of_the_table_has_a_machine_and_a_stack_sheet() -> None:
    from trnsim import machine as machines
    from trnsim.validation import rows

    for (name, *_), system in rows._systems().items():
        assert system.machine in machines.presets(), name
        assert system.stack in ("", *machines.stacks()), name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "has no column 'id'"),
        (HEADER + "\nA,prose,H100,,,,,,,,,,\n", "no rows of kind 'prose'"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path, text: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValidationError, match=said) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_missing_table_is_one_line(tmp_path) -> None:
    with pytest.raises(ValidationError, match="cannot be read"):
        read(tmp_path / "none.csv")


def test_a_number_that_is_none_names_the_row() -> None:
    with pytest.raises(ValidationError, match="row Z: chips is 'eight'"):
        Row({"id": "Z", "chips": "eight"}).number("chips")


def test_evened_outcomes_have_no_bias_of_a_machine_left() -> None:
    from trnsim.validation.ablation import evened

    found = evened([outcome("a", 1.0, 2.0), outcome("b", 1.0, 2.2), outcome("c", 1.0, 1.8)])
    assert [round(each.error, 6) for each in found] == [0.0, 0.1, -0.1]
