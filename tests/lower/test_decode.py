# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Ops of one token on a NeuronCore: few rows, a cache of keys, weights in 8 bits; by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import trnsim


def bound_us(run, machine: str = "trn1") -> float:
    """Of the longest op of what `run` does on one core of Trainium."""
    with trnsim.simulate(machine, chips=1, ranks_per_chip=2, mode="phantom") as sim:
        kept = run()
    del kept
    return max(op["bound_ps"] for op in sim.projection.program.ops) / 1e6


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="trn")


def norm_us(rows: int) -> float:
    return bound_us(lambda: F.rms_norm(empty(rows, 8192), (8192,), empty(8192)))


def test_a_norm_of_few_rows_lies_across_the_partitions() -> None:
    # One row: 64 elements a partition, 64 + 128 cycles of the vector engine at 1.12 GHz, against
    # the loads and stores; with the row on one partition it would be 16384 cycles, 14.6 us.
    assert norm_us(1) < 1.0
    # 64 rows fill half of the partitions as well one way as the other; 128 rows are a tile.
    assert norm_us(1) < norm_us(16) < norm_us(64) < norm_us(128)
    # A whole tile takes 14.6 us of the vector engine, and its bytes at 16 x 17 GB/s a little more.
    assert norm_us(128) == pytest.approx((2 * 128 + 1) * 8192 * 2 / (16 * 17e3), rel=0.03)


def scores_us(keys_of) -> float:
    """One query of each of 8 sequences against 8192 keys of 128."""
    return bound_us(lambda: torch.bmm(empty(8, 1, 128), keys_of().transpose(1, 2)))


def test_keys_of_one_place_stand_together_and_load_in_one_descriptor() -> None:
    by_place = scores_us(lambda: empty(8192, 8, 128).transpose(0, 1))
    by_head = scores_us(lambda: empty(8, 8192, 128))
    size = 8 * 8192 * 128 * 2 / 0.9  # a DMA that transposes has 90 % of its rate
    # Descriptors of 2 KiB are bound by 17 GB/s, those of 256 bytes by 35 ns and 27.2 GB/s.
    assert by_place == pytest.approx(size / (16 * 17e3), rel=0.02)
    assert by_head == pytest.approx(size / 256 / 16 * (0.035 + 256 / 27.2e3), rel=0.02)


def test_weights_in_int8_are_half_of_the_bytes_and_are_widened() -> None:
    import trnsim.device  # noqa: F401
    from trnsim.recipes import int8

    def narrow() -> torch.Tensor:
        weight = empty(4096, 8192, dtype=torch.int8)
        return int8.multiply(empty(1, 8192), weight, empty(4096), None)

    widened = 4096 * 8192 / 128 / 1.4e3  # a pass of the scalar engine
    assert bound_us(narrow) == pytest.approx(widened, rel=0.02)
    wide = bound_us(lambda: empty(1, 8192) @ empty(8192, 4096))
    assert wide == pytest.approx(4096 * 8192 * 2 / (16 * 17e3), rel=0.03)
