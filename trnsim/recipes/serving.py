# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Serving: how a model is divided and kept while it generates, and its cache of keys and values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trnsim.errors import RecipeError
from trnsim.recipes.kernels import is_simulated
from trnsim.recipes.layout import Layout
from trnsim.recipes.models import Model

WEIGHTS = ("bf16", "fp32", "int8")


@dataclass(frozen=True)
class Serving:
    """How a batch of sequences is served.

    Attributes:
        tp: ranks that every layer is divided over.
        batch: sequences that are decoded side by side, whether somebody waits for each or not.
        prefill_batch: sequences of one prefill; 0 = batch.
        prompt: tokens that a prefill computes for each of them.
        cache: places of the cache of keys and values that a decoding step reads, the new token's
            included.
        weights: what products keep their weights in; "int8" has one scale a row and is widened as
            it is read, biases, norms, the embedding and the logits stay wide.
    """

    tp: int = 1
    batch: int = 1
    prefill_batch: int = 0
    prompt: int = 128
    cache: int = 256
    weights: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("tp", "batch", "prompt", "cache"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} {getattr(self, name)} of serving: use 1 or more")
        if self.prefill_batch < 0:
            raise RecipeError(f"prefill_batch {self.prefill_batch}: use 1 or more, or 0 for batch")
        if self.weights not in WEIGHTS:
            raise RecipeError(f"weights '{self.weights}': use {', '.join(WEIGHTS)}")
        if self.cache < self.prompt:
            raise RecipeError(
                f"cache {self.cache} has no place for a prompt of {self.prompt} tokens: use "
                f"{self.prompt} or more, and one more for each token that is to follow"
            )

    def layout(self, sequence: int, batch: int) -> Layout:
        """As the modules of the training program take it: `batch` sequences of one length."""
        precision = "fp32" if self.weights == "fp32" else "bf16"
        return Layout(
            tp=self.tp, micro_batch=batch, global_batch=batch, sequence=sequence,
            sequence_parallel=False, precision=precision,
        )  # fmt: skip

    def fitted(self, model: Model) -> Model:
        """The model as its ranks hold it: what tp does not divide is padded with zeros, as
        transformers-neuronx (utils.pad, interleaved query heads) and NxD Inference
        (modules/attention/gqa.py) do. RecipeError for what cannot be served."""
        if model.is_latent:
            raise RecipeError(
                "a cache of latent vectors is not in the serving program: use a model without "
                "latent attention"
            )
        if model.experts and self.weights == "int8":
            raise RecipeError("experts kept in int8 are not in the serving program: use bf16")
        tp, kv = self.tp, model.kv_heads
        if kv < tp and tp % kv:
            raise RecipeError(f"{kv} kv_heads cannot be repeated over tp {tp}: use a multiple")
        changes: dict[str, int] = {"heads": _up(model.heads, tp), "ffn": _up(model.ffn, tp)}
        changes["kv_heads"] = kv if kv < tp else _up(kv, tp)
        if kv == model.heads:
            changes["kv_heads"] = changes["heads"]
        for name in ("expert_ffn", "shared_ffn"):
            changes[name] = _up(getattr(model, name), tp)
        if changes["heads"] % changes["kv_heads"]:
            raise RecipeError(
                f"{model.heads} heads over tp {tp} do not share {changes['kv_heads']} kv_heads "
                "evenly: use another tp"
            )
        return replace(model, **changes, dropout=0.0)


def _up(count: int, to: int) -> int:
    return -(-count // to) * to


class Cache:
    """Keys and values of one layer on one rank.

    Attributes:
        keys, values: [places, batch, heads, size]: what one step writes stands together.
        filled: places that hold something.
        is_decoding: tokens come one a sequence.
        with_scores: their attention is products with a softmax, not one kernel.
    """

    def __init__(
        self, places: int, batch: int, heads: int, sizes: tuple[int, int], window: int,
        dtype: Any, device: Any,
    ) -> None:  # fmt: skip
        keys, values = sizes
        places = min(places, window) if window and device.type != "cpu" else places
        self.keys = torch.zeros((places, batch, heads, keys), dtype=dtype, device=device)
        self.values = torch.zeros((places, batch, heads, values), dtype=dtype, device=device)
        self.window = window
        self.filled = 0
        self.is_decoding = False
        self.with_scores = False

    def write(self, k: Tensor, v: Tensor, batch: int) -> None:
        """The prompt's, [batch x tokens, heads, size], at its begin; of a windowed layer on the
        simulated device, as many as it keeps."""
        for store, x in ((self.keys, k), (self.values, v)):
            by_place = x.unflatten(0, (batch, -1)).transpose(0, 1)
            count = min(len(by_place), len(store))
            store[:count, :batch].copy_(by_place[:count])
        self.filled = len(k) // batch

    def append(self, k: Tensor, v: Tensor) -> None:
        """One token's of each sequence, [batch, heads, size]."""
        at = self.filled
        if is_simulated(self.keys):
            at = min(at, len(self.keys) - 1)
        elif at >= len(self.keys):
            raise RecipeError(f"the cache is full: use one of more than {at} places")
        self.keys[at].copy_(k)
        self.values[at].copy_(v)
        self.filled += 1

    def past(self, own: int) -> tuple[Tensor, Tensor]:
        """Keys and values that the next query sees, [batch, heads, places, size]. `own`: its own
        are among them. On the simulated device all places, of which a mask hides those that hold
        nothing: shapes are static there."""
        if is_simulated(self.keys):
            end, begin = len(self.keys), 0
        else:
            end = self.filled
            begin = max(0, end - self.window + 1 - own) if self.window else 0
        return tuple(x[begin:end].permute(1, 2, 0, 3) for x in (self.keys, self.values))
