# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Layouts that are refused, in a line; narrow dtypes and their products; the conj bit."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

import pytest
import torch
from torch.ao.nn import quantized
from torch.nn.functional import ScalingType, scaled_grouped_mm, scaled_mm

F8 = torch.float8_e4m3fn
warnings.filterwarnings("ignore", category=UserWarning, module="torch")


def values(*sizes: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).reshape(sizes).to("trn")


def dynamically_quantized() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})


SPARSE, NESTED, QUANTIZED = "use dense ones", "use layout=torch.jagged", "dequantize()"
REFUSED: list[tuple[str, Callable[[], object]]] = [
    (SPARSE, lambda: values(4, 4).to_sparse()),
    (SPARSE, lambda: values(4, 4).to_sparse_csr()),
    (SPARSE, lambda: torch.eye(3).to_sparse().to("trn")),
    (SPARSE, lambda: torch.eye(3).to_sparse_csr().to("trn") @ values(3, 3)),
    (SPARSE, lambda: torch.sparse_coo_tensor([[0], [0]], [1.0], (2, 2), device="trn")),
    (
        SPARSE,
        lambda: torch.sparse_csr_tensor([0, 1, 1], [0], [1.0], (2, 2), device="trn").to_dense(),
    ),
    (SPARSE, lambda: torch.zeros(2, 2, layout=torch.sparse_coo, device="trn")),
    (SPARSE, lambda: torch.sparse.mm(torch.eye(4).to_sparse(), values(4, 4))),
    (NESTED, lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(4)], device="trn") * 2),
    (NESTED, lambda: torch.nested.as_nested_tensor([values(2, 3), values(4, 3)]).sin()),
    (NESTED, lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(4)]).to("trn")),
    (NESTED, lambda: torch.nested.as_nested_tensor([values(2).requires_grad_(), values(4)])),
    (QUANTIZED, lambda: torch.quantize_per_tensor(values(4, 4), 0.1, 0, torch.qint8)),
    (QUANTIZED, lambda: torch.quantize_per_tensor(values(256, 256), 0.1, 0, torch.qint8)),
    (QUANTIZED, lambda: torch.quantize_per_tensor_dynamic(values(4, 4), torch.qint8, False)),
    (
        QUANTIZED,
        lambda: torch.quantize_per_channel(values(4, 4), values(4), values(4), 0, torch.qint8),
    ),
    (
        QUANTIZED,
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).to("trn"),
    ),
    (QUANTIZED, lambda: torch.empty(2, 2, dtype=torch.qint8, device="trn")),
    (QUANTIZED, lambda: quantized.Linear(8, 8)(values(2, 8))),
    (QUANTIZED, lambda: dynamically_quantized().to("trn")(values(2, 8))),
]


@pytest.mark.parametrize(("way_out", "make"), REFUSED)
def test_a_tensor_that_is_not_dense_is_refused_in_a_line(
    mode: str, way_out: str, make: Callable[[], object]
) -> None:
    with pytest.raises(NotImplementedError) as raised:
        make()
    (line,) = str(raised.value).splitlines()
    assert (
        line.startswith(("aten::", "quantized::")) and " tensors are not supported on trn: " in line
    )
    assert way_out in line


