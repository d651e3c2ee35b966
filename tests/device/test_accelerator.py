# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.trn and torch.accelerator: which device is current, how many there are, what they are."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from trnsim import device as trn
from trnsim import machine


def test_the_device_is_torch_s_accelerator() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("trn")
    assert torch.accelerator.device_count() == torch.trn.device_count() == 1
    assert torch.trn is trn
    assert torch.get_device_module("trn") is trn
    assert trn.is_available()
    assert trn.is_initialized()


def test_the_current_device_can_be_set_in_every_form() -> None:
    trn._C.set_device_count(4)
    for device in (1, "trn:1", torch.device("trn", 1)):
        trn.set_device(0)
        trn.set_device(device)
        assert trn.current_device() == 1
        assert torch.accelerator.current_device_index() == 1
    torch.accelerator.set_device_index(2)
    assert trn.current_device() == 2
    assert torch.empty(1, device="trn").device == torch.device("trn", 2)


def test_the_current_device_is_each_thread_s_own() -> None:
    trn._C.set_device_count(4)
    trn.set_device(3)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(trn.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


def test_contexts_restore_the_device() -> None:
    trn._C.set_device_count(4)
    with trn.device(2):
        assert trn.current_device() == 2
        with trn.device(None):
            assert trn.current_device() == 2
        with trn.device_of(torch.empty(1, device="trn:1")):
            assert trn.current_device() == 1
        with trn.device_of(torch.empty(1)):
            assert trn.current_device() == 2
    assert trn.current_device() == 0
    with torch.accelerator.device_index(3):
        assert trn.current_device() == 3
    assert trn.current_device() == 0


def test_a_device_that_is_not_there_is_refused_by_index() -> None:
    for wrong in (1, "trn:7", torch.device("trn", 3)):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            trn.set_device(wrong)
    with pytest.raises(RuntimeError, match="invalid device ordinal: 3 of 1"):
        torch.tensor([1.0], device="trn:3")
    with pytest.raises(ValueError, match="expected a trn device"):
        trn.set_device("cpu")
    trn._C.set_device_count(4)
    assert torch.tensor([1.0], device="trn:3").device.index == 3


def test_tensors_and_modules_have_the_device_s_methods(mode: str) -> None:
    x = torch.ones(2)
    assert not x.is_trn
    assert x.trn().is_trn
    assert nn.Linear(2, 2).trn().weight.is_trn
    assert nn.utils.rnn.pack_sequence([x]).to("trn").data.is_trn


def test_the_default_device_can_be_this_one(mode: str) -> None:
    with torch.device("trn"):
        assert torch.ones(2).is_trn
        assert nn.Linear(2, 2).weight.is_trn
    torch.set_default_device("trn")
    try:
        assert torch.zeros(2).is_trn
    finally:
        torch.set_default_device(None)
    assert torch.zeros(2).device.type == "cpu"


def test_synchronize_and_streams_go_through_torch_accelerator() -> None:
    torch.accelerator.synchronize()
    trn.synchronize("trn:0")
    stream = torch.Stream("trn")
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream() == stream == trn.current_stream()


def test_properties_are_those_of_the_default_machine_before_one_is_chosen() -> None:
    properties = trn.get_device_properties()
    assert properties.name == "trn2"
    assert properties.total_memory == machine.load("trn2").rank_memory_bytes(1)
    assert "neuron" in trn.get_device_name()
    assert "trn2" in trn.get_device_name(0)
    assert trn.get_device_capability() == (2, 0)
    assert trn.is_bf16_supported()


def test_properties_follow_the_machine_and_the_share_of_a_rank() -> None:
    trn2 = machine.load("trn2")
    whole, quarter = (trn.properties.properties_of(trn2, ranks) for ranks in (1, 4))
    assert quarter.multi_processor_count * 4 == whole.multi_processor_count
    assert quarter.total_memory == trn2.rank_memory_bytes(4)
    trn.properties.describe(machine.load("h100"))
    trn._C.set_device_count(8)
    assert trn.device_count() == 8
    assert trn.get_device_properties(7).name == "h100"
    assert "neuron" not in trn.get_device_name()
    trn._C.set_capacity_bytes(trn.get_device_properties().total_memory)
    assert trn.mem_get_info()[1] == trn.get_device_properties().total_memory
    with pytest.raises(RuntimeError, match="invalid device ordinal: 8 of 8"):
        trn.get_device_properties(8)
    trn.properties.describe(machine.load("trn2-ultra"))
    assert trn.get_device_properties().name == "trn2"


def test_a_step_is_marked_by_hand(stop_recording) -> None:
    trn.step()  # nothing is recorded, and nothing happens
    trn._C.start_recording()
    trn.step()
    trn.step(tokens=512)
    assert [(record.kind, record.value) for record in stop_recording()] == [
        ("marker", -1),
        ("marker", 512),
    ]
    with pytest.raises(ValueError, match="tokens is -1"):
        trn.step(tokens=-1)


def test_the_capability_lists_dtypes() -> None:
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.float16, torch.int64} <= supported
