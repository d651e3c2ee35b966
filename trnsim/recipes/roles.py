# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Captures a reference program: the Workload of every role of its job, in this process.

Each stage of a pipeline is a role. Its program runs on the simulated device as one of its ranks;
stages that are alike are captured once and moved along. With skewed experts each expert parallel
rank of a stage is a role, but for those that get alike: a capture for each of them and each kind of
stage. A step is composed: the program runs a step of a few micro-batches one after another, and the
records of its actions are written out again in the order of the schedule, as often as there are
micro-batches (csrc/workload/compose.h).
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from trnsim import _core
from trnsim.recipes.layout import Layout
from trnsim.recipes.models import Model
from trnsim.recipes.schedule import Action, computations, sequential, with_messages
from trnsim.recipes.skew import alike_ranks, check_style, hottest_share
from trnsim.recipes.style import Style, style_of

TEMPLATES = 3  # micro-batches: the first, which is every other one, and the last


def capture(
    model: Model, layout: Layout, style: Style | str = "megatron", *,
    ranks_per_server: int = 8, compose: bool = True,
) -> list[Any]:  # fmt: skip
    """The Workloads of a training step, one of each role.

    Args:
        model, layout, style: what is trained, how it is divided, and how it is written.
        ranks_per_server: of the machine.
        compose: write the schedule out from captured segments; False runs all of it.

    Raises:
        RecipeError: the layout does not fit the model, or its skew of experts the style.
    """
    layout.check(model)
    style = style_of(style)
    check_style(layout, style)
    found: dict[tuple[Any, ...], tuple[int, Any, list[Any]]] = {}
    workloads = []
    for stage, players in itertools.product(range(layout.pp), alike_ranks(model, layout)):
        alike = (*_kind(model, layout, stage), players[0])
        if compose and alike in found:
            of, workload, marks = found[alike]
            workload = _core.moved(workload, (stage - of) * layout.stage_ranks)
        else:
            rank = stage * layout.stage_ranks + players[0]
            workload, marks = _run(model, layout, style, rank, ranks_per_server, compose)
            found[alike] = stage, workload, marks
        if compose:
            workload = _composed(workload, marks, layout, stage)
        _name(workload, model, layout, stage, players)
        workloads.append(workload)
    return workloads


def _kind(model: Model, layout: Layout, stage: int) -> tuple[Any, ...]:
    """Stages of a kind run the same, but for where they are."""
    pieces = layout.chunk_layers(model)
    mine = [pieces[chunk * layout.pp + stage] for chunk in range(layout.vp)]
    layers = [tuple((model.has_experts(n), model.window_of(n)) for n in piece) for piece in mine]
    return stage == 0, stage == layout.pp - 1, tuple(layers)


def _name(workload: Any, model: Model, layout: Layout, stage: int, players: list[int]) -> None:
    first = stage * layout.stage_ranks
    workload.parameter_count = _parameters(model, layout, stage)
    workload.role = f"rank{first + players[0]}"
    if layout.pp > 1 or len(players) < layout.ep:
        groups = range(first, first + layout.stage_ranks, layout.ep)
        ranks = sorted(group + player for group in groups for player in players)
        workload.played_by = _core.pattern_of_ranks(ranks)
    if layout.expert_skew:
        note = (
            f"experts are skewed by {layout.expert_skew}: the expert parallel rank with most "
            f"tokens gets {hottest_share(model, layout):.4g} times the mean"
        )
        workload.notes = [*workload.notes, note]


def _parameters(model: Model, layout: Layout, stage: int) -> int:
    """Elements of the stage's part of the model, over all its ranks."""
    pieces = layout.chunk_layers(model)
    mine = [pieces[chunk * layout.pp + stage] for chunk in range(layout.vp)]
    count = sum(model.layer_parameters(layer) for piece in mine for layer in piece)
    ends = model.parameters() - sum(map(model.layer_parameters, range(model.layers)))
    embedding = model.vocab * model.hidden
    first = embedding + (model.max_positions * model.hidden if model.position == "learned" else 0)
    if stage == 0:
        count += first
    return count + (ends - first if stage == layout.pp - 1 else 0)


@contextlib.contextmanager
def recorded(layout: Layout, rank: int, ranks_per_server: int) -> Iterator[list[Any]]:
    """A capture of one rank; its Workload is in the list afterwards."""
    from trnsim import _torch
    from trnsim.capture.script import start_capture, stop_capture
    from trnsim.capture.world import World

    if _torch.live_block_count():  # what an earlier capture left in cycles is no part of this one
        gc.collect()
    made: list[Any] = []
    world = World(rank, layout.world, ranks_per_server)
    start_capture(world, "phantom", no_oom=True)
    try:
        if layout.world > 1:
            dist.init_process_group()
        yield made
    finally:
        made.append(stop_capture(others_follow=True))
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()


def _run(
    model: Model, layout: Layout, style: Style, rank: int, ranks_per_server: int, compose: bool
) -> tuple[Any, list[Any]]:
    """The Workload of two steps, and where the actions of the second stand in it."""
    import trnsim.device  # noqa: F401  the device
    from trnsim import _torch
    from trnsim.recipes.trainer import Trainer

    stage = rank // layout.stage_ranks
    marks: list[Any] = []
    with recorded(layout, rank, ranks_per_server) as made:
        device = torch.device(_torch.device_name(), 0)
        trainer = Trainer(model, layout, style, device, rank)
        batch = layout.micro_batch, layout.sequence // layout.cp
        given = tuple(torch.zeros(batch, dtype=torch.int64, device=device) for _ in range(2))
        tokens = lambda _, given=given: given
        counted = layout.tokens * layout.micro_batches
        counted = {"tokens": counted} if layout.pp == 1 else {}
        first = sequential(layout, 1)
        order = trainer.actions
        if compose:
            order = sequential(layout, min(layout.micro_batches, TEMPLATES))
            order = with_messages(layout, stage, order)
        with contextlib.closing(trainer):
            trainer.step(tokens, with_messages(layout, stage, first))
            torch.trn.step(**counted)
            trainer.step(tokens, order, lambda action: marks.append((action, *_torch.position())))
            torch.trn.step(**counted)
        del trainer, given, tokens
    return made[0], marks


def _composed(workload: Any, marks: list[Any], layout: Layout, stage: int) -> Any:
    """The Workload with the whole schedule in place of the micro-batches that were run."""
    last = layout.micro_batches - 1
    segments: dict[Action, int] = {}
    ranges = []
    for (action, *begin), (_, *end) in itertools.pairwise(marks):
        segments[action] = len(ranges)
        ranges.append((*begin, *end, action.micro_batch))
    order = []
    captured = max(action.micro_batch for action in segments)
    for action in with_messages(layout, stage, computations(layout, stage)):
        number = action.micro_batch
        of = 0 if number == 0 else captured if number == last else 1
        order.append((segments[Action(action.kind, action.chunk, of)], number))
    return _core.compose(workload, ranges, order)
