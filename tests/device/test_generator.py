# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Random numbers: the CPU's own, with 16 bytes of state."""

from __future__ import annotations

import pytest
import torch

from trnsim import device as trn
from trnsim.errors import CaptureError


def state(seed: int, offset: int) -> torch.Tensor:
    """The 16 bytes by hand."""
    packed = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    return torch.tensor(list(packed), dtype=torch.uint8)


def test_the_state_is_seed_and_offset() -> None:
    generator = torch.Generator("trn")
    generator.manual_seed(3)
    assert torch.equal(generator.get_state(), state(3, 0))
    generator.set_state(state(7, 40))
    assert torch.equal(generator.get_state(), state(7, 40))
    assert generator.initial_seed() == 7


def test_a_state_of_another_form_is_refused() -> None:
    generator = torch.Generator("trn")
    with pytest.raises((CaptureError, RuntimeError), match="16 bytes"):
        generator.set_state(torch.Generator().get_state())


@pytest.mark.parametrize("count", [16, 1000, 5001])
def test_the_numbers_are_those_of_the_cpu(count: int) -> None:
    torch.manual_seed(11)
    mine = [torch.rand(count, device="trn"), torch.randn(count, device="trn")]
    torch.manual_seed(11)
    theirs = [torch.rand(count), torch.randn(count)]
    for ours, cpu in zip(mine, theirs, strict=True):
        assert torch.equal(ours.cpu(), cpu)


def test_permutations_and_dropout_follow_the_seed() -> None:
    def draw() -> list[torch.Tensor]:
        torch.manual_seed(5)
        x = torch.ones(1000, device="trn")
        return [
            torch.randperm(100, device="trn").cpu(),
            torch.nn.functional.dropout(x, 0.5).cpu(),
            torch.randint(0, 9, (50,), device="trn").cpu(),
        ]

    first, second = draw(), draw()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert 300 < int((first[1] == 0).sum()) < 700


def test_a_restored_state_repeats_the_numbers() -> None:
    torch.manual_seed(1)
    torch.rand(777, device="trn")
    before = trn.get_rng_state()
    first = torch.randn(100, device="trn").cpu()
    trn.set_rng_state(before)
    assert torch.equal(torch.randn(100, device="trn").cpu(), first)


def test_the_offset_alone_finds_the_place_in_the_sequence() -> None:
    # A rand of float32 takes one 32-bit output of the twister an element.
    torch.manual_seed(1)
    sequence = torch.rand(2000, device="trn").cpu()
    for offset in (0, 1, 623, 624, 625, 1248, 1990):
        trn.set_rng_state(state(1, offset))
        assert torch.equal(torch.rand(10, device="trn").cpu(), sequence[offset : offset + 10])


def test_the_offset_counts_what_was_drawn() -> None:
    torch.manual_seed(2)
    torch.rand(1500, device="trn")
    assert torch.equal(trn.get_rng_state(), state(2, 1500))


def test_a_far_offset_is_reached_at_once_and_is_reproducible() -> None:
    def draw(offset: int) -> torch.Tensor:
        trn.set_rng_state(state(1, offset))
        return torch.rand(10, device="trn").cpu()

    far = 1 << 40
    assert torch.equal(draw(far), draw(far))
    assert not torch.equal(draw(far), draw(far + 1))


def test_manual_seed_of_torch_seeds_every_device() -> None:
    trn._C.set_device_count(3)
    torch.manual_seed(21)
    assert [g.initial_seed() for g in trn.default_generators] == [21, 21, 21]
    trn.set_device(2)
    trn.manual_seed(4)
    assert [g.initial_seed() for g in trn.default_generators] == [21, 21, 4]
    trn.manual_seed_all(5)
    assert trn.initial_seed() == 5
    assert len(trn.get_rng_state_all()) == 3


def test_seed_gives_a_new_seed() -> None:
    first, second = trn.seed(), trn.seed()
    assert first != second
    assert trn.initial_seed() == second


def test_fork_rng_restores_the_state() -> None:
    torch.manual_seed(8)
    before = trn.get_rng_state()
    with torch.random.fork_rng(device_type="trn"):
        torch.manual_seed(9)
        torch.rand(100, device="trn")
    assert torch.equal(trn.get_rng_state(), before)


def test_a_generator_of_one_s_own_leaves_the_default_one_alone() -> None:
    torch.manual_seed(8)
    before = trn.get_rng_state()
    generator = torch.Generator("trn").manual_seed(3)
    first = torch.rand(100, device="trn", generator=generator).cpu()
    assert torch.equal(trn.get_rng_state(), before)
    generator.manual_seed(3)
    assert torch.equal(torch.rand(100, device="trn", generator=generator).cpu(), first)


def test_a_cloned_state_goes_its_own_way() -> None:
    generator = torch.Generator("trn").manual_seed(3)
    torch.rand(100, device="trn", generator=generator)
    copy = generator.clone_state()
    first = torch.rand(10, device="trn", generator=generator).cpu()
    assert torch.equal(torch.rand(10, device="trn", generator=copy).cpu(), first)


def test_checkpointing_repeats_dropout() -> None:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(4)
    x = torch.ones(1000, device="trn", requires_grad=True)
    kept = []

    def dropped(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(x, 0.5)
        kept.append(y.detach().cpu())
        return y

    checkpoint(dropped, x, use_reentrant=False).sum().backward()
    # The gradient is the mask of the second run, and what was kept is that of the first.
    assert torch.equal(x.grad.cpu(), kept[0])


def test_states_of_all_devices_are_kept_and_restored() -> None:
    trn._C.set_device_count(2)
    states = trn.get_rng_state_all()
    assert len(states) == 2
    first = [torch.rand(3, device=f"trn:{index}").cpu() for index in range(2)]
    trn.set_rng_state_all(states)
    again = [torch.rand(3, device=f"trn:{index}").cpu() for index in range(2)]
    assert all(map(torch.equal, first, again))


def test_seed_all_seeds_anew_and_manual_seed_all_by_number() -> None:
    trn._C.set_device_count(2)
    trn.manual_seed_all(42)
    assert trn.initial_seed() == 42
    trn.seed_all()
    other = trn.initial_seed()
    trn.seed_all()
    assert trn.initial_seed() != other
    assert torch.Generator(device="trn:1").device == torch.device("trn", 1)
