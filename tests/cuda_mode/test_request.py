# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Which scripts ask for CUDA, by their source."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from trnsim.capture.cuda.request import Request, find

ASKING = [
    "device = 'cuda'",
    "device = 'cuda:0'",
    "device = f'cuda:{rank}'",
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "model.cuda()",
    "torch.cuda.set_device(rank)",
    "dist.init_process_group('nccl')",
    "parser.add_argument('--device', default='cuda')",
    "def train(device: str = 'cuda'): ...",
]
NOT_ASKING = [
    "x = torch.ones(3)",
    "if torch.cuda.is_available(): torch.cuda.manual_seed_all(0)",
    "pin = device.type == 'cuda'",
    "known = device in ('cuda', 'cpu')",
    "sizes = {'cuda': 3}",
    "print('needs cuda or a cpu')",
    "device = torch.accelerator.current_accelerator() or 'cuda'",
    "device = 'trn'; other = 'cuda'",
    "device = torch.trn.current_device() if has_trn else 'cuda'",
    "from torch._utils import _get_available_device_type; device = 'cuda'",
    "this is no Python, 'cuda'",
]


def read(folder: Path, text: str, *arguments: str) -> Request:
    (folder / "train.py").write_text(f"import torch\n{text}\n")
    script = str(folder / "train.py")
    return find(script, arguments, is_module=False, device_name="trn")


@pytest.mark.parametrize("text", ASKING)
def test_a_script_that_chooses_cuda_asks_for_it(tmp_path: Path, text: str) -> None:
    request = read(tmp_path, text)
    assert request.wants_cuda
    assert request.line == f"train.py:2: {text}"


@pytest.mark.parametrize("text", NOT_ASKING)
def test_a_script_that_does_not_or_knows_another_way(tmp_path: Path, text: str) -> None:
    assert not read(tmp_path, text).wants_cuda


def test_the_name_of_our_device_among_the_arguments_decides(tmp_path: Path) -> None:
    assert not read(tmp_path, "device = 'cuda'", "--device=trn").wants_cuda
    assert not read(tmp_path, "device = 'cuda'", "--device", "trn:0").wants_cuda
    assert read(tmp_path, "device = 'cuda'", "--out", "training").wants_cuda
    assert read(tmp_path, "device = sys.argv[1]", "cuda").line == "argument cuda"


def test_local_modules_are_read_and_installed_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from . import place\n")
    (tmp_path / "parts" / "place.py").write_text("where = 'cuda'\n")
    request = read(tmp_path, "from parts.place import where")
    assert request.line == "place.py:1: where = 'cuda'"
    assert read(tmp_path, "import torch.cuda.amp, numpy").line is None


def test_packages_of_the_scripts_own_project_are_read_where_python_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gptpack"
    folder = tmp_path / "projects" / "adder"
    for each in (package, folder):
        each.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "trainer.py").write_text("device = 'cuda'\n")
    text = "from gptpack.trainer import device"
    monkeypatch.syspath_prepend(str(tmp_path))  # as pip install -e has it
    assert read(folder, text).line is None  # a folder that is no project
    (tmp_path / "setup.py").write_text("")
    assert read(folder, text).line == "trainer.py:1: device = 'cuda'"
    # What is installed into an environment inside the project is a library.
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    package.rename(packages / "gptpack")
    monkeypatch.syspath_prepend(str(packages))
    importlib.invalidate_caches()
    assert read(folder, text).line is None


def test_a_module_is_found_without_being_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('this must not run')\n")
    (package / "__main__.py").write_text("device = 'cuda'\n")
    (package / "train.py").write_text("from pack import model\n")
    (package / "model.py").write_text("x.cuda()\n")
    monkeypatch.chdir(tmp_path)
    for name, line in (("pack", "__main__.py:1: device = 'cuda'"), ("pack.train", "model.py:1: ")):
        found = find(name, (), is_module=True, device_name="trn")
        assert found.line is not None
        assert found.line.startswith(line)
    assert find("pack.nothing", (), is_module=True, device_name="trn").line is None
