# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The fit finds the constants of a world that is as it supposes; and what it does for others."""

from __future__ import annotations

import math
import tomllib

import numpy as np
import pytest

from trnsim import machine as machines
from trnsim.machine.loader import Decimal
from trnsim.validation import fit
from trnsim.validation.rows import Row

TRUE = {
    ("A", "gemm_factor", ""): 0.8,
    ("B", "gemm_factor", ""): 0.6,
    ("C", "gemm_factor", ""): 0.7,
    ("A", "attention_factor", "flash2"): 0.5,
    ("megatron", "link_factor", ""): 0.9,
}


def world(seed: int = 0, noise: float = 0.0):
    """Rows whose error vanishes with the constants above: those of three chips under a stack."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(90):
        chip = "ABC"[i % 3]
        row = Row({"id": str(i), "kind": "train", "system": chip, "model": str(i // 9)})
        slopes = {(chip, "gemm_factor", ""): -0.6 + 0.3 * random.random()}
        if chip == "A":
            slopes[chip, "attention_factor", "flash2"] = -0.4 * random.random()
        slopes["megatron", "link_factor", ""] = -0.3 * random.random()
        error = -sum(slope * math.log(TRUE[key]) for key, slope in slopes.items())
        rows.append((row, error + noise * random.standard_normal(), slopes))
    return rows


def test_constants_are_found_where_errors_are_linear() -> None:
    values = {}
    rows = world()
    for _ in range(4):
        moved = fit._moved(values, rows, {})
        rows = [
            (row, error + sum(
                slope * math.log(moved[key] / values.get(key, 1)) for key, slope in slopes.items()
            ), slopes)
            for row, error, slopes in rows
        ]  # fmt: skip
        values = moved
    for key, value in TRUE.items():
        assert values[key] == pytest.approx(value, rel=0.03), key


def test_no_constant_exceeds_what_it_can_be() -> None:
    """Rows that call for links far too fast get what is allowed, and the rest as it fits then."""
    rows = []
    for i in range(40):
        row = Row({"id": str(i), "kind": "train", "system": "A", "model": str(i)})
        slopes = {("A", "gemm_factor", ""): -0.5, ("megatron", "link_factor", ""): -0.3}
        rows.append((row, -0.5 * math.log(1 / 0.8) + 3 * math.log(2) * (i % 2), slopes))
    moved = fit._moved({}, rows, {})
    assert moved["megatron", "link_factor", ""] <= fit.MOST["link_factor"]
    free = fit._bounded(np.eye(2), np.array([1.0, -1.0]), np.array([0.5, 5.0]))
    assert free.tolist() == [0.5, -1.0]
    coupled = np.array([[2.0, 1.0], [1.0, 2.0]])
    found = fit._bounded(coupled, np.array([3.0, 3.0]), np.array([0.5, 5.0]))
    assert found.tolist() == pytest.approx([0.5, 1.25])


def test_one_wild_row_moves_no_constant() -> None:
    rows = world()
    calm = fit._moved({}, rows, {})
    row, error, slopes = rows[0]
    wild = fit._moved({}, [(row, error + 3, slopes), *rows[1:]], {})
    assert all(wild[key] == pytest.approx(calm[key], rel=0.03) for key in calm)


def test_what_a_chip_has_one_row_of_stays_near_the_other_chips() -> None:
    rows = world()
    row = Row({"id": "one", "kind": "train", "system": "D", "model": "alone"})
    rows.append((row, 0.1 * math.log(1.5), {("D", "gemm_factor", ""): -0.1}))
    moved = fit._moved({}, rows, {})
    assert 0.65 < moved["D", "gemm_factor", ""] < 0.95  # by its own row alone 1.5
    assert moved["A", "gemm_factor", ""] - moved["B", "gemm_factor", ""] > 0.15


def test_a_step_with_experts_moves_constants_less() -> None:
    def found(experts: str) -> float:
        row = Row({"id": "odd", "kind": "train", "system": "A", "model": "m", "experts": experts})
        odd = (row, 3.0, {("A", "gemm_factor", ""): -0.6})
        return fit._moved({}, [*world(), odd], {})["A", "gemm_factor", ""]

    without = fit._moved({}, world(), {})["A", "gemm_factor", ""]
    assert 0 < found("8") - without < found("") - without


def test_a_chip_that_is_left_out_gets_the_medians_of_the_others() -> None:
    values = dict(TRUE)
    exact = [(row, 0.0, slopes) for row, _, slopes in world()]
    errors = fit._unseen(values, exact, {})
    assert len(errors) == 90
    of_a = errors[:30]  # in the order of the chips
    assert np.mean(np.abs(of_a)) > 0.05
    assert fit._medians(values) == {"gemm_factor": 0.7, "attention_factor": 0.5}


def test_what_is_written_is_what_machines_load(tmp_path) -> None:
    values = {
        ("H100 SXM", "gemm_factor", ""): 0.75, ("H100 SXM", "attention_factor", "cudnn"): 0.9,
        ("TPU v4", "gemm_factor", ""): 0.85, ("nemo-26.04", "link_factor", ""): 0.6,
    }  # fmt: skip
    counts, sensitivity = dict.fromkeys(values, 3), dict.fromkeys(values, 0.01)
    found = fit.Constants(values, counts, sensitivity, {"nemo-26.04": [0.1] * 9}, [0.2] * 9)
    found.write(tmp_path / "constants.toml")
    constants = tomllib.loads((tmp_path / "constants.toml").read_text(), parse_float=Decimal)

    def factors(name: str) -> dict[str, float]:
        machine = machines.load(name, stack="nemo-26.04", constants=constants)
        return {
            figure.key.removeprefix("stack."): float(figure.value)
            for figure in machine.figures
            if figure.key.startswith("stack.") and figure.unit == "1"
            if figure.key != "stack.grouped_launches"  # of the sheet itself
        }

    assert fit._values_of(constants) == values
    assert factors("h100") == {
        "gemm_factor": 0.75, "attention_factor": 0.9, "link_factor": 0.6, "error": 0.1,
    }  # fmt: skip
    assert factors("trn2") == {
        "gemm_factor": 0.8, "attention_factor": 0.9, "link_factor": 0.6,
        "error_of_other_machines": 0.2,
    }  # fmt: skip
