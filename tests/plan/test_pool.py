# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Processes that work side by side: they start once for all of a command's searches."""

import os

import pytest

from trnsim import pool as pools
from trnsim.pool import kept_workers, worker_pool


def process():
    with worker_pool(1) as pool:
        return pool.submit(os.getpid).result()


@pytest.fixture
def nothing_is_kept(monkeypatch):
    monkeypatch.setattr(pools, "_IDLE", None)


def test_processes_serve_the_next_pool_where_they_are_kept(nothing_is_kept):
    with kept_workers():
        first = process()
        with kept_workers():
            assert process() == first
        assert process() == first
        with worker_pool(1) as pool:  # in use: another pool has its own
            assert pool.submit(os.getpid).result() == first != process()
    assert len({first, process(), process()}) == 3


def test_processes_are_of_the_folder_and_the_variables_that_they_started_with(
    nothing_is_kept, monkeypatch, tmp_path
):
    with kept_workers():
        first = process()
        monkeypatch.setenv("TRNSIM_CPU", "1")
        second = process()
        monkeypatch.chdir(tmp_path)
        with worker_pool(1) as pool:
            assert pool.submit(os.getcwd).result() == str(tmp_path)
        assert len({first, second, process()}) == 3


def test_what_was_left_by_an_error_is_not_kept(nothing_is_kept):
    with kept_workers():
        first = process()
        with pytest.raises(ValueError, match="invalid"), worker_pool(1) as pool:
            pool.submit(int, "one").result()
        assert process() != first
