# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The order in which a stage of a pipeline computes and talks: a list of actions.

A message is posted one computation ahead of the one that needs it, so that it runs beside that.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnsim.recipes.layout import Layout

KINDS = (
    "forward", "backward", "receive_forward", "send_forward", "receive_backward", "send_backward",
)  # fmt: skip


@dataclass(frozen=True)
class Action:
    """What a stage does for one micro-batch in one of its chunks.

    Attributes:
        kind: one of KINDS.
        chunk: number among the stage's chunks; micro_batch: number in the step.
    """

    kind: str
    chunk: int
    micro_batch: int


def computations(layout: Layout, stage: int) -> list[Action]:
    """Forwards and backwards of a stage in their order."""
    if layout.vp > 1:
        return _interleaved(layout, stage)
    forwards = [Action("forward", 0, i) for i in range(layout.micro_batches)]
    backwards = [Action("backward", 0, i) for i in range(layout.micro_batches)]
    if layout.schedule == "gpipe":
        return forwards + backwards
    ahead = min(layout.pp - stage - 1, len(forwards))
    order = forwards[:ahead]
    for i, backward in enumerate(backwards):
        order += forwards[ahead + i : ahead + i + 1]
        order.append(backward)
    return order


def _interleaved(layout: Layout, stage: int) -> list[Action]:
    """Megatron-LM's: groups of pp micro-batches go through the chunks in turn."""
    pp, vp = layout.pp, layout.vp
    total = layout.micro_batches * vp
    if layout.micro_batches == pp:
        ahead = total
    else:
        ahead = min((pp - stage - 1) * 2 + (vp - 1) * pp, total)

    def at(index: int, is_forward: bool) -> Action:
        group, inside = divmod(index, pp * vp)
        chunk = inside // pp
        micro_batch = group * pp + inside % pp
        if is_forward:
            return Action("forward", chunk, micro_batch)
        return Action("backward", vp - 1 - chunk, micro_batch)

    forwards = [at(i, True) for i in range(total)]
    backwards = [at(i, False) for i in range(total)]
    order = forwards[:ahead]
    for i, backward in enumerate(backwards):
        order += forwards[ahead + i : ahead + i + 1]
        order.append(backward)
    return order


def sequential(layout: Layout, micro_batches: int) -> list[Action]:
    """Each micro-batch through all chunks and back before the next: what segments are cut from."""
    order: list[Action] = []
    for i in range(micro_batches):
        order += [Action("forward", chunk, i) for chunk in range(layout.vp)]
        order += [Action("backward", chunk, i) for chunk in reversed(range(layout.vp))]
    return order


def with_messages(layout: Layout, stage: int, order: list[Action]) -> list[Action]:
    """The same with its messages: a receive stands before the computation ahead of its own."""
    if layout.pp == 1:
        return order
    actions: list[Action] = []
    first = order[0] if order else None
    if first is not None:
        actions += _receive(layout, stage, first)
    for at, action in enumerate(order):
        if at + 1 < len(order):
            actions += _receive(layout, stage, order[at + 1])
        actions.append(action)
        actions += _send(layout, stage, action)
    return actions


def _receive(layout: Layout, stage: int, action: Action) -> list[Action]:
    piece = action.chunk * layout.pp + stage
    if action.kind == "forward" and piece > 0:
        return [Action("receive_forward", action.chunk, action.micro_batch)]
    if action.kind == "backward" and piece < layout.pp * layout.vp - 1:
        return [Action("receive_backward", action.chunk, action.micro_batch)]
    return []


def _send(layout: Layout, stage: int, action: Action) -> list[Action]:
    piece = action.chunk * layout.pp + stage
    if action.kind == "forward" and piece < layout.pp * layout.vp - 1:
        return [Action("send_forward", action.chunk, action.micro_batch)]
    if action.kind == "backward" and piece > 0:
        return [Action("send_backward", action.chunk, action.micro_batch)]
    return []
