# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Workload: what a script asked of the device, with no hardware in it.

`Workload.load(path)`, `workload.save(path)`, `a.compare(b)` (one line a difference),
`workload.hash`, `workload.print_records(begin, end)`, and `workload.to_columns()` for its tables as
numpy arrays. `from_chakra(path)` makes Workloads of Chakra execution traces.
"""

from trnsim._core import MemoryPeak, Step, Workload
from trnsim.workload.chakra import from_chakra
from trnsim.workload.files import RunFile, is_run_file, load, load_run, save, save_run

__all__ = [
    "MemoryPeak",
    "RunFile",
    "Step",
    "Workload",
    "from_chakra",
    "is_run_file",
    "load",
    "load_run",
    "save",
    "save_run",
]


def _repr(workload: Workload) -> str:
    return (
        f"<Workload {workload.role}: {len(workload)} records, {workload.signature_count} "
        f"signatures, rank {workload.rank} of {workload.world_size}, hash {workload.hash}>"
    )


Workload.save = save
Workload.load = staticmethod(load)
Workload.__repr__ = _repr
