# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Activations of the first layers in host memory: bytes by hand, time, values, refusals."""

import pytest

import trnsim
from trnsim.errors import RecipeError
from trnsim.recipes import Layout, Model, capture
from trnsim.recipes.offload import most_host_bytes

MODEL = Model(layers=6, hidden=256, ffn=512, heads=4, kv_heads=2, vocab=512)
SEQUENCE, BATCH = 512, 2
TOKENS = SEQUENCE * BATCH


def layout(**changes):
    given = {"sequence": SEQUENCE, "micro_batch": BATCH, "global_batch": BATCH}
    return Layout(**{**given, **changes})


def projected(machine="h100", model=MODEL, style="megatron", **changes):
    asked = layout(**changes)
    return trnsim.project(
        capture(model, asked, style), machine, chips=asked.world, advise=False, interval=False
    )


def copies(workload):
    """(op, bytes) of every copy between host and device of the measured step."""
    found = []
    step = workload.choose_step(-1)
    tables = workload.to_columns()
    records, texts = tables["records"], tables["signatures"]["text"]
    for i in range(step.begin, step.end):
        number = int(records["signature"][i])
        op = texts[number].partition("(")[0] if number >= 0 else ""
        if op.startswith("trnsim::copy_"):
            use = int(records["uses_begin"][i])
            storage = int(tables["uses"]["storage"][use])
            found.append((op, int(tables["storages"]["bytes"][storage])))
    return found


def kept_bytes(model=MODEL, tokens=TOKENS):
    """What autograd keeps of a layer in bfloat16, by hand.

    Two norms their input and, a row, the inverse of its size (float32). Products the norms'
    results, attention's result and the activation's. Attention queries and keys after their
    positions were turned in, the values, which are a view of the whole product before, and its
    result and sums (float32, a row and head). The activation its input.
    """
    kv = model.kv_heads * model.head_dim
    qkv = model.hidden + 2 * kv
    wide = 4 * model.hidden + qkv + model.hidden + kv + model.hidden + 2 * model.ffn + model.ffn
    return 2 * tokens * wide + 4 * tokens * (2 + model.heads)


def test_what_leaves_is_what_a_layer_keeps_and_it_comes_back():
    for count in (1, 3, 6):
        (workload,) = capture(MODEL, layout(offload_layers=count))
        moved = copies(workload)
        out = sum(size for op, size in moved if op.endswith("d2h"))
        back = sum(size for op, size in moved if op.endswith("h2d"))
        assert out == back == count * kept_bytes()
        assert most_host_bytes(workload) == out


def test_memory_falls_by_what_left():
    """The peak is where the loss's backward ends: all layers are kept, and none that left is back.
    Blocks of the allocator may be larger than what is asked for of them, by up to 1 MiB each."""
    asked, blocks = {}, {}
    for count in (0, 1, 3, 4):
        (workload,) = capture(MODEL, layout(offload_layers=count))
        asked[count] = workload.replay_allocations().requested_bytes
        blocks[count] = projected(offload_layers=count).figures.memory_peak_bytes
    for count in (1, 3, 4):
        assert asked[0] - asked[count] == count * kept_bytes()
        assert blocks[0] - blocks[count] == pytest.approx(count * kept_bytes(), abs=1 << 20)


@pytest.mark.parametrize("machine", ["h100", "trn2"])
def test_time_grows_only_where_copies_do_not_hide(machine):
    wide = MODEL.with_(hidden=2048, ffn=8192, heads=16, kv_heads=16, layers=4, vocab=2048)
    link = "server.host_link_bandwidth"

    def step_s(count, rate):
        asked = layout(offload_layers=count, sequence=4096, micro_batch=1, global_batch=1)
        return trnsim.project(
            capture(wide, asked), machine, overrides=[f"{link}={rate}GB/s"], advise=False,
            interval=False,
        ).step_time_s  # fmt: skip

    kept = step_s(0, 30)
    fast, slow = step_s(2, 10_000), step_s(2, 1)
    assert kept <= fast < 1.01 * kept
    moved = 2 * 2 * kept_bytes(wide, 4096) / 1e9  # out and back, of two layers
    assert slow > 0.9 * moved > 10 * kept


def test_none_is_today():
    a, b = (projected(offload_layers=0), projected())
    assert a.figures.step_ps == b.figures.step_ps
    assert a.figures.timeline_hash == b.figures.timeline_hash
    assert not copies(a.workload)


CASES = {
    "tp 2": ("megatron", {"tp": 2}),
    "dp 2, zero 1": ("megatron", {"dp": 2, "global_batch": 2 * BATCH}),
    "fsdp 2": ("megatron-fsdp", {"dp": 2, "zero": 3, "global_batch": 2 * BATCH}),
    "fsdp 1": ("llm-foundry", {"dp": 2, "zero": 3, "global_batch": 2 * BATCH}),
    "8 bits": ("megatron", {"precision": "fp8"}),
    "micro-batches": ("megatron", {"global_batch": 5 * BATCH}),
    "all forwards first": ("megatron", {"global_batch": 3 * BATCH, "schedule": "gpipe"}),
}


@pytest.mark.parametrize("name", CASES)
def test_in_every_layout_activations_alone_leave(name):
    style, changes = CASES[name]
    asked = layout(offload_layers=2, **changes)
    (workload,) = capture(MODEL, asked, style)
    (whole,) = capture(MODEL, asked, style, compose=False)
    assert copies(workload) == copies(whole)
    moved = copies(workload)
    assert sum(size for op, size in moved if op.endswith("d2h")) == sum(
        size for op, size in moved if op.endswith("h2d")
    )
    names = trnsim._core.workload_enum_names()["storages.kind"]
    tables = workload.to_columns()
    records, texts = tables["records"], tables["signatures"]["text"]
    for i in range(len(workload)):
        number = int(records["signature"][i])
        if number < 0 or not texts[number].startswith("trnsim::copy_d2h"):
            continue
        storage = int(tables["uses"]["storage"][int(records["uses_begin"][i])])
        assert names[int(tables["storages"]["kind"][storage])] != "parameter"
    kept = projected(model=MODEL, style=style, **changes).figures
    away = projected(model=MODEL, style=style, offload_layers=2, **changes).figures
    assert away.memory_peak_bytes < kept.memory_peak_bytes


def test_values_are_the_same():
    """Gradients on the simulated device in the mode that has values, where they come back."""
    import gc

    import torch

    from trnsim import _torch
    from trnsim.recipes.offload import Offload, streams_of

    def gradients(count):
        torch.manual_seed(3)
        nn = torch.nn
        layers = [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3)]
        x, device = torch.randn(16, 32), torch.device("trn", 0)
        made = [layer.to(device) for layer in layers]
        offload, out = Offload(count, streams_of(device), ()), x.to(device)
        for layer in made:
            out = offload.run(layer, out)
        offload.end()
        offload.ahead(out)
        out.square().sum().backward()
        return [p.grad.cpu() for layer in made for p in layer.parameters()]

    gc.collect()
    _torch.set_mode("compute")
    try:
        expected = gradients(0)
        assert all(grad.abs().sum() > 0 for grad in expected)
        for count in (1, 2, 3):
            for a, b in zip(gradients(count), expected, strict=True):
                assert torch.equal(a, b)
    finally:
        gc.collect()
        _torch.set_mode("phantom")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offload_layers": -1}, "offload_layers -1: use 0 or more"),
        ({"offload_layers": 7}, "is more than the 6 layers of a stage: use up to 6"),
        ({"offload_layers": 2, "pp": 2}, "Megatron-LM does not offload in a pipeline: use pp 1"),
        ({"offload_layers": 2, "recompute": "full"}, "does not offload what it computes again"),
        ({"offload_layers": 2, "recompute": ("qkv",)}, "use recompute none, or offload_layers 0"),
    ],
)
def test_what_megatron_refuses_is_refused(changes, words):
    with pytest.raises(RecipeError, match=words):
        layout(**changes).check(MODEL)