@pytest.mark.parametrize("module", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_sparse_gradients_are_refused_in_a_line(mode: str, module: type) -> None:
    table = module(10, 4, sparse=True, device="trn")
    with pytest.raises(NotImplementedError, match=r"^aten::\w+: sparse gradients .* sparse=True$"):
        table(torch.tensor([[1, 2]], device="trn")).sum().backward()


def test_jagged_tensors_run(mode: str) -> None:
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    jagged = torch.nested.nested_tensor(parts, device="trn", layout=torch.jagged)
    out = torch.nn.functional.linear(jagged * 2, torch.ones(5, 3, device="trn"))
    assert [tuple(each.shape) for each in out.unbind()] == [(2, 5), (4, 5)]
    if mode == "compute":
        assert out.values().cpu().eq(6).all()


@pytest.mark.parametrize("rows", [(2, 4), (700, 900)])
def test_padded_jagged_tensors_have_gradients(mode: str, rows: tuple[int, int]) -> None:
    parts = [torch.ones(each, 64) for each in rows]
    jagged = torch.nested.nested_tensor(
        parts, device="trn", layout=torch.jagged, requires_grad=True
    )
    padded = torch.nested.to_padded_tensor(jagged, 0.0)
    assert padded.shape == (2, max(rows), 64)
    (padded * 3).sum().backward()
    assert jagged.grad.values().shape == (sum(rows), 64)
    if mode == "compute":
        assert jagged.grad.values().cpu().eq(3).all()


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_of_jagged_tensors_is_that_of_each_sequence(mode: str, is_causal: bool) -> None:
    torch.manual_seed(0)
    parts = [torch.randn(each, 2, 8) for each in (5, 3)]
    jagged = torch.nested.nested_tensor(
        [each.to("trn") for each in parts], layout=torch.jagged
    ).requires_grad_()
    heads = jagged.transpose(1, 2)
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(heads, heads, heads, is_causal=is_causal).transpose(1, 2)
    out.values().square().sum().backward()
    assert out.values().shape == jagged.grad.values().shape == (8, 2, 8)
    if mode == "phantom":
        return
    expected, gradients = [], []
    for part in parts:
        leaf = part.requires_grad_()
        each = leaf.transpose(0, 1)
        expected.append(attend(each, each, each, is_causal=is_causal).transpose(0, 1))
        expected[-1].square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(out.values().cpu(), torch.cat(expected))
    torch.testing.assert_close(jagged.grad.values().cpu(), torch.cat(gradients))


def scaled(rows: int, left: torch.Tensor, right: torch.Tensor, **more: object) -> torch.Tensor:
    a = torch.ones(rows, rows).to(F8).to("trn")
    b = torch.full((rows, rows), 2.0).to(F8).to("trn").t()
    more.setdefault("out_dtype", torch.bfloat16)
    return torch._scaled_mm(a, b, scale_a=left, scale_b=right, **more)


@pytest.mark.parametrize("rows", [32, 512])
@pytest.mark.parametrize("by_row", [False, True])
def test_products_of_float8_with_scales(mode: str, rows: int, by_row: bool) -> None:
    left = torch.full((rows, 1) if by_row else (), 0.5, device="trn")
    right = torch.ones((1, rows) if by_row else (), device="trn")
    out = scaled(rows, left, right, bias=torch.ones(rows, device="trn", dtype=torch.bfloat16))
    assert out.shape == (rows, rows) and out.dtype == torch.bfloat16
    if mode == "compute":
        assert out.cpu().eq(rows + 1).all()


@pytest.mark.parametrize("rows", [128, 512])
def test_a_scale_a_block_runs_in_phantom_mode_and_is_refused_in_compute_mode(
    mode: str, rows: int
) -> None:
    scales = torch.ones(rows * rows // 32).to(torch.float8_e8m0fnu).to("trn")
    if mode == "phantom":
        assert scaled(rows, scales, scales).shape == (rows, rows)
        return
    with pytest.raises(NotImplementedError) as raised:
        scaled(rows, scales, scales)
    assert str(raised.value) == (
        "aten::_scaled_mm has no CPU kernel for these tensors, which compute mode runs: use "
        "phantom mode"
    )


def test_products_of_float4_are_refused(mode: str) -> None:
    packed = torch.zeros(128, 64, dtype=torch.uint8).to("trn").view(torch.float4_e2m1fn_x2)
    scales = torch.ones(128 * 8).to(F8).to("trn")
    with pytest.raises(NotImplementedError, match=r"^aten::_scaled_mm: products of float4 are not"):
        torch._scaled_mm(
            packed, packed.t(), scale_a=scales, scale_b=scales, out_dtype=torch.bfloat16
        )


@pytest.mark.parametrize("rows", [32, 1024])
def test_grouped_products_and_their_gradients(mode: str, rows: int) -> None:
    offsets = torch.tensor([rows // 4, rows], dtype=torch.int32).to("trn")
    x = torch.ones(rows, 16, device="trn", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(2, 16, 32, device="trn", dtype=torch.bfloat16, requires_grad=True)
    out = torch.nn.functional.grouped_mm(x, weight, offs=offsets)
    out.backward(torch.ones_like(out))
    assert out.shape == (rows, 32) and weight.grad.shape == weight.shape
    if mode == "compute":
        assert out.cpu().eq(16).all() and x.grad.cpu().eq(32).all()
        assert weight.grad[0].cpu().eq(rows // 4).all()


@pytest.mark.parametrize("rows", [32, 1024])
def test_grouped_products_with_scales_run_in_phantom_mode(mode: str, rows: int) -> None:
    offsets = torch.tensor([rows // 2, rows], dtype=torch.int32).to("trn")

    def product() -> torch.Tensor:
        return torch._scaled_grouped_mm(
            torch.ones(rows, 16).to(F8).to("trn"),
            torch.ones(2, 32, 16).to(F8).to("trn").transpose(-1, -2),
            torch.ones(rows, device="trn"),
            torch.ones(2, 32, device="trn"),
            offs=offsets,
            out_dtype=torch.bfloat16,
        )

    if mode == "phantom":
        assert product().shape == (rows, 32)
        return
    with pytest.raises(NotImplementedError, match="^aten::_scaled_grouped_mm has no CPU kernel"):
        product()


@pytest.mark.parametrize("rows", [32, 1024])
@pytest.mark.parametrize("dtype", [F8, torch.float8_e5m2])
def test_newer_products_of_float8(mode: str, rows: int, dtype: torch.dtype) -> None:
    a = torch.ones(rows, 32).to(F8).to("trn")
    b = torch.ones(64, 32).to(dtype).to("trn").t()
    row, tensor = ScalingType.RowWise, ScalingType.TensorWise
    for left, right, recipe in [
        (torch.full((rows, 1), 0.5), torch.ones(1, 64), row),
        (torch.tensor(0.5), torch.tensor(1.0), tensor),
    ]:
        out = scaled_mm(a, b, left.to("trn"), recipe, right.to("trn"), recipe)
        assert out.shape == (rows, 64) and out.dtype == torch.bfloat16
        if mode == "compute":
            assert out.cpu().eq(16).all()


def newer_grouped(rows: int) -> torch.Tensor:
    return scaled_grouped_mm(
        torch.ones(rows, 16).to(F8).to("trn"),
        torch.ones(2, 32, 16).to(F8).to("trn").transpose(-1, -2),
        torch.ones(rows, device="trn"),
        ScalingType.RowWise,
        torch.ones(2, 32, device="trn"),
        ScalingType.RowWise,
        offs=torch.tensor([rows // 2, rows], dtype=torch.int32).to("trn"),
    )


@pytest.mark.parametrize("rows", [32, 1024])
def test_newer_grouped_products_run_in_phantom_mode(mode: str, rows: int) -> None:
    if mode == "phantom":
        assert newer_grouped(rows).shape == (rows, 32)
        return
    with pytest.raises(NotImplementedError) as raised:
        newer_grouped(rows)
    assert str(raised.value) == (
        "aten::_scaled_grouped_mm_v2 has no CPU kernel for these tensors, which compute mode "
        "runs: use phantom mode"
    )


def test_newer_products_of_float4_are_refused(mode: str) -> None:
    packed = torch.zeros(128, 64, dtype=torch.uint8).to("trn").view(torch.float4_e2m1fn_x2)
    scales, tensor = torch.ones(128 * 8).to(F8).to("trn"), ScalingType.BlockWise1x16
    with pytest.raises(NotImplementedError, match=r"_mm_v2: products of float4 are not supported"):
        scaled_mm(packed, packed.t(), scales, tensor, scales, tensor)
    experts = torch.stack([packed.view(torch.uint8)] * 2).view(packed.dtype).transpose(-1, -2)
    offsets = torch.tensor([64, 128], dtype=torch.int32).to("trn")
    with pytest.raises(NotImplementedError, match=r"_mm_v2: products of float4 are not supported"):
        scaled_grouped_mm(packed, experts, scales, tensor, scales, tensor, offs=offsets)


FORMS = [((32, 16), (4, 16, 8)), ((4, 32, 16), (16, 8)), ((32, 16), (16, 8))]


@pytest.mark.parametrize(("left", "right"), [*FORMS, ((4, 32, 16), (4, 16, 8))])
def test_forms_of_grouped_products(
    mode: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    a = torch.ones(left, dtype=torch.bfloat16)
    b = torch.ones(right, dtype=torch.bfloat16)
    cut = {(2, 3): left[0], (3, 2): right[-1], (2, 2): left[-1]}.get((len(left), len(right)))
    offsets = None if cut is None else torch.arange(1, 5, dtype=torch.int32) * (cut // 4)

    def product(device: str) -> torch.Tensor:
        offs = None if offsets is None else offsets.to(device)
        return torch.nn.functional.grouped_mm(a.to(device), b.to(device), offs=offs)

    got, expected = product("trn"), product("cpu")
    assert got.shape == expected.shape
    if mode == "compute":
        torch.testing.assert_close(got.cpu(), expected)


def saved(z: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(z.conj(), file)
    file.seek(0)
    return torch.load(file)


def gradient(z: torch.Tensor) -> torch.Tensor:
    leaf = z.detach().clone().requires_grad_()
    (leaf.conj() * leaf * leaf).real.sum().backward()
    return leaf.grad


CONJUGATES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda z: z.conj() + 1,
    lambda z: z.conj() @ z.mH,
    lambda z: torch.einsum("ij,kj->ik", z, z.conj()),
    lambda z: z.conj().clone(),
    lambda z: z.conj().resolve_conj(),
    lambda z: z.conj().imag.clone(),
    lambda z: z.conj().imag + 1,
    lambda z: z.conj()[1:, ::2].sum(),
    lambda z: torch.fft.ifft2(z.conj()),
    lambda z: torch.sgn(z.conj()),
    lambda z: torch.cat([z.conj(), z]),
    lambda z: torch.where(z.real > 0, z.conj(), z),
    lambda z: torch._foreach_add([z.conj()], [z])[0],
    lambda z: z.clone().conj().mul_(2),
    lambda z: torch.zeros_like(z).copy_(z.conj()),
    lambda z: torch.zeros_like(z).conj().copy_(z),
    lambda z: torch.add(z.conj(), z, out=torch.empty_like(z)),
    lambda z: torch.linalg.solve(z.mH @ z + torch.eye(4, device=z.device), z.conj()),
    saved,
    gradient,
]


@pytest.mark.parametrize("what", CONJUGATES)
def test_conjugates_are_those_of_the_cpu(
    mode: str, what: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    torch.manual_seed(0)
    z = torch.randn(4, 4, dtype=torch.complex64)
    expected, got = what(z), what(z.to("trn"))
    assert got.device.type == "trn" and got.is_conj() == expected.is_conj()
    torch.testing.assert_close(got.cpu(), expected.resolve_conj().resolve_neg())
