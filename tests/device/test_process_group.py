# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The device's c10d backend, as torch.distributed registers and asks it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_group

from trnsim.capture.script import start_capture, stop_capture
from trnsim.capture.world import World


@pytest.fixture
def group(mode: str) -> Iterator[dist.ProcessGroup]:
    """The default group of 2 ranks, in a capture as rank 1."""
    start_capture(World(rank=1, world_size=2), mode)
    dist.init_process_group("trn")
    try:
        yield _get_default_group()
    finally:
        dist.destroy_process_group()
        stop_capture()


def test_the_backend_is_registered_under_the_device_s_name(group: dist.ProcessGroup) -> None:
    assert "trn" in dist.Backend.backend_list
    assert dist.get_default_backend_for_device("trn") == "trn"
    assert dist.get_backend() == dist.get_backend(group) == "trn"
    assert (dist.get_rank(), dist.get_world_size(), group.size()) == (1, 2, 2)


def test_work_and_its_future_are_done_with_the_tensors(group: dist.ProcessGroup) -> None:
    tensor = torch.ones(4, device="trn")
    work = group.allreduce([tensor])
    future = work.get_future()
    future.wait()
    assert work.is_completed() and future.done()
    (result,) = future.value()
    assert result.data_ptr() == tensor.data_ptr()
    assert tensor.cpu().tolist() == [2, 2, 2, 2]
    assert work.wait()


def test_groups_end_and_can_be_made_again(group: dist.ProcessGroup) -> None:
    part = dist.new_group([0, 1], backend="trn")
    assert dist.get_backend(part) == "trn"
    dist.destroy_process_group(part)
    with pytest.raises(ValueError, match="is not initialized|[Ii]nvalid process group"):
        dist.get_backend(part)
    dist.all_reduce(torch.ones(1, device="trn"), group=dist.new_group([0, 1]))
