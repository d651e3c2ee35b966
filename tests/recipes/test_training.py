# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A recipe trains on CPUs, with the same losses in every layout and style."""

import functools

import pytest
from recipe_job import losses_of

from trnsim.recipes import STYLES, Layout, Model

MODEL = Model(layers=4, hidden=32, ffn=64, heads=4, kv_heads=2, vocab=64)
GPT = Model(
    layers=2, hidden=32, ffn=64, heads=4, vocab=64, gated=False, activation="gelu", norm="layer",
    position="learned", max_positions=16, tied=True, biases=True,
)  # fmt: skip
WHOLE = Layout(sequence=16, micro_batch=1, global_batch=4, precision="fp32")


@functools.cache
def whole(model: Model, style: str) -> list[float]:
    """Losses in one process."""
    losses = losses_of(model, WHOLE, STYLES[style])
    assert losses[-1] < losses[0], "it learns"
    return losses


LAYOUTS = {
    "tp 2": {"tp": 2},
    "tp 2 without sequence parallel": {"tp": 2, "sequence_parallel": False},
    "dp 2": {"dp": 2},
    "dp 2, nothing divided": {"dp": 2, "zero": 0},
    "pp 2": {"pp": 2},
    "pp 2, interleaved": {"pp": 2, "vp": 2},
    "cp 2": {"cp": 2},
    "full recomputation": {"recompute": "full"},
    "products kept": {"recompute": ("qkv", "out", "up", "down")},
    "attention kept": {"recompute": ("attention",)},
    "micro-batches of 2": {"micro_batch": 2},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_losses_do_not_depend_on_the_layout(name):
    layout = WHOLE.with_(**LAYOUTS[name])
    assert losses_of(MODEL, layout, STYLES["megatron"]) == pytest.approx(
        whole(MODEL, "megatron"), rel=2e-5
    )


@pytest.mark.parametrize("changes", [{"tp": 2}, {"dp": 2}], ids=["tp 2", "dp 2"])
def test_a_gpt_with_tied_embeddings_too(changes):
    expected = pytest.approx(whole(GPT, "megatron"), rel=2e-5)
    assert losses_of(GPT, WHOLE.with_(**changes), STYLES["megatron"]) == expected


@pytest.mark.parametrize("style", ["megatron-2021", "neuron"])
def test_styles_agree(style):
    assert losses_of(MODEL, WHOLE, STYLES[style]) == pytest.approx(
        whole(MODEL, "megatron"), rel=2e-5
    )
