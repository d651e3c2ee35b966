# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Random numbers of the simulated device: 16 bytes of state, (seed, offset), a device.

In compute mode an op gives the numbers that it gives on the CPU with the same seed. In phantom mode
ops with unknown results draw nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from . import _C
from ._utils import Device, _get_device_index


class _DefaultGenerators(Sequence):
    """The default generator of each device, made on first use."""

    def __len__(self) -> int:
        return torch.accelerator.device_count()

    def __getitem__(self, index: int) -> torch.Generator:  # type: ignore[override]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"device {index} of {count}")
        return _C.default_generator(index % count)

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[index] for index in range(len(self)))


default_generators = _DefaultGenerators()


def _generator(device: Device) -> torch.Generator:
    return default_generators[_get_device_index(device, optional=True)]


def get_rng_state(device: Device = None) -> torch.Tensor:
    """The state of the device's generator: a CPU tensor of 16 bytes."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    """Puts back a state that `get_rng_state` gave."""
    with torch._C._DisableFuncTorch():
        new_state = new_state.clone(memory_format=torch.contiguous_format)
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Puts back the states of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator; `torch.manual_seed` calls it."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> int:
    """Seeds the current device's generator at random; returns the seed."""
    return _generator(None).seed()


def seed_all() -> None:
    """Seeds every device's generator with one random seed."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(None).initial_seed()


def _is_in_bad_fork() -> bool:
    """False: the device lives in this process's memory, and a fork has its own copy."""
    return False
