# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""One layout, captured and simulated: what a process of a search does."""

from __future__ import annotations

import functools
import gc
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trnsim.errors import PlanError
from trnsim.report import words

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.plan.script_runs import Target
    from trnsim.project import Projection
    from trnsim.recipes.layout import Layout
    from trnsim.recipes.models import Model
    from trnsim.recipes.style import Style


@dataclass(frozen=True)
class Where:
    """A machine by its name, as another process loads it, and how ranks share its chips.

    Attributes:
        digest: of all its figures, its stack's too: files change, and what was simulated of the old
            ones is not of the new ones.
    """

    machine: str
    overrides: tuple[str, ...]
    stack: str | None
    ranks_per_chip: int
    digest: str

    @classmethod
    def of(cls, target: Target, ranks_per_chip: int | None) -> Where:
        """Of a machine that was asked for; ranks_per_chip: None for the first that is allowed."""
        per_chip = ranks_per_chip or target.machine.ranks_per_chip_allowed[0]
        return cls(target.name, target.overrides, target.stack, per_chip, target.machine.hash)


@dataclass(frozen=True)
class Trial:
    """A step of a layout.

    Attributes:
        step_time_s: of the whole step; of very many micro-batches by two shorter steps.
        step_time_interval_s: None where it was not asked for.
        memory_peak_bytes: of the rank that takes most; memory_capacity_bytes: what one has.
        memory_by_kind, breakdown_s, mfu, bottleneck, interval_basis: as of `trnsim run --json`.
        cost_usd, energy_j: of the step on the chips that it uses; None where not known.
        simulated_micro_batches: of the steps that were simulated.
    """

    step_time_s: float
    memory_peak_bytes: int
    memory_capacity_bytes: int
    memory_by_kind: dict[str, int]
    breakdown_s: dict[str, float]
    mfu: float | None
    bottleneck: str
    cost_usd: float | None
    energy_j: float | None
    simulated_micro_batches: tuple[int, ...]
    step_time_interval_s: tuple[float, float] | None = None
    interval_basis: str = ""
    guesses: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self)


@functools.cache
def _machine(where: Where) -> _core.Machine:
    from trnsim import machine as machines

    loaded = machines.load(where.machine, where.overrides, where.stack)
    if loaded.hash != where.digest:
        raise PlanError(f"the files of {where.machine} changed while it ran: run it again")
    return loaded


@functools.cache
def _settle() -> None:
    """Objects that live as long as the process are no longer looked at: each capture collects what
    it has left in cycles, which takes as long as there are objects."""
    import torch.distributed.fsdp
    import torch.distributed.tensor  # noqa: F401

    import trnsim.project  # noqa: F401
    from trnsim import recipes

    _ = recipes.capture
    gc.collect()
    gc.freeze()


def step_of(
    where: Where, model: Model, layout: Layout, style: Style, interval: bool = False
) -> Projection:
    """The training step of the layout, captured from the reference program and projected."""
    from trnsim import recipes
    from trnsim.project import project

    server = _machine(where).server_chips * where.ranks_per_chip
    with warnings.catch_warnings():  # of torch, about its own names in the reference program
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
        workloads = recipes.capture(model, layout, style, ranks_per_server=server)
    if layout.offload_layers:
        _check_host_memory(_machine(where), workloads, min(layout.world, server))
    return project(
        workloads, _machine(where),
        ranks_per_chip=where.ranks_per_chip, tokens_per_step=layout.global_batch * layout.sequence,
        samples_per_step=layout.global_batch, top=0, advise=False, interval=interval,
    )  # fmt: skip


def _check_host_memory(machine: _core.Machine, workloads: list[Any], per_server: int) -> None:
    """Raises PlanError where what leaves the device is more than a server's host has; where the
    machine file does not know that, a guess says so."""
    from trnsim import _core
    from trnsim.recipes.offload import most_host_bytes

    held: Counter[int] = Counter()  # of each server
    of_ranks = [most_host_bytes(workload) for workload in workloads]
    for workload, each in zip(workloads, of_ranks, strict=True):
        played_by = workload.played_by  # None: by all, and servers are alike
        for rank in _core.ranks_of_pattern(played_by) if played_by else range(per_server):
            held[rank // per_server] += each
    taken, there = max(held.values()), machine.host_memory_bytes
    if there is None:
        note = (
            f"{words.size(max(of_ranks))} of activations a rank are in host memory, "
            f"{words.size(taken)} of a server: unknown whether its host has that, for the machine "
            "file has no server.host_memory"
        )
        workloads[0].notes = [*workloads[0].notes, note]
    elif taken > there:
        raise PlanError(
            f"offloaded activations take {words.size(taken)} of a server's host, which has "
            f"{words.size(there)}: use fewer offload_layers, or a smaller micro_batch"
        )


def try_layout(
    where: Where, model: Model, layout: Layout, style: Style, interval: bool = False
) -> Trial:
    """Captures the layout's training step and simulates it.

    Raises:
        TrnSimError: the machine cannot run it.
    """
    from trnsim.recipes.lengths import at_length, simulated_lengths

    _settle()
    lengths = simulated_lengths(model, layout)
    done = [
        step_of(where, model, length, style, interval and length is lengths[-1])
        for length in lengths
    ]

    def whole(values: list[float]) -> float:
        return at_length(values, lengths, layout)

    last = done[-1].figures
    seconds = whole([each.step_time_s for each in done])
    scale = seconds / done[-1].step_time_s
    parts = {
        name: whole([each.breakdown_s[name] for each in done]) for name in done[-1].breakdown_s
    }
    flops = whole([float(each.figures.model_flops or 0) for each in done])
    cost, energy = last.cost_usd_per_step, last.energy_j_per_step
    low, high = done[-1].step_time_interval_s
    return Trial(
        seconds,
        last.memory_peak_bytes,
        last.memory_capacity_bytes,
        dict(last.memory_by_kind),
        parts,
        flops / (seconds * last.peak_flops * last.chips) if last.mfu is not None else None,
        last.bottleneck,
        None if cost is None else cost * scale,
        None if energy is None else energy * scale,
        tuple(length.micro_batches for length in lengths),
        (low * scale, high * scale) if interval else None,
        last.interval_basis if interval else "",
        tuple(": ".join(filter(None, map(str, guess))) for guess in last.guesses),
    )


@dataclass(frozen=True)
class Layer:
    """What a layer adds to a step, at the least.

    Attributes:
        seconds: a micro-batch's forward and backward through it, on an idle network.
        activation_bytes: that a rank keeps of a micro-batch between them.
    """

    seconds: float
    activation_bytes: int


def measure_layer(where: Where, model: Model, layout: Layout, style: Style) -> Layer:
    """Of one pipeline stage on as few ranks as the layout's other degrees need: what the third
    layer and the third micro-batch add to two of each.

    Args:
        model: whose layers are all alike.
        layout: without a pipeline, and with one micro-batch.
    """
    of_one = layout.global_batch
    trials = {
        (layers, count): try_layout(
            where, model.with_(layers=layers), layout.with_(global_batch=of_one * count), style
        )
        for layers in (2, 3)
        for count in (2, 3)
    }  # fmt: skip
    added = [trials[layers, 3].step_time_s - trials[layers, 2].step_time_s for layers in (2, 3)]
    kept = [trials[layers, 3].memory_by_kind.get("activations", 0) for layers in (2, 3)]
    # Where the two layers' peak is at another time (their optimizer's), they seem to keep less.
    least = min(kept[1] - kept[0], kept[0] // 2)
    return Layer(max(0.0, added[1] - added[0]), max(0, least))
