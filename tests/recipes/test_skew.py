# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Experts that a skewed router fills unevenly: rows and bytes by hand, and what a step costs."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from fractions import Fraction

import pytest
from jobs import calls_of, parts_of

import trnsim
from trnsim.errors import RecipeError
from trnsim.recipes import Layout, Model, capture
from trnsim.recipes.skew import (
    alike_ranks,
    hottest_share,
    normal_skew,
    rows_of_experts,
    rows_to_ranks,
    tokens_of_experts,
)
from trnsim.recipes.style import STYLES

MODEL = Model(
    layers=2, hidden=256, ffn=512, heads=4, vocab=512, experts=8, topk=2, expert_ffn=512
)  # fmt: skip
ROW = 2 * 256  # bytes of a token


def layout(skew: str = "zipf:1", **changes) -> Layout:
    return Layout(**{"sequence": 512, "dp": 8, "ep": 4, "global_batch": 8, "expert_skew": skew,
                     **changes})  # fmt: skip


def step_of(given: Layout, machine: str = "h100", style: str = "megatron", model: Model = MODEL):
    workloads = capture(model, given, style)
    return trnsim.project(workloads, machine, advise=False, interval=False)


# --- tokens of experts ----------------------------------------------------------------------------


def test_shares_fall_with_the_place_by_hand():
    """1,024 choices by 1/1, 1/2, ... 1/8 of 761/280: 376.77, 188.39, 125.59, 94.19, 75.35, 62.80,
    53.82, 47.10; the floors sum to 1,020, and 53.82, 62.80, 376.77, 125.59 lost most."""
    counts = tokens_of_experts("zipf:1", 8, 512, 2)
    assert counts == (377, 188, 126, 94, 75, 63, 54, 47)
    assert sum(counts) == 1024


@pytest.mark.parametrize("skew", ["zipf:0", "zipf:0.3", "zipf:1.2", "zipf:3", "zipf:16"])
@pytest.mark.parametrize(("experts", "tokens", "topk"), [(8, 512, 2), (256, 4096, 8), (4, 7, 4),
                                                         (384, 1, 6), (64, 1000, 1)])  # fmt: skip
def test_every_choice_is_of_an_expert_and_no_token_chooses_one_twice(skew, experts, tokens, topk):
    counts = tokens_of_experts(skew, experts, tokens, topk)
    assert len(counts) == experts and sum(counts) == tokens * topk
    assert max(counts) <= tokens and min(counts) >= 0
    assert list(counts) == sorted(counts, reverse=True)
    if skew == "zipf:0":
        assert max(counts) - min(counts) <= 1


def test_what_one_expert_cannot_take_goes_to_the_others():
    """Of 200 choices of 100 tokens by 1, 1/4, 1/9: 146.9, 36.7, 16.3. The first takes 100; the
    others share 100 by 9 to 4."""
    assert tokens_of_experts("zipf:2", 3, 100, 2) == (100, 69, 31)


def test_the_law_is_that_of_its_exponent():
    counts = tokens_of_experts("zipf:0.5", 16, 10**9, 1)
    for place, count in enumerate(counts, 1):
        assert Fraction(count, counts[0]) ** 2 == pytest.approx(1 / place, rel=1e-6)


def test_experts_are_dealt_out_in_turn():
    """377, 188, 126, 94 go to ranks 0 to 3, and 75, 63, 54, 47 again."""
    given = layout()
    assert [rows_of_experts(MODEL, given, rank) for rank in range(4)] == [
        (4 * 377, 4 * 75), (4 * 188, 4 * 63), (4 * 126, 4 * 54), (4 * 94, 4 * 47)
    ]  # fmt: skip
    assert rows_to_ranks(MODEL, given) == (452, 251, 180, 141)
    assert hottest_share(MODEL, given) == 452 * 4 / 1024


def test_a_tensor_parallel_rank_routes_its_part_of_the_sequence():
    assert sum(rows_to_ranks(MODEL, layout(tp=2, dp=4))) == 512 * 2 // 2


# --- what a rank asks for -------------------------------------------------------------------------


