# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Shapes between the stages of ``torch.distributed.pipelining``.

Before its first step a ``PipelineStage`` sends the shapes of its outputs to the next stage, and
those of its gradients to the one before. Stages are captured one after the other, each in a process
of its own, so what a stage says is kept for those that run later. One that has not run yet is
answered for: gradients have the shapes of the outputs that they belong to, and inputs those that
the script gave to its stage, or else those of the outputs that are known already. What was taken to
be so is compared with what the stage says once it has run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from trnsim.capture.world import current_world
from trnsim.errors import CaptureError

Key = tuple[int, int, int]  # from stage, to stage, and how often before


@dataclass
class Shapes:
    """What stages say to each other.

    Attributes:
        known: what other ranks have said.
        said: what this rank said.
        taken: what this rank took a stage to say that it did not know.
        objects: pickled, what rank 0 has broadcast, by its root and how many it broadcast before.
    """

    known: dict[Key, Any] = field(default_factory=dict)
    said: dict[Key, Any] = field(default_factory=dict)
    taken: dict[Key, Any] = field(default_factory=dict)
    objects: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _asked: dict[tuple[int, int], int] = field(default_factory=dict)
    _broadcasts: dict[int, int] = field(default_factory=dict)

    def next(self, source: int, to: int) -> Key:
        """The key of the next message between two stages."""
        count = self._asked[source, to] = self._asked.get((source, to), -1) + 1
        return source, to, count

    def next_broadcast(self, root: int) -> tuple[int, int]:
        """The key of the next list of objects from this rank."""
        count = self._broadcasts[root] = self._broadcasts.get(root, -1) + 1
        return root, count

    def latest(self) -> Any:
        """Outputs of this rank's stage that ran last, else of any stage; None without any."""
        for messages in (self.said, self.known):
            outputs = [value for (source, to, _), value in messages.items() if source < to]
            if outputs:
                return outputs[-1]
        return None


_shapes = Shapes()


def begin(shapes: Shapes | None = None) -> Shapes:
    """For a new capture: those that it knows and adds to."""
    global _shapes
    _shapes = shapes or Shapes()
    return _shapes


def current() -> Shapes:
    """Those of the capture that runs."""
    return _shapes


def _is_alone(stage: Any) -> bool:
    """Outside of a capture, or all stages are on this rank."""
    return current_world() is None or len(set(stage.stage_index_to_group_rank.values())) < 2


def inferred_shapes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_warmup_backward_result``: what other stages vote is not known, and shapes can
    always be inferred."""

    @functools.wraps(original)
    def _warmup_backward_result(stage: Any, received_result: Any = None) -> Any:
        if _is_alone(stage):
            return original(stage, received_result)
        return torch.zeros(1, dtype=torch.int32)

    return _warmup_backward_result


def kept_shapes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_send_meta``."""

    @functools.wraps(original)
    def _send_meta(stage: Any, meta: Any, dst_stage: int) -> None:
        if _is_alone(stage):
            return original(stage, meta, dst_stage)
        _shapes.said[_shapes.next(stage.stage_index, dst_stage)] = meta
        return None

    return _send_meta


def known_shapes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_recv_meta``."""

    @functools.wraps(original)
    def _recv_meta(stage: Any, src_stage: int) -> Any:
        if _is_alone(stage):
            return original(stage, src_stage)
        key = _shapes.next(src_stage, stage.stage_index)
        if key not in _shapes.known:
            _shapes.taken[key] = _answer(stage, src_stage)
            return _shapes.taken[key]
        return _shapes.known[key]

    return _recv_meta


def _answer(stage: Any, src_stage: int) -> Any:
    from torch.distributed.pipelining import _utils

    if src_stage > stage.stage_index:
        outputs = stage._stage_meta.outputs
        return _utils._StageBackwardMeta(backward_metas=_utils._derive_grad_metas(outputs))
    given = stage._user_meta.inputs
    if given is not None:
        return _utils._StageForwardMeta(forward_metas=tuple(given))
    latest = _shapes.latest()
    if latest is None:
        raise CaptureError(
            f"stage {stage.stage_index} of a pipeline is run before stage {src_stage}, whose "
            "outputs are not known: give its PipelineStage input_args"
        )
    return latest
