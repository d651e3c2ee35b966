# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Layout: how a model and its batch are divided over ranks, and what is done in which precision.

Ranks count as Megatron-LM's do: tensor parallel ranks are neighbours, then context, then data
parallel ones, then the stages of the pipeline. Experts are divided over the ranks of a stage
without regard to tensor and context parallelism: expert parallel ranks are neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from trnsim.errors import RecipeError
from trnsim.recipes.models import Model
from trnsim.recipes.skew import check_skew, normal_skew

GRADIENTS = ("float32", "bfloat16", "float16")
PRECISIONS = ("bf16", "fp16", "fp32", "fp8", "fp8_current", "fp8_block", "mxfp8")
SCHEDULES = ("1f1b", "gpipe")
RECOMPUTE = ("none", "selective", "full")
# Products and other results of a block that may be kept when the rest is computed again.
KEPT = ("qkv", "attention", "out", "gate", "up", "down")


@dataclass(frozen=True)
class Layout:
    """How one training step is divided.

    Attributes:
        tp, cp, dp, pp: ranks of each kind; the world has tp * cp * dp * pp.
        vp: pieces of the model in each stage (interleaving).
        ep: ranks that share the experts of a layer; divides tp * cp * dp.
        zero: 0 all ranks hold everything, 1 the optimizer is divided over the data parallel
            ranks, 2 the gradients too (FSDP that keeps parameters gathered, SHARD_GRAD_OP), 3 the
            parameters too (FSDP).
        shard: ranks that FSDP divides over, the rest are replicas (HSDP); 0 = all.
        micro_batch: sequences of one micro-batch; global_batch: of the step.
        recompute: "none", "selective" (attention), "full", or the results that are kept.
        recompute_layers: layers of a stage piece that it applies to; -1 = all.
        gradient: dtype that gradients are accumulated and reduced in.
        expert_skew: how uneven the router is on the simulated device: "zipf:S", the popularity of
            experts falls with their rank to the power S (`skew`); "" all get the same.
        offload_layers: first layers whose activations are in host memory between forward and
            backward (offload.py).
    """

    tp: int = 1
    pp: int = 1
    vp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    zero: int = 1
    shard: int = 0
    sequence_parallel: bool | None = None
    micro_batch: int = 1
    global_batch: int = 1
    sequence: int = 2048
    recompute: str | tuple[str, ...] = "none"
    recompute_layers: int = -1
    precision: str = "bf16"
    gradient: str = "float32"
    schedule: str = "1f1b"
    expert_skew: str = ""
    offload_layers: int = 0
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.sequence_parallel is None:
            object.__setattr__(self, "sequence_parallel", self.tp > 1)
        object.__setattr__(self, "expert_skew", normal_skew(self.expert_skew))
        for name in ("tp", "pp", "vp", "cp", "ep", "dp", "micro_batch", "global_batch", "sequence"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} {getattr(self, name)} of a layout: use 1 or more")
        for name, known in (
            ("precision", PRECISIONS), ("schedule", SCHEDULES), ("gradient", GRADIENTS)
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise RecipeError(f"{name} '{getattr(self, name)}': use {', '.join(known)}")
        self._check_recompute()
        self._check_offload()
        if self.zero not in (0, 1, 2, 3):
            raise RecipeError(f"zero {self.zero}: use 0, 1, 2 or 3 (FSDP)")
        if self.vp > 1 and self.pp == 1:
            raise RecipeError(f"vp {self.vp} without a pipeline: use pp 2 or more, or vp 1")
        batch = self.micro_batch * self.dp
        if self.global_batch % batch:
            below, above = (
                self.global_batch // batch * batch,
                -(-self.global_batch // batch) * batch,
            )
            near = f"{below} or {above}" if below else str(above)
            raise RecipeError(
                f"global_batch {self.global_batch} is not a multiple of micro_batch "
                f"{self.micro_batch} x dp {self.dp} = {batch}: use {near}"
            )
        if self.stage_ranks % self.ep:
            is_more = self.ep > self.stage_ranks
            rule = "is more than the" if is_more else "does not divide"
            raise RecipeError(
                f"ep {self.ep} {rule} tp x cp x dp = {self.stage_ranks}"
                f"{' ranks of a stage' if is_more else ''}: use "
                f"{_nearest_divisor(self.ep, self.stage_ranks)}"
            )
        if self.vp > 1 and self.micro_batches % self.pp:
            below = self.micro_batches // self.pp * self.pp
            near = [n for n in (below, below + self.pp) if n]
            raise RecipeError(
                f"{self.micro_batches} micro-batches are not a multiple of pp {self.pp}, which "
                f"interleaving needs: use global_batch {' or '.join(str(n * batch) for n in near)}"
            )

    def _check_recompute(self) -> None:
        if isinstance(self.recompute, str):
            if self.recompute not in RECOMPUTE:
                raise RecipeError(
                    f"recompute '{self.recompute}': use {', '.join(RECOMPUTE)} or a tuple of what "
                    f"is kept, of {', '.join(KEPT)}"
                )
        elif wrong := set(self.recompute) - set(KEPT):
            raise RecipeError(f"'{min(wrong)}' cannot be kept: use some of {', '.join(KEPT)}")

    def _check_offload(self) -> None:
        """Megatron-LM's own rules of --cpu-offloading-num-layers (transformer_config.py)."""
        count = self.offload_layers
        if count < 0:
            raise RecipeError(f"offload_layers {count}: use 0 or more")
        if count and self.pp > 1:
            raise RecipeError(
                f"offload_layers {count} with pp {self.pp}: Megatron-LM does not offload in a "
                "pipeline: use pp 1, or offload_layers 0"
            )
        if count and self.recompute != "none":
            kept = self.recompute if isinstance(self.recompute, str) else "of some results"
            raise RecipeError(
                f"offload_layers {count} with recompute {kept}: Megatron-LM does not offload what "
                "it computes again: use recompute none, or offload_layers 0"
            )

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def stage_ranks(self) -> int:
        """Ranks that hold one stage of the pipeline."""
        return self.tp * self.cp * self.dp

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one rank in a step."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one context parallel rank."""
        return self.micro_batch * self.sequence // self.cp

    def chunk_layers(self, model: Model) -> list[list[int]]:
        """Layers of each piece of the model, in the order of the model."""
        pieces = self.pp * self.vp
        if model.layers >= pieces - (2 if pieces > 2 else 0):  # embedding and loss may be alone
            each, more = divmod(model.layers, pieces)
            # The longer ones stand in the middle: first and last have embedding and loss too.
            middle = sorted(range(pieces), key=lambda i: (min(i, pieces - 1 - i) == 0, i))
            sizes = [each] * pieces
            for i in middle[:more]:
                sizes[i] += 1
            ends = [sum(sizes[: i + 1]) for i in range(pieces)]
            return [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
        raise RecipeError(
            f"{model.layers} layers over pp {self.pp} x vp {self.vp} pieces: use pp x vp of "
            f"{_nearest_divisor(pieces, model.layers)}"
        )

    def check(self, model: Model) -> None:
        """Raises RecipeError when the model cannot be divided so; names the rule and what works."""
        self.chunk_layers(model)
        if self.offload_layers > model.layers:
            raise RecipeError(
                f"offload_layers {self.offload_layers} is more than the {model.layers} layers of a "
                f"stage: use up to {model.layers}"
            )
        self._check_tensor_parallel(model)
        if self.sequence % (2 * self.cp if self.cp > 1 else 1):
            raise RecipeError(
                f"sequence {self.sequence} is not a multiple of 2 x cp {self.cp}: use "
                f"{-(-self.sequence // (2 * self.cp)) * 2 * self.cp}, or cp "
                f"{_nearest_divisor(self.cp, max(1, self.sequence // 2))}"
            )
        if self.sequence_parallel and self.tokens % self.tp:
            raise RecipeError(
                f"{self.tokens} tokens of a micro-batch over tp {self.tp} with sequence parallel: "
                f"use tp {self._nearest_tp(model)}"
            )
        if self.ep > 1 and not model.experts:
            raise RecipeError(f"ep {self.ep} of a model without experts: use ep 1")
        if model.experts % self.ep:
            raise RecipeError(
                f"ep {self.ep} does not divide {model.experts} experts: use "
                f"{_nearest_divisor(self.ep, model.experts)}"
            )
        check_skew(model, self)

    def _check_tensor_parallel(self, model: Model) -> None:
        """What tensor parallel ranks divide: heads and widths; vocabularies are padded."""
        for what, count in _divided_by_tp(model).items():
            if count % self.tp:
                raise RecipeError(
                    f"tp {self.tp} does not divide {what}: use {self._nearest_tp(model)}"
                )

    def _nearest_tp(self, model: Model) -> int:
        """The degree nearest to tp that divides all that it has to."""
        common = math.gcd(*_divided_by_tp(model).values())
        if self.sequence_parallel:
            common = math.gcd(common, self.tokens)
        return _nearest_divisor(self.tp, common)

    def with_(self, **changes: Any) -> Layout:
        """The same layout with other values; sequence parallelism follows tp if it is not given."""
        if "tp" in changes:
            changes = {"sequence_parallel": None, **changes}
        return replace(self, **changes)


def _divided_by_tp(model: Model) -> dict[str, int]:
    """What a tensor parallel degree has to divide, by its words."""
    widths = {model.ffn, model.shared_ffn} if model.experts else {model.ffn}
    named = {f"ffn {width}": width for width in sorted(widths - {0})}
    return {f"{model.heads} heads": model.heads, **named}


def padded_vocab(model: Model, tp: int) -> int:
    """Rows of the embedding: Megatron-LM pads to 128 x tp; nobody else changes a whole multiple."""
    return model.vocab if model.vocab % tp == 0 else -(-model.vocab // (128 * tp)) * 128 * tp


def _nearest_divisor(wanted: int, of: int) -> int:
    """The divisor of `of` that is nearest to `wanted`, the smaller of two."""
    divisors = [d for i in range(1, int(of**0.5) + 1) if of % i == 0 for d in (i, of // i)]
    return min(divisors, key=lambda d: (abs(d - wanted), d))
