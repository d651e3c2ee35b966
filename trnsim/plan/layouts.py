# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Layouts of a model on so many chips: all that a space has, and what rules out the others."""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trnsim.asked import check_fields
from trnsim.errors import PlanError, RecipeError
from trnsim.machine import sheets_of
from trnsim.recipes.layout import GRADIENTS, KEPT, PRECISIONS, RECOMPUTE, Layout
from trnsim.recipes.skew import normal_skew
from trnsim.recipes.style import Style, style_of

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.recipes.models import Model

_DEGREES = ("tp", "pp", "vp", "cp", "ep", "micro_batch", "recompute", "zero", "offload_layers")
TOKENS = 1 << 24  # of a step: Llama 3 405B's last batch size (Llama Team 2024, section 3.4.1)
LEAST_USED = 0.9  # of the chips that are asked for
_LARGEST_PIPELINE = 64
_LEAST_SEQUENCE = 2048  # tokens of a context parallel rank
# The style of each stack's own training programs: divided as Megatron-LM does, or by FSDP.
_STYLE_OF_STACK = {
    "": ("megatron", "megatron-fsdp"),
    "megatron": ("megatron", "megatron-fsdp"),
    "nemo": ("megatron", "megatron-fsdp"),
    "nemo-26.04": ("megatron", "megatron-fsdp"),
    "neuron": ("neuron", ""),
    "torchtitan": ("", "torchtitan"),
    "torch-eager": ("", "torchtitan-eager"),
    "torch-compile": ("", "fsdp"),
    "llm-foundry": ("", "llm-foundry"),
    "maxtext": ("", "gspmd"),
    "axlearn": ("", "gspmd"),
}
# Of them, those whose programs run on chips of an architecture.
_STACKS_OF_CHIP = {
    "neuroncore": ("neuron",),
    "tpu": ("maxtext", "axlearn"),
    "gpu": (
        "megatron", "nemo", "nemo-26.04", "torchtitan", "torch-compile", "torch-eager",
        "llm-foundry", "maxtext", "axlearn",
    ),
}  # fmt: skip
_INFERENCE = "neuron-inference"  # what stacks of inference extend
LONGEST = 2**27  # tokens of a sequence; their positions alone are held in memory, 1 GiB
_SIZES = ("tp", "pp", "vp", "cp", "ep", "micro_batch")
_NEAREST = 2  # layouts that are named beside a rule


