# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Memory of the device: what the allocator's model counts, under torch's names."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from trnsim import device as trn

MiB = 1 << 20


@pytest.fixture(autouse=True)
def empty(fresh_device: None) -> None:
    """No cached segments, and peaks from here on."""
    trn.empty_cache()
    trn.reset_peak_memory_stats()
    trn.reset_accumulated_memory_stats()


def test_a_tensor_takes_its_bytes_rounded_to_512(mode: str) -> None:
    before = trn.memory_allocated()
    x = torch.empty(100, device="trn")  # 400 bytes -> 512
    assert trn.memory_allocated() - before == 512
    y = torch.empty(1024, device="trn")  # 4096 bytes
    assert trn.memory_allocated() - before == 512 + 4096
    del x
    assert trn.memory_allocated() - before == 4096
    del y
    assert trn.memory_allocated() == before


def test_segments_are_reserved_and_given_back(mode: str) -> None:
    before = trn.memory_reserved()
    x = torch.empty(3 * MiB, dtype=torch.uint8, device="trn")
    # 1 MiB to 10 MiB: cut from a segment of 20 MiB
    assert trn.memory_reserved() - before == 20 * MiB
    del x
    assert trn.memory_reserved() - before == 20 * MiB
    trn.empty_cache()
    assert trn.memory_reserved() == before


def test_the_peak_stays_until_it_is_reset(mode: str) -> None:
    before = trn.memory_allocated()
    x = torch.empty(8 * MiB, dtype=torch.uint8, device="trn")
    del x
    assert trn.max_memory_allocated() - before == 8 * MiB
    assert trn.max_memory_reserved() >= 8 * MiB
    trn.reset_peak_memory_stats()
    assert trn.max_memory_allocated() == before


def test_the_documented_keys_are_there() -> None:
    trn.reset_accumulated_memory_stats()
    x = torch.empty(100, device="trn")
    stats = trn.memory_stats()
    for name in ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes"):
        for figure in ("current", "peak", "allocated", "freed"):
            assert isinstance(stats[f"{name}.all.{figure}"], int)
    for name in ("allocation", "active", "segment", "inactive_split"):
        assert isinstance(stats[f"{name}.all.peak"], int)
    assert stats["num_ooms"] == 0
    assert stats["num_alloc_retries"] == 0
    assert stats["allocated_bytes.all.current"] == trn.memory_allocated()
    assert stats["reserved_bytes.all.peak"] == trn.max_memory_reserved()
    assert x.numel() == 100


def test_accumulated_counts_grow_and_restart() -> None:
    for _ in range(3):
        torch.empty(100, device="trn")
    stats = trn.memory_stats()
    assert stats["allocation.all.allocated"] == 3
    assert stats["allocation.all.freed"] == 3
    assert stats["allocated_bytes.all.allocated"] == 3 * 512
    trn.reset_accumulated_memory_stats()
    assert trn.memory_stats()["allocation.all.allocated"] == 0


def test_mem_get_info_is_what_is_left_of_the_capacity(mode: str) -> None:
    trn._C.set_capacity_bytes(100 * MiB)
    assert trn.mem_get_info()[1] == 100 * MiB
    x = torch.empty(30 * MiB, dtype=torch.uint8, device="trn")
    free, total = trn.mem_get_info()
    assert total - free == trn.memory_reserved() >= 30 * MiB
    assert x.numel() == 30 * MiB


def test_over_capacity_is_torch_s_out_of_memory_error(mode: str) -> None:
    trn._C.set_capacity_bytes(100 * MiB)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 200.00 MiB"):
        torch.empty(200 * MiB, dtype=torch.uint8, device="trn")
    assert trn.memory_stats()["num_ooms"] >= 1
    torch.empty(10 * MiB, dtype=torch.uint8, device="trn")  # the device still works


def test_devices_count_for_themselves(mode: str) -> None:
    trn._C.set_device_count(2)
    before = trn.memory_allocated(0)
    x = torch.empty(100, device="trn:1")
    assert trn.memory_allocated(1) == 512
    assert trn.memory_allocated(0) == before
    assert x.device.index == 1


