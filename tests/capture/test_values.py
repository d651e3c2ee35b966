# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What phantom mode knows, what it answers by policy, and what it says when neither helps."""

from __future__ import annotations

import pytest
import torch
from command import python

from trnsim import _torch

BIG = 300  # BIG x BIG floats are past the size that keeps values


def test_small_tensors_keep_their_values(phantom):
    x = torch.ones(3, device="trn")
    assert (x.cumsum(0) * 2).tolist() == [2.0, 4.0, 6.0]
    counter = torch.zeros((), device="trn")
    for _ in range(5):
        counter += 1
    assert counter.item() == 5


def test_large_tensors_have_no_values_and_reads_follow_the_policy(phantom, record):
    x = torch.randn(BIG, BIG, device="trn")
    assert not _torch.is_known(x)
    with record() as recording:
        assert x.sum().item() == 1.0
        assert bool((x > 0).any()) is False
        assert x.argmax().item() == 1
        assert x.cpu().unique().tolist() == [1.0]
    assert recording.workload.unknown_reads == 4


@pytest.mark.parametrize("batch", [(), (3,)])
def test_factorizations_of_unknown_values_go_well(phantom, record, batch):
    x = torch.randn(*batch, BIG, BIG, device="trn")
    assert not _torch.is_known(x)
    linalg = torch.linalg
    with record() as recording:
        for made in (
            linalg.cholesky_ex(x),
            linalg.inv_ex(x),
            linalg.lu_factor_ex(x),
            linalg.ldl_factor_ex(x),
            torch._C._linalg.linalg_solve_ex(x, x),
            linalg.cholesky_ex(x, out=(torch.empty_like(x), torch.ones_like(x[..., 0, 0]).int())),
        ):
            assert not _torch.is_known(made[0])
            assert made.info.tolist() == torch.zeros(batch).int().tolist()
        for factorize in (linalg.cholesky, linalg.inv, linalg.lu_factor, linalg.eigh):
            factorize(x)
        linalg.solve(x, x)
        linalg.cholesky_ex(x, check_errors=True)
    assert recording.workload.unknown_reads == 0


def test_a_factorization_of_known_values_fails_where_the_machine_would(phantom):
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        torch.linalg.cholesky(-torch.eye(4).to("trn"))
    assert torch.linalg.cholesky_ex(-torch.eye(4).to("trn")).info.item() == 1


def test_a_read_of_a_known_value_is_no_answer_by_policy(phantom, record):
    x = torch.ones(3, device="trn")
    with record() as recording:
        assert x.sum().item() == 3.0
    assert recording.workload.unknown_reads == 0
    assert sum("host_read" in line for line in recording.lines()) == 1


def test_what_is_made_of_an_unknown_value_is_unknown_until_overwritten(phantom):
    unknown = torch.randn(BIG, BIG, device="trn").sum()
    total = torch.zeros((), device="trn")
    total += unknown
    assert not _torch.is_known(total)
    total.zero_()
    assert _torch.is_known(total)
    assert total.item() == 0


def test_integers_copied_from_the_host_stay_known_up_to_16_mib(phantom):
    ids = torch.arange(1_000_000)
    assert ids.to("trn")[-5:].tolist() == ids[-5:].tolist()
    assert _torch.is_known(torch.zeros(2_000_000, dtype=torch.int64).to("trn"))
    assert not _torch.is_known(torch.zeros(3_000_000, dtype=torch.int64).to("trn"))
    assert not _torch.is_known(torch.zeros(1_000_000).to("trn"))


def test_everything_is_selected_where_the_selection_is_unknown(phantom):
    x = torch.randn(BIG, BIG, device="trn")
    assert x[x > 0].shape == (BIG * BIG,)
    assert (x > 0).nonzero().shape == (BIG * BIG, 2)
    assert x.unique().shape == (BIG * BIG,)


def test_shapes_that_do_not_fit_are_refused_in_both_modes(mode):
    x = torch.ones(BIG, BIG, device="trn")
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        x[0].add_(x)
    with pytest.raises(RuntimeError):
        x + torch.ones(7, device="trn")
    with pytest.raises(RuntimeError):
        x @ torch.ones(7, 7, device="trn")


