# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Runs a function right after a module has been imported, by whoever imports it.

What torch loads late (DTensor, FSDP) costs seconds where it is not needed, so nothing of ours
imports it: what must be said to it is said here, once it is there.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_waiting: dict[str, list[Callable[[], None]]] = {}


class _Loader(Loader):
    """The module's own loader, and what waits for the module after it."""

    def __init__(self, inner: Loader, name: str) -> None:
        self._inner, self._name = inner, name

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        for function in _waiting.pop(self._name, ()):
            function()


class _Finder(MetaPathFinder):
    """Finds the modules that something waits for, where all other finders find them."""

    def __init__(self) -> None:
        self._busy: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, name)
        return spec


_finder = _Finder()


def after_import(module: str, function: Callable[[], None]) -> None:
    """Calls the function once the module is imported; now, if it is."""
    if module in sys.modules:
        function()
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _waiting.setdefault(module, []).append(function)
