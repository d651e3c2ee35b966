# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Past one machine: a run, or many, over the processes of a torch.distributed group.

Under torchrun, in every process (Gloo on CPUs; NCCL where each process has a GPU of its own):

    torch.distributed.init_process_group("gloo")
    timeline = simulate_system(system, group=torch.distributed.group.WORLD)

The result is that of one process, to the last digit. A process that dies ends the others with a
SimulateError. `trnsim project` does the same by itself when torchrun starts it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trnsim.errors import SimulateError
from trnsim.job import LARGEST_COUNT, whole_number_of, whole_numbers_of

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.distributed import ProcessGroup

    from trnsim._core import System, Timeline


def torchrun_group() -> ProcessGroup | None:
    """The processes that torchrun started this one among, joined over Gloo; None when it is alone.

    What they tell each other is a few numbers, so that no GPU is needed for it.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return None
    from torch import distributed

    if not distributed.is_initialized():
        distributed.init_process_group("gloo")
    return distributed.group.WORLD


def simulate_system(
    system: System,
    *,
    group: ProcessGroup | None = None,
    ranks_per_pod: int = 1,
    keep_times: bool = True,
) -> Timeline:
    """Runs the System to its end.

    Args:
        system: the same in every process.
        group: the processes that share the ranks, or None for this one alone.
        ranks_per_pod: ranks are divided between pods of so many, where there are enough of these.
            Any number gives the same result; that of the machine is the fastest.
        keep_times: False leaves the times of tasks out, which takes far less memory.

    Returns:
        The Timeline: makespan and hash of the whole job; starts and ends of the ranks, and the
        calls, that this process has.

    Raises:
        SimulateError: deadlocks, calls that do not match, flows that cannot move, more processes
            than ranks, a process that died, a group with a machine that has chip.interference.
    """
    from trnsim import _core

    _check(system, group)
    ranks_per_pod = whole_number_of(SimulateError, "ranks_per_pod", ranks_per_pod, 1, LARGEST_COUNT)
    if group is None:
        return _core.simulate_step(
            system, _core.Engine.bulk, _core.Backend.automatic, False, True, keep_times, None
        )
    ranks = len(system.ranks)
    first, end = (_boundary(group.rank() + i, group.size(), ranks, ranks_per_pod) for i in (0, 1))
    return _core.simulate_shard(system, first, end, AllGather(group), keep_times)


def simulate_seeds(
    system: System, seeds: Iterable[int], spread: int, *, group: ProcessGroup | None = None
) -> list[int]:
    """Makespans in ps with the jitter of each seed: chips are up to `spread` / 2^16 slower, so
    that 3277 is 5 %.

    The seeds are lanes of one run, or of a few where they have many ranks, and are dealt out over
    the processes of the group; every process returns all of them, in their order.

    Raises:
        SimulateError: as simulate_system does; a seed that is no whole number from 0 to 2^64 - 1, a
            spread that is none from 0 on, and a folded System, in which one draw would be that of
            many chips: `trnsim.project(..., fold=False).timeline.system` has every rank.
    """
    from trnsim import _core

    _check(system, group)
    seeds = whole_numbers_of(SimulateError, "seeds", seeds, 0, (1 << 64) - 1)
    whole_number_of(SimulateError, "spread", spread, 0, (1 << 31) - (1 << 16) - 2)
    index, count = (0, 1) if group is None else (group.rank(), group.size())
    mine = _core.simulate_seeds(system, seeds[index::count], spread)
    if group is None:
        return mine
    import numpy as np

    parts = AllGather(group).parts(np.array(mine, dtype=np.int64))
    return [int(parts[i % count][i // count]) for i in range(len(seeds))]


def _check(system: object, group: object) -> None:
    from trnsim import _core

    if group is not None and not (hasattr(group, "rank") and hasattr(group, "size")):
        raise SimulateError(
            f"group {group!r} is no process group: give torch.distributed.group.WORLD, or leave it "
            "out"
        )
    if not isinstance(system, _core.System):
        raise SimulateError(
            f"{type(system).__name__} is no System: give trnsim.project(...).timeline.system, or "
            "what trnsim.fold.place returns"
        )


def _boundary(index: int, count: int, ranks: int, ranks_per_pod: int) -> int:
    """First rank of process `index` of `count`."""
    step = ranks_per_pod if ranks // ranks_per_pod >= count else 1
    return ranks if index == count else ranks // step * index // count * step


class AllGather:
    """Everybody's whole numbers, of whatever count."""

    def __init__(self, group: ProcessGroup) -> None:
        import torch
        from torch import distributed

        self._group = group
        backend = distributed.get_backend(group)
        self._device = torch.device("cuda" if backend == "nccl" else "cpu")

    def __call__(self, mine: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.concatenate(self.parts(mine))

    def parts(self, mine: np.ndarray) -> list[np.ndarray]:
        """One array a process."""
        import torch

        counts = [int(part[0]) for part in self._gather(torch.tensor([mine.size]))]
        padded = torch.zeros(max(counts), dtype=torch.int64)
        padded[: mine.size] = torch.from_numpy(mine.copy())
        if not padded.numel():
            return [mine for _ in counts]
        parts = self._gather(padded)
        return [part[:count].numpy() for part, count in zip(parts, counts, strict=True)]

    def _gather(self, mine: torch.Tensor) -> list[torch.Tensor]:
        import torch
        from torch import distributed

        mine = mine.to(self._device)
        parts = [torch.empty_like(mine) for _ in range(self._group.size())]
        try:
            distributed.all_gather(parts, mine, group=self._group)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise SimulateError(
                f"another process of the run has gone ({reason}): look at its own error, and start "
                "all of them again"
            ) from None
        return [part.cpu() for part in parts]
