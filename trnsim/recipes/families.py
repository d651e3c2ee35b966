# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The Model of a published row: a preset with the row's own dimensions, or its family's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trnsim.errors import RecipeError
from trnsim.recipes.models import Model

# A name's beginning, and the preset whose traits models of that name share.
_FAMILIES = (
    ("MPT-", "MPT-7b"), ("Llama2", "Llama2-7B"), ("Llama3", "Llama3-8B"), ("Llama-", "Llama2-7B"),
    ("Fuji", "Fuji-7B v1"), ("Mistral", "Mistral-7B"), ("Mixtral", "Mixtral-8x7B"),
    ("DeepSeekV2", "DeepSeekV2-236B"), ("DeepSeek", "DeepSeekV3-671B"), ("Kimi", "Kimi-K2"),
    ("GPT-OSS", "GPT-OSS-120B"), ("GPT", "GPT-7.5B"), ("Nemotron-4", "Nemotron-15B"),
    ("Nemotron-", "Nemotron-15B"), ("Gemma3", "Gemma3-12B"), ("Gemma4", "Gemma4-26B"),
    ("MaxText", "MaxText-16B"), ("MoE-", "MoE-10T custom"), ("Llama4", "Llama4-Scout-17B-16E"),
    ("Qwen3-30B", "Qwen3-30B-A3B"), ("Qwen3-235B", "Qwen3-235B-A22B"), ("Qwen3", "Qwen3-32B"),
)  # fmt: skip
_NEEDED = ("layers", "hidden", "heads")


def model_of(row: Mapping[str, str]) -> Model | str:
    """The model of a row, or why its dimensions are not known."""
    name = re.sub(r" (SFT|LoRA)$", "", row["model"])
    model, given = _known(name), _given(row)
    if model is None:
        base = next((of for begin, of in _FAMILIES if name.startswith(begin)), None)
        if base is None or not all(key in given for key in _NEEDED):
            return f"the dimensions of {row['model']} are not in the source"
        model = Model.preset(base)
    return model.with_(**_changes(model, given), name=name, **_positions(row, model))


def _known(name: str) -> Model | None:
    try:
        return Model.preset(name)
    except RecipeError:
        return None


def _given(row: Mapping[str, str]) -> dict[str, int]:
    columns = (
        "layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "experts", "topk"
    )  # fmt: skip
    given = {column: int(row[column]) for column in columns if row[column].isdigit()}
    if row["ffn"].isdigit():
        given["ffn"] = int(row["ffn"])
    return given


def _changes(model: Model, given: dict[str, int]) -> dict[str, Any]:
    """The row's dimensions, with what follows from them."""
    changes: dict[str, Any] = dict(given)
    if model.is_latent:
        for key in ("kv_heads", "head_dim"):  # tables give the part without positions, or nothing
            changes.pop(key, None)
        return changes
    heads = given.get("heads", model.heads)
    hidden = given.get("hidden", model.hidden)
    if "heads" in given and "kv_heads" not in given and model.kv_heads == model.heads:
        changes["kv_heads"] = heads
    if "head_dim" not in given and ("heads" in given or "hidden" in given):
        own = hidden // heads if model.head_dim * model.heads == model.hidden else model.head_dim
        changes["head_dim"] = own
    if "head_dim" in changes:
        changes["value_dim"] = changes["head_dim"]
    if "ffn" not in given and "hidden" in given and hidden != model.hidden:
        changes["ffn"] = 4 * hidden
    if model.experts and "ffn" in given:
        width = changes.pop("ffn")  # of an expert, in tables of models with experts
        changes["expert_ffn"] = width
        if model.shared_ffn:
            changes["shared_ffn"] = model.shared_ffn // model.expert_ffn * width
    return changes


def _positions(row: Mapping[str, str], model: Model) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if model.position == "learned" and row["seq"].isdigit():
        changes["max_positions"] = int(row["seq"])
    if row["framework"].startswith(("NeMo", "PaxML", "Megatron-Bridge")):
        changes["dropout"] = 0.0  # benchmark recipes switch it off
    return changes
