# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Model, Layout and Style of a published measurement, by rules of its framework and model family.

A row has the columns of a validation file: names of things, sizes, and notes. No rule names a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trnsim.errors import RecipeError
from trnsim.recipes.families import model_of
from trnsim.recipes.layout import Layout
from trnsim.recipes.models import Model
from trnsim.recipes.recomputation import recompute_of
from trnsim.recipes.style import STYLES, Style

Row = Mapping[str, str]
Configured = tuple[Model, Layout, Style]

_NVIDIA = ("Megatron", "NeMo", "Nemo")
_JAX = ("MaxText", "AXLearn", "PaxML")
_PRECISIONS = {
    "": "bf16", "bf16": "bf16", "BF16": "bf16", "amp_bf16": "bf16", "fp16": "fp16",
    "fp8": "fp8", "amp_fp8": "fp8", "FP8": "fp8_current", "FP8-CS": "fp8_current",
    "float8 linear": "fp8_current", "float8 tensorwise": "fp8_current",
    "fp8_full": "fp8_current", "MXFP8": "mxfp8", "FP8-MX": "mxfp8",
}  # fmt: skip
# Models whose recipes in Megatron-Bridge have the flexible dispatcher (DeepEP, HybridEP), where it
# matters: on servers of 8 GPUs; an NVL72 has all experts in one domain.
# github.com/NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs/deepseek
_FLEXIBLE = ("DeepSeek",)
_SERVERS_OF_EIGHT = ("H100", "B200", "B300")
# Chips that share one copy of the parameters in Google's recipes for Ironwood where it is not all
# of them (ici_fsdp_parallelism, which counts the two devices of a chip), by model and chips.
# github.com/AI-Hypercomputer/tpu-recipes training/ironwood/*/run_recipe.sh
_IRONWOOD_SHARDS = {
    ("GPT-OSS-120B", "64"): 32, ("GPT-OSS-120B", "256"): 32, ("Gemma4-26B", "256"): 128,
}  # fmt: skip
# Models whose experts take a fixed share of tokens in MaxText's configurations (sparse_matmul off),
# and how much more than an equal one (capacity_factor), by system.
# github.com/AI-Hypercomputer/maxtext benchmarks/maxtext_trillium_model_configs.py
_CAPACITY = {("TPU v6e", "Mixtral"): 1.25, ("TPU v6e", "DeepSeek"): 1.0}
# 16-bit peaks in TFLOP/s, of Google's pages: what no training reaches 80 % of.
_TPU_PEAKS = {"TPU v4": 275, "TPU v5e": 197, "TPU v5p": 459, "TPU v6e": 918}


def configure(row: Row) -> Configured | str:
    """What was trained in a row and how; or one line that says why that is not known.

    Args:
        row: columns of a validation file by name; blank is "".
    """
    row = {key: (value or "").strip() for key, value in row.items()}
    reason = _unusable(row)
    if reason:
        return reason
    try:
        model = model_of(row)
        if isinstance(model, str):
            return model
        layout = _layout(row, model)
        if isinstance(layout, str):
            return layout
        layout.check(model)
    except RecipeError as error:
        return str(error)
    return model, layout, _style(row, layout)


# --- what cannot be used --------------------------------------------------------------------------


def _unusable(row: Row) -> str:
    """Why the source does not say enough, or says something that contradicts itself."""
    framework, model, notes = row["framework"], row["model"], row["notes"]
    by_framework = {
        "NeMo AutoModel": "expert parallelism and recomputation are not in the source",
        "Meta Llama 3": "the depth of interleaving is not in the source",
        "TF/Lingvo": "no reference program for Lingvo",
        "JAX shmap": "no reference program for it",
    }
    if framework in by_framework:
        return by_framework[framework]
    if not (row["step_time_s"] or row["derived_step_time_s"]):
        return "no step time"
    if not row["chips"]:
        return "no number of chips"
    if not (row["seq"] and (row["global_batch_seqs"] or row["global_batch_tokens"])):
        return "sequence length or batch is not in the source"
    if row.get("source_status") == "recalled":
        return "figures of the configuration are recalled, not read"
    if model.startswith(("BERT", "ViT")):
        return "an encoder: other software, other losses"
    if framework == "AXLearn" and not row["system"].startswith("TPU"):
        return "recomputation, mesh and local batch are not in the source"
    if framework == "torchtitan" and not row["recompute"]:
        return "recomputation is not in the source"
    return _doubtful(row, model, notes)