def test_a_cpu_tensor_beside_a_device_tensor_is_refused(mode):
    with pytest.raises(RuntimeError, match="found at least two devices, trn:0 and cpu"):
        torch.ones(3, device="trn") + torch.ones(3)
    assert (torch.ones(3, device="trn") + torch.tensor(1.0)).device.type == "trn"


def test_over_capacity_is_out_of_memory_with_the_usual_words(mode):
    before = _torch.capacity_bytes()
    _torch.release_cached_memory()
    _torch.set_capacity_bytes(1 << 24)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 64\.00 MiB"):
            torch.empty(1 << 24, device="trn")
        count = _torch.out_of_memory_count()
        _torch.set_only_report_out_of_memory(True)
        assert torch.empty(1 << 24, device="trn").numel() == 1 << 24
        assert _torch.out_of_memory_count() == count + 1
    finally:
        _torch.set_only_report_out_of_memory(False)
        _torch.set_capacity_bytes(before)


def test_a_write_makes_another_version_and_a_view_is_not_recorded(mode, record):
    x = torch.ones(BIG, BIG, device="trn")
    with record() as recording:
        x.t()[5:].add_(1)
        x.mul_(2)
    add, mul = recording.lines()
    assert "reads s0v0" in add
    assert "writes s0v1" in add
    assert "reads s0v1" in mul
    assert "writes s0v2" in mul


def test_a_scale_that_changes_every_step_is_the_same_signature(mode, record):
    x, y = (torch.ones(BIG, BIG, device="trn") for _ in range(2))
    with record() as recording:
        for step in range(5):
            x.add_(y, alpha=0.1 * step)
            x.mul_(0.5 * step)
    assert recording.workload.signature_count == 2


def test_a_native_read_of_device_memory_stops_with_a_message():
    done = python("""
        import ctypes, torch, trnsim.device
        x = torch.ones(4, device="trn")
        ctypes.string_at(x.data_ptr(), 4)
    """)
    assert done.returncode != 0
    assert "trnsim: a native read of phantom memory in" in done.stderr


@pytest.mark.parametrize("what", ["dropout", "attention", "lstm"])
def test_ops_without_a_generator_draw_from_the_devices_and_leave_the_cpus(compute, what):
    def draw():
        ones = torch.ones(1, 2, 16, 16, device="trn")
        if what == "dropout":
            return torch.nn.functional.dropout(ones)
        if what == "attention":
            values = ones * torch.arange(16.0).to("trn")
            return torch.nn.functional.scaled_dot_product_attention(
                ones, ones, values, dropout_p=0.5
            )
        torch.manual_seed(1)
        lstm = torch.nn.LSTM(16, 16, 2, dropout=0.5).to("trn")
        torch.trn.set_rng_state(state)
        return lstm(ones[0])[0]

    torch.manual_seed(0)
    state = torch.trn.get_rng_state()
    first = draw()
    torch.trn.set_rng_state(state)
    cpu_state = torch.get_rng_state()
    again = draw()
    if what != "lstm":  # making its weights draws on the CPU
        assert torch.equal(torch.get_rng_state(), cpu_state)
        assert not torch.equal(draw().cpu(), first.cpu())
    assert torch.equal(first.cpu(), again.cpu())


def test_unknown_values_are_finite_and_arguments_of_distributions_valid(phantom):
    x = torch.randn(BIG, BIG, device="trn")
    assert torch.isfinite(x).all() and torch.isfinite(x.sum()) and torch.isfinite(x).cpu().all()
    assert (torch.isfinite(x) & torch.isfinite(2 * x)).all(dim=1).cpu().all()
    assert not x.isnan().any() and not x.isinf().any() and not (~torch.isfinite(x)).any()
    flags = torch.isfinite(x)
    flags &= x > 0
    assert not flags.all() and not (x == x.clone()).all() and not (x != 0).all()
    normal = torch.distributions.Normal(x, x.exp())
    assert normal.log_prob(normal.rsample()).shape == x.shape
    torch.distributions.Categorical(logits=x).sample()


def test_known_values_are_judged_as_they_are(phantom):
    x = torch.tensor([1.0, float("inf")], device="trn")
    assert torch.isfinite(x).tolist() == [True, False] and not torch._is_all_true(x > 1)
    with pytest.raises(ValueError, match="constraint"):
        torch.distributions.Normal(x, -x)
