# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The peak that torch's own memory tracker sees of the transformer of parallel.py over 64 ranks.

    python tracked.py STYLE...

prints one JSON object: bytes by style, which is one of parallel.py's or "fsdp2 x cp" of products.py
(the tracker refuses modules that run more than once before a backward pass, as a pipeline's do). A
process of its own, since the tracker's hooks keep the
model alive.
"""

from __future__ import annotations

import contextlib
import json
import sys

import parallel
import products
import torch
from jobs import job
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F


def tracked_peak(style: str) -> int:
    """Bytes, over two training steps."""
    model = parallel.build(style, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=style != "tp")
    ids, targets = parallel.batch()
    if style in ("fsdp2", "hsdp"):
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((ids, targets))
    else:
        tracker = MemTracker()
        tracker.track_external(model, optimizer, ids, targets)
    with tracker:
        for _ in range(2):
            F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            tracker.reset_mod_stats()
    return max(kinds["Total"] for kinds in tracker.get_tracker_snapshot("peak").values())


def tracked_context() -> int:
    """The same of context parallelism."""
    tracker = MemTracker()
    with contextlib.ExitStack() as stack:

        def around(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> MemTracker:
            tracker.track_external(model, optimizer)
            return stack.enter_context(tracker)

        products.train_context(2, around)
    return max(kinds["Total"] for kinds in tracker.get_tracker_snapshot("peak").values())


def main() -> None:
    peaks = {}
    for style in sys.argv[1:]:
        with job(64, "phantom"):
            peaks[style] = tracked_context() if style == "fsdp2 x cp" else tracked_peak(style)
    print(json.dumps(peaks))


if __name__ == "__main__":
    main()
