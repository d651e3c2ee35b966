# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Published rows of inference become a model, how it is served, and a style; or say why not."""

import pytest

from trnsim.recipes.serving_rows import configure_serving

BLANK = dict.fromkeys(
    [
        "system", "chips", "framework", "model", "layers", "hidden", "ffn", "heads", "kv_heads",
        "head_dim", "vocab", "experts", "topk", "seq", "TP", "PP", "DP", "precision", "batch",
        "in_len", "out_len", "source_status", "notes",
    ],
    "",
)  # fmt: skip
LLAMA_70B = {
    **BLANK, "system": "Trn1", "chips": "16", "framework": "Transformers NeuronX",
    "model": "Llama2-70B", "seq": "3072", "TP": "32", "precision": "FP16", "batch": "4",
    "in_len": "1024", "out_len": "2048", "source_status": "read",
    "notes": "batch; autocast Matmult-BF16, weights stored bf16",
}  # fmt: skip


def served(**changes):
    found = configure_serving({**LLAMA_70B, **changes})
    assert not isinstance(found, str), found
    return found


def test_a_token_in_the_middle_reads_the_cache_that_was_compiled_for_it():
    found = served()
    serving = found.serving
    assert (serving.tp, serving.batch, serving.prompt, serving.weights) == (32, 4, 1024, "bf16")
    assert found.style.name == "neuronx" and found.prefills == 1
    assert serving.cache == 3072, "token 2049: more than 2048, and there is no more than 3072"
    assert served(in_len="128", out_len="1024", seq="1152").serving.cache == 1024
    assert served(in_len="128", out_len="128", seq="256").serving.cache == 256
    assert served(in_len="4096", out_len="4096", seq="8192").serving.cache == 8192


def test_weights_are_kept_as_the_notes_say():
    notes = "real time; autocast Matmult-BF16, weights stored int8"
    assert served(model="Llama3-8B", notes=notes).serving.weights == "int8"


def test_nxd_inference_takes_all_that_is_asked_where_no_length_is_given():
    found = served(
        system="Trn2", framework="NxD Inference", model="Llama3-70B", seq="", TP="64", batch="1",
        in_len="10000", out_len="1500", notes="LNC=2; P50; no speculation",
    )  # fmt: skip
    assert found.style.name == "nxd-inference"
    assert (found.serving.prompt, found.serving.cache) == (10000, 11500)


@pytest.mark.parametrize(
    ("model", "tp", "lanes"), [("Llama3-8B", "4", 32), ("Qwen3-30B-A3B", "4", 16)]
)
def test_a_server_of_optimum_neuron_computes_all_of_its_lanes(model, tp, lanes):
    found = served(
        system="Trn2", framework="optimum-neuron vLLM", model=model, seq="", TP=tp, batch="1",
        in_len="1500", out_len="250", notes="synchronous",
    )  # fmt: skip
    serving = found.serving
    assert (serving.batch, serving.prefill_batch, serving.prompt, serving.cache) == (
        lanes, 1, 4096, 4096,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"notes": "fused speculation, a draft model"}, "speculative decoding"),
        ({"notes": "throughput mode; guidellm"}, "throughput mode"),
        ({"notes": "64 concurrent"}, "many requests at once"),
        ({"TP": ""}, "tensor parallelism is not in the source"),
        ({"batch": ""}, "batch is not in the source"),
        ({"in_len": "0"}, "length of the prompt is not in the source"),
        ({"out_len": ""}, "length of the output is not in the source"),
        ({"PP": "4"}, "several stages or replicas"),
        ({"source_status": "recalled"}, "recalled, not read"),
        ({"model": "Unheard-7B"}, "the dimensions of Unheard-7B are not in the source"),
        ({"model": "DeepSeekV3-671B"}, "a cache of latent vectors is not"),
    ],
)
def test_what_the_source_does_not_say_is_a_reason(changes, reason):
    found = configure_serving({**LLAMA_70B, **changes})
    assert isinstance(found, str) and reason in found
