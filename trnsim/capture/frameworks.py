# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What makes frameworks choose the device, where they know accelerators by name only.

During a capture they choose ours; outside, they choose as they do without trnsim.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from trnsim.capture.process_group import backend_name, device_name
from trnsim.capture.world import current_world


@contextlib.contextmanager
def device_in_environment() -> Iterator[None]:
    """Inside, variables that frameworks read name the device, unless the user has set them."""
    names = [name for name in ("ACCELERATE_TORCH_DEVICE",) if name not in os.environ]
    world = current_world()
    index = "" if world is None or world.world_size == 1 else f":{world.local_rank}"
    os.environ.update(dict.fromkeys(names, f"{device_name()}{index}"))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)


def _is_named_to_accelerate() -> bool:
    return os.environ.get("ACCELERATE_TORCH_DEVICE", "").partition(":")[0] == device_name()


def prepare_backend(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces accelerate's ``PartialState._prepare_backend``, which lists vendors' backends."""

    @functools.wraps(original)
    def _prepare_backend(
        state: Any, cpu: bool = False, sagemaker_dp: Any = False, backend: str | None = None
    ) -> Any:
        world = current_world()
        if world is None or cpu or sagemaker_dp or backend not in (None, backend_name()):
            return original(state, cpu, sagemaker_dp, backend)
        if not _is_named_to_accelerate():
            return original(state, cpu, sagemaker_dp, backend)
        from accelerate.utils import DistributedType

        return backend_name(), DistributedType.MULTI_GPU

    return _prepare_backend


def chosen_accelerator(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces accelerate's ``get_torch_accelerator_backend``, which takes torch's accelerator.

    Torch names a plugin's device before any other, where it is merely installed too.
    """

    @functools.wraps(original)
    def get_torch_accelerator_backend(check_available: bool = True) -> tuple[str | None, Any]:
        kind, module = original(check_available)
        if kind != device_name() or _is_named_to_accelerate() or current_world() is not None:
            return kind, module
        for other in ("cuda", "xpu", "mps"):
            if torch.get_device_module(other).is_available():
                return other, torch.get_device_module(other)
        return None, None

    return get_torch_accelerator_backend


def bf16_is_there(original: Callable[[], bool]) -> Callable[[], bool]:
    """Replaces transformers' ``is_torch_bf16_gpu_available``, which asks vendors' modules."""

    @functools.wraps(original)
    def is_torch_bf16_gpu_available() -> bool:
        return current_world() is not None or original()

    return is_torch_bf16_gpu_available


def loaded_by_host(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces safetensors' ``load_file``, which knows a list of devices: through the host."""

    @functools.wraps(original)
    def load_file(filename: Any, device: Any = "cpu", **kwargs: Any) -> Any:
        if str(device).partition(":")[0] != device_name():
            return original(filename, device, **kwargs)
        return {name: each.to(device) for name, each in original(filename, **kwargs).items()}

    return load_file
