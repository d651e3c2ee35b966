# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Several threads and processes on the devices, and devices after errors."""

from __future__ import annotations

import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import command
import pytest
import torch

from trnsim import device as trn


def test_threads_work_on_devices_of_their_own_at_once(mode: str) -> None:
    trn._C.set_device_count(4)
    together = threading.Barrier(4)

    def work(device: int) -> list[torch.device]:
        together.wait()
        torch.accelerator.set_device_index(device)
        seen = []
        for _ in range(50):
            x = torch.ones(8, 8, device="trn")
            seen += [x.device, (x @ x).sum().device]
            assert torch.accelerator.current_device_index() == device
        return seen

    with ThreadPoolExecutor(4) as pool:
        for device, seen in enumerate(pool.map(work, range(4))):
            assert set(seen) == {torch.device("trn", device)}
    assert torch.accelerator.current_device_index() == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_contexts_of_devices_end_with_exceptions(error: type[BaseException]) -> None:
    trn._C.set_device_count(3)
    with (
        pytest.raises(error),
        torch.accelerator.device_index(1),
        torch.accelerator.device_index(2),
    ):
        assert torch.empty(1, device="trn").device.index == 2
        raise error
    assert torch.accelerator.current_device_index() == 0


def test_an_op_that_fails_leaves_the_device_as_it_was(mode: str) -> None:
    trn._C.set_device_count(2)
    before = trn.memory_allocated(1)
    with torch.accelerator.device_index(1):
        x = torch.ones(5, 5, device="trn")
        with pytest.raises(RuntimeError):
            x @ torch.ones(3, 3, device="trn")
        assert torch.accelerator.current_device_index() == 1
        assert (x @ x).device.index == 1
    del x
    assert trn.memory_allocated(1) == before


WORKER = """
    import multiprocessing, sys
    import torch, trnsim.device

    def work(queue):
        x = torch.ones(8, 8, device="trn")
        queue.put(((x @ x).sum().item(), str(x.device)))

    if __name__ == "__main__":
        assert torch.ones(2, 2, device="trn").sum().item() == 4
        context = multiprocessing.get_context(sys.argv[1])
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        assert queue.get(timeout=120) == (512.0, "trn:0")
        process.join()
        assert process.exitcode == 0
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_has_the_device(method: str, tmp_path: Path) -> None:
    """Nothing of the device is the process's own, so a fork needs no new start."""
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER))
    done = command.interpreter(script, method)
    assert done.returncode == 0, done.stderr
