# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Programs of the cases that are written in C++."""

import csv
import io
import os
import subprocess
from pathlib import Path

import trnsim

ROOT = Path(__file__).resolve().parent.parent


def compile_cpp(source: Path, folder: Path, *flags: str) -> Path:
    """The program of one source, in `folder`."""
    program = folder / source.stem
    subprocess.run(
        [os.environ.get("CXX", "c++"), "-std=gnu++20", "-O3", "-DNDEBUG", str(source), *flags,
         "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def compile_ours(source: Path, folder: Path) -> Path:
    """The same against the library that trnsim is using."""
    library = Path(trnsim.__file__).parent / "lib"
    return compile_cpp(
        source, folder, f"-I{ROOT / 'csrc'}", f"-L{library}", "-ltrnsim_core",
        f"-Wl,-rpath,{library}",
    )  # fmt: skip


def rows_of(program: Path, *arguments: object) -> list[dict]:
    """The rows that one run of the program prints as CSV."""
    done = subprocess.run(
        [program, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    return list(csv.DictReader(io.StringIO(done.stdout)))
