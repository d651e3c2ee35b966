# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A recipe generates on CPUs: a prefill and decoding steps give what a whole forward gives, in
every style and divided over ranks; and what is captured of it is what it does."""

from __future__ import annotations

import re

import pytest
import torch
from generate_job import BATCH, PROMPT, WHOLE, served, served_in, tokens

from trnsim.errors import RecipeError
from trnsim.recipes import STYLES, Model
from trnsim.recipes.experts import loads
from trnsim.recipes.generator import Generator, capture_inference
from trnsim.recipes.serving import Serving

LLAMA = Model(layers=3, hidden=32, ffn=64, heads=4, kv_heads=2, vocab=64)
MODELS = {
    "llama": LLAMA,
    "windowed": LLAMA.with_(window=4, window_every=2),
    "gpt": Model(
        layers=2, hidden=32, ffn=64, heads=4, vocab=64, gated=False, activation="gelu",
        norm="layer", position="learned", max_positions=16, tied=True, biases=True,
    ),
    "experts": Model(
        layers=2, hidden=32, ffn=64, heads=4, kv_heads=2, vocab=64, experts=4, topk=2,
        expert_ffn=32, shared_ffn=32, dense_layers=1,
    ),
}  # fmt: skip
GENERATES = ("neuronx", "nxd-inference", "megatron", "torchtitan")
WIDE = Serving(batch=BATCH, prompt=PROMPT, cache=WHOLE, weights="fp32")


def whole_forward(model: Model, length: int) -> torch.Tensor:
    """Logits of the last of so many tokens, by the training program's modules and no cache."""
    serving = Serving(batch=BATCH, prompt=length, cache=WHOLE, weights="fp32")
    generator = Generator(model, serving, "megatron")
    chunk = generator.chunk
    with torch.no_grad():
        for block in chunk.layers:
            block.mixer.attention.cache = None
        x = chunk.embedding(tokens(model)[:, :length], chunk.positions)
        for block in chunk.layers:
            x = block(x, chunk.cos, chunk.sin)
        return chunk.head(x).unflatten(0, (BATCH, -1))[:, -1]


@pytest.mark.parametrize("style", GENERATES)
@pytest.mark.parametrize("name", MODELS)
def test_steps_give_what_a_whole_forward_gives(name, style):
    model = MODELS[name]
    found = served((model, WIDE, style))
    assert len(found) == 1 + WHOLE - PROMPT
    for at, logits in enumerate(found):
        if style != "torchtitan":  # whose layers have other names, and so other initial values
            torch.testing.assert_close(
                logits, whole_forward(model, PROMPT + at), rtol=1e-4, atol=1e-5
            )
        longer = Serving(batch=BATCH, prompt=PROMPT + at, cache=WHOLE, weights="fp32")
        again = Generator(model, longer, style).prefill(tokens(model)[:, : PROMPT + at])
        torch.testing.assert_close(logits, again, rtol=1e-4, atol=1e-5)


def test_ranks_divide_the_model_and_heads_that_are_too_few_are_repeated():
    serving = Serving(tp=2, batch=BATCH, prompt=PROMPT, cache=WHOLE, weights="fp32")
    names = ["llama", "gpt", "experts"]
    cases = [(MODELS[name], serving, "nxd-inference") for name in names]
    first, second = served_in(2, cases)
    for name, one, other in zip(names, first, second, strict=True):
        alone = served((MODELS[name], WIDE, "nxd-inference"))
        for a, b, c in zip(one, other, alone, strict=True):
            torch.testing.assert_close(a, b)
            torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-5)
    assert Generator(LLAMA, WIDE).caches[0].keys.shape == (WHOLE, BATCH, 2, 8)


def test_weights_in_int8_stay_near_to_the_wide_ones():
    narrow = Serving(batch=BATCH, prompt=PROMPT, cache=WHOLE, weights="int8")
    kept = Generator(LLAMA, narrow, "neuronx")
    layer = kept.chunk.layers[0].feed.down
    weight = layer.weight
    wide_weight = Generator(LLAMA, WIDE, "neuronx").chunk.layers[0].feed.down.weight
    of_kept = weight.float() * layer.scale[:, None].float()
    assert (of_kept - wide_weight).abs().max() < 0.01 * wide_weight.abs().max()
    assert weight.dtype == torch.int8 and kept.chunk.head.logits.weight.dtype == torch.bfloat16
    wide = served((LLAMA, WIDE, "neuronx"))
    for logits, of_wide in zip(served((LLAMA, narrow, "neuronx")), wide, strict=True):
        assert 0 < (logits.float() - of_wide).abs().max() < 0.1 * of_wide.abs().max()


