# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The comparison of the databases sees each kind of difference."""

from __future__ import annotations

import gc

import pytest
import recording
import torch

from tests.databases.compare import difference, to_device


@pytest.fixture
def pair():
    recording.use("compute")
    x = torch.arange(6.0).reshape(2, 3)
    yield x, x.to("trn")
    gc.collect()


def seen(got, want, mode="compute", **others):
    return difference(([], [got]), ([], [want]), mode, **others)


def test_values_are_compared_in_compute_mode_unless_they_are_random(pair):
    x, on_device = pair
    assert seen(on_device, x) == ""
    assert seen(on_device + 1, x).startswith("backward: Tensor-likes are not close")
    assert seen(on_device + 1, x, is_random=True) == ""
    assert seen(on_device + 1, x, mode="phantom") == ""


def test_strides_are_compared_in_phantom_mode(pair):
    x, on_device = pair
    in_columns = on_device.t().contiguous().t()
    assert seen(in_columns, x) == ""
    assert seen(in_columns, x, "phantom") == "backward: strides (1, 2) for (3, 1) of shape (2, 3)"


@pytest.mark.parametrize("mode", ["compute", "phantom"])
def test_shapes_dtypes_places_and_numbers_are_compared_in_both_modes(pair, mode):
    x, on_device = pair
    assert seen(on_device[:1], x, mode) == "backward: shape (1, 3) for (2, 3)"
    assert seen(on_device.double(), x, mode).startswith("backward: dtype torch.float64 for")
    assert seen(x, x, mode) == "backward: the result is on cpu"
    assert difference(([], []), ([], [x]), mode) == "backward: 0 results for 1"


def test_layouts_may_be_those_of_another_device_and_values_still_count(pair):
    x, on_device = pair
    like = ([], [x.double()])
    assert seen(on_device, x, like=like).startswith("backward: dtype torch.float32 for")
    assert seen(on_device.double(), x, like=like) == ""
    assert "not close" in seen(on_device.double() + 1, x, like=like)


def test_a_copy_on_the_device_has_the_storage_that_its_tensor_has(pair):
    every_second = torch.arange(12.0)[1::2].requires_grad_()
    moved = to_device(every_second, "trn")
    assert moved.is_leaf and moved.requires_grad and moved.stride() == (2,)
    assert moved.untyped_storage().nbytes() == 48
    assert moved.detach().as_strided((12,), (1,), 0).tolist() == list(range(12))
