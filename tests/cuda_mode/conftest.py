# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim run` on scripts that are written down in a test; each is a process of its own."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command import trnsim


class Ran(NamedTuple):
    """What a run left."""

    code: int
    report: dict[str, Any]  # empty where there is none
    prints: str  # of the script
    errors: str  # the lines that are ours

    def notes(self) -> str:
        """What capture had to say."""
        return "\n".join(f"{g['value']}" for g in self.report["guesses"])


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """run(text, *options, name="train.py", arguments=(), **variables)"""

    def run_script(
        text: str,
        *options: str,
        name: str = "train.py",
        arguments: tuple[str, ...] = (),
        **variables: str,
    ) -> Ran:
        script = tmp_path / name
        script.write_text(textwrap.dedent(text))
        done = trnsim("run", "--json", *options, script, *arguments, cwd=tmp_path, **variables)
        lines = done.stderr.splitlines()
        ours = [line for line in lines if line.startswith("trnsim: ")]
        report = json.loads(done.stdout) if done.stdout else {}
        return Ran(done.returncode, report, done.stderr, "\n".join(ours))

    return run_script
