# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Pinned memory: is_pinned has a true answer, and what relies on it works."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

from trnsim import device as trn


def test_pinned_memory_is_known_by_any_address_inside_it() -> None:
    x = torch.arange(100.0).pin_memory()
    assert x.is_pinned()
    assert x[50:].is_pinned()
    assert x.tolist() == list(range(100))
    assert not torch.arange(100.0).is_pinned()


def test_pinned_memory_can_be_asked_for() -> None:
    assert torch.empty(10, pin_memory=True).is_pinned()
    assert torch.zeros(10, pin_memory=True).tolist() == [0] * 10


def test_freed_memory_is_no_longer_pinned() -> None:
    x = torch.empty(10).pin_memory()
    address = x.data_ptr()
    assert trn._C.is_pinned_address(address)
    assert not trn._C.is_pinned_address(address + 4096)
    del x
    assert not trn._C.is_pinned_address(address)


def test_pinned_tensors_go_to_the_device_without_waiting(mode: str) -> None:
    x = torch.arange(4.0).pin_memory()
    assert x.to("trn", non_blocking=True).cpu().tolist() == [0, 1, 2, 3]


def test_a_data_loader_pins_its_batches() -> None:
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    batches = list(DataLoader(data, batch_size=4, pin_memory=True))
    assert len(batches) == 2
    assert all(part.is_pinned() for batch in batches for part in batch)
    assert batches[1][0].tolist() == [4, 5, 6, 7]


def test_the_host_cache_can_be_emptied() -> None:
    torch.accelerator.memory.empty_host_cache()
