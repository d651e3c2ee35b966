# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What frameworks mean by their words for recomputation: which results of a block are kept."""

from __future__ import annotations

from collections.abc import Mapping

from trnsim.recipes.layout import KEPT
from trnsim.recipes.models import Model

Kept = str | tuple[str, ...]

# MaxText's names of tensors, in ours.
_MAXTEXT = {
    "query_proj": "qkv", "key_proj": "qkv", "value_proj": "qkv", "qkv_proj": "qkv",
    "context": "attention", "out_proj": "out", "mlpwi": "up", "mlpwo": "down",
}  # fmt: skip
_TORCHTITAN_OPS = ("qkv", "attention", "gate", "down")  # every second product, and attention
_AXLEARN = ("qkv", "attention", "out")  # RematRegexSavePatterns.NATIVE_ATTENTION
# What Google's recipes for Ironwood keep of a layer, by the beginning of a model's name, precision
# and sequence; where none is named, nothing. github.com/AI-Hypercomputer/tpu-recipes
# training/ironwood/*/run_recipe.sh: remat_policy and the tensors beside it.
_IRONWOOD = (
    ("Llama3-70B", "", "131072", ("qkv", "attention", "down")),
    ("Llama3-70B", "", "", ("qkv", "attention")),
    ("Llama3.1-405B", "bf16", "", ("down",)),
    ("GPT-OSS", "", "", ("down",)),
    ("Gemma4-31B", "", "", ("out", "down")),
)
_DOTS = ("qkv", "out", "up", "down")  # "minimal": products without batch axes


def recompute_of(row: Mapping[str, str], model: Model, pieces: int) -> tuple[Kept, int]:
    """What is kept, and in how many layers of a piece of the pipeline; -1 = all of them."""
    said, framework = row["recompute"], row["framework"]
    if framework == "torchtitan":
        return _torchtitan(said, model, pieces)
    if framework.startswith("AXLearn"):
        return ("full", -1) if said == "full" else (_AXLEARN, -1)
    if framework.startswith(("MaxText", "PaxML")):
        return _maxtext(row, said), -1
    if said.startswith("full"):
        return "full", -1
    if said.startswith("selective"):
        return "selective", -1
    if said == "" and row["system"].startswith("Trn"):
        # Tutorials: NeMo's GPT checkpoints whole layers, NxD's Llama attention alone.
        return ("full" if framework.startswith("NeMo") else "selective"), -1
    return "none", -1  # NVIDIA's tables do not say; nothing is made again


def _torchtitan(said: str, model: Model, pieces: int) -> tuple[Kept, int]:
    if said == "selective per-layer":  # every second layer
        return "full", model.layers // pieces // 2
    if said.startswith("selective"):
        return _TORCHTITAN_OPS, -1
    return ("full" if said == "full" else "none"), -1


def _maxtext(row: Mapping[str, str], said: str) -> Kept:
    if said.startswith("custom ("):
        if "remat" in said:
            return "full"
        found = {ours for theirs, ours in _MAXTEXT.items() if theirs in said}
        return tuple(sorted(found, key=KEPT.index))
    if said == "qkv_proj_offloaded":
        return ("qkv",)
    if said == "save_dot_except_mlpwi":
        return ("qkv", "attention", "out", "down")
    if said == "" and row["system"] == "TPU7x":
        for model, precision, sequence, kept in _IRONWOOD:
            is_it = row["model"].startswith(model) and precision in row["precision"]
            if is_it and sequence in ("", row["seq"]):
                return kept
    if said in ("full", "custom") or (said == "" and row["system"].startswith("TPU")):
        return "full"  # "custom" names no tensor
    if said == "minimal":
        return _DOTS
    return ("qkv", "attention", "out", "up", "down")  # on GPUs: minimal_flash
