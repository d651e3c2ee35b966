# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Autoload: `import torch` brings the device, quickly, silently, and never fails because of it."""

from __future__ import annotations

import subprocess
import textwrap
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from command import python

from trnsim import plugin

# What installation does: our entry point, and perhaps another plugin's, before torch is imported.
INSTALLED = """
import importlib.metadata, sys
from importlib.metadata import EntryPoint, EntryPoints
plugins = [("trnsim", "trnsim:_autoload"), *{others}]
made = EntryPoints(EntryPoint(*plugin, "torch.backends") for plugin in plugins)
importlib.metadata.entry_points = lambda **chosen: made.select(**chosen)
"""
OTHER = ("other", "builtins:dict")


def installed(
    code: str, *others: tuple[str, str], **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs the lines where we are installed, and the others; they end well, without output."""
    done = python(INSTALLED.format(others=others) + textwrap.dedent(code), **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done


def test_import_torch_brings_the_device_silently() -> None:
    done = installed("""
        import torch
        assert torch.accelerator.current_accelerator().type == "trn"
        assert torch.ones(2, device="trn").sum().item() == 2
    """)
    assert done.stderr == ""


@pytest.mark.parametrize("first", ["import trnsim", "import trnsim.device", "import torch"])
def test_the_order_of_imports_does_not_matter(first: str) -> None:
    done = installed(f"""
        {first}
        import torch, trnsim.device
        assert torch.trn is trnsim.device
        assert torch.ones(2, device="trn").is_trn
    """)
    assert done.stderr == ""


def test_our_own_switch_keeps_it_out_and_an_import_brings_it() -> None:
    done = installed(
        """
        import torch
        assert not hasattr(torch, "trn")
        import trnsim.device
        assert torch.trn.is_available()
        """,
        TRNSIM_AUTOLOAD="0",
    )
    assert done.stderr == ""


def test_the_device_can_have_another_name() -> None:
    done = installed(
        """
        import torch
        assert torch.device("neuron").type == "neuron"
        x = torch.ones(2, device="neuron")
        assert x.is_neuron and torch.neuron.current_device() == 0
        assert repr(torch.neuron.Stream()).startswith("torch.neuron.Stream")
        with torch.autocast("neuron"): pass
        import torch.neuron.amp
        """,
        TRNSIM_DEVICE_NAME="neuron",
    )
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["cuda", "nn", "é"])
def test_a_name_that_torch_cannot_take_is_refused_in_one_line(name: str, tmp_path) -> None:
    done = python(
        INSTALLED.format(others=())
        + "import trnsim.errors\n"
        + "try: import trnsim.device\n"
        + "except trnsim.errors.CaptureError as error: print(error)\n",
        TRNSIM_DEVICE_NAME=name,
    )
    line = f"the device cannot be called '{name}' (TRNSIM_DEVICE_NAME): "
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(line) and done.stdout.count("\n") == 1
    (tmp_path / "train.py").write_text("import torch\n")
    arguments = f"import sys; sys.argv[1:] = ['run', {str(tmp_path / 'train.py')!r}]\n"
    code = INSTALLED.format(others=()) + arguments + "from trnsim.cli import main; main()"
    done = python(code, TRNSIM_DEVICE_NAME=name)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"trnsim: {line}") and done.stderr.count("\n") == 1


def test_another_plugin_keeps_the_device_and_is_named() -> None:
    done = installed('import torch\nassert not hasattr(torch, "trn")\n', OTHER)
    assert done.stderr.count("leaves the device to other") == 1
    assert "TRNSIM_AUTOLOAD=1" in done.stderr


def test_a_plugin_whose_name_begins_like_ours_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = [("ours", "trnsim:_autoload"), ("extra", "trnsim_extra:load"), ("npu", "npu.a:load")]
    found = EntryPoints(EntryPoint(*names, "torch.backends") for names in plugins)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **c: found.select(**c))
    assert plugin.other_plugins() == ["extra", "npu"]


def test_it_takes_the_device_when_told_to_although_others_are_installed() -> None:
    done = installed('import torch\nassert hasattr(torch, "trn")\n', OTHER, TRNSIM_AUTOLOAD="1")
    assert done.stderr == ""


def test_a_taken_slot_names_the_holder_and_the_way_out() -> None:
    done = python(
        """
        import torch
        torch.utils.rename_privateuse1_backend("npu")
        import trnsim.errors
        try:
            import trnsim.device
        except trnsim.errors.CaptureError as error:
            print(error)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.returncode == 0, done.stderr
    assert "'npu'" in done.stdout
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stdout


@pytest.mark.parametrize(
    ("cause", "broken", "variables"),
    [
        ("TRNSIM_MODE is 'ghost'", "", {"TRNSIM_MODE": "ghost"}),
        ("does not load", "sys.modules['trnsim._torch'] = None", {}),
    ],
)
def test_whatever_goes_wrong_import_torch_goes_on(
    cause: str, broken: str, variables: dict[str, str]
) -> None:
    done = installed(
        f"{broken}\nimport torch\nassert torch.ones(2).sum().item() == 2\n", **variables
    )
    assert done.stderr.count("there is no simulated device") == 1
    assert cause in done.stderr
    assert "TRNSIM_AUTOLOAD=0" in done.stderr


@pytest.mark.parametrize("mode", ["phantom", "compute"])
def test_the_mode_comes_from_the_environment(mode: str) -> None:
    ask = "import trnsim.device as d; print(d._C.mode())"
    done = python(ask, TRNSIM_MODE=mode)
    assert done.stdout.strip() == mode, done.stderr
    assert python(ask).stdout.strip() == "compute"


def test_programs_of_other_devices_find_what_they_did() -> None:
    done = python(
        """
        import torch, torch.cuda.amp, torch.multiprocessing, torch.utils.data
        places = [torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams,
                  torch.cuda.graphs, torch.multiprocessing, torch.utils.data]
        names = [name for name in dir(torch._C) if "cuda" in name.lower()]
        seen = lambda: [dict(vars(each)) for each in places] + [
            {name: getattr(torch._C, name) for name in names if hasattr(torch._C, name)}]
        before = seen()
        import trnsim
        trnsim._autoload()
        assert torch.ones(2, device="trn").sum().item() == 2
        for was, now in zip(before, seen(), strict=True):
            assert was.keys() == now.keys()
            assert [name for name in was if was[name] is not now[name]] == []
        assert not torch.cuda.is_initialized() and len(names) > 50
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        loader = torch.utils.data.DataLoader(data, 4, num_workers=1)
        assert [batch.sum().item() for (batch,) in loader] == [6, 22]
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.returncode == 0, done.stderr


def test_import_trnsim_does_not_import_torch() -> None:
    done = python("import sys, trnsim; assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr
