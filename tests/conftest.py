# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""command.py of this folder is imported by its name. When all Python tests are collected, none may
have gone missing."""

import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))


def pytest_collection_finish(session):
    """All of the tests: no fewer than counts.json says."""
    config = session.config
    asked = [Path(argument).resolve() for argument in config.args]
    if asked != [HERE] or config.option.keyword or config.option.markexpr:
        return
    if config.option.collectonly:
        return
    least = json.loads((HERE / "counts.json").read_text())["python"]
    if len(session.items) < least:
        raise pytest.UsageError(f"{len(session.items)} tests, and counts.json has {least}")
