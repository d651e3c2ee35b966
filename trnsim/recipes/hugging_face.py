# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Reads a config.json of Hugging Face: each architecture's own words for the same dimensions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trnsim.errors import RecipeError
from trnsim.job import check_asked
from trnsim.recipes.models import Model

Config = dict[str, Any]
_ACTIVATIONS = {
    **dict.fromkeys(("silu", "swish", "swiglu"), "silu"),
    **dict.fromkeys(("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh"), "gelu"),
    "relu2": "relu2",
}
# What a number of these is; a text or a fraction is none.
_WHOLE = frozenset((
    "d_model", "expansion_ratio", "ffn_dim", "first_k_dense_replace", "decoder_sparse_step",
    "head_dim", "hidden_size", "intermediate_size", "kv_lora_rank", "max_position_embeddings",
    "max_seq_len", "moe_intermediate_size", "n_embd", "n_head", "n_heads", "n_inner", "n_layer",
    "n_layers", "n_positions", "n_routed_experts", "n_shared_experts", "num_attention_heads",
    "num_experts", "num_experts_per_tok", "num_hidden_layers", "num_key_value_heads",
    "num_local_experts", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "sliding_window",
    "sliding_window_pattern", "v_head_dim", "vocab_size",
))  # fmt: skip


def is_config(path: str | os.PathLike[str]) -> bool:
    """Whether a config.json is meant, or the folder of one; any other text is a name."""
    path = Path(path)  # of names that are too long its own is_file raises
    return path.suffix == ".json" or os.path.isfile(path / "config.json")


def model_of(config: Config | str | os.PathLike[str]) -> Model:
    """The Model of a config, given as a dictionary or as the path of its file."""
    if not isinstance(config, dict):
        path = Path(config)
        try:
            config = json.loads((path / "config.json" if path.is_dir() else path).read_text())
        except (OSError, ValueError) as error:
            raise RecipeError(f"no readable config at '{path}': {error}") from None
        if not isinstance(config, dict):
            raise RecipeError(f"'{path}' holds no config: its JSON is no object")
    if isinstance(config.get("text_config"), dict):  # of a model that also sees
        config = {**config["text_config"], "architectures": config.get("architectures")}
    config = {name: value for name, value in config.items() if value is not None}
    check_asked(RecipeError, **{name: config[name] for name in sorted(_WHOLE & config.keys())})
    kind = str(config.get("model_type", ""))
    reader = _READERS.get(kind)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise RecipeError(f"model_type '{kind}' is not known: use one of {known}")
    try:
        return Model(**{"name": str(config.get("_name_or_path") or kind), **reader(config)})
    except KeyError as error:
        raise RecipeError(f"the {kind} config has no {error}: give it") from None


def _common(config: Config) -> Config:
    heads = config["num_attention_heads"]
    name = str(config.get("hidden_act") or config.get("hidden_activation") or "silu")
    if name not in _ACTIVATIONS:
        known = ", ".join(sorted(_ACTIVATIONS))
        raise RecipeError(f"hidden_act '{name}' is in no reference program: use one of {known}")
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "ffn": config["intermediate_size"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim", 0),
        "vocab": config["vocab_size"],
        "activation": _ACTIVATIONS[name],
        "tied": bool(config.get("tie_word_embeddings", False)),
        "qkv_bias": bool(config.get("attention_bias", False)),
    }


def _mistral(config: Config) -> Config:
    return {**_common(config), "window": config.get("sliding_window") or 0}


def _mixtral(config: Config) -> Config:
    return {
        **_mistral(config),
        "experts": config["num_local_experts"],
        "topk": config["num_experts_per_tok"],
    }


def _qwen2(config: Config) -> Config:
    window = config.get("sliding_window") if config.get("use_sliding_window") else 0
    return {**_common(config), "qkv_bias": True, "window": window or 0}


def _qwen3(config: Config) -> Config:
    window = config.get("sliding_window") if config.get("use_sliding_window") else 0
    return {**_common(config), "qk_norm": True, "window": window or 0}


def _qwen3_moe(config: Config) -> Config:
    return {
        **_qwen3(config),
        "experts": config["num_experts"],
        "topk": config["num_experts_per_tok"],
        "expert_ffn": config["moe_intermediate_size"],
        "expert_every": config.get("decoder_sparse_step") or 1,
    }


