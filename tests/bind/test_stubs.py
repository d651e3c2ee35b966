# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The committed stubs are those of the modules that were built.

To make them again, in a checkout that was built in place:
    python tests/bind/test_stubs.py
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
GENERATE = """
import sys
import trnsim.device
from pybind11_stubgen import main
sys.argv = ["pybind11-stubgen", *sys.argv[1:]]
main()
"""
MODULES = ["_core", "_torch"]


def generate(module: str, folder: Path) -> dict[str, str]:
    """Stubs of one extension module, by path from the package."""
    subprocess.run(
        [sys.executable, "-c", GENERATE, f"trnsim.{module}", "-o", str(folder)],
        check=True, capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    package = folder / "trnsim"
    return {str(p.relative_to(package)): p.read_text() for p in package.rglob("*.pyi")}


@pytest.mark.parametrize("module", MODULES)
def test_stubs_are_those_of_the_built_module(module, tmp_path):
    for name, text in generate(module, tmp_path).items():
        assert (ROOT / "trnsim" / name).read_text() == text, f"trnsim/{name}: make it again"


if __name__ == "__main__":
    import tempfile

    for module in MODULES:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in generate(module, Path(folder)).items():
                target = ROOT / "trnsim" / name
                target.parent.mkdir(exist_ok=True)
                target.write_text(text)
                print(target.relative_to(ROOT))
