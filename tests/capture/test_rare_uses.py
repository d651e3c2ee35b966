# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What scripts seldom do, and PyTorch's own tests do: as on the CPU, or on other devices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

warnings.filterwarnings("ignore", category=UserWarning, module="torch")


def test_a_lazy_clone_is_a_copy(mode: str) -> None:
    x = torch.arange(6.0).reshape(2, 3).t().to("trn")
    copy = torch._lazy_clone(x)
    assert copy.stride() == x.stride() and copy.data_ptr() != x.data_ptr()
    copy.zero_()
    assert x.cpu().equal(torch.arange(6.0).reshape(2, 3).t()) and copy.cpu().eq(0).all()
    weight = torch.ones(3, device="trn", requires_grad=True)
    torch._lazy_clone(weight).sum().backward()
    assert weight.grad.cpu().eq(1).all()


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


EMPTY: list[Callable[[str], torch.Tensor]] = [
    lambda device: torch.empty(3, device=device),
    lambda device: torch.empty(3, device=device, dtype=torch.int16),
    lambda device: torch.empty(3, device=device, dtype=torch.bool),
    lambda device: torch.empty(2, 2, device=device, dtype=torch.bfloat16),
    lambda device: torch.empty(2, device=device, dtype=torch.complex64),
    lambda device: torch.empty_strided((2, 3), (1, 2), device=device),
    lambda device: torch.empty_permuted((2, 3), (1, 0), device=device),
    lambda device: torch.empty_like(torch.ones(4, device=device)),
    lambda device: torch.ones(4, device=device).new_empty(2),
    lambda device: torch.ones(2, device=device).resize_(5),
    lambda device: torch.ones(2, device=device, dtype=torch.int64).resize_(2, 2),
    lambda device: torch.empty(0, device=device),
]


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("make", EMPTY)
def test_deterministic_algorithms_fill_empty_memory(
    mode: str, make: Callable[[str], torch.Tensor]
) -> None:
    torch.testing.assert_close(make("trn").cpu(), make("cpu"), rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("deterministic")
def test_empty_memory_is_not_filled_where_the_script_says_so(compute: None) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        assert not torch.empty(64, device="trn").cpu().isnan().any()
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.mark.parametrize("begin", [0, 8, 24])
def test_a_slice_of_a_storage_shares_its_values(mode: str, begin: int) -> None:
    x = torch.arange(8.0)
    storage, expected = x.to("trn").untyped_storage(), x.untyped_storage()
    assert storage[begin : begin + 8].tolist() == expected[begin : begin + 8].tolist()
    assert storage[begin:begin].tolist() == [] and storage[begin + 3] == expected[begin + 3]
    part = storage[begin : begin + 8]
    part.fill_(7)
    expected[begin : begin + 8].fill_(7)
    assert storage.tolist() == expected.tolist()


def test_a_slice_of_a_storage_between_two_elements_cannot_hold_them(mode: str) -> None:
    part = torch.arange(8.0).to("trn").untyped_storage()[2:6]
    view = torch.empty(0, device="trn").set_(part)
    with pytest.raises(RuntimeError, match="begins at its byte 2, between two elements of float"):
        view + 1


def test_a_slice_that_is_overwritten_does_not_make_the_rest_known(phantom: None) -> None:
    x = torch.empty(4096, device="trn").uniform_()
    large = torch.ones(1 << 16, device="trn") + 1
    x.copy_(large[:4096])  # unknown
    x.untyped_storage()[0:4].fill_(0)
    assert (x + 1).cpu().shape == (4096,)
    view = torch.empty(0, dtype=torch.uint8, device="trn").set_(x.untyped_storage()[0:4])
    assert view.zero_().shape == (4,)
    assert x[8:].cpu().eq(1).all()  # the policy's value of what is unknown, not 0


def test_typed_storages_have_the_names_of_other_devices(mode: str) -> None:
    made = torch.trn.FloatStorage(4)
    assert isinstance(made, torch.trn.FloatStorage) and made.device.type == "trn"
    assert not isinstance(made, torch.FloatStorage | torch.trn.HalfStorage)
    x = torch.ones(3, dtype=torch.bfloat16, device="trn")
    assert x.storage_type() is torch.trn.BFloat16Storage
    assert x.storage().type() == "torch.trn.BFloat16Storage"
    with pytest.raises(RuntimeError, match="from_buffer: Not available"):
        torch.trn.ByteStorage.from_buffer(b"1234", "little")


WRONG = r"^indices should be either on cpu or on the same device as the indexed tensor \(cpu\)"


def test_indices_of_the_device_cannot_index_tensors_of_the_host(mode: str) -> None:
    host, index = torch.arange(8.0), torch.tensor([1, 2], device="trn")
    with pytest.raises(RuntimeError, match=WRONG):
        host[index]
    with pytest.raises(RuntimeError, match=WRONG):
        host[index] = 1.0
    with pytest.raises(RuntimeError, match=WRONG):
        host[torch.ones(8, dtype=torch.bool, device="trn")]
    device = host.to("trn")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        device[index] = torch.ones(2)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        device.index_select(0, index.cpu())


def test_indices_and_numbers_of_the_host_serve_tensors_of_the_device(mode: str) -> None:
    x, index = torch.arange(8.0).to("trn"), torch.tensor([1, 2])
    assert x[index].cpu().tolist() == [1, 2]
    x[index] = torch.tensor(5.0)
    x[torch.arange(8) > 6] = 9.0
    assert x.cpu().tolist() == [0, 5, 5, 3, 4, 5, 6, 9]
    host = torch.arange(4.0)
    host[index] = torch.tensor(7.0, device="trn")
    assert host.tolist() == [0, 7, 7, 3]


def curvature(device: str) -> torch.Tensor:
    query = torch.linspace(-1, 1, 64).reshape(1, 2, 4, 8).to(device).requires_grad_()
    out = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    (first,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), query)
    return second


def test_attention_is_differentiated_twice_by_its_parts_alone(mode: str) -> None:
    with pytest.raises(RuntimeError, match="backward is not implemented"):
        curvature("trn")  # as on other devices
    with sdpa_kernel(SDPBackend.MATH):
        second, expected = curvature("trn"), curvature("cpu")
    assert second.shape == expected.shape
    if mode == "compute":
        torch.testing.assert_close(second.cpu(), expected)
