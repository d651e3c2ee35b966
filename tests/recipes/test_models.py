# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Dimensions, parameters and FLOPs of models, against arithmetic by hand."""

import tomllib
from pathlib import Path

import pytest

import trnsim.recipes
from trnsim.errors import RecipeError
from trnsim.recipes import Layout, Model, preset_names
from trnsim.recipes.layout import padded_vocab

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_act": "silu",
}  # fmt: skip
# config.json in the words of each architecture; parameters by hand, and weights that a token
# meets in products (with the logits, without the embedding): both as sums over the layers.
CONFIGS = {
    "llama 3 8b": (
        LLAMA,
        2 * 128256 * 4096 + 4096 + 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096),
        128256 * 4096 + 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336),
    ),
    "mistral, a window": (
        {**LLAMA, "model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096},
        2 * 32000 * 4096 + 4096 + 32 * (4096 * 6144 + 4096**2 + 3 * 4096 * 14336 + 2 * 4096),
        32000 * 4096 + 32 * (4096 * 6144 + 4096**2 + 3 * 4096 * 14336),
    ),
    "mixtral 8x7b": (
        {**LLAMA, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8,
         "num_experts_per_tok": 2},
        2 * 32000 * 4096 + 4096
        + 32 * (4096 * 6144 + 4096**2 + 8 * 3 * 4096 * 14336 + 8 * 4096 + 2 * 4096),
        32000 * 4096 + 32 * (4096 * 6144 + 4096**2 + 2 * 3 * 4096 * 14336 + 8 * 4096),
    ),
    "qwen2 7b, biases of q, k and v": (
        {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584,
         "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4,
         "vocab_size": 152064},
        2 * 152064 * 3584 + 3584
        + 28 * (3584 * 4608 + 4608 + 3584**2 + 3 * 3584 * 18944 + 2 * 3584),
        152064 * 3584 + 28 * (3584 * 4608 + 3584**2 + 3 * 3584 * 18944),
    ),
    "qwen3 32b, a head of 128 and 5120 / 64 = 80": (
        {"model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120, "head_dim": 128,
         "intermediate_size": 25600, "num_attention_heads": 64, "num_key_value_heads": 8,
         "vocab_size": 151936},
        2 * 151936 * 5120 + 5120
        + 64 * (5120 * 10240 + 8192 * 5120 + 3 * 5120 * 25600 + 2 * 5120 + 2 * 128),
        151936 * 5120 + 64 * (5120 * 10240 + 8192 * 5120 + 3 * 5120 * 25600),
    ),
    "qwen3 30b a3b": (
        {"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 128,
         "intermediate_size": 6144, "num_attention_heads": 32, "num_key_value_heads": 4,
         "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
         "moe_intermediate_size": 768, "decoder_sparse_step": 1},
        2 * 151936 * 2048 + 2048
        + 48 * (2048 * 5120 + 4096 * 2048 + 128 * 3 * 2048 * 768 + 128 * 2048 + 2 * 2048 + 256),
        151936 * 2048
        + 48 * (2048 * 5120 + 4096 * 2048 + 8 * 3 * 2048 * 768 + 128 * 2048),
    ),
    "deepseek v3 without its second predictor": (
        {"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
         "intermediate_size": 18432, "num_attention_heads": 128, "vocab_size": 129280,
         "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "q_lora_rank": 1536,
         "kv_lora_rank": 512, "n_routed_experts": 256, "num_experts_per_tok": 8,
         "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3},
        2 * 129280 * 7168 + 7168
        + 61 * (7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
                + 1536 + 512 + 2 * 7168)
        + 3 * 3 * 7168 * 18432 + 58 * (257 * 3 * 7168 * 2048 + 256 * 7168),
        129280 * 7168
        + 61 * (7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168)
        + 3 * 3 * 7168 * 18432 + 58 * (9 * 3 * 7168 * 2048 + 256 * 7168),
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257,
         "n_positions": 1024},
        124_439_808,  # as Hugging Face counts it
        50257 * 768 + 12 * 12 * 768**2,
    ),
    "gpt-neox 20b": (
        {"model_type": "gpt_neox", "num_hidden_layers": 44, "hidden_size": 6144,
         "intermediate_size": 24576, "num_attention_heads": 64, "vocab_size": 50432,
         "hidden_act": "gelu_fast"},
        2 * 50432 * 6144 + 2 * 6144 + 44 * (12 * 6144**2 + (3 + 1 + 4 + 1) * 6144 + 4 * 6144),
        50432 * 6144 + 44 * 12 * 6144**2,
    ),
    "mpt 7b": (
        {"model_type": "mpt", "n_layers": 32, "d_model": 4096, "n_heads": 32, "vocab_size": 50432,
         "max_seq_len": 2048, "no_bias": True, "attn_config": {"alibi": True}},
        6_649_286_656,  # as Hugging Face counts it
        50432 * 4096 + 32 * 12 * 4096**2,
    ),
    "gemma 7b, a head of 256": (
        {"model_type": "gemma", "num_hidden_layers": 28, "hidden_size": 3072, "head_dim": 256,
         "intermediate_size": 24576, "num_attention_heads": 16, "num_key_value_heads": 16,
         "vocab_size": 256000, "hidden_act": "gelu_pytorch_tanh"},
        8_537_680_896,  # as Hugging Face counts it
        256000 * 3072 + 28 * (3072 * 12288 + 4096 * 3072 + 3 * 3072 * 24576),
    ),
    "gpt-oss 20b": (
        {"model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "head_dim": 64,
         "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
         "vocab_size": 201088, "num_local_experts": 32, "num_experts_per_tok": 4,
         "sliding_window": 128},
        2 * 201088 * 2880 + 2880
        + 24 * (2880 * 5120 + 5120 + 4096 * 2880 + 2880 + 64 + 2 * 2880 + 32 * 2880 + 32
                + 32 * (3 * 2880 * 2880 + 3 * 2880)),
        201088 * 2880
        + 24 * (2880 * 5120 + 4096 * 2880 + 32 * 2880 + 4 * 3 * 2880 * 2880),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_and_products_are_those_of_hand_arithmetic(name):
    config, parameters, weights = CONFIGS[name]
    model = Model.from_hf_config(config)
    assert model.parameters() == parameters
    sequence = 4096
    attention = 0
    for layer in range(model.layers):
        keys = model.window_of(layer) or sequence
        attention += 2 * min(keys, sequence) * model.heads * (model.head_dim + model.value_dim)
    assert model.forward_flops_per_token(sequence) == 2 * weights + attention


def test_every_preset_can_be_divided_over_eight_ranks():
    for name in preset_names():
        model = Model.preset(name)
        assert model.parameters() > 1e8, name
        assert padded_vocab(model, 8) % 8 == 0


@pytest.mark.parametrize(
    ("name", "billions"),
    [("GPT3-175B", 175), ("Llama3.1-405B", 405.9), ("MPT-7b", 6.66), ("Qwen3-235B-A22B", 235.1),
     ("MaxText-1024B", 997), ("Nemotron-340B", 341), ("Mixtral-8x22B", 140.6),
     ("DeepSeekV3-671B", 671.0), ("GPT-OSS-120B", 116.8), ("Kimi-K2", 1026),
     ("GPT-1T", 1008), ("MoE-10T custom", 10362), ("GPT-OSS-20B", 20.9), ("Mixtral-8x7B", 46.7),
     ("Llama2-7B", 6.74), ("Llama2-13B", 13.02), ("Llama2-70B", 68.98),
     ("Llama4-Maverick-17B-128E", 400.7)],
)  # fmt: skip
def test_presets_are_as_large_as_their_names(name, billions):
    assert Model.preset(name).parameters() / 1e9 == pytest.approx(billions, rel=0.006)


@pytest.mark.parametrize(
    ("name", "published"),
    [("Llama3.1-8B", 8_030_261_248), ("Llama3.1-70B", 70_553_706_496),
     ("Llama3.1-405B", 405_853_388_800), ("Qwen3-0.6B", 596_049_920),
     ("Qwen3-1.7B", 1_720_574_976), ("Qwen3-4B", 4_022_468_096), ("Qwen3-8B", 8_190_735_360),
     ("Qwen3-14B", 14_768_307_200), ("Qwen3-32B", 32_762_123_264),
     ("Qwen3-30B-A3B", 30_532_122_624), ("Qwen3-235B-A22B", 235_093_634_560)],
)  # fmt: skip
def test_presets_have_as_many_parameters_as_hugging_face_counts(name, published):
    assert Model.preset(name).parameters() == published


def test_what_is_not_known_is_refused_with_the_nearest():
    with pytest.raises(RecipeError, match="no model 'llama3-8c', the nearest are 'llama3-8b'"):
        Model.preset("llama3-8c")
    with pytest.raises(RecipeError, match="model_type 'mamba' is not known"):
        Model.from_hf_config({"model_type": "mamba"})
    with pytest.raises(RecipeError, match="has no 'hidden_size'"):
        Model.from_hf_config({"model_type": "llama", "num_attention_heads": 8,
                              "num_hidden_layers": 2})  # fmt: skip
    with pytest.raises(RecipeError, match="8 heads are not a multiple of 3 kv_heads"):
        Model(layers=1, hidden=64, ffn=64, heads=8, kv_heads=3, vocab=64)


def test_a_config_is_read_from_its_file(tmp_path):
    import json

    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert Model.from_hf_config(tmp_path) == Model.from_hf_config(LLAMA)
    with pytest.raises(RecipeError, match="no readable config"):
        Model.from_hf_config(tmp_path / "absent.json")


LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, "intermediate_size": 4096,
    "num_attention_heads": 8, "vocab_size": 32000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act 'relu' is in no reference program: use one of gelu"),
        ({"hidden_act": ["silu"]}, "is in no reference program"),
        ({"hidden_size": 1000, "num_attention_heads": 16}, "1000 is not a multiple of 16 heads"),
        ({"num_attention_heads": 0}, "heads 0 of a model: use 1 or more"),
        ({"num_hidden_layers": "4"}, "num_hidden_layers '4' is not a whole number"),
        ({"hidden_size": 8.5}, "hidden_size 8.5 is not a whole number: use one"),
        ({"num_key_value_heads": True}, "num_key_value_heads True is not a whole number"),
        ({"head_dim": -64}, "head_dim -64 is negative: use 0 or more"),
        ({"vocab_size": b"1"}, "vocab_size b'1' is not a whole number"),
        ({"vocab_size": None}, "the llama config has no 'vocab_size': give it"),
        (
            {"model_type": "mixtral", "num_local_experts": "8", "num_experts_per_tok": 2},
            "num_local_experts '8' is not a whole number",
        ),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_with_its_own_words(changes, message):
    with pytest.raises(RecipeError, match=message):
        Model.from_hf_config({**LLAMA, **changes})


def test_a_file_that_is_no_config_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("[1]")
    with pytest.raises(RecipeError, match="its JSON is no object"):
        Model.from_hf_config(path)


MODEL = Model.preset("Llama3-8B")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_batch": 10, "dp": 4}, "micro_batch 1 x dp 4 = 4: use 8 or 12"),
        ({"vp": 2}, "vp 2 without a pipeline"),
        ({"pp": 2, "vp": 2, "global_batch": 3}, "3 micro-batches are not a multiple of pp 2"),
        ({"pp": 40}, "32 layers over pp 40 x vp 1 pieces: use pp x vp of 32"),
        ({"tp": 48}, "tp 48 does not divide 32 heads: use 32"),
        ({"cp": 3, "sequence": 4096}, "not a multiple of 2 x cp 3: use 4098"),
        ({"ep": 3}, "ep 3 is more than the tp x cp x dp = 1 ranks of a stage: use 1"),
        ({"recompute": "some"}, "recompute 'some': use none, selective, full"),
        ({"recompute": ("norm",)}, "'norm' cannot be kept"),
        ({"precision": "int4"}, "precision 'int4': use bf16"),
        ({"gradient": "int8"}, "gradient 'int8': use float32"),
    ],
)
def test_a_layout_that_does_not_work_is_refused_with_one_that_does(changes, message):
    with pytest.raises(RecipeError, match=message):
        Layout(**changes).check(MODEL)


def test_stages_at_the_ends_are_shorter_where_layers_do_not_divide():
    layout = Layout(pp=8, vp=4, global_batch=8)
    sizes = [len(piece) for piece in layout.chunk_layers(Model.preset("Llama3.1-405B"))]
    assert sizes == [3, *[4] * 30, 3]
    pieces = Layout(pp=4).chunk_layers(MODEL.with_(layers=10))
    assert pieces == [[0, 1], [2, 3, 4], [5, 6, 7], [8, 9]]


def test_no_two_models_share_a_name():
    path = Path(trnsim.recipes.__file__).with_name("models.toml")
    tables = tomllib.loads(path.read_text())
    names = [
        name.lower() for own, table in tables.items() for name in (own, *table.get("also", []))
    ]
    assert len(names) == len(set(names))
    assert Model.preset("llama3-405b") is Model.preset("Llama3.1-405B")
