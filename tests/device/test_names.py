# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What torch calls after a device: methods of tensors, storages and modules, types, enums."""

from __future__ import annotations

import pytest
import torch
from torch.utils.backend_registration import _get_custom_mod_func

from trnsim import device as trn


def test_the_device_has_one_name_for_the_life_of_the_process() -> None:
    assert torch._C._get_privateuse1_backend_name() == "trn"
    torch.utils.rename_privateuse1_backend("trn")
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("other")
    with pytest.raises(RuntimeError, match="The runtime module of"):
        torch._register_device_module("trn", trn)


def test_torch_finds_functions_of_the_module_by_name() -> None:
    assert _get_custom_mod_func("device_count")() == trn.device_count()
    with pytest.raises(RuntimeError, match=r"Try to call torch\.trn"):
        _get_custom_mod_func("no_such_function")


@pytest.mark.parametrize(
    "kind",
    [torch.Tensor, torch.TypedStorage, torch.UntypedStorage, torch.nn.utils.rnn.PackedSequence],
)
def test_classes_can_move_to_the_device_and_ask_whether_they_are_there(kind: type) -> None:
    assert hasattr(kind, "trn") and hasattr(kind, "is_trn")


def test_packed_sequences_move(mode: str) -> None:
    packed = torch.nn.utils.rnn.PackedSequence(torch.rand(5, 3), torch.ones(5, dtype=torch.int64))
    assert not packed.is_trn
    moved = packed.trn()
    assert moved.is_trn and moved.data.device == torch.device("trn", 0)


def test_storages_move_by_index_and_say_their_type(mode: str) -> None:
    tensor = torch.ones(8, device="trn")
    storage = tensor.storage()
    assert storage.is_trn and storage.size() == 8
    assert storage.device == torch.device("trn", 0)
    assert torch.ones(8).storage().trn().is_trn
    assert torch.ones(8).untyped_storage().trn().is_trn


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.bool, "Bool"),
        (torch.float64, "Double"),
        (torch.float32, "Float"),
        (torch.float16, "Half"),
        (torch.bfloat16, "BFloat16"),
        (torch.int32, "Int"),
        (torch.int64, "Long"),
        (torch.int16, "Short"),
        (torch.int8, "Char"),
        (torch.uint8, "Byte"),
    ],
)
def test_legacy_type_names_have_the_device_in_them(dtype: torch.dtype, name: str) -> None:
    assert torch.empty(2, dtype=dtype, device="trn").type() == f"torch.trn.{name}Tensor"


@pytest.mark.skipif(torch.__version__ < "2.14", reason="torch 2.14 added the aliases")
def test_enumerations_have_an_alias() -> None:
    from torch._C._autograd import DeviceType
    from torch._C._profiler import ProfilerActivity

    for kind in (DeviceType, ProfilerActivity):
        if hasattr(kind, "TRN"):
            assert kind.TRN == kind.PrivateUse1