def test_a_full_cache_says_so():
    generator = Generator(LLAMA, Serving(batch=1, prompt=4, cache=5, weights="fp32"))
    generator.prefill(torch.zeros(1, 4, dtype=torch.int64))
    generator.decode(torch.zeros(1, dtype=torch.int64))
    with pytest.raises(RecipeError, match="the cache is full: use one of more than 5 places"):
        generator.decode(torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize(
    ("model", "serving", "reason"),
    [
        (LLAMA, {"cache": 4}, "cache 4 has no place for a prompt of 8 tokens"),
        (LLAMA, {"weights": "int4"}, "weights 'int4': use bf16"),
        (LLAMA, {"tp": 0}, "tp 0 of serving"),
        (LLAMA.with_(heads=6, kv_heads=3), {"tp": 4}, "3 kv_heads cannot be repeated over tp 4"),
        (LLAMA.with_(kv_rank=8, rope_dim=4), {}, "a cache of latent vectors is not"),
        (MODELS["experts"], {"weights": "int8"}, "experts kept in int8 are not"),
    ],
)
def test_what_cannot_be_served_says_why(model, serving, reason):
    with pytest.raises(RecipeError, match=re.escape(reason)):
        Serving(**{"prompt": 8, "cache": 16, **serving}).fitted(model)


def test_heads_that_tp_does_not_divide_are_padded():
    fitted = Serving(tp=32).fitted(Model.preset("Llama2-13B"))
    assert (fitted.heads, fitted.kv_heads, fitted.hidden) == (64, 64, 5120)
    fitted = Serving(tp=64).fitted(Model.preset("Llama4-Scout-17B-16E"))
    assert (fitted.heads, fitted.kv_heads, fitted.head_dim) == (64, 8, 128)


@pytest.mark.parametrize(
    ("style", "tokens", "decodes", "found"),
    [
        ("megatron", 1, True, (8, 1)),  # what one token chooses
        ("megatron", 16, True, (83, 2)),  # 128 (1 - (1 - 8/128)^16) = 82.4, expected
        ("nxd-inference", 4, True, (32, 1)),  # an expert for each choice
        ("nxd-inference", 16, True, (128, 16)),  # all tokens by all experts
        ("nxd-inference", 4096, False, (191, 512)),  # (4096 x 8 - 127) / 512 and 127 blocks
    ],
)
def test_how_many_experts_are_read_by_hand(style, tokens, decodes, found):
    assert loads(Model.preset("Qwen3-30B-A3B"), STYLES[style], tokens, decodes) == found


# --- captured ----------------------------------------------------------------------------------


def records_of(kind: str, style: str = "neuronx", **changes) -> list[str]:
    serving = Serving(**{"tp": 4, "batch": 2, "prompt": 128, "cache": 512, **changes})
    workload = capture_inference(SMALL, serving, style, kind, ranks_per_server=32)
    step = workload.choose_step()
    return workload.print_records(step.begin, step.end)


SMALL = Model(layers=2, hidden=512, ffn=1024, heads=8, kv_heads=2, vocab=2048)


def test_a_captured_token_reads_the_cache_and_sums_twice_a_layer():
    found = records_of("decode")
    sums = [line for line in found if " all_reduce of 2048 bytes" in line and "wait" not in line]
    assert len(sums) == 2 * SMALL.layers + 1, "the embedding, and two a layer"
    assert sum("all_gather of" in line and "wait" not in line for line in found) == 1
    # One of two kv heads, each on two of four ranks; two query heads share it.
    scores = [line for line in found if "bfloat16[2,64,512]{64,1,128}" in line]
    assert len(scores) == SMALL.layers
    assert all("aten::bmm(self: bfloat16[2,2,64]" in line for line in scores)
    assert any("host_read" in line for line in found), "the host takes the token"


def test_a_captured_prefill_computes_logits_of_the_last_token_alone():
    found = records_of("prefill")
    (logits,) = (line for line in found if "Head.logits aten::mm" in line)
    assert "self: bfloat16[2,512]" in logits
    (up, *_) = (line for line in found if "Block.feed.up aten::mm" in line)
    assert "self: bfloat16[256,512]" in up


def step_s(kind: str, model: Model = SMALL, machine: str = "trn1", **changes) -> float:
    import trnsim

    serving = Serving(**{"tp": 2, "batch": 1, "prompt": 128, "cache": 512, **changes})
    workload = capture_inference(model, serving, "neuronx", kind, ranks_per_server=32)
    done = trnsim.project(
        [workload], machine, ranks_per_chip=2, top=0, advise=False, interval=False
    )
    return done.step_time_s


def test_a_token_takes_what_streaming_its_weights_takes_and_in_int8_what_widening_them_does():
    model = SMALL.with_(hidden=4096, ffn=16384, heads=32, kv_heads=4)
    wide, narrow = (step_s("decode", model, weights=name) for name in ("bf16", "int8"))
    # Of a core: half of the weights but the embedding, by 16 DMA engines of 17 GB/s.
    floor = (model.parameters() - model.vocab * model.hidden) / 2 * 2 / (16 * 17e9)
    assert floor < wide < 1.25 * floor
    # Half of the bytes; a pass of the scalar engine, 128 lanes at 1.4 GHz, takes longer.
    widened = (model.parameters() - 2 * model.vocab * model.hidden) / 2 / (128 * 1.4e9)
    assert floor / 2 < widened < narrow < 1.25 * widened < wide


def test_a_token_takes_longer_the_more_of_a_cache_it_reads():
    times = [step_s("decode", cache=cache) for cache in (512, 4096, 32768)]
    assert times[0] < times[1] < times[2]
    one, eight = (step_s("decode", batch=batch, cache=8192) for batch in (1, 8))
    assert one < eight < 8 * one
