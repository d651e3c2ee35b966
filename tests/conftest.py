# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""When all Python tests are collected, none may have gone missing; and processes that capture side
by side start once for all tests."""

import json
from pathlib import Path

import pytest

from trnsim.pool import kept_workers

HERE = Path(__file__).resolve().parent


def pytest_collection_finish(session):
    """All of the tests: no fewer than counts.json says."""
    config = session.config
    asked = [Path(argument).resolve() for argument in config.args]
    if asked != [HERE] or config.option.keyword or config.option.markexpr:
        return
    if (
        config.option.collectonly or session.testsfailed
    ):  # a file that cannot be read says so itself
        return
    least = json.loads((HERE / "counts.json").read_text())["python"]
    if len(session.items) < least:
        raise pytest.UsageError(f"{len(session.items)} tests, and counts.json has {least}")


@pytest.fixture(scope="session", autouse=True)
def _processes_are_kept():
    with kept_workers():
        yield