def test_torch_accelerator_says_the_same() -> None:
    x = torch.empty(100, device="trn")
    memory = torch.accelerator.memory
    assert memory.memory_allocated() == trn.memory_allocated()
    assert memory.max_memory_allocated() == trn.max_memory_allocated()
    assert memory.memory_reserved() == trn.memory_reserved()
    assert memory.max_memory_reserved() == trn.max_memory_reserved()
    assert memory.get_memory_info() == trn.mem_get_info()
    assert memory.memory_stats() == trn.memory_stats()
    memory.reset_peak_memory_stats()
    memory.reset_accumulated_memory_stats()
    memory.empty_cache()
    assert x.numel() == 100


def test_a_snapshot_has_what_torch_s_viewer_reads(tmp_path: Path) -> None:
    from torch.cuda import _memory_viz

    trn.memory._record_memory_history()
    kept = torch.empty(3 * MiB, dtype=torch.uint8, device="trn")
    torch.empty(4 * MiB, dtype=torch.uint8, device="trn")  # freed at once
    trn.memory._record_memory_history(None)
    trn.memory._dump_snapshot(tmp_path / "snapshot.pickle")
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    actions = [(entry["action"], entry["size"] // MiB) for entry in snapshot["device_traces"][0]]
    assert actions == [("alloc", 3), ("alloc", 4), ("free_requested", 4), ("free_completed", 4)]
    frames = snapshot["device_traces"][0][0]["frames"]
    assert any(frame["filename"] == __file__ for frame in frames)
    live = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"]
    assert [block["requested_size"] for block in live] == [kept.numel()]
    assert any(frame["filename"] == __file__ for frame in live[0]["frames"])
    assert _memory_viz.segsum(snapshot)
    assert "html" in _memory_viz.trace_plot(snapshot)


def test_ops_in_place_and_views_take_no_memory(mode: str) -> None:
    x = torch.ones(1000, device="trn")
    address, before = x.data_ptr(), trn.memory_allocated()
    x.add_(1).mul_(2)
    views = [x.view(10, 100), x[100:200], x.reshape(20, 50), x.view_as(x), x.detach()]
    assert x.data_ptr() == address == views[0].data_ptr()
    assert views[1].data_ptr() == address + 400
    assert trn.memory_allocated() == before


def test_a_tensor_grows_in_a_new_storage_and_shrinks_in_its_own(mode: str) -> None:
    before = trn.memory_allocated()
    x = torch.empty(1024, device="trn")
    x.resize_(512)
    assert x.shape == (512,) and trn.memory_allocated() - before == 4096
    x.resize_(4096)
    assert x.shape == (4096,) and trn.memory_allocated() - before == 16384


def test_memory_formats_are_laid_out_as_asked(mode: str) -> None:
    x = torch.empty(2, 3, 4, 4, device="trn", memory_format=torch.channels_last)
    assert x.stride() == (48, 1, 12, 3)
    assert (x + 1).is_contiguous(memory_format=torch.channels_last)
    assert torch.empty(2, 3, 4, 4, device="trn").is_contiguous()


def test_data_can_be_set_from_one_device_to_the_other() -> None:
    on_cpu, on_trn = torch.ones(4), torch.full((4,), 2.0, device="trn")
    changed = torch.zeros(4)
    changed.data = on_trn
    assert changed.is_trn and changed.data_ptr() == on_trn.data_ptr()
    changed.data = on_cpu
    assert changed.is_cpu and changed.data_ptr() == on_cpu.data_ptr()


@pytest.mark.parametrize("what", ["copies", "views", "in place", "gradients"])
def test_nothing_stays_allocated_after_a_loop(mode: str, what: str) -> None:
    before = trn.memory_allocated()
    for _ in range(100):
        x = torch.randn(1000, device="trn", requires_grad=what == "gradients")
        if what == "copies":
            x.cpu().to("trn").clone()
        elif what == "views":
            x.view(10, 100)[2:4].reshape(-1)
        elif what == "in place":
            x.add_(1).div_(2)
        else:
            (x * 2).sum().backward()
    del x
    assert trn.memory_allocated() == before


def test_tensors_of_several_devices_never_share_an_address(mode: str) -> None:
    trn._C.set_device_count(2)
    tensors = [torch.empty(1000, device=f"trn:{index % 2}") for index in range(20)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 20
    assert trn.memory_allocated(0) == trn.memory_allocated(1) >= 10 * 4096
