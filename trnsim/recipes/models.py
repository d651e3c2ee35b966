# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Model: the dimensions of a transformer, from a preset or a config.json of Hugging Face."""

from __future__ import annotations

import difflib
import functools
import os
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from trnsim.errors import RecipeError

_PRESETS = Path(__file__).with_name("models.toml")
_NORMS = ("rms", "layer")
_POSITIONS = ("rope", "learned", "alibi", "none")
_ACTIVATIONS = ("silu", "gelu", "relu2")


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer, dense or with experts.

    Attributes:
        ffn: width of a dense feed-forward layer.
        head_dim: of queries and keys; not hidden / heads in every model.
        gated: the feed-forward layer has a gate beside its first product (SwiGLU, GeGLU).
        biases: all linear layers of a block have one; qkv_bias: queries, keys and values have one.
        norms_per_layer: 4 where outputs are normed too (Gemma 2 and 3); qk_norm: of each head.
        experts, topk, expert_ffn: routed experts of a layer, how many a token uses, their width.
        shared_ffn: width of all shared experts together.
        dense_layers: how many layers at the begin have no experts.
        expert_every: every n-th layer has experts, the others are dense.
        window: keys that a query of a windowed layer sees, 0 = all; window_every: every n-th layer
            is not windowed (0 = none is).
        q_rank, kv_rank, rope_dim, value_dim: of multi-head latent attention (kv_rank > 0); head_dim
            holds the part without positions and rope_dim.
        max_positions: of learned positions.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    vocab: int
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = True
    activation: str = "silu"
    norm: str = "rms"
    position: str = "rope"
    tied: bool = False
    biases: bool = False
    qkv_bias: bool = False
    norm_bias: bool | None = None
    qk_norm: bool = False
    norms_per_layer: int = 2
    dropout: float = 0.0
    max_positions: int = 0
    experts: int = 0
    topk: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    expert_every: int = 1
    router_bias: bool = False
    window: int = 0
    window_every: int = 0
    sinks: bool = False
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        put = functools.partial(object.__setattr__, self)
        put("kv_heads", self.kv_heads or self.heads)
        if not self.head_dim and self.heads and self.hidden % self.heads:
            raise RecipeError(
                f"hidden {self.hidden} is not a multiple of {self.heads} heads: give head_dim"
            )
        put("head_dim", self.head_dim or self.hidden // max(self.heads, 1))
        put("value_dim", self.value_dim or self.head_dim)
        if self.norm_bias is None:
            put("norm_bias", self.norm == "layer")
        if self.experts:
            put("expert_ffn", self.expert_ffn or self.ffn)
        self._check()

    def _check(self) -> None:
        for name in ("layers", "hidden", "heads", "vocab"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} {getattr(self, name)} of a model: use 1 or more")
        if self.heads % self.kv_heads:
            raise RecipeError(
                f"{self.heads} heads are not a multiple of {self.kv_heads} kv_heads: change one"
            )
        for name, known in (
            ("norm", _NORMS), ("position", _POSITIONS), ("activation", _ACTIVATIONS)
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise RecipeError(f"{name} '{getattr(self, name)}': use {', '.join(known)}")
        if self.experts and not 1 <= self.topk <= self.experts:
            raise RecipeError(f"topk {self.topk} of {self.experts} experts: use 1 to all of them")
        if self.position == "learned" and not self.max_positions:
            raise RecipeError("learned positions: give max_positions")

    # --- parts -----------------------------------------------------------------------------------

    def has_experts(self, layer: int) -> bool:
        """Whether the layer routes its tokens to experts."""
        is_turn = (layer + 1) % self.expert_every == 0
        return self.experts > 0 and layer >= self.dense_layers and is_turn

    def window_of(self, layer: int) -> int:
        """Keys that a query of the layer sees, 0 = all before it."""
        whole = self.window_every and (layer + 1) % self.window_every == 0
        return 0 if whole else self.window

    @property
    def is_latent(self) -> bool:
        """Multi-head latent attention."""
        return self.kv_rank > 0

    @property
    def qkv_features(self) -> int:
        """Columns of queries, keys and values together."""
        return (self.heads + self.kv_heads) * self.head_dim + self.kv_heads * self.value_dim

    def attention_weights(self) -> int:
        """Elements of the products of one attention layer."""
        h, out = self.hidden, self.heads * self.value_dim * self.hidden
        if not self.is_latent:
            return h * self.qkv_features + out
        no_rope = self.head_dim - self.rope_dim
        query = self.heads * self.head_dim
        query = h * self.q_rank + self.q_rank * query if self.q_rank else h * query
        keys = h * (self.kv_rank + self.rope_dim)
        return query + keys + self.kv_rank * self.heads * (no_rope + self.value_dim) + out

    def dense_weights(self, width: int) -> int:
        """Elements of the products of a feed-forward layer of that width."""
        return (3 if self.gated else 2) * self.hidden * width

    def _attention_rest(self) -> int:
        """Biases and norms of an attention layer."""
        count = 0
        if self.qkv_bias or self.biases:
            count += self.qkv_features
        if self.biases:
            count += self.hidden
        if self.qk_norm:
            count += 2 * self.head_dim
        if self.is_latent:
            count += self.kv_rank + self.q_rank
        return count + (self.heads if self.sinks else 0)

    def _feed_forward_rest(self, width: int) -> int:
        return ((2 if self.gated else 1) * width + self.hidden) if self.biases else 0

    def _norm_elements(self) -> int:
        return self.hidden * (2 if self.norm_bias else 1)

    def layer_parameters(self, layer: int) -> int:
        """Elements of all parameters of one layer."""
        count = self.attention_weights() + self._attention_rest()
        count += self.norms_per_layer * self._norm_elements()
        if not self.has_experts(layer):
            return count + self.dense_weights(self.ffn) + self._feed_forward_rest(self.ffn)
        count += self.experts * self.hidden + (self.experts if self.router_bias else 0)
        expert = self.dense_weights(self.expert_ffn) + self._feed_forward_rest(self.expert_ffn)
        return count + self.experts * expert + self.dense_weights(self.shared_ffn)

    def parameters(self) -> int:
        """Elements of all parameters."""
        count = self.vocab * self.hidden * (1 if self.tied else 2) + self._norm_elements()
        count += self.max_positions * self.hidden if self.position == "learned" else 0
        return count + sum(self.layer_parameters(layer) for layer in range(self.layers))

    def active_weights(self, layer: int) -> int:
        """Elements of the products that a token goes through in one layer."""
        count = self.attention_weights()
        if not self.has_experts(layer):
            return count + self.dense_weights(self.ffn)
        routed = self.topk * self.dense_weights(self.expert_ffn)
        return count + self.experts * self.hidden + routed + self.dense_weights(self.shared_ffn)

    def forward_flops_per_token(self, sequence: int) -> int:
        """FLOPs of products and of attention over the whole square, for one token."""
        count = 2 * self.vocab * self.hidden
        for layer in range(self.layers):
            window = self.window_of(layer)
            keys = min(sequence, window) if window else sequence
            count += 2 * self.active_weights(layer)
            count += 2 * self.heads * keys * (self.head_dim + self.value_dim)
        return count

    # --- where they come from --------------------------------------------------------------------

    @staticmethod
    def preset(name: str) -> Model:
        """A model by its name in models.toml, any case."""
        found = _presets().get(name.lower())
        if found is None:
            near = difflib.get_close_matches(name.lower(), _presets(), 3)
            is_one = len(near) == 1
            listed = ", ".join(f"'{each}'" for each in near)
            hint = f", the nearest {'is' if is_one else 'are'} {listed}" if near else ""
            raise RecipeError(f"no model '{name}'{hint}: give a preset's name or a config.json")
        return found

    @staticmethod
    def from_hf_config(config: dict[str, Any] | str | os.PathLike[str]) -> Model:
        """A model by its config.json of Hugging Face, or what json.load made of it."""
        from trnsim.recipes.hugging_face import model_of

        return model_of(config)

    def with_(self, **changes: Any) -> Model:
        """The same model with other dimensions."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All dimensions by name."""
        return asdict(self)


@functools.cache
def _presets() -> dict[str, Model]:
    known = {field.name for field in fields(Model)}
    tables = tomllib.loads(_PRESETS.read_text())
    made: dict[str, Model] = {}
    for name, table in tables.items():
        table = dict(table)
        table.pop("source", None)
        names = [name, *table.pop("also", [])]
        base = table.pop("like", None)
        if base is not None:
            table = {**made[base.lower()].to_dict(), **table}
        if wrong := set(table) - known:
            raise RecipeError(f"models.toml, {name}: unknown key '{min(wrong)}'")
        model = Model(**{**table, "name": name})
        made |= {each.lower(): model for each in names}
    return made


def preset_names() -> list[str]:
    """All models of models.toml."""
    return list(dict.fromkeys(model.name for model in _presets().values()))