def _doubtful(row: Row, model: str, notes: str) -> str:
    if "LoRA" in model:
        return "frozen weights: no gradients for most of the model"
    if "rowwise" in row["precision"]:
        return "row-wise scales of torchtitan are slower than 16 bits: no such kernel here"
    if row["precision"] == "NVFP4":
        return "products in 4 bits are not in the reference programs"
    if "does not make clear" in notes:
        return "the system is ambiguous in the source"
    if re.match(r"Gemma4-E\d", model):
        return "embeddings in every layer are not in the reference programs"
    if re.match(r"(source comment|tokens/s),? approximate", notes):
        return "the source calls its figure approximate"
    if notes.startswith("alternative README"):
        return "superseded by another figure of the same source"
    peak = _TPU_PEAKS.get(row["system"], 0)
    is_wide = _PRECISIONS.get(row["precision"]) == "bf16" and row["model_tflops_per_chip"]
    if is_wide and peak and float(row["model_tflops_per_chip"]) > 0.8 * peak:
        return "over 80 % of the 16-bit peak: another precision or another count of FLOPs"
    return ""


# --- layout ---------------------------------------------------------------------------------------


def _number(row: Row, column: str, otherwise: int) -> int:
    """A whole number of a column; what is blank or has no number is `otherwise`."""
    found = re.search(r"\d+", row.get(column, ""))
    return int(found.group()) if found else otherwise


def ranks_of(row: Row) -> int:
    """Ranks of the job: NeuronCores on Trainium 1, which its TP, PP and DP count; chips else."""
    return int(row["chips"]) * (2 if row["system"] == "Trn1" else 1)


def _batch(row: Row) -> int:
    if row["global_batch_seqs"]:
        return int(float(row["global_batch_seqs"]))
    return round(int(float(row["global_batch_tokens"])) / int(row["seq"]))


def _layout(row: Row, model: Model) -> Layout | str:
    ranks, batch = ranks_of(row), _batch(row)
    tp, pp, cp = (_number(row, name, 1) for name in ("TP", "PP", "CP"))
    precision = _precision(row)
    if precision is None:
        return f"precision '{row['precision']}' is not in the reference programs"
    is_jax = row["framework"].startswith(_JAX)
    if is_jax and batch < ranks // (tp * pp * cp):
        cp = ranks // (tp * pp * batch)  # fewer sequences than chips: each is divided
    dp, rest = divmod(ranks, tp * pp * cp)
    given = _number(row, "DP", dp) if not is_jax and row["DP"] else dp
    if rest or given != dp:
        product = f"tp {tp} x pp {pp} x cp {cp} x dp {given} = {tp * pp * cp * given}"
        return f"the layout does not multiply out: {product}, not {ranks} ranks"
    shard = _number(row, "FSDP_ZeRO", 0) if "FSDP" in row["FSDP_ZeRO"] else 0
    if row["FSDP_ZeRO"] == "HSDP":
        shard = 8  # ranks of a server
    is_fsdp = is_jax or any(word in row["FSDP_ZeRO"] for word in ("FSDP", "SHARD", "HSDP"))
    zero = 3 if is_fsdp else 0 if _is_first_generation(row) else 1
    if row["FSDP_ZeRO"] == "SHARD_GRAD_OP":
        zero = 2
    if row["system"] == "TPU7x" and not shard:
        shard = _IRONWOOD_SHARDS.get((row["model"], row["chips"]), 0)
    kept, layers = recompute_of(row, model, pp * max(1, _number(row, "VP", 1)))
    return Layout(
        tp=tp, pp=pp, vp=_number(row, "VP", 1) if pp > 1 else 1, cp=cp, dp=dp,
        ep=_experts_over(row, model, tp * cp * dp), zero=zero,
        shard=shard if is_fsdp and 0 < shard < dp * cp and (dp * cp) % shard == 0 else 0,
        sequence_parallel=tp > 1 and not _has_no_sequence_parallel(row),
        micro_batch=_micro_batch(row, batch, dp, pp), global_batch=batch, sequence=int(row["seq"]),
        recompute=kept, recompute_layers=layers, precision=precision, gradient=_gradient(row),
    )  # fmt: skip


