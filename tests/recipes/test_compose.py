# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A composed Workload is the captured one, record by record; a step takes as long in both."""

import pytest

import trnsim
from trnsim import _core
from trnsim.errors import WorkloadError
from trnsim.recipes import Layout, Model, capture

MODEL = Model(layers=8, hidden=256, ffn=512, heads=4, kv_heads=2, vocab=512)
EXPERTS = Model(layers=4, hidden=256, ffn=512, heads=4, vocab=512, experts=8, topk=2)
CASES = {
    "dp 2": (MODEL, "megatron", {"dp": 2, "global_batch": 12}),
    "tp 2, dp 2": (MODEL, "megatron", {"tp": 2, "dp": 2, "global_batch": 12}),
    "pp 4": (MODEL, "megatron", {"pp": 4, "global_batch": 8}),
    "pp 2, gpipe": (MODEL, "megatron", {"pp": 2, "global_batch": 4, "schedule": "gpipe"}),
    "pp 2, tp 2, dp 2": (MODEL, "megatron", {"pp": 2, "tp": 2, "dp": 2, "global_batch": 16}),
    "pp 4, interleaved": (MODEL, "megatron", {"pp": 4, "vp": 2, "global_batch": 8}),
    "as many micro-batches as stages": (MODEL, "megatron", {"pp": 4, "vp": 2, "global_batch": 4}),
    "full recomputation": (MODEL, "megatron", {"pp": 2, "global_batch": 8, "recompute": "full"}),
    "8 bits": (MODEL, "megatron", {"tp": 2, "pp": 2, "global_batch": 8, "precision": "fp8"}),
    "experts": (EXPERTS, "megatron", {"pp": 2, "dp": 2, "ep": 2, "global_batch": 16}),
    "fsdp 2": (MODEL, "fsdp", {"dp": 2, "zero": 3, "global_batch": 12}),
    "fsdp 1": (MODEL, "llm-foundry", {"dp": 2, "zero": 3, "global_batch": 12}),
}


@pytest.mark.parametrize("name", CASES)
def test_composed_is_captured(name):
    model, style, changes = CASES[name]
    layout = Layout(sequence=256, **changes)
    composed = capture(model, layout, style)
    captured = capture(model, layout, style, compose=False)
    assert len(composed) == len(captured) == layout.pp
    for a, b in zip(composed, captured, strict=True):
        a.check()
        assert len(a) == len(b)
        if not name.startswith("fsdp"):  # whose streams come from a pool of the process
            assert a.compare(b, 3) == []
            assert a.hash == b.hash
        assert a.replay_allocations().allocated_bytes == b.replay_allocations().allocated_bytes
    steps = [
        trnsim.project(each, "h100", chips=layout.world, advise=False, interval=False).figures
        for each in (composed, captured)
    ]
    assert steps[0].step_ps == steps[1].step_ps > 0
    assert steps[0].parameters == model.parameters()


def test_stages_that_are_alike_are_captured_once_and_moved_along():
    layout = Layout(sequence=256, tp=2, dp=2, pp=4, global_batch=8)
    workloads = capture(MODEL, layout, "megatron")
    assert [workload.rank for workload in workloads] == [0, 4, 8, 12]
    assert [workload.played_by for workload in workloads] == ["0..3", "4..7", "8..11", "12..15"]
    names = {name: ranks for name, ranks in workloads[2].groups if name}
    assert names["tp"] == "8..9" and _core.ranks_of_pattern(names["dp"]) == [8, 10]
    assert names["pp"] == workloads[0].groups[[n for n, _ in workloads[0].groups].index("pp")][1]
    peers = {peer for _, peer in workloads[2].peers_in_step(workloads[2].choose_step(-1))}
    assert peers == {4, 12}


def test_more_micro_batches_are_more_records_of_the_same_kind():
    counts = [
        len(capture(MODEL, Layout(sequence=256, dp=2, global_batch=2 * m))[0]) for m in (4, 6, 8)
    ]
    assert counts[1] - counts[0] == counts[2] - counts[1] > 0


def test_a_schedule_of_segments_that_are_not_there_is_refused():
    (workload,) = capture(MODEL, Layout(sequence=256))
    with pytest.raises(WorkloadError, match="names segment 3 of 1"):
        _core.compose(workload, [(0, 0, 1, 0, 0)], [(3, 0)])
    with pytest.raises(WorkloadError, match="does not follow"):
        _core.compose(workload, [(0, 0, 1, 0, 0), (2, 0, 3, 0, 0)], [(0, 0)])


@pytest.mark.parametrize(
    "changes",
    [
        {"tp": 4, "pp": 2, "dp": 2},
        {"tp": 2, "cp": 2, "dp": 4},
        {"tp": 2, "dp": 4, "zero": 3},
        {"dp": 8, "pp": 2, "ep": 4},
    ],
    ids=str,
)
def test_a_step_has_the_tokens_of_its_batch(changes):
    """Ranks of a tensor parallel group, of a stage or of a sequence share theirs."""
    layout = Layout(sequence=256, global_batch=16, **changes)
    model = EXPERTS if "ep" in changes else MODEL
    workloads = capture(model, layout, "torchtitan" if layout.zero == 3 else "megatron")
    done = trnsim.project(workloads, "h100", chips=layout.world, advise=False, interval=False)
    assert done.tokens_per_s * done.step_time_s == pytest.approx(16 * 256)
    assert done.samples_per_s * done.step_time_s == pytest.approx(16)
