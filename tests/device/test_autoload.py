# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Autoload: `import torch` brings the device, quickly, silently, and never fails because of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from trnsim import plugin

Run = Callable[..., subprocess.CompletedProcess[str]]

# What installation does: our entry point, and perhaps another plugin's, before torch is imported.
INSTALLED = """
import importlib.metadata, sys
from importlib.metadata import EntryPoint, EntryPoints
def installed(*others):
    ours = EntryPoint("trnsim", "trnsim:_autoload", "torch.backends")
    made = EntryPoints([ours, *(EntryPoint(*other, "torch.backends") for other in others)])
    importlib.metadata.entry_points = lambda **chosen: made.select(**chosen)
"""


def test_import_torch_brings_the_device_silently(run_python: Run) -> None:
    done = run_python(
        INSTALLED + "installed()\nimport torch\n"
        "assert torch.accelerator.current_accelerator().type == 'trn'\n"
        "assert torch.ones(2, device='trn').sum().item() == 2\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize("first", ["import trnsim", "import trnsim.device", "import torch"])
def test_the_order_of_imports_does_not_matter(run_python: Run, first: str) -> None:
    done = run_python(
        INSTALLED + f"installed()\n{first}\nimport torch, trnsim.device\n"
        "assert torch.trn is trnsim.device\n"
        "assert torch.ones(2, device='trn').is_trn\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_our_own_switch_keeps_it_out_and_an_import_brings_it(run_python: Run) -> None:
    done = run_python(
        INSTALLED + "installed()\nimport torch\n"
        "assert not hasattr(torch, 'trn')\n"
        "import trnsim.device\n"
        "assert torch.trn.is_available()\n",
        TRNSIM_AUTOLOAD="0",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_device_can_have_another_name(run_python: Run) -> None:
    done = run_python(
        INSTALLED + "installed()\nimport torch\n"
        "assert torch.device('neuron').type == 'neuron'\n"
        "x = torch.ones(2, device='neuron')\n"
        "assert x.is_neuron and torch.neuron.current_device() == 0\n"
        "assert repr(torch.neuron.Stream()).startswith('torch.neuron.Stream')\n"
        "with torch.autocast('neuron'): pass\n"
        "import torch.neuron.amp\n",
        TRNSIM_DEVICE_NAME="neuron",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_another_plugin_keeps_the_device_and_is_named(run_python: Run) -> None:
    done = run_python(
        INSTALLED + "installed(('other', 'builtins:dict'))\n"
        "import torch\n"
        "assert not hasattr(torch, 'trn')\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("leaves the device to other") == 1
    assert "TRNSIM_AUTOLOAD=1" in done.stderr


def test_it_takes_the_device_when_told_to_although_others_are_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = "torch.backends"
    installed = EntryPoints(
        [EntryPoint("trnsim", "trnsim:_autoload", group), EntryPoint("npu", "npu:load", group)]
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **c: installed.select(**c))
    assert plugin.other_plugins() == ["npu"]
    monkeypatch.setenv("TRNSIM_AUTOLOAD", "1")
    plugin.autoload()  # the device is there already: nothing to do, and no warning


def test_a_taken_slot_names_the_holder_and_the_way_out(run_python: Run) -> None:
    done = run_python(
        "import torch\n"
        "torch.utils.rename_privateuse1_backend('npu')\n"
        "import trnsim.errors\n"
        "try:\n"
        "    import trnsim.device\n"
        "except trnsim.errors.CaptureError as error:\n"
        "    print(error)\n",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.returncode == 0, done.stderr
    assert "'npu'" in done.stdout
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stdout


@pytest.mark.parametrize(
    ("cause", "variables"),
    [
        ("TRNSIM_MODE is 'ghost'", {"TRNSIM_MODE": "ghost"}),
        ("does not load", {}),
    ],
)
def test_whatever_goes_wrong_import_torch_goes_on(
    run_python: Run, cause: str, variables: dict[str, str]
) -> None:
    broken = "sys.modules['trnsim._torch'] = None\n" if not variables else ""
    done = run_python(
        INSTALLED + broken + "installed()\nimport torch\nassert torch.ones(2).sum().item() == 2\n",
        **variables,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("there is no simulated device") == 1
    assert cause in done.stderr
    assert "TRNSIM_AUTOLOAD=0" in done.stderr


@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_the_mode_comes_from_the_environment(run_python: Run, mode: str) -> None:
    done = run_python("import trnsim.device as d; print(d._C.mode())", TRNSIM_MODE=mode)
    assert done.stdout.strip() == mode, done.stderr
    assert run_python("import trnsim.device as d; print(d._C.mode())").stdout.strip() == "compute"


def test_import_trnsim_does_not_import_torch(run_python: Run) -> None:
    done = run_python("import sys, trnsim; assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr
