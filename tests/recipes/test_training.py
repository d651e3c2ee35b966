# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A recipe trains on CPUs, with the same losses in every layout and style."""

import functools

import pytest
from recipe_job import Case, losses_of

from trnsim.recipes import Model

LLAMA = Model(layers=4, hidden=32, ffn=64, heads=4, kv_heads=2, vocab=64)
GPT = Model(
    layers=2, hidden=32, ffn=64, heads=4, vocab=64, gated=False, activation="gelu", norm="layer",
    position="learned", max_positions=16, tied=True, biases=True,
)  # fmt: skip
EXPERTS = Model(
    layers=2, hidden=32, ffn=64, heads=4, kv_heads=2, vocab=64, experts=4, topk=2, expert_ffn=32,
    shared_ffn=32, dense_layers=1,
)  # fmt: skip
LATENT = Model(
    layers=2, hidden=32, ffn=64, heads=4, vocab=64, head_dim=12, rope_dim=4, value_dim=8,
    q_rank=16, kv_rank=16,
)  # fmt: skip


def case(model: Model, style: str = "megatron", **changes) -> Case:
    return Case(model, tuple(changes.items()), style)


IN_ONE = {
    "full recomputation": case(LLAMA, recompute="full"),
    "products kept": case(LLAMA, recompute=("qkv", "out", "up", "down")),
    "attention kept": case(LLAMA, recompute=("attention",)),
    "micro-batches of 2": case(LLAMA, micro_batch=2),
    "scores": case(LLAMA, "megatron-2021"),
    "neuron": case(LLAMA, "neuron"),
    "llm-foundry": case(LLAMA, "llm-foundry"),
    "torchtitan, some kept": case(
        LLAMA, "torchtitan", recompute=("qkv", "attention", "gate", "down")
    ),
}
IN_TWO = {
    "tp 2": case(LLAMA, tp=2),
    "tp 2 without sequence parallelism": case(LLAMA, tp=2, sequence_parallel=False),
    "tp 2 without overlap": case(LLAMA, "neuron", tp=2),
    "dp 2": case(LLAMA, dp=2),
    "dp 2, nothing divided": case(LLAMA, dp=2, zero=0),
    "pp 2": case(LLAMA, pp=2),
    "pp 2, interleaved": case(LLAMA, pp=2, vp=2),
    "cp 2": case(LLAMA, cp=2),
    "fsdp 2": case(LLAMA, "torchtitan", dp=2, zero=3),
    "tp 2, torchtitan": case(LLAMA, "torchtitan", tp=2, zero=3),
    "gpt, tp 2": case(GPT, tp=2),
    "gpt, dp 2": case(GPT, dp=2),
    "gpt, pp 2": case(GPT, pp=2),
    "experts, tp 2": case(EXPERTS, tp=2),
    "experts, dp 2": case(EXPERTS, dp=2),
    "experts, ep 2": case(EXPERTS, dp=2, ep=2),
    "latent, tp 2": case(LATENT, tp=2),
}


def reference(of: Case) -> list[float]:
    """Losses of the same model undivided, in one process; initial values follow the names of
    parameters, which differ where a style has other layers."""
    style = of.style if of.style.startswith("torchtitan") else "megatron"
    return _undivided(of.model, style)


@functools.cache
def _undivided(model: Model, style: str) -> list[float]:
    (losses,) = losses_of([case(model, style)])
    assert losses[-1] < losses[0], "it learns"
    return losses


@functools.cache
def _in_two() -> dict[str, list[float]]:
    return dict(zip(IN_TWO, losses_of(list(IN_TWO.values())), strict=True))


@pytest.mark.parametrize("name", IN_ONE)
def test_losses_do_not_depend_on_recomputation_and_style(name):
    (losses,) = losses_of([IN_ONE[name]])
    assert losses == pytest.approx(reference(IN_ONE[name]), rel=2e-5)


@pytest.mark.parametrize("name", IN_TWO)
def test_losses_do_not_depend_on_the_layout(name):
    assert _in_two()[name] == pytest.approx(reference(IN_TWO[name]), rel=2e-5)
