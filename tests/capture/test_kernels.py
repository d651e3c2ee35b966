# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Kernels of ours: values against the CPU, layouts against torch's meta functions."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def _attention(device: str, causal: bool, masked: bool, groups: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    q = torch.randn(2, 7, 8, 16).transpose(1, 2)  # heads beside positions, as models lay them
    k = torch.randn(2, 9, 8 // groups, 16).transpose(1, 2)
    v = torch.randn(2, 9, 8 // groups, 16).transpose(1, 2)
    bias = torch.randn(2, 1, 7, 9) if masked else None
    leaves = [t if t is None else t.to(device).requires_grad_() for t in (q, k, v, bias)]
    out = F.scaled_dot_product_attention(
        leaves[0], leaves[1], leaves[2], leaves[3], is_causal=causal, enable_gqa=groups > 1
    )
    out.backward(torch.linspace(0, 1, out.numel()).reshape(out.shape).to(device))
    return [out.detach(), *(t.grad for t in leaves if t is not None)]


@pytest.mark.parametrize(
    ("causal", "masked", "groups"),
    [(False, False, 1), (True, False, 1), (False, True, 1), (False, False, 4)],
)
def test_fused_attention_has_the_values_and_gradients_of_the_math(compute, causal, masked, groups):
    expected = _attention("cpu", causal, masked, groups)
    got = _attention("trn", causal, masked, groups)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_attention_is_one_op_forward_and_one_backward(mode, record):
    q, k, v = (torch.ones(2, 4, 128, 64, device="trn", requires_grad=True) for _ in range(3))
    with record() as recording:
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    ops = [op for op in recording.ops() if "scaled_dot" in op]
    assert ops == [
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_fused_attention_overrideable_backward",
    ]
    assert "softmax" not in " ".join(recording.ops())


def test_attention_with_dropout_drops_the_same_weights_backward(compute):
    q, k = (torch.randn(1, 1, 64, 8, device="trn") for _ in range(2))
    v = torch.eye(64, device="trn").reshape(1, 1, 64, 64).requires_grad_()
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    out.sum().backward()
    # With V the identity, out is the dropped weights, and their column sums are V's gradient.
    dropped = out.detach().cpu()[0, 0]
    assert 0.3 < float((dropped == 0).float().mean()) < 0.7
    torch.testing.assert_close(v.grad.cpu()[0, 0, :, 0], dropped.sum(0))


def _strides(tensors: object) -> list[tuple[int, ...] | None]:
    return [t.stride() if isinstance(t, torch.Tensor) else None for t in tensors]


def _own_kernel_cases():
    aten = torch.ops.aten
    q = torch.randn(2, 100, 4, 64).transpose(1, 2)
    yield (aten._scaled_dot_product_fused_attention_overrideable.default, (q, q, q), {})
    x = torch.randn(64, 3, 20, 20).to(memory_format=torch.channels_last)
    yield aten.native_dropout.default, (x, 0.5, True), {}
    w = torch.randn(8, 3, 3, 3)
    convolution = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    yield aten.convolution.default, (x, w, None, *convolution), {}
    grad = torch.randn(64, 8, 20, 20)
    yield (
        aten.convolution_backward.default,
        (grad, x, w, [8], *convolution, [True, True, True]),
        {},
    )
    yield aten.embedding.default, (torch.randn(500, 64), torch.zeros(300, 20).long()), {}
    norm = torch.randn(3, 40, 200).transpose(0, 1)
    yield aten.native_layer_norm.default, (norm, [200], None, None, 1e-5), {}
    yield aten.native_group_norm.default, (x.contiguous(), None, None, 64, 3, 400, 1, 1e-5), {}
    yield aten.repeat.default, (norm, [1, 2, 1]), {}
    yield aten.masked_fill.Scalar, (norm, norm > 0, 1.0), {}
    yield aten.constant_pad_nd.default, (norm, [1, 1]), {}


@pytest.mark.parametrize("case", list(_own_kernel_cases()), ids=lambda case: case[0].__name__)
def test_pinned_kernels_have_the_strides_of_the_meta_function(mode, case):
    op, args, kwargs = case

    def on(device):
        return [a.to(device) if isinstance(a, torch.Tensor) else a for a in args]

    def tensors(result):
        return result if isinstance(result, tuple | list) else (result,)

    got = tensors(op(*on("trn"), **kwargs))
    want = tensors(op(*on("meta"), **kwargs))
    assert _strides(got) == _strides(want)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_networks_have_the_values_and_gradients_of_the_cpu(compute, kind):
    torch.manual_seed(0)
    network = kind(6, 5, num_layers=2, bidirectional=True)
    x = torch.randn(7, 3, 6)
    out, _ = network(x)
    out.sin().sum().backward()
    expected = [out.detach(), *(p.grad.clone() for p in network.parameters())]
    network.zero_grad()
    network = network.to("trn")
    out, _ = network(x.to("trn"))
    out.sin().sum().backward()
    got = [out.detach(), *(p.grad for p in network.parameters())]
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_cells_are_one_op(phantom, record, kind):
    network = kind(300, 300).to("trn")
    x = torch.ones(2, 8, 300, device="trn")
    with record() as recording:
        network(x)[0].sum().backward()
    name = "_thnn_fused_lstm_cell" if kind is nn.LSTM else "_thnn_fused_gru_cell"
    assert recording.ops().count(name) == 2
    assert "sigmoid" not in recording.ops()


def test_conjugated_and_negated_tensors_can_be_copied(compute):
    x = torch.randn(4, 4, dtype=torch.complex64)
    y = x.to("trn")
    torch.testing.assert_close((y.conj() + 1).cpu(), x.conj() + 1)
    torch.testing.assert_close(y.conj().imag.cpu(), x.conj().imag)
    torch.testing.assert_close(y.conj().clone().cpu(), x.conj().clone())
    torch.testing.assert_close(y.mH.contiguous().cpu(), x.mH.contiguous())
    torch.testing.assert_close(torch.fft.fft(y).cpu(), torch.fft.fft(x))


def test_masks_select_by_their_values(mode):
    x = torch.arange(6.0, device="trn")
    mask = x > 2
    assert x[mask].tolist() == [3, 4, 5]
    x[mask] = 0
    assert x.tolist() == [0, 1, 2, 0, 0, 0]
    x[mask] = torch.tensor([7.0, 8.0, 9.0], device="trn")
    assert x.tolist() == [0, 1, 2, 7, 8, 9]


def test_moving_a_module_keeps_its_parameters_and_their_ties(mode):
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    weight = first.weight
    nn.ModuleList([first, second]).to("trn")
    assert first.weight is second.weight
    assert first.weight is weight
    assert weight.device.type == "trn"


MASKS = {
    "none": {},
    "causal": {"mask": torch.triu(torch.full((6, 6), -torch.inf), diagonal=1)},
    "padding": {"src_key_padding_mask": torch.arange(6) >= torch.tensor([[6], [4], [2]])},
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_infers_as_the_cpu_does(compute, masks, norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    x = torch.randn(3, 6, 32)
    with torch.no_grad():
        expected = encoder(x, **masks)
        on_device = {name: mask.to("trn") for name, mask in masks.items()}
        got = encoder.to("trn")(x.to("trn"), **on_device).cpu()
    kept = ~masks.get("src_key_padding_mask", torch.zeros(3, 6, dtype=torch.bool))
    torch.testing.assert_close(got[kept], expected[kept], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("average", [True, False])
def test_attention_weights_infer_as_the_cpu_does(compute, average):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(3, 6, 32)
    with torch.no_grad():
        expected = attention(x, x, x, average_attn_weights=average)
        attention.to("trn")
        got = attention(*[x.to("trn")] * 3, average_attn_weights=average)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_inference_of_an_encoder_is_recorded_in_parts(mode, record):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, device="trn").eval()
    with torch.no_grad(), record() as recording:
        layer(torch.zeros(3, 6, 32, device="trn"))
    ops = recording.ops()
    assert sum("addmm" in op or "linear" in op for op in ops) == 4
    assert any("scaled_dot_product_fused_attention" in op for op in ops)
    assert not any("transformer_encoder_layer" in op for op in ops)


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.BatchNorm1d(8)], ids=["layer", "batch"])
def test_half_precision_norms_train_with_statistics_in_float(mode, norm):
    torch.manual_seed(0)
    x = torch.randn(16, 8)
    weights = torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape)

    def train(module, device, dtype):
        module = copy.deepcopy(module).to(device=device, dtype=dtype)
        leaf = x.detach().to(device=device, dtype=dtype).requires_grad_()
        (module(leaf) * weights.to(device=device, dtype=dtype)).sum().backward()
        return [leaf.grad, module.weight.grad, module.bias.grad]

    expected = train(norm, "cpu", torch.float32)
    for ours, theirs in zip(train(norm, "trn", torch.bfloat16), expected, strict=True):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours.cpu().float(), theirs, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_an_embedding_bag_go_to_the_rows_of_each_bag(mode, weighted):
    """The CPU leaves the bag of each index out of its results where it can do without."""
    if weighted and mode != "sum":
        pytest.skip("only sums take weights")
    grads = []
    for device in ("cpu", "trn"):
        torch.manual_seed(0)
        bag = nn.EmbeddingBag(10, 4, mode=mode)
        weights = torch.rand(6)
        bag.to(device)
        indices = torch.tensor([1, 2, 4, 5, 4, 3], device=device)
        offsets = torch.tensor([0, 2, 2, 5], device=device)  # an empty bag among them
        out = bag(indices, offsets, weights.to(device) if weighted else None)
        out.backward(torch.linspace(0, 1, out.numel()).reshape(out.shape).to(device))
        grads.append(bag.weight.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


def test_ctc_loss_at_the_size_of_a_real_batch_has_shapes_in_phantom_mode_and_the_cpus_values(mode):
    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.randn(200, 16, 40).to(device).requires_grad_()  # past what is computed unasked
        targets = torch.randint(1, 40, (16, 20)).to(device)
        loss = F.ctc_loss(
            x.log_softmax(2), targets, [200] * 16, [20, 7] * 8, reduction="none"
        )  # fmt: skip
        loss.sum().backward()
        return [loss.detach(), x.grad]

    for ours, theirs in zip(run("trn"), run("cpu"), strict=True):
        assert (ours.shape, ours.stride()) == (theirs.shape, theirs.stride())
        if mode == "compute":
            torch.testing.assert_close(ours.cpu(), theirs)
