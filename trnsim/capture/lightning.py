# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Lightning's Trainer and Fabric on the device: an accelerator of its own kind, chosen during a
capture.

Lightning lets anyone register an accelerator, but chooses among those that it knows ("auto",
"gpu"), puts one device of any other kind on the CPU, and takes FSDP to need a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from trnsim.capture.process_group import device_name
from trnsim.capture.world import current_world

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
FABRICS = ("lightning.fabric", "lightning_fabric")
# Where each chooses its device, below its package.
_CONNECTORS = (".trainer.connectors.accelerator_connector", ".connector")


def connectors() -> list[tuple[str, str]]:
    """Modules and classes that choose the accelerator and the strategy."""
    return [(f"{each}{_CONNECTORS[0]}", "_AcceleratorConnector") for each in PACKAGES] + [
        (f"{each}{_CONNECTORS[1]}", "_Connector") for each in FABRICS
    ]


def serve(module: ModuleType) -> None:
    """Registers the accelerator at ``lightning.pytorch.accelerators``, or Fabric's, once it is
    imported."""
    name = device_name()
    registry = getattr(module, "AcceleratorRegistry", None)
    registry = module.ACCELERATOR_REGISTRY if registry is None else registry
    if name in registry:  # in the CUDA mode, Lightning's own serves
        return

    class SimulatedAccelerator(module.Accelerator):  # type: ignore[name-defined, misc]
        """The simulated device, as Lightning asks for one."""

        def setup_device(self, device: torch.device) -> None:
            torch.accelerator.set_device_index(device.index or 0)

        def teardown(self) -> None:
            torch.accelerator.memory.empty_cache()

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return dict(torch.accelerator.memory.memory_stats(device))

        @staticmethod
        def parse_devices(devices: Any) -> list[int]:
            if isinstance(devices, (list, tuple)):
                return list(devices)
            count = int(devices)
            return list(range(torch.accelerator.device_count() if count < 0 else count))

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device(name, index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return torch.accelerator.device_count()

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def name() -> str:
            return name

    registry.register(name, SimulatedAccelerator, description="simulated")


def choose_accelerator(original: Callable[[], str]) -> Callable[[], str]:
    """Replaces how "auto" and "gpu" are chosen."""

    @functools.wraps(original)
    def choose() -> str:
        return original() if current_world() is None else device_name()

    return choose


def choose_strategy(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replaces ``_AcceleratorConnector._choose_strategy``: one device of ours is that device."""

    @functools.wraps(original)
    def _choose_strategy(connector: Any) -> Any:
        devices = connector._parallel_devices
        if connector._num_nodes_flag > 1 or len(devices) != 1 or devices[0].type != device_name():
            return original(connector)
        package = type(connector).__module__
        for suffix in _CONNECTORS:
            package = package.removesuffix(suffix)
        strategies = __import__(f"{package}.strategies", fromlist=["SingleDeviceStrategy"])
        return strategies.SingleDeviceStrategy(device=devices[0])

    return _choose_strategy


def check_strategy(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Replaces ``_check_strategy_and_fallback``, which refuses FSDP where the accelerator is not
    called a GPU."""

    @functools.wraps(original)
    def _check_strategy_and_fallback(connector: Any) -> None:
        flag = connector._accelerator_flag
        connector._accelerator_flag = "gpu" if flag == device_name() else flag
        try:
            original(connector)
        finally:
            connector._accelerator_flag = flag

    return _check_strategy_and_fallback


def ddp_device_ids(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replaces ``determine_ddp_device_ids``: with them it makes a stream of CUDA."""

    @functools.wraps(original)
    def determine_ddp_device_ids(strategy: Any) -> Any:
        return None if strategy.root_device.type == device_name() else original(strategy)

    return determine_ddp_device_ids


def autocast_device(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``MixedPrecision.__init__``: what is not on the CPU is autocast as "cuda" there,
    which torch disables with a warning where the device has another name."""

    @functools.wraps(original)
    def __init__(plugin: Any, precision: Any, device: str, *args: Any, **kwargs: Any) -> None:
        is_ours = device == "cuda" and current_world() is not None
        original(plugin, precision, device_name() if is_ours else device, *args, **kwargs)

    return __init__