def test_messages_are_those_rows_and_come_back():
    """Every rank sends 452, 251, 180 and 141 rows, and gets its own number from each."""
    to_ranks = (452, 251, 180, 141)
    workloads = capture(MODEL, layout(), "megatron")
    assert [workload.role for workload in workloads] == ["rank0", "rank1", "rank2", "rank3"]
    for rank, workload in enumerate(workloads):
        splits, received = (parts_of(workload, name) for name in ("splits", "received"))
        seen = Counter()
        for record, call in calls_of(workload):
            if call["kind"] != "all_to_all":
                continue
            sent, got = splits[record["payload"]], received[record["payload"]]
            if sent:
                assert sent == [rows * ROW for rows in to_ranks]
                assert got == [to_ranks[rank] * ROW] * 4
                assert call["bytes"] == 1024 * ROW
            else:
                assert got == [rows * ROW for rows in to_ranks]
                assert call["bytes"] == 4 * to_ranks[rank] * ROW
            seen[bool(sent)] += 1
        assert seen[True] == seen[False] > 0  # to the experts, and back, each way of the training


def test_what_all_ranks_send_is_what_all_receive():
    """Over the group, of every call in turn."""
    workloads = capture(MODEL, layout("zipf:1.7"), "megatron")
    calls = []
    for workload in workloads:
        splits, received = (parts_of(workload, name) for name in ("splits", "received"))
        mine = [(record["payload"], call) for record, call in calls_of(workload)
                if call["kind"] == "all_to_all"]  # fmt: skip
        calls.append([
            (splits[at] or [call["bytes"] // 4] * 4, received[at] or [call["bytes"] // 4] * 4)
            for at, call in mine
        ])  # fmt: skip
    for at_once in zip(*calls, strict=True):
        for sender, receiver in itertools.product(range(4), repeat=2):
            assert at_once[sender][0][receiver] == at_once[receiver][1][sender]


def test_products_have_the_rows_of_each_expert():
    given = layout()
    for rank, workload in enumerate(capture(MODEL, given, "megatron")):
        rows = ",".join(map(str, rows_of_experts(MODEL, given, rank)))
        texts = workload.to_columns()["signatures"]["text"]
        products = [text for text in texts if text.startswith("trnsim::grouped_mm")]
        places = {re.sub(r"\+\d+", "", text) for text in products}  # of layers in one buffer
        assert len(places) == 6  # up and down: of the input, of its gradient, of the weights
        assert all(f"rows=[{rows}]" in text for text in products)
        assert not any(text.startswith(("aten::bmm", "aten::baddbmm")) for text in texts)


def test_ranks_that_get_alike_are_one_role():
    """All tokens choose the two most popular experts."""
    given = layout("zipf:16", sequence=128)
    assert tokens_of_experts("zipf:16", 8, 128, 2) == (128, 128, 0, 0, 0, 0, 0, 0)
    assert alike_ranks(MODEL, given) == [[0, 1], [2, 3]]
    workloads = capture(MODEL, given, "megatron")
    assert [workload.played_by for workload in workloads] == [
        "start 0 axes 1x2 4x2", "start 2 axes 1x2 4x2"
    ]  # fmt: skip


# --- what a step costs ----------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "style"), [("h100", "megatron"), ("trn2", "neuron"),
                                                ("tpu-v5p", "gspmd")])  # fmt: skip
@pytest.mark.parametrize("changes", [{}, {"ep": 1}, {"tp": 2, "dp": 4},
                                     {"pp": 2, "dp": 4, "global_batch": 16}])  # fmt: skip
def test_an_exponent_of_zero_is_today_s_step(machine, style, changes):
    if style == "gspmd":
        changes = {**changes, "zero": 3}
    steps = [step_of(layout(skew, **changes), machine, style) for skew in ("", "zipf:0")]
    assert steps[0].step_ps == steps[1].step_ps
    assert steps[0].timeline_hash == steps[1].timeline_hash
    assert steps[0].figures.memory_peak_bytes == steps[1].figures.memory_peak_bytes


BIG = Model(
    layers=2, hidden=2048, ffn=4096, heads=16, vocab=2048, experts=16, topk=2, expert_ffn=4096
)  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "style", "changes"),
    [
        ("h100", "megatron", {}),
        ("h100", "megatron", {"ep": 16, "dp": 16}),  # over two servers
        ("h100", "megatron", {"tp": 2, "dp": 4, "ep": 8}),
        ("h100", "megatron", {"pp": 2, "dp": 4}),
        ("h100", "megatron", {"precision": "fp8"}),
        ("trn2", "neuron", {}),
        ("trn2", "neuron", {"dp": 16, "ep": 16, "zero": 0}),
        ("tpu-v5p", "gspmd", {"zero": 3}),
    ],
)
def test_a_step_grows_with_the_skew(machine, style, changes):
    """And so does the memory of the rank that has most."""
    given = {"sequence": 4096, "global_batch": 16, **changes}
    steps = [
        step_of(layout(skew, **given), machine, style, BIG) for skew in ("", "zipf:0.4", "zipf:1.1")
    ]
    times = [step.step_ps for step in steps]
    peaks = [step.figures.memory_peak_bytes for step in steps]
    assert times[0] < times[1] < times[2] and peaks[0] < peaks[1] < peaks[2]


def test_with_one_rank_for_all_experts_only_products_differ():
    even, skewed = (step_of(layout(skew, ep=1), model=BIG) for skew in ("", "zipf:1"))
    assert len(skewed.roles) == 1
    assert skewed.step_ps == pytest.approx(even.step_ps, rel=0.05)
    assert skewed.figures.model_flops == even.figures.model_flops


def test_all_ranks_together_multiply_as_much():
    """FLOPs of the step do not depend on who has them."""
    flops = {skew: step_of(layout(skew)).figures.model_flops for skew in ("", "zipf:1", "zipf:3")}
    assert len(set(flops.values())) == 1


def test_a_step_of_any_skew_folds_to_what_all_its_ranks_take():
    workloads = capture(MODEL, layout(dp=16, ep=8, pp=2, global_batch=64), "megatron")
    folded, whole = (
        trnsim.project(workloads, "h100", advise=False, interval=False, fold=fold)
        for fold in (True, False)
    )
    assert folded.step_ps == whole.step_ps
    assert folded.timeline_hash == whole.timeline_hash


def test_the_step_says_that_it_is_skewed_and_how_much():
    values = [guess[1] for guess in step_of(layout()).figures.guesses]
    assert (
        "experts are skewed by zipf:1: the expert parallel rank with most tokens gets 1.766 times "
        "the mean"
    ) in values


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "normal"), [("", ""), ("zipf:0", ""), ("zipf:0.0", ""),
                                              ("zipf:1.20", "zipf:1.2"), ("zipf:10", "zipf:10"),
                                              ("zipf:1e-1", "zipf:0.1")])  # fmt: skip
def test_skews_in_their_shortest_form(text, normal):
    assert normal_skew(text) == normal == layout(text).expert_skew


@pytest.mark.parametrize("text", ["zipf", "zipf:", "zipf:-1", "zipf:x", "zipf:nan", "zipf:inf",
                                  "zipf:16.1", "uniform", "1.2"])  # fmt: skip
def test_a_text_that_is_no_skew_is_refused(text):
    with pytest.raises(RecipeError, match=f"expert_skew '{text}': write zipf:S with S from 0 to"):
        layout(text)


MANY = MODEL.with_(experts=256, topk=8)
CANNOT_BE = {
    "no experts": (MODEL.with_(experts=0, topk=0), {"ep": 1}, "megatron", "without experts"),
    "groups across": (MODEL.with_(experts=6), {"tp": 2, "dp": 3, "ep": 3, "global_batch": 3},
                      "megatron", "ep 3 and tp 2: use an ep that divides 2, or a multiple"),
    "roles": (MANY, {"dp": 256, "ep": 256, "global_batch": 256, "sequence": 1 << 17}, "megatron",
              "ep 256 and pp 1: 256 ranks have unlike programs, and at most 128 are captured"),
    "capacity": (MODEL, {}, STYLES["gspmd"].with_(capacity=1.0), "a capacity of 1: tokens beyond"),
    "servers": (MODEL, {"dp": 8, "ep": 8}, STYLES["megatron"].with_(dispatch_ranks=4),
                "once to each server .dispatch_ranks 4.: .* use dispatch_ranks 0, or ep 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", CANNOT_BE)
def test_what_a_skew_does_not_go_with_is_said(name):
    model, changes, style, why = CANNOT_BE[name]
    with pytest.raises(RecipeError, match=why):
        capture(model, layout(**changes), style)
