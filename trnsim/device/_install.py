# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Gives the device its name and registers what torch looks up by it. Run once, by the package."""

from __future__ import annotations

import os
import sys
import types

import torch

from trnsim import torch_version
from trnsim.capture.cuda import early
from trnsim.errors import CaptureError

UNCLAIMED = "privateuseone"  # torch's name of the slot while no plugin has renamed it


def device_name() -> str:
    """The name that scripts use: "trn", or TRNSIM_DEVICE_NAME; "cuda" in the CUDA mode."""
    if early.is_loaded():
        return "cuda"
    return os.environ.get("TRNSIM_DEVICE_NAME", "trn")


def check_name(name: str) -> None:
    """Raises CaptureError when torch has no room for a device of that name."""
    if early.is_loaded():
        return
    wrong = f"the device cannot be called '{name}' (TRNSIM_DEVICE_NAME)"
    if not (name.isascii() and name.isidentifier()):
        raise CaptureError(f"{wrong}: use letters and digits, as in neuron")
    if hasattr(torch, name) or hasattr(torch.Tensor, name) or _is_device_type(name):
        raise CaptureError(f"{wrong}: torch has something of that name; choose another")


def _is_device_type(name: str) -> bool:
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True


def check_slot(name: str) -> None:
    """Raises CaptureError when another plugin holds torch's device slot."""
    if early.is_loaded():
        return  # CUDA's is taken by loading early
    holder = torch._C._get_privateuse1_backend_name()
    if holder == UNCLAIMED:
        return
    module = sys.modules.get(f"torch.{holder}")
    where = f" ({module.__name__})" if module is not None else ""
    raise CaptureError(
        f"the device slot of this process is taken by the plugin '{holder}'{where}: start with "
        f"TORCH_DEVICE_BACKEND_AUTOLOAD=0, which keeps plugins from loading by themselves, and "
        f"import trnsim.device before any other"
    )


def load_extension() -> types.ModuleType:
    """The compiled half. Raises CaptureError when it does not fit the installed torch."""
    torch_version.check_torch()
    try:
        from trnsim import _torch
    except ImportError as error:
        raise CaptureError(
            f"the compiled part of the device does not load with torch {torch.__version__} "
            f"({error}): {torch_version.WAY_OUT}"
        ) from error
    return _torch


def install(module: types.ModuleType) -> None:
    """Renames the slot, registers `module` as ``torch.<name>``, and adds Tensor.<name>() etc.

    In the CUDA mode ``torch.cuda`` stays what it is, and gets our functions.
    """
    if early.is_loaded():
        from trnsim.capture.cuda import names

        return names.install()
    name = device_name()
    torch.utils.rename_privateuse1_backend(name)
    torch._register_device_module(name, module)
    for submodule in ("amp", "memory", "random", "streams"):
        sys.modules[f"torch.{name}.{submodule}"] = getattr(module, submodule)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    torch.set_autocast_dtype(name, torch.bfloat16)  # torch's own default here is float16


def choose_mode(extension: types.ModuleType) -> None:
    """TRNSIM_MODE is phantom or compute; compute where nobody says."""
    mode = os.environ.get("TRNSIM_MODE", "compute")
    if mode not in ("phantom", "compute"):
        raise CaptureError(f"TRNSIM_MODE is '{mode}': set it to phantom or compute")
    extension.set_mode(mode)
