# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Thin over CMake: `build_ext` runs it once, for the two extension modules and their libraries.

All other metadata is in pyproject.toml. Read from the environment: CMAKE_ARGS, MAX_JOBS,
TRNSIM_CUDA (auto, on, off), TRNSIM_CUDA_ARCHITECTURES ("80;90;100"). Commands that only make
metadata build nothing.
"""

import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
TORCH_RANGE = "torch>=2.11,<2.16"


def torch_requirement():
    """The minor of torch that is here, since _torch is built against its C++ interface."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return TORCH_RANGE
    major, minor = version.split("+")[0].split(".")[:2]
    return f"torch=={major}.{minor}.*"


class CMakeBuild(build_ext):
    """Builds every extension by one run of CMake into the folder that setuptools packs."""

    def run(self):
        package = ROOT if self.in_place() else Path(self.build_lib).resolve()
        output = package / "trnsim"
        # In place it stays, for the next build, and for the C++ tests (tests/run).
        build = ROOT / "build" / "editable" if self.in_place() else Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ)
        # A build environment's own cmake and ninja stand beside its python.
        environment["PATH"] = os.pathsep.join(
            [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
        )
        cmake = shutil.which("cmake", path=environment["PATH"])
        if cmake is None:
            raise SystemExit("trnsim: cmake is missing: pip install cmake ninja, then build again")
        subprocess.run(
            [cmake, "-S", str(ROOT), "-B", str(build), *self.options(output, environment["PATH"])],
            check=True,
            env=environment,
        )
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
        subprocess.run(
            [cmake, "--build", str(build), "--parallel", jobs], check=True, env=environment
        )

    def options(self, output, path):
        """What CMake is told; CMAKE_ARGS comes last and wins."""
        options = [
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DTRNSIM_OUTPUT={output}",
            "-DTRNSIM_TESTS=OFF",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
        ]
        if shutil.which("ninja", path=path):
            options += ["-G", "Ninja"]
        for name in ("TRNSIM_CUDA", "TRNSIM_CUDA_ARCHITECTURES"):
            if os.environ.get(name):
                options.append(f"-D{name}={os.environ[name]}")
        return options + shlex.split(os.environ.get("CMAKE_ARGS", ""))

    def in_place(self):
        """Whether the modules go beside the sources: `build_ext --inplace`, `pip install -e`."""
        return self.inplace or self.editable_mode

    def get_outputs(self):
        """The modules and libraries that CMake made, for setuptools' list of files."""
        if self.in_place():
            return []
        return [str(path) for path in Path(self.build_lib, "trnsim").rglob("*.so")]


setup(
    # Without sources: their presence alone makes the wheel one for this platform and Python.
    ext_modules=[Extension("trnsim._core", sources=[]), Extension("trnsim._torch", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    install_requires=[torch_requirement(), "numpy", "typer", "rich", "pyarrow"],
)