@dataclass(frozen=True)
class Space:
    """What is tried; None is what suits the model and the machine.

    Attributes:
        tp, pp, vp, cp, ep, micro_batch, recompute, zero: as of a Layout.
        offload_layers: as of a Layout; () for none.
        precision, gradient, sequence, global_batch: of all layouts; global_batch 0 is as many
            sequences as TOKENS has.
        styles: of layouts whose parameters are not divided (zero 0 and 1), and of FSDP (zero 3);
            "" for none. The verbs put those of the stack here.
        least_used: share of the chips that a layout has to use.
        expert_skew: of all layouts: "zipf:S" or "", as of a Layout.
    """

    sequence: int = 8192
    global_batch: int = 0
    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    vp: tuple[int, ...] | None = None
    cp: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None
    micro_batch: tuple[int, ...] | None = None
    recompute: tuple[str | tuple[str, ...], ...] | None = None
    zero: tuple[int, ...] | None = None
    offload_layers: tuple[int, ...] = ()
    precision: str = "bf16"
    gradient: str = "float32"
    styles: tuple[str, str] = ("megatron", "megatron-fsdp")
    least_used: float = LEAST_USED
    expert_skew: str = ""

    def __post_init__(self) -> None:
        check_fields(PlanError, self)
        try:
            object.__setattr__(self, "expert_skew", normal_skew(self.expert_skew))
        except RecipeError as error:
            raise PlanError(str(error)) from None
        for name, known in (("precision", PRECISIONS), ("gradient", GRADIENTS)):
            if getattr(self, name) not in known:
                raise PlanError(f"{name} '{getattr(self, name)}': use {', '.join(known)}")
        for name in (*_SIZES, "recompute", "zero"):
            if getattr(self, name) == ():
                raise PlanError(f"{name} is an empty list: list what is tried, or leave it out")
        if self.sequence < 1:
            raise PlanError(f"sequence {self.sequence} of a step: use 1 or more")
        if self.sequence > LONGEST:
            raise PlanError(f"sequence {self.sequence} of a step: use at most {LONGEST}")
        if self.global_batch < 0:
            raise PlanError(f"global_batch {self.global_batch} of a step: use 1 or more")
        object.__setattr__(self, "_has_own_batch", self.global_batch > 0)
        if not self.global_batch:
            object.__setattr__(self, "global_batch", max(1, TOKENS // self.sequence))
        for name in _SIZES:
            if any(number < 1 for number in getattr(self, name) or ()):
                raise PlanError(f"{name} {min(getattr(self, name))}: use 1 or more")
        for recompute in self.recompute or ():
            if isinstance(recompute, str) and recompute not in RECOMPUTE:
                raise PlanError(
                    f"recompute '{recompute}': use {', '.join(RECOMPUTE)}, or what is kept of "
                    f"{', '.join(KEPT)}"
                )
        if 2 in (self.zero or ()):
            raise PlanError(
                "zero 2: no reference program divides gradients but not parameters: use 1 (the "
                "optimizer's state) or 3 (FSDP)"
            )
        if any(number < 0 for number in self.offload_layers):
            raise PlanError(f"offload_layers {min(self.offload_layers)}: use 0 or more")
        if not 0 < self.least_used <= 1:
            raise PlanError(f"least_used {self.least_used:g}: use above 0, up to 1")

    @property
    def has_own_batch(self) -> bool:
        """Whether global_batch was given, and is not as many sequences as TOKENS has."""
        return bool(self.__dict__["_has_own_batch"])


def check_has_experts(model: Model, space: Space | None) -> None:
    """Raises PlanError where experts are to be skewed that the model does not have."""
    if space is not None and space.expert_skew and not model.experts:
        raise PlanError(
            f"expert_skew {space.expert_skew} of {model.name or 'a model'}, which has no experts: "
            "leave it out"
        )


def styles_of(stack: str | None) -> tuple[str, str]:
    """The styles of a stack's programs: without FSDP and with it, "" where it has none. A sheet of
    one's own has those of the sheet that it extends, or else Megatron-LM's.

    Raises:
        PlanError: a stack of inference, which trains nothing.
    """
    for name in sheets_of(stack) if stack else ("",):
        if name == _INFERENCE:
            raise PlanError(
                f"stack '{stack}' generates text and trains nothing, and what is searched, scaled "
                "and compared by a model's name is training: use neuron, megatron, ... (steps of "
                "inference: trnsim.recipes.capture_inference)"
            )
        if name in _STYLE_OF_STACK:
            return _STYLE_OF_STACK[name]
    return _STYLE_OF_STACK[""]


def stacks_of(machine: _core.Machine) -> tuple[str, ...]:
    """The stacks that train models on the machine's chips, most used first."""
    return _STACKS_OF_CHIP[machine.architecture]


@dataclass(frozen=True)
class Candidate:
    """A layout, and the chips that it takes."""

    layout: Layout
    style: Style
    chips: int


@dataclass
class Refused:
    """Layouts that a rule forbids, by the rule; one example's own words of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, words: str) -> None:
        """Counts a refusal under what it says without its numbers."""
        rule = re.sub(r"\d[\d,]*", "N", words.partition(": use")[0])
        self.counts[rule] += 1
        self.examples.setdefault(rule, words)

    def why(self, instead: str = "") -> str:
        """The reason of the first one, whose degrees are the smallest, and how many others.
        instead: what to use, where that is known better than by the rule."""
        rule, *others = self.examples
        more = f" (and {len(others)} other rules)" if others else ""
        words = self.examples[rule]
        return (f"{words.partition(': use')[0]}: use {instead}" if instead else words) + more


def candidates(
    model: Model, machine: _core.Machine, chips: int, ranks_per_chip: int, space: Space,
    refused: Refused,
) -> list[Candidate]:  # fmt: skip
    """Every layout of the space that the rules allow, in a fixed order; the others go to `refused`.

    Data parallelism takes what the rest leaves: the largest degree that divides the batch, and that
    the machine can be cut to.
    """
    found = []
    pod_ranks = machine.pod_chips * ranks_per_chip
    for degrees in degrees_of(model, pod_ranks, chips * ranks_per_chip, space):
        candidate = candidate_of(model, machine, chips, ranks_per_chip, space, degrees, refused)
        if candidate is not None:
            found.append(candidate)
    return found


def nearest_that_work(
    model: Model, machine: _core.Machine, chips: int, ranks_per_chip: int, space: Space
) -> str:
    """What to use where the rules refuse a whole space: layouts nearest to its first values that
    they allow, each with no degree asked for; "" where there is none on so many chips."""
    free = replace(space, **dict.fromkeys(_SIZES))
    found = candidates(model, machine, chips, ranks_per_chip, free, Refused())
    wanted = {name: getattr(space, name)[0] for name in _SIZES if getattr(space, name)}

    def distance(one: Candidate) -> tuple[float, float]:
        """How many times as large or small the degrees are, those that nobody asked for last."""
        layout = one.layout
        apart = {name: abs(math.log2(getattr(layout, name) / wanted.get(name, 1)))
                 for name in _SIZES}  # fmt: skip
        return sum(apart[name] for name in wanted), sum(apart.values())

    named: dict[tuple[int, ...], str] = {}
    for one in sorted(found, key=distance):
        layout = one.layout
        sizes = {name: getattr(layout, name) for name in (*_SIZES, "dp")}
        words = " ".join(
            f"{name} {size}" for name, size in sizes.items() if size > 1 or name in wanted
        )
        named.setdefault((layout.tp, layout.pp, layout.cp, layout.ep), words)
        if len(named) == _NEAREST:
            break
    return " or ".join(named.values())


def _powers(most: int) -> tuple[int, ...]:
    return tuple(2**i for i in range(max(1, most).bit_length()))


def degrees_of(model: Model, pod_ranks: int, ranks: int, space: Space) -> Iterator[dict[str, Any]]:
    """All combinations of the space, but for data parallelism."""
    layers = model.layers
    tp = space.tp or _powers(min(pod_ranks, model.heads, ranks))
    pp = space.pp or tuple(
        n for n in range(1, min(_LARGEST_PIPELINE, layers, ranks) + 1)
        if n in _powers(n) or layers % n == 0 or (layers + 2) % n == 0
    )  # fmt: skip
    cp = space.cp or _powers(min(space.sequence // _LEAST_SEQUENCE, ranks))
    ep = space.ep or (_powers(min(model.experts, ranks)) if model.experts else (1,))
    recompute = space.recompute or RECOMPUTE
    zero = space.zero or tuple(n for n, style in ((1, 0), (3, 1)) if space.styles[style])
    offload = space.offload_layers or (0,)
    for t, p, c, e, m, r, z, o in itertools.product(
        tp, pp, cp, ep, space.micro_batch or (1, 2, 4, 8), recompute, zero, offload
    ):
        if z == 3 and p > 1 and space.pp is None:
            continue  # FSDP gathers parameters for every micro-batch: nobody pipelines it
        if r == "selective" and space.recompute is None and not _has_scores(space, z):
            continue  # a fused kernel keeps no scores: the same program as without
        for v in space.vp or _pieces(layers, p):
            values = (t, p, v, c, e, m, r, z, o)
            yield dict(zip(_DEGREES, values, strict=True))


def _has_scores(space: Space, zero: int) -> bool:
    """Whether attention keeps its scores for the backward."""
    name = space.styles[zero == 3]
    return bool(name) and style_of(name).attention == "scores"


def _pieces(layers: int, stages: int) -> tuple[int, ...]:
    """Interleaving degrees: those that divide the layers of a stage evenly, or all but two."""
    if stages == 1:
        return (1,)
    most = max(1, layers // stages)
    even = [v for v in range(1, most + 1) if layers % (stages * v) == 0]
    even += [v for v in range(1, most + 1) if (layers + 2) % (stages * v) == 0]
    return tuple(sorted({1, *even}))


def candidate_of(
    model: Model, machine: _core.Machine, chips: int, ranks_per_chip: int, space: Space,
    degrees: dict[str, Any], refused: Refused,
) -> Candidate | None:  # fmt: skip
    of_model = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if of_model > chips * ranks_per_chip:
        product = " x ".join(f"{name} {degrees[name]}" for name in ("tp", "pp", "cp"))
        refused.add(
            f"{product} = {of_model} ranks on {chips} chips with {ranks_per_chip} each: use "
            "smaller degrees or more chips"
        )
        return None
    style_name = space.styles[degrees["zero"] == 3]
    if not style_name:
        what = "FSDP (zero 3)" if degrees["zero"] == 3 else f"zero {degrees['zero']}"
        refused.add(f"{what} is not in the stack's programs: use another stack, or another zero")
        return None
    dp = _data_parallel(machine, chips, ranks_per_chip, space, degrees, of_model)
    if isinstance(dp, str):
        refused.add(dp)
        return None
    try:
        layout = Layout(
            **degrees, dp=dp, global_batch=space.global_batch, sequence=space.sequence,
            precision=space.precision, gradient=space.gradient, expert_skew=space.expert_skew,
        )  # fmt: skip
        layout.check(model)
    except RecipeError as error:
        refused.add(str(error))
        return None
    return Candidate(layout, style_of(style_name), layout.world // ranks_per_chip)


def _data_parallel(
    machine: _core.Machine, chips: int, ranks_per_chip: int, space: Space,
    degrees: dict[str, Any], of_model: int,
) -> int | str:  # fmt: skip
    """The largest degree that works, or why there is none that uses the chips."""
    micro_batch = degrees["micro_batch"]
    if space.global_batch % micro_batch:
        return (
            f"global_batch {space.global_batch} is not a multiple of micro_batch {micro_batch}: "
            f"use {space.global_batch // micro_batch * micro_batch or micro_batch}"
        )
    most = chips * ranks_per_chip // of_model
    micro_batches = space.global_batch // micro_batch
    legal = machine.legal_chip_counts
    nearest = 0
    for dp in range(min(most, micro_batches), 0, -1):
        if micro_batches % dp:
            continue
        taken, rest = divmod(of_model * dp, ranks_per_chip)
        at = bisect.bisect_left(legal, taken)
        if rest or at == len(legal) or legal[at] != taken:
            continue
        if taken >= space.least_used * chips:
            return dp
        nearest = nearest or dp
    if not nearest:
        return f"no degree of data parallelism divides {micro_batches} micro-batches: change one"
    taken = of_model * nearest // ranks_per_chip
    more = -(-micro_batches // most) * most * micro_batch
    return (
        f"dp {nearest} is the largest of up to {most} that divides {micro_batches} micro-batches, "
        f"and takes {taken:,} of {chips:,} chips: use {taken:,} chips, or global_batch {more:,} "
        f"with dp {most}"
    )
