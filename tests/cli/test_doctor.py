# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim doctor`, and the check that the device fits the torch that is installed."""

from importlib import metadata

import pytest

from trnsim import torch_version
from trnsim.cli import doctor
from trnsim.errors import CaptureError


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """Sets the minor that the device was built for, and the torch that is installed."""

    def install(built, torch):
        (tmp_path / "torch_minor").unlink(missing_ok=True)
        if built:
            (tmp_path / "torch_minor").write_text(built + "\n")
        monkeypatch.setattr(torch_version, "_FILE", tmp_path / "torch_minor")
        real = metadata.version
        monkeypatch.setattr(
            metadata, "version", lambda name: torch if name == "torch" else real(name)
        )

    return install


def test_a_device_built_for_this_minor_is_accepted(installation):
    installation("2.14", "2.14.0+cu130")
    torch_version.check_torch()


@pytest.mark.parametrize(
    ("built", "torch", "words"),
    [
        ("2.14", "2.13.1", "built for torch 2.14, and torch 2.13.1 is installed"),
        ("2.1", "2.14.1", "built for torch 2.1, and torch 2.14.1"),
        (None, "2.14.1", "without its device"),
    ],
)
def test_another_minor_is_one_line_with_the_way_out(installation, built, torch, words):
    installation(built, torch)
    with pytest.raises(CaptureError, match=words) as raised:
        torch_version.check_torch()
    assert "pip install --no-build-isolation" in str(raised.value)
    check = doctor._extension()
    assert not check.ok and words in check.found and "pip install" in check.way_out


def test_a_torch_outside_the_range_is_a_problem(installation):
    installation("2.14", "2.9.0")
    assert not doctor._torch().ok
    installation("2.14", "2.15.2+cpu")
    assert doctor._torch().ok


def test_another_plugin_is_named_with_the_switch_and_is_no_problem_once_that_is_set(monkeypatch):
    monkeypatch.delenv("TRNSIM_AUTOLOAD", raising=False)
    other = metadata.EntryPoint("npu", "torch_npu:_autoload", "torch.backends")
    ours = metadata.EntryPoint("trnsim", "trnsim:_autoload", "torch.backends")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [other, ours])
    check = doctor._plugins()
    assert not check.ok and "npu" in check.found and "TRNSIM_AUTOLOAD=1" in check.way_out
    monkeypatch.setenv("TRNSIM_AUTOLOAD", "1")
    check = doctor._plugins()
    assert check.ok and "npu" in check.found
    monkeypatch.delenv("TRNSIM_AUTOLOAD")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [ours])
    assert doctor._plugins().ok


def test_autoload_switched_off_is_said(monkeypatch):
    ours = metadata.EntryPoint("trnsim", "trnsim:_autoload", "torch.backends")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [ours])
    monkeypatch.setenv("TRNSIM_AUTOLOAD", "0")
    check = doctor._autoload()
    assert check.ok and "TRNSIM_AUTOLOAD=0" in check.found
    monkeypatch.setattr(metadata, "entry_points", lambda group: [])
    assert not doctor._autoload().ok
