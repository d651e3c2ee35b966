# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Published rows become models, layouts and styles by rules, or say why not."""

import pytest

from trnsim.recipes import configure

BLANK = dict.fromkeys(
    [
        "system", "chips", "framework", "model", "layers", "hidden", "ffn", "heads", "kv_heads",
        "head_dim", "vocab", "experts", "topk", "seq", "global_batch_seqs", "global_batch_tokens",
        "mbs", "grad_accum", "TP", "PP", "VP", "CP", "EP", "DP", "FSDP_ZeRO", "precision",
        "recompute", "step_time_s", "derived_step_time_s", "model_tflops_per_chip", "mfu_pct",
        "source_status", "notes",
    ],
    "",
)  # fmt: skip
LLAMA_70B = {
    **BLANK, "system": "H100", "chips": "64", "framework": "NeMo", "model": "Llama3-70B",
    "layers": "80", "hidden": "8192", "ffn": "28672", "heads": "64", "kv_heads": "8",
    "head_dim": "128", "vocab": "128256", "seq": "8192", "global_batch_seqs": "128", "mbs": "1",
    "TP": "4", "PP": "4", "VP": "5", "CP": "2", "precision": "fp8", "step_time_s": "1",
    "source_status": "read",
}  # fmt: skip


def configured(**changes):
    found = configure({**LLAMA_70B, **changes})
    assert not isinstance(found, str), found
    return found


def test_what_is_left_of_the_chips_is_data_parallel():
    model, layout, style = configured()
    assert (layout.tp, layout.pp, layout.vp, layout.cp, layout.dp) == (4, 4, 5, 2, 2)
    assert layout.world == 64 and layout.micro_batches == 64
    assert layout.precision == "fp8" and layout.zero == 1 and layout.recompute == "none"
    assert style.name == "megatron" and style.main_gradients
    assert model.parameters() == 70_553_706_496  # as Hugging Face counts it


def test_the_rows_own_dimensions_win_over_the_presets():
    model, _, _ = configured(model="Llama3-70B-12L", layers="12", VP="1")
    assert (model.layers, model.hidden, model.kv_heads) == (12, 8192, 8)


def test_trainium_counts_cores():
    _, layout, style = configured(
        system="Trn1", chips="512", framework="NeuronX Distributed", TP="32", PP="8", VP="",
        CP="", DP="4", precision="Autocast:BF16+FP32Optimizer", global_batch_seqs="1024",
    )  # fmt: skip
    assert layout.world == 1024 and layout.recompute == "selective"
    assert style.name == "neuron"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("full", "full"),
        ("minimal", ("qkv", "out", "up", "down")),
        ("qkv_proj_offloaded", ("qkv",)),
        ("custom (out_proj, query_proj offload)", ("qkv", "out")),
        ("custom (context, mlpwo offload)", ("attention", "down")),
    ],
)
def test_maxtext_names_what_is_kept(said, kept):
    _, layout, style = configured(
        system="TPU v6e", framework="MaxText", TP="", PP="", VP="", CP="", precision="bf16",
        FSDP_ZeRO="FSDP", recompute=said,
    )  # fmt: skip
    assert layout.recompute == kept and layout.zero == 3
    assert layout.dp == 64 and layout.micro_batch == 2
    assert style.data == "fsdp2"


def test_fewer_sequences_than_chips_are_divided():
    _, layout, _ = configured(
        system="TPU7x", framework="MaxText", TP="", PP="", VP="", CP="", precision="bf16",
        chips="256", seq="131072", global_batch_seqs="64",
    )  # fmt: skip
    assert (layout.cp, layout.dp) == (4, 64)
    assert layout.recompute == ("qkv", "attention", "down")  # what Google's recipe keeps