def _deepseek(config: Config) -> Config:
    width = config["moe_intermediate_size"]
    rope, value = config["qk_rope_head_dim"], config["v_head_dim"]
    return {
        **_common(config),
        "kv_heads": config["num_attention_heads"],
        "head_dim": config["qk_nope_head_dim"] + rope,
        "rope_dim": rope,
        "value_dim": value,
        "q_rank": config.get("q_lora_rank") or 0,
        "kv_rank": config["kv_lora_rank"],
        "experts": config["n_routed_experts"],
        "topk": config["num_experts_per_tok"],
        "expert_ffn": width,
        "shared_ffn": (config.get("n_shared_experts") or 0) * width,
        "dense_layers": config.get("first_k_dense_replace", 0),
        "qkv_bias": False,
    }


def _gpt2(config: Config) -> Config:
    hidden = config["n_embd"]
    return {
        "layers": config["n_layer"],
        "hidden": hidden,
        "ffn": config.get("n_inner") or 4 * hidden,
        "heads": config["n_head"],
        "vocab": config["vocab_size"],
        "max_positions": config["n_positions"],
        "gated": False, "activation": "gelu", "norm": "layer", "position": "learned",
        "tied": bool(config.get("tie_word_embeddings", True)), "biases": True,
        "dropout": float(config.get("resid_pdrop", 0.1)),
    }  # fmt: skip


def _gpt_neox(config: Config) -> Config:
    return {
        **_common(config),
        "kv_heads": config["num_attention_heads"],
        "gated": False, "activation": "gelu", "norm": "layer",
        "biases": bool(config.get("attention_bias", True)),
        "qkv_bias": False,
        "dropout": float(config.get("hidden_dropout", 0.0)),
    }  # fmt: skip


def _mpt(config: Config) -> Config:
    hidden = config["d_model"]
    attention = config.get("attn_config") or {}
    if not isinstance(attention, dict):
        raise RecipeError("attn_config of a config is no object: give its keys and values")
    is_alibi = bool(attention.get("alibi", False))
    has_bias = not config.get("no_bias", False)
    heads = config["n_heads"]
    return {
        "layers": config["n_layers"],
        "hidden": hidden,
        "ffn": config.get("expansion_ratio", 4) * hidden,
        "heads": heads,
        "kv_heads": attention.get("kv_n_heads") or heads,
        "vocab": config["vocab_size"],
        "max_positions": 0 if is_alibi else config["max_seq_len"],
        "gated": False, "activation": "gelu", "norm": "layer",
        "position": "alibi" if is_alibi else "learned",
        "tied": True, "biases": has_bias, "norm_bias": has_bias,
    }  # fmt: skip


def _gemma(config: Config) -> Config:
    return {
        **_common(config),
        "activation": "gelu",
        "tied": bool(config.get("tie_word_embeddings", True)),
    }


def _gemma2(config: Config) -> Config:
    return {
        **_gemma(config), "norms_per_layer": 4, "window": config.get("sliding_window") or 0,
        "window_every": 2,
    }  # fmt: skip


def _gemma3(config: Config) -> Config:
    return {
        **_gemma2(config), "qk_norm": True,
        "window_every": config.get("sliding_window_pattern") or 6,
    }  # fmt: skip


def _gpt_oss(config: Config) -> Config:
    return {
        **_common(config), "biases": True, "qkv_bias": True, "sinks": True, "router_bias": True,
        "experts": config["num_local_experts"], "topk": config["num_experts_per_tok"],
        "window": config.get("sliding_window") or 0, "window_every": 2,
    }  # fmt: skip


def _opt(config: Config) -> Config:
    return {
        "layers": config["num_hidden_layers"], "hidden": config["hidden_size"],
        "ffn": config["ffn_dim"], "heads": config["num_attention_heads"],
        "vocab": config["vocab_size"],
        "max_positions": config["max_position_embeddings"] + 2,  # two before the first
        "gated": False, "activation": "gelu", "norm": "layer", "position": "learned",
        "tied": bool(config.get("tie_word_embeddings", True)), "biases": True,
        "dropout": float(config.get("dropout", 0.0)),
    }  # fmt: skip


_READERS: dict[str, Callable[[Config], Config]] = {
    "llama": _common,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "mpt": _mpt,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gemma3": _gemma3,
    "gpt_oss": _gpt_oss,
    "opt": _opt,
}
