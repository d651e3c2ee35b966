# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Shapes between the stages of ``torch.distributed.pipelining``.

Before its first step a ``PipelineStage`` sends the shapes of its outputs to the next stage, and
those of its gradients to the one before. Stages are captured one after the other, each in a process
of its own, so what a stage says is kept for those that run later. One that has not run yet is
answered for: gradients have the shapes of the outputs that they belong to, and inputs those that
the script gave to its stage, or else those of the outputs that are known already. What was taken to
be so is compared with what the stage says once it has run.

Objects and CPU tensors that rank 0 sends to all are kept the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from trnsim import _torch
from trnsim.capture.world import current_world
from trnsim.errors import CaptureError

Key = tuple[int, int, int]  # from stage, to stage, and how often before


@dataclass
class Shapes:
    """What stages say to each other.

    Attributes:
        known: what other ranks have said.
        said: what this rank said.
        used: what this rank took stages to say.
        sources: ranks whose stages it did not know.
        objects: lists that rank 0 has broadcast or scattered, each object pickled, by the kind and
            place of the collective (`groups.place_of`) and how many came before there.
        tensors: those of the CPU that rank 0 has broadcast, as csrc/capture/distributed keeps them.
    """

    known: dict[Key, Any] = field(default_factory=dict)
    said: dict[Key, Any] = field(default_factory=dict)
    used: dict[Key, Any] = field(default_factory=dict)
    sources: set[int] = field(default_factory=set)
    objects: dict[tuple[str, str, int], list[bytes]] = field(default_factory=dict)
    tensors: dict[str, list[bytes | None]] = field(default_factory=dict)
    _asked: dict[tuple[int, int], int] = field(default_factory=dict)
    _sent: dict[tuple[str, str], int] = field(default_factory=dict)

    def next(self, source: int, to: int) -> Key:
        """The key of the next message between two stages."""
        count = self._asked[source, to] = self._asked.get((source, to), -1) + 1
        return source, to, count

    def next_objects(self, kind: str, place: str) -> tuple[str, str, int]:
        """The key of the next list of objects there."""
        count = self._sent[kind, place] = self._sent.get((kind, place), -1) + 1
        return kind, place, count

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
        if key in _shapes.known:
            _shapes.used[key] = _shapes.known[key]
        else:
            _shapes.sources.add(_rank_of(stage, src_stage))
            _shapes.used[key] = _answer(stage, src_stage)
        return _shapes.used[key]

    return _recv_meta


def _rank_of(stage: Any, index: int) -> int:
    group = stage.group or dist.group.WORLD
    return dist.get_global_rank(group, stage.stage_index_to_group_rank[index])


def outside_of_step(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_prepare_forward_infra`` and its counterpart: a stage runs forward and backward
    once before its first micro-batch, only to know shapes. See csrc/workload/whole_steps.h."""

    @functools.wraps(original)
    def prepare(*args: Any, **kwargs: Any) -> Any:
        if not _torch.is_recording():
            return original(*args, **kwargs)
        _torch.record_marker("setup", 1)
        try:
            return original(*args, **kwargs)
        finally:
            _torch.record_marker("setup", 2)

    return prepare


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
