# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Rooms that are also verbs: `trnsim.simulate` is a package and `trnsim.simulate(...)` works.

Importing a submodule sets the attribute of that name on its parent, so a function called
`trnsim.simulate` would be gone after the first `import trnsim.simulate`. The module itself is made
callable instead.
"""

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any


class CallableModule(types.ModuleType):
    """A module that can be called as the function that it is named after."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._verb(*args, **kwargs)


def make_callable(name: str, verb: Callable[..., Any]) -> None:
    """Lets the module `name` be called as `verb`, with its signature and nothing else changed."""
    module = sys.modules[name]
    module.__class__ = CallableModule
    module._verb = verb  # type: ignore[attr-defined]
    module.__signature__ = inspect.signature(verb)  # type: ignore[attr-defined]
