# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What the device says about itself: properties of the machine that was chosen.

`trnsim.simulate` and `trnsim run` choose one by `describe`. Before that the properties are those of
the preset `DEFAULT_MACHINE`, while memory is unlimited: nothing was asked to fit yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _C
from ._utils import Device, _get_device_index

if TYPE_CHECKING:
    from trnsim._core import Machine

DEFAULT_MACHINE = "trn2"


@dataclass(frozen=True)
class DeviceProperties:
    """One device, which is one rank's share of a chip."""

    name: str  # of the kind of instance: "trn2", also of trn2-ultra
    chip_name: str  # "Trainium2"
    total_memory: int  # bytes that tensors can have
    multi_processor_count: int  # cores of the device
    major: int  # generation of the chip
    minor: int
    is_neuron: bool  # Trainium or Inferentia


_chosen: DeviceProperties | None = None
_machine: Machine | None = None

# The figure that counts the cores of a chip, by its architecture.
_CORES = {
    "neuroncore": "chip.neuroncore.cores",
    "gpu": "chip.gpu.multiprocessors",
    "tpu": "chip.tpu.cores",
}


def properties_of(machine: Machine, ranks_per_chip: int = 0) -> DeviceProperties:
    """The properties of a rank's device when `ranks_per_chip` ranks share a chip of `machine`.

    0 = the machine's own ranks per chip. MachineError for a number that it does not allow.
    """
    memory = machine.rank_memory_bytes(ranks_per_chip)
    sharers = ranks_per_chip or machine.ranks_per_chip_allowed[0]
    is_neuron = machine.architecture == "neuroncore"
    key = _CORES[machine.architecture]
    cores = next(int(figure.value) for figure in machine.figures if figure.key == key)
    generation = re.search(r"\d+", machine.chip_name)
    return DeviceProperties(
        name=machine.name.partition("-")[0],
        chip_name=machine.chip_name,
        total_memory=memory,
        multi_processor_count=max(1, cores // sharers),
        major=int(generation.group()) if generation else 0,
        minor=0,
        is_neuron=is_neuron,
    )


def describe(machine: Machine | None, ranks_per_chip: int = 0) -> None:
    """Makes the properties those of `machine`, or of the default one again."""
    global _chosen, _machine
    _machine = machine
    _chosen = None if machine is None else properties_of(machine, ranks_per_chip)


def described_machine() -> Machine:
    """Whose properties they are."""
    from trnsim.machine import load

    return _machine or load(DEFAULT_MACHINE)


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Properties of `device`; all devices have the same."""
    check_index(_get_device_index(device, optional=True))
    return _chosen or properties_of(described_machine())


def get_device_name(device: Device = None) -> str:
    """A name for people and look-up tables; it holds "neuron" for Trainium."""
    properties = get_device_properties(device)
    vendor = f"AWS neuron {properties.name} " if properties.is_neuron else ""
    return f"{vendor}{properties.chip_name} (simulated)"


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(generation, 0): trn2 is (2, 0)."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is what the simulated chips are made for."""
    return True


def check_index(index: int) -> int:
    """The index, if there is such a device; else RuntimeError in torch's words."""
    count = _C.device_count()
    if not 0 <= index < count:
        raise RuntimeError(f"invalid device ordinal: {index} of {count} devices")
    return index
