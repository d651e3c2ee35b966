# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Model, Serving and Style of a published measurement of inference, by rules of its framework.

A row has the columns of a validation file. No rule names a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from trnsim.errors import RecipeError
from trnsim.recipes.families import model_of
from trnsim.recipes.models import Model
from trnsim.recipes.serving import Serving
from trnsim.recipes.style import STYLES, Style

Row = Mapping[str, str]

# How many sequences optimum-neuron's servers were compiled for, by the beginning of a model's name,
# whether so many are asked or not, and for how many tokens; a prefill is one sequence of as many
# (backend/config.py: ctx_batch_size and max_context_length).
# github.com/huggingface/optimum-neuron benchmark/vllm/*-trn2/serve-*.env
_SERVED = (("Qwen3-30B", 16), ("Qwen3-235B", 4), ("Qwen3-32B", 2), ("Llama4-Maverick", 8), ("", 32))
_SERVED_TOKENS = 4096
_LEAST_BUCKET = 128  # places of the smallest cache that transformers-neuronx and NxD compile for


@dataclass(frozen=True)
class Served:
    """What a row serves.

    Attributes:
        step: of decoding, and of prefills one after another where `prefills` is more than 1.
        prefills: how often a prefill runs before the last sequence has its first token.
    """

    model: Model
    serving: Serving
    style: Style
    prefills: int = 1


def configure_serving(row: Row) -> Served | str:
    """What was served in a row and how; or one line that says why that is not known.

    Args:
        row: columns of a validation file by name; blank, or missing, is "".
    """
    row = defaultdict(str, {key: (value or "").strip() for key, value in row.items()})
    reason = _unusable(row)
    if reason:
        return reason
    try:
        model = model_of(row)
        if isinstance(model, str):
            return model
        served = _served(row, model)
        served.serving.fitted(model)
    except RecipeError as error:
        return str(error)
    return served


def _unusable(row: Row) -> str:
    """Why the source does not say enough."""
    notes = row["notes"].lower()
    if "speculat" in notes.replace("no speculat", ""):
        return "speculative decoding: its draft model and acceptance are not in the source"
    if "throughput mode" in notes:
        return "throughput mode: how many sequences run side by side is not in the source"
    if "concurrent" in notes:
        return "many requests at once: how they share steps is not in the source"
    for column, what in (
        ("TP", "tensor parallelism"), ("batch", "batch"), ("in_len", "length of the prompt"),
        ("out_len", "length of the output"),
    ):  # fmt: skip
        if not row[column].isdigit() or int(row[column]) < 1:
            return f"{what} is not in the source"
    if row["PP"] not in ("", "1") or row["DP"] not in ("", "1"):
        return "several stages or replicas: the reference program serves with one"
    if row.get("source_status") == "recalled":
        return "figures of the configuration are recalled, not read"
    return ""


def _served(row: Row, model: Model) -> Served:
    batch, prompt, output = (int(row[name]) for name in ("batch", "in_len", "out_len"))
    places = int(row["seq"]) if row["seq"].isdigit() else prompt + output
    middle = prompt + output // 2 + 1  # the token that a median or mean is near
    weights = "int8" if "weights stored int8" in row["notes"] else "bf16"
    serving = Serving(tp=int(row["TP"]), batch=batch, prompt=prompt, weights=weights,
                      cache=max(middle, prompt + 1))  # fmt: skip
    if row["framework"].startswith("optimum-neuron"):
        lanes = next(n for begin, n in _SERVED if row["model"].startswith(begin))
        serving = Serving(
            tp=serving.tp, batch=max(batch, lanes), prefill_batch=1, prompt=_SERVED_TOKENS,
            cache=max(_SERVED_TOKENS, places), weights=weights,
        )  # fmt: skip
        return Served(model, serving, STYLES["nxd-inference"], batch)
    if row["system"].startswith("Trn"):
        is_old = row["framework"].startswith("Transformers NeuronX")
        style = STYLES["neuronx" if is_old else "nxd-inference"]
        cache = _bucket(max(middle, prompt + 1), max(places, middle))
        return Served(model, Serving(**{**vars(serving), "cache": cache}), style)
    return Served(model, serving, STYLES["megatron"])


def _bucket(length: int, places: int) -> int:
    """Places of the smallest compiled cache that holds so many: they double from the least up to
    all that are asked for (transformers-neuronx bucket.py, NxD Inference autobucketing.py)."""
    size = _LEAST_BUCKET
    while size < length:
        size *= 2
    return min(size, places)
