# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Whether a script asks for CUDA, read from its source before anything runs.

A script asks for CUDA where it names the device in a place that chooses one ("cuda" or "cuda:0" as
a value, ``.cuda()``, ``torch.cuda.set_device``, "nccl"), in its own file or in the local modules
that it imports (beside it, or installed in place from the project that it belongs to), and nowhere
knows another way to the device: ``torch.accelerator``, or our device by its name, there or among
its arguments. A comparison (``device.type == "cuda"``) asks for nothing, and neither do seeds,
statistics and the like of ``torch.cuda``.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MOST_FILES = 200
# Functions that find whatever accelerator there is.
_FINDERS = ("current_accelerator", "_get_available_device_type")
_CUDA = re.compile(r"cuda(:\d+)?$")


@dataclass
class Request:
    """What the source says.

    Attributes:
        line: "train.py:12: device = 'cuda'", the first place that asks for CUDA, or None.
        other: the same of the first that finds the device in another way, or None.
    """

    line: str | None = None
    other: str | None = None
    files: int = field(default=0, repr=False)

    @property
    def wants_cuda(self) -> bool:
        """Whether the script runs on CUDA, and on nothing else of ours."""
        return self.line is not None and self.other is None


def find(script: str, arguments: Sequence[str], *, is_module: bool, device_name: str) -> Request:
    """Reads a script, and what it imports from beside it.

    Args:
        script, arguments, is_module: as on the command line.
        device_name: of the device that is there without the CUDA mode, "trn".
    """
    request = Request()
    if is_module:
        folder, path = os.getcwd(), _file_of_module(script)
    else:
        folder, path = os.path.dirname(os.path.abspath(script)), script
    if path is None:
        return request
    named = [each for each in arguments if re.search(rf"\b{re.escape(device_name)}\b", each)]
    if named:
        request.other = f"argument {named[0]}"
    elif any(re.search(r"=cuda(:\d+)?$|^cuda(:\d+)?$", each) for each in arguments):
        asked = next(each for each in arguments if "cuda" in each)
        request.line = f"argument {asked}"
    _read_all(path, folder, device_name, request)
    return request


def _file_of_module(name: str) -> str | None:
    """The file that ``python -m name`` runs, found without running any of it."""
    folders: list[str] | None = ["", *sys.path]
    *packages, last = name.split(".")
    for package in packages:
        spec = importlib.machinery.PathFinder.find_spec(package, folders)
        if spec is None or spec.submodule_search_locations is None:
            return None
        folders = list(spec.submodule_search_locations)
    spec = importlib.machinery.PathFinder.find_spec(last, folders)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.machinery.PathFinder.find_spec(
            "__main__", list(spec.submodule_search_locations)
        )
    return spec.origin if spec is not None else None


def _read_all(path: str, folder: str, device_name: str, request: Request) -> None:
    """The file at `path`, then local modules in the order in which they are imported."""
    folders = [folder, os.path.dirname(os.path.abspath(path))]
    project = _project_of(folder)
    waiting, seen = [path], set()
    while waiting and len(seen) < MOST_FILES:
        file = os.path.realpath(waiting.pop(0))
        if file in seen:
            continue
        seen.add(file)
        try:
            with open(file, encoding="utf-8", errors="replace") as opened:
                source = opened.read()
            tree = ast.parse(source)
        except (OSError, SyntaxError, ValueError):
            continue  # Python itself says what is wrong with it
        _look(tree, file, source.splitlines(), device_name, request)
        for name in _imports(tree):
            waiting += _local_files(name, [*folders, *_folders_in_project(name, project)])
    request.files = len(seen)


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}".strip(".") for alias in node.names)


def _local_files(name: str, folders: list[str]) -> list[str]:
    """Files of a dotted name below one of the folders; none for installed libraries."""
    found = []
    for folder in dict.fromkeys(folders):
        base = os.path.join(folder, *name.split("."))
        found += [
            file for file in (f"{base}.py", os.path.join(base, "__init__.py"))
            if name and os.path.isfile(file)
        ]  # fmt: skip
    return found


# What stands at the root of a project.
_ROOTS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


def _project_of(folder: str) -> str | None:
    """The nearest folder at or above `folder` that is the root of a project."""
    at = os.path.realpath(folder)
    while not any(os.path.exists(os.path.join(at, name)) for name in _ROOTS):
        above = os.path.dirname(at)
        if above == at:
            return None
        at = above
    return at


def _folders_in_project(name: str, project: str | None) -> list[str]:
    """Where Python finds the package of a dotted name, if that is in the project's own tree: it is
    installed in place (``pip install -e``) or on PYTHONPATH. Runs nothing of it."""
    top = name.partition(".")[0]
    if project is None or not top:
        return []
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return []
    if spec is None:
        return []
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else ())]
    for place in places[:1]:
        above = os.path.dirname(os.path.realpath(place))
        is_inside = f"{above}{os.sep}".startswith(project + os.sep)
        if is_inside and not {"site-packages", "dist-packages"} & set(above.split(os.sep)):
            return [above]
    return []


def _look(tree: ast.AST, file: str, lines: list[str], device_name: str, request: Request) -> None:
    compared = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Compare, ast.Dict))
        for part in ast.walk(node)
    }

    def place(node: ast.AST) -> str:
        line = getattr(node, "lineno", 1)
        text = lines[line - 1].strip() if line <= len(lines) else ""
        return f"{os.path.basename(file)}:{line}: {text}"

    for node in ast.walk(tree):
        if request.other is None and _finds_device_otherwise(node, device_name):
            request.other = place(node)
        if request.line is None and id(node) not in compared and _asks(node):
            request.line = place(node)


def _finds_device_otherwise(node: ast.AST, device_name: str) -> bool:
    if isinstance(node, ast.Attribute):
        owner = node.value
        if node.attr in ("accelerator", device_name):
            return isinstance(owner, ast.Name) and owner.id == "torch"
        return node.attr in _FINDERS
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.fullmatch(rf"{re.escape(device_name)}(:\d+)?", node.value) is not None
    if isinstance(node, ast.ImportFrom):
        return node.module == "torch.accelerator" or any(
            alias.name in _FINDERS for alias in node.names
        )
    return False


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(_CUDA.match(node.value)) or node.value in ("nccl", "cpu:gloo,cuda:nccl")
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        return isinstance(first, ast.Constant) and str(first.value).startswith("cuda:")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        function = node.func
        if function.attr == "cuda":
            return True
        owner = function.value
        return (
            function.attr in ("set_device", "current_device")
            and isinstance(owner, ast.Attribute)
            and owner.attr == "cuda"
            and isinstance(owner.value, ast.Name)
            and owner.value.id == "torch"
        )
    return False
