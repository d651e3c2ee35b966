# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Saving, loading, copying and pickling what is on the device."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from trnsim import device as trn


def saved(value: object) -> io.BytesIO:
    """A file that holds `value`, rewound."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def test_a_tensor_comes_back_on_its_device(mode: str) -> None:
    x = torch.arange(6.0, device="trn").reshape(2, 3)
    back = torch.load(saved(x))
    assert back.device == x.device
    assert torch.equal(back.cpu(), torch.arange(6.0).reshape(2, 3))


def test_map_location_moves_between_cpu_and_device(mode: str) -> None:
    x = torch.arange(6.0)
    assert torch.load(saved(x), map_location="trn").device.type == "trn"
    assert torch.load(saved(x), map_location=torch.device("trn", 0)).device.type == "trn"
    onto_cpu = torch.load(saved(x.to("trn")), map_location="cpu")
    assert onto_cpu.device.type == "cpu"
    assert torch.equal(onto_cpu, x)
    to_trn = torch.load(saved(x), map_location=lambda storage, location: storage.trn())
    assert torch.equal(to_trn.cpu(), x)


def test_a_device_that_is_not_there_is_named_when_loading() -> None:
    trn._C.set_device_count(4)
    file = saved(torch.ones(2, device="trn:3"))
    trn._C.set_device_count(1)
    with pytest.raises(RuntimeError, match="device_count\\(\\) is 1"):
        torch.load(file)


def test_views_of_one_storage_still_share_it_after_loading(mode: str) -> None:
    x = torch.zeros(4, device="trn")
    first, second = torch.load(saved([x, x[1:3]]))
    second.fill_(7)
    assert first.cpu().tolist() == [0, 7, 7, 0]


def test_state_dicts_of_model_and_optimizer_round_trip() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to("trn")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4, device="trn")).sum().backward()
    optimizer.step()
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    again = nn.Linear(4, 3).to("trn")
    other = torch.optim.AdamW(again.parameters())
    state = torch.load(file, map_location="trn")
    again.load_state_dict(state["model"])
    other.load_state_dict(state["optimizer"])
    assert torch.equal(again.weight.cpu(), model.weight.cpu())
    for old, new in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(optimizer.state[old]["exp_avg"].cpu(), other.state[new]["exp_avg"].cpu())
        assert other.state[new]["exp_avg"].device.type == "trn"


def test_deepcopy_has_memory_of_its_own(mode: str) -> None:
    x = torch.arange(4.0, device="trn")
    y = copy.deepcopy(x)
    assert y.device == x.device
    assert y.data_ptr() != x.data_ptr()
    y.zero_()
    assert x.cpu().tolist() == [0, 1, 2, 3]


def test_deepcopy_of_a_module_keeps_tied_weights_tied(mode: str) -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 4, bias=False), "b": nn.Linear(4, 4, bias=False)})
    model["b"].weight = model["a"].weight
    model.to("trn")
    assert model["b"].weight is model["a"].weight
    twin = copy.deepcopy(model)
    assert twin["b"].weight is twin["a"].weight
    assert twin["a"].weight is not model["a"].weight
    assert torch.equal(twin["a"].weight.cpu(), model["a"].weight.cpu())


def test_tensors_and_parameters_pickle(mode: str) -> None:
    x = torch.arange(4.0, device="trn")
    parameter = nn.Parameter(x.clone())
    back, again = pickle.loads(pickle.dumps((x, parameter)))
    assert back.device.type == again.device.type == "trn"
    assert torch.equal(back.cpu(), x.cpu())
    assert isinstance(again, nn.Parameter)


def test_storages_move_copy_and_pickle(mode: str) -> None:
    storage = torch.arange(4, dtype=torch.uint8, device="trn").untyped_storage()
    assert storage.device.type == "trn"
    assert storage.cpu().tolist() == [0, 1, 2, 3]
    assert copy.deepcopy(storage).cpu().tolist() == [0, 1, 2, 3]
    assert torch.UntypedStorage(8, device="trn").nbytes() == 8


def test_bytes_go_through_numpy_and_back() -> None:
    x = torch.arange(6.0, device="trn").reshape(2, 3)
    array = x.cpu().numpy()
    assert torch.equal(torch.from_numpy(array).to("trn").cpu(), x.cpu())
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()


def test_a_large_checkpoint_of_unknown_values_loads_back_by_shape() -> None:
    trn._C.set_mode("phantom")
    x = torch.empty(100_000, device="trn", dtype=torch.bfloat16)
    back = torch.load(saved(x))
    assert back.shape == x.shape
    assert back.dtype == x.dtype
    assert back.device == x.device
    del x, back


def test_storages_say_where_they_are_and_go_there() -> None:
    trn._C.set_device_count(2)
    location = torch.serialization.location_tag
    assert location(torch.UntypedStorage(4, device="trn")) == "trn:0"
    assert location(torch.UntypedStorage(4, device="trn:1")) == "trn:1"
    restored = torch.serialization.default_restore_location(torch.ones(4).storage(), "trn:1")
    assert restored.is_trn and restored.device.index == 1


def test_a_tensor_goes_to_another_device_of_its_kind(mode: str) -> None:
    trn._C.set_device_count(2)
    back = torch.load(saved(torch.arange(6.0, device="trn:0")), map_location="trn:1")
    assert back.device == torch.device("trn", 1)
    assert torch.equal(back.cpu(), torch.arange(6.0))


def test_a_fake_tensor_has_the_device() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as fake:
        tensor = fake.from_tensor(torch.empty(3, 3, device="trn"))
        assert tensor.device == torch.device("trn", 0)
        assert (tensor @ tensor).device.type == "trn"
