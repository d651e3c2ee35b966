# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The tree obeys its own rules: rooms include downwards, files are short, sources are licensed."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["base", "machine", "workload", "lower", "fold", "simulate", "project", "report", "bind"]
MAY_INCLUDE = {room: set(ROOMS[: i + 1]) for i, room in enumerate(ROOMS)}
MAY_INCLUDE["workload"] = {"base", "workload"}
MAY_INCLUDE["capture"] = {"base", "machine", "workload", "capture"}
COLUMNS, FILE_LINES, FUNCTION_LINES = 100, 600, 70
TOP_LEVEL = {
    "setup.py", "CMakeLists.txt", "csrc", "trnsim", "tests", "benchmarks", "examples", "README.md",
    "LICENSE", "pyproject.toml", "CMakePresets.json", "MANIFEST.in",
}  # fmt: skip


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    return [ROOT / name for name in listed if name.endswith(suffixes) and (ROOT / name).is_file()]


CPP = tracked(".h", ".cpp", ".cu", ".cuh")
PYTHON = tracked(".py")


def test_the_top_level_is_what_the_design_names():
    names = {p.relative_to(ROOT).parts[0] for p in tracked("")}
    assert {n for n in names if not n.startswith(".")} <= TOP_LEVEL


ROOM_FILES = [path for path in CPP if path.relative_to(ROOT).parts[0] == "csrc"]


@pytest.mark.parametrize("path", ROOM_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_include_only_rooms_below_them(path: Path):
    parts = path.relative_to(ROOT).parts
    for included in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
        room = included.split("/")[0]
        assert room in MAY_INCLUDE[parts[1]], f"{path} includes {included}"


def test_only_capture_includes_torch_headers():
    for path in CPP:
        if "capture" not in path.parts:
            assert not re.search(r"#include <(torch|ATen|c10)/", path.read_text()), path


def test_every_source_file_has_its_licence_lines():
    for path in CPP + [p for p in PYTHON if p.stat().st_size] + tracked("CMakeLists.txt", ".cmake"):
        head = path.read_text()[:400]
        assert "SPDX-License-Identifier: Apache-2.0" in head, path
        assert "SPDX-FileCopyrightText: The trnsim authors" in head, path


def test_lines_fit_a_hundred_columns():
    long = [
        f"{path.relative_to(ROOT)}:{n}"
        for path in CPP + PYTHON
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not long, long


def test_files_stay_short():
    long = {
        str(path.relative_to(ROOT)): count
        for path in CPP + PYTHON
        if (count := len(path.read_text().splitlines())) > FILE_LINES
    }
    assert not long, long


def python_functions(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def cpp_functions(path: Path):
    """Bodies by brace matching at namespace level: good enough to see a function that grew."""
    start, name = None, ""
    for n, line in enumerate(path.read_text().splitlines(), 1):
        if start is None and re.match(r"^[A-Za-z].*\{$", line) and "namespace" not in line:
            if re.match(r"^(struct|class|enum|union)\b|.* = \{$", line):
                continue
            start, name = n, line
        elif start is not None and line == "}":
            yield name, n - start + 1
            start = None


def test_functions_stay_short():
    long = [
        f"{path.relative_to(ROOT)}: {name.strip()} ({lines} lines)"
        for paths, find in ((CPP, cpp_functions), (PYTHON, python_functions))
        for path in paths
        for name, lines in find(path)
        if lines > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_nothing_is_left_for_later():
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{path.relative_to(ROOT)}:{n}"
        for path in CPP + PYTHON
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line) and path != Path(__file__)
    ]
    assert not found, found


def test_no_file_cites_documents_that_are_not_in_the_tree():
    notes = re.compile(r"\b(LOWERING|HARDWARE|DESIGN|FIDELITY|BACKEND\.md|CORE\.md|CORE's)\b")
    found = {
        str(path.relative_to(ROOT))
        for path in tracked("")
        if path != Path(__file__) and notes.search(path.read_text(errors="ignore"))
    }
    assert not found, found


def test_hardware_figures_stand_in_data_files_only():
    """No clock, bandwidth or peak of a chip as a literal in the rooms that compute."""
    literal = re.compile(r"\b(2\.4e9|0\.96e9|1\.2e9|2\.9e12|128e9|667e12|989e12|3\.35e12)\b")
    for path in CPP:
        if path.relative_to(ROOT).parts[0] == "csrc":
            assert not literal.search(path.read_text()), path