def _precision(row: Row) -> str | None:
    name = row["precision"]
    if name.startswith("Autocast"):
        return "bf16"
    if name.startswith("FP8 (block"):  # Blackwell scales blocks of 32 in its products
        return "fp8_block" if row["system"] in ("H100", "H200") else "mxfp8"
    return _PRECISIONS.get(name)


def _is_first_generation(row: Row) -> bool:
    """Megatron-LM of 2021 and 2022: fp16 on A100, before the distributed optimizer."""
    return row["framework"].startswith("Megatron-LM") and row["precision"] == "fp16"


def _has_no_sequence_parallel(row: Row) -> bool:
    stated = "sequence parallelism" in row["recompute"]
    return _is_first_generation(row) and not (stated and "no sequence" not in row["recompute"])


def _experts_over(row: Row, model: Model, ranks: int) -> int:
    if not model.experts:
        return 1
    return _number(row, "EP", 1)


def _micro_batch(row: Row, batch: int, dp: int, pp: int) -> int:
    """Sequences of a micro-batch. JAX rows give those of a chip: a step is one micro-batch there,
    unless it accumulates; torchtitan cuts a local batch into one for each stage."""
    own = max(1, batch // dp)
    if row["framework"].startswith(_JAX):
        return max(1, own // _number(row, "grad_accum", 1))
    if row["framework"] == "torchtitan" and pp > 1:
        return max(1, own // pp)
    return min(own, _number(row, "mbs", 1))


def _gradient(row: Row) -> str:
    """Dtype that gradients are reduced in."""
    framework, precision = row["framework"], row["precision"]
    if _is_first_generation(row):
        return "float16"
    if framework.startswith("llm-foundry"):
        return "float32" if precision.startswith("amp") else "bfloat16"
    if framework.startswith(("fms", *_JAX)) or "SR" in precision:
        return "bfloat16"
    return "float32"


# --- style ----------------------------------------------------------------------------------------


def release_of(row: Row) -> tuple[int, ...]:
    """The release of the software, as (26, 4, 1) for 26.04.01; () where the row names none."""
    where = f"release {row['framework']} {row.get('source_version', '')}"
    found = re.search(r"release (?:\S+ )*?(\d\d(?:\.\d\d)+)", where)
    return tuple(map(int, found.group(1).split("."))) if found else ()


def _asks_for_shares(row: Row) -> bool:
    """Whether the host waits in each layer to learn how many tokens every expert gets, which the
    sizes of Transformer Engine's grouped products were before release 26.06; where tokens are
    dropped down to equal shares it knows."""
    is_nvidia = row["framework"].startswith(("Megatron-Bridge", "NeMo"))
    return is_nvidia and release_of(row) < (26, 6) and "tokendrop" not in row["notes"]


def _style(row: Row, layout: Layout) -> Style:
    framework, notes = row["framework"], row["notes"]
    if framework.startswith("llm-foundry"):
        return STYLES["llm-foundry"]
    if framework.startswith("fms"):
        return STYLES["fsdp"].with_(data="fsdp1")
    if framework == "torchtitan":
        is_eager = "eager" in notes or "no compile" in notes
        return STYLES["torchtitan-eager" if is_eager else "torchtitan"]
    if framework.startswith(_JAX):
        capacity = _CAPACITY.get((row["system"], re.split("[-V]", row["model"])[0]), 0.0)
        return STYLES["gspmd"].with_(capacity=capacity)
    if row["system"].startswith("Trn"):
        return STYLES["neuron"]
    if _is_first_generation(row):
        return STYLES["megatron-2021"]
    if layout.zero == 3:
        return STYLES["megatron-fsdp"]
    style = STYLES["megatron"].with_(routes_on_host=_asks_for_shares(row))
    is_flexible = framework == "Megatron-Bridge" and row["model"].startswith(_FLEXIBLE)
    if is_flexible and row["system"] in _SERVERS_OF_EIGHT:
        return style.with_(dispatch_ranks=8)
    return style
