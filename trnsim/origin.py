# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a run, or a document of several, is of: a script and its arguments, or a model by name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


def command_of(
    script: str | os.PathLike[str], is_module: bool, arguments: Sequence[str]
) -> tuple[str, ...]:
    """A script and its arguments as Python's own command line has them: -m before a module."""
    return (*(["-m"] if is_module else []), os.fspath(script), *arguments)


@dataclass(frozen=True)
class Origin:
    """Empty where nobody said it.

    Attributes:
        command: the script and its arguments; with -m before a module's name.
        model: dimensions of the model, and its name, as of Model.to_dict.
        layout: of the model's step, with global_batch and sequence, as of Layout.
    """

    command: tuple[str, ...] = ()
    model: Mapping[str, Any] | None = None
    layout: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, found: Any) -> Origin:
        """Of a manifest, or of the "origin" of a document; what is not there stays empty."""
        if not isinstance(found, Mapping):
            return cls()
        command, model, layout = (found.get(key) for key in ("command", "model", "layout"))
        words = command if isinstance(command, Sequence) and not isinstance(command, str) else ()
        return cls(
            tuple(str(word) for word in words),
            model if isinstance(model, Mapping) else None,
            layout if isinstance(layout, Mapping) else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """As a document or a manifest has it; null for what is empty."""
        return asdict(self) | {"command": list(self.command) or None}

    @property
    def script(self) -> str:
        """The name of the script or module, without folders; "" where there is none."""
        words = [word for word in self.command[:2] if word != "-m"]
        return Path(words[0]).name if words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of the script."""
        return self.command[2 if self.command[:1] == ("-m",) else 1 :]

    @property
    def short(self) -> str:
        """The script, or the model with its size: "llama (4 layers, hidden 512)"."""
        if self.model is None:
            return self.script
        texts = {"layers": "{} layers", "hidden": "hidden {}"}
        sizes = [texts[key].format(self.model[key]) for key in texts if key in self.model]
        name = str(self.model.get("name") or "a model")
        return f"{name} ({', '.join(sizes)})" if sizes else name

    @property
    def name(self) -> str:
        """The same, a script with its arguments."""
        if self.model is not None or not self.script:
            return self.short
        return shlex.join([self.script, *self.arguments])
