# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""CUDA graphs: what was captured is a region of the recording, and each replay repeats it.

A capture counts as a run of what it captures; CUDA would only take it down. Replays compute no
values, so they need phantom mode.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from trnsim import _torch
from trnsim.errors import CaptureError

DESCRIPTION = "captured graph"  # of its region: csrc/workload/captured_graph.h

_pools = itertools.count(1)
_capturing: CUDAGraph | None = None


def is_capturing() -> bool:
    """Whether a graph is being captured."""
    return _capturing is not None


def graph_pool_handle() -> tuple[int, int]:
    """A token for memory that graphs share; all memory is one pool here."""
    return (0, next(_pools))


class CUDAGraph:
    """``torch.cuda.CUDAGraph``."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._pool = graph_pool_handle()
        self._range: tuple[int, int] | None = None

    def capture_begin(self, pool: Any = None, *unused: Any, **ignored: Any) -> None:
        """Ops from here to `capture_end` belong to the graph."""
        global _capturing
        if _capturing is not None:
            raise RuntimeError("a CUDA graph is being captured already")
        self._pool = pool.pool() if isinstance(pool, CUDAGraph) else pool or self._pool
        _capturing = self
        self._begin = _torch.begin_graph()

    def capture_end(self) -> None:
        """Ends the capture."""
        global _capturing
        if _capturing is not self:
            raise RuntimeError("this CUDA graph is not being captured")
        _capturing = None
        self._range = (self._begin, _torch.end_graph())

    def instantiate(self) -> None:
        """Nothing to do: a captured graph can be replayed."""

    def replay(self) -> None:
        """Repeats what was captured, on the memory that it was captured with."""
        if self._range is None:
            raise RuntimeError("replay of a CUDA graph that was not captured")
        if _torch.mode() != "phantom":
            raise CaptureError(
                "replays of CUDA graphs compute no values: run the script with --mode phantom"
            )
        _torch.replay_graph(*self._range)

    def reset(self) -> None:
        """Forgets what was captured."""
        self._range = None

    def pool(self) -> tuple[int, int]:
        """A token for the graph's memory."""
        return self._pool

    def enable_debug_mode(self) -> None:
        """Nothing to keep: there is no graph of CUDA's."""

    def debug_dump(self, debug_path: str, **unused: Any) -> None:
        """Refused: there is no graph of CUDA's."""
        from trnsim.capture.cuda import limits

        limits.refuse("CUDAGraph.debug_dump", limits.RUNTIME)


class graph:
    """``torch.cuda.graph``: captures what runs inside, on a stream of its own."""

    default_capture_stream: torch.Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        **unused: Any,
    ) -> None:
        cls = type(self)
        if stream is None and cls.default_capture_stream is None:
            cls.default_capture_stream = torch.cuda.Stream()
        self.pool = pool
        self.capture_stream = stream or cls.default_capture_stream
        self.stream_ctx = torch.cuda.stream(self.capture_stream)
        self.cuda_graph = cuda_graph

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.stream_ctx.__enter__()
        self.cuda_graph.capture_begin(self.pool)

    def __exit__(self, *error: object) -> None:
        self.cuda_graph.capture_end()
        self.stream_ctx.__exit__(*error)