@pytest.mark.parametrize(
    ("changes", "kept", "shard"),
    [
        ({"model": "Llama3-70B", "precision": "bf16"}, ("qkv", "attention"), 0),
        ({"model": "Llama3.1-405B", "precision": "bf16"}, ("down",), 0),
        ({"model": "Llama3.1-405B", "precision": "fp8_full"}, "full", 0),
        ({"model": "GPT-OSS-120B", "precision": "bf16"}, ("down",), 32),
        ({"model": "Qwen3-235B-A22B", "precision": "bf16"}, "full", 0),
    ],
    ids=lambda value: value["model"] if isinstance(value, dict) else None,
)
def test_recipes_for_ironwood_say_what_is_kept_and_shared(changes, kept, shard):
    _, layout, _ = configured(
        system="TPU7x", framework="MaxText", TP="", PP="", VP="", CP="", chips="256", seq="8192",
        global_batch_seqs="2048", layers="", hidden="", ffn="", heads="", kv_heads="", **changes,
    )  # fmt: skip
    assert (layout.recompute, layout.shard) == (kept, shard)


@pytest.mark.parametrize(
    ("version", "notes", "asks"),
    [
        ("release 26.04.01", "", True),
        ("release 26.06", "", False),
        ("release 25.09", "tokendrop", False),
    ],
)
def test_the_host_asks_for_shares_of_experts_before_release_26_06(version, notes, asks):
    _, _, style = configured(framework="Megatron-Bridge", source_version=version, notes=notes)
    assert style.routes_on_host is asks


def test_mixtral_on_trillium_chooses_by_masks():
    changes = {
        "framework": "MaxText", "model": "Mixtral-8x22B", "TP": "", "PP": "", "VP": "", "CP": "",
        "precision": "bf16", "layers": "", "hidden": "", "ffn": "", "heads": "", "kv_heads": "",
    }  # fmt: skip
    for system, capacity in (("TPU v6e", 1.25), ("TPU v5p", 0.0)):
        _, _, style = configured(system=system, **changes)
        assert style.capacity == capacity


def test_torchtitan_compiles_unless_it_says_not():
    changes = {
        "framework": "torchtitan", "TP": "", "PP": "", "VP": "", "CP": "", "precision": "bf16",
        "FSDP_ZeRO": "FSDP2 full", "recompute": "selective per-op",
    }  # fmt: skip
    _, layout, style = configured(**changes)
    assert style.name == "torchtitan" and "gate" in layout.recompute
    assert configured(**changes, notes="eager")[2].name == "torchtitan-eager"


def test_a_server_divides_where_the_source_says_hybrid():
    _, layout, style = configured(
        framework="fms-fsdp (PyTorch FSDP)", TP="", PP="", VP="", CP="", precision="bf16",
        FSDP_ZeRO="HSDP", recompute="none",
    )  # fmt: skip
    assert layout.shard == 8 and style.data == "fsdp1"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"step_time_s": ""}, "no step time"),
        ({"chips": ""}, "no number of chips"),
        ({"seq": ""}, "sequence length or batch"),
        ({"source_status": "recalled"}, "recalled"),
        ({"model": "Llama3-70B LoRA"}, "frozen weights"),
        ({"model": "BERT-Large"}, "an encoder"),
        ({"model": "Nemotron_3_Ultra", "layers": ""}, "the dimensions of Nemotron_3_Ultra"),
        ({"DP": "3"}, r"tp 4 x pp 4 x cp 2 x dp 3 = 96, not 64 ranks"),
        ({"precision": "NVFP4"}, "4 bits"),
        ({"precision": "int3"}, "precision 'int3'"),
        ({"framework": "NeMo AutoModel"}, "recomputation are not in the source"),
        ({"framework": "torchtitan"}, "recomputation is not in the source"),
        ({"system": "TPU v5p", "precision": "bf16", "model_tflops_per_chip": "397"}, "over 80 %"),
        ({"notes": "it does not make clear which"}, "ambiguous"),
    ],
)
def test_what_the_source_does_not_say_is_a_reason(changes, reason):
    import re

    found = configure({**LLAMA_70B, **changes})
    assert isinstance(found, str) and re.search(reason, found), found
