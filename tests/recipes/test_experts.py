# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What layers of experts send and to whom, by hand."""

from __future__ import annotations

import pytest
from jobs import calls_of

import trnsim
from trnsim import machine as machines
from trnsim.errors import RecipeError
from trnsim.recipes import Layout, Model, Style, capture
from trnsim.recipes.style import STYLES

MODEL = Model(
    layers=2, hidden=256, ffn=512, heads=4, vocab=512, experts=16, topk=4, expert_ffn=128
)  # fmt: skip


def sent(workload, kind: str, group: str) -> list[int]:
    """Bytes of the calls of a kind on groups of a name."""
    names = workload.to_columns()["groups"]["name"]
    return [
        call["bytes"]
        for _, call in calls_of(workload)
        if call["kind"] == kind and names[call["group"]] == group
    ]


def captured(style: Style | str, **changes):
    layout = Layout(sequence=512, **changes)
    return capture(MODEL, layout, style)[0]


def test_a_few_experts_over_more_ranks_are_not_padded():
    """FSDP cuts the first axis: 16 experts over 32 ranks would be sent as 32."""
    workload = captured("gspmd", dp=32, zero=3, global_batch=32)
    experts = 16 * 3 * 256 * 128
    others = 4 * 256 * 256 + 2 * 256 + 16 * 256  # attention, norms, router
    gathered = sent(workload, "all_gather", "mesh_dp_shard")
    of_layers = [each for each in gathered if each > 2 * experts]
    assert len(of_layers) >= 4
    assert set(of_layers) == {2 * (experts + others)}


@pytest.mark.parametrize("ep", [4, 8])
def test_tokens_go_straight_to_their_experts_or_once_to_each_server(ep):
    row = 2 * 256  # bytes of a token
    straight = captured("megatron", dp=16, ep=ep, global_batch=16)
    assert set(sent(straight, "all_to_all", "ep")) == {512 * 4 * row}
    style = STYLES["megatron"].with_(dispatch_ranks=4)
    by_server = captured(style, dp=16, ep=ep, global_batch=16)
    if ep == 4:
        assert sent(by_server, "all_to_all", "ep") == sent(straight, "all_to_all", "ep")
        return
    assert sent(by_server, "all_to_all", "ep") == []
    # Of two servers, one has none of a token's 4 experts once in 16 times.
    assert set(sent(by_server, "all_to_all", "ep_servers")) == {2 * 480 * row}
    assert set(sent(by_server, "all_to_all", "ep_server")) == {512 * 4 * row}
    counts = [len(sent(by_server, "all_to_all", name)) for name in ("ep_servers", "ep_server")]
    assert counts[0] == counts[1] == len(sent(straight, "all_to_all", "ep"))


def test_servers_that_do_not_divide_the_experts_ranks_are_refused():
    style = STYLES["megatron"].with_(dispatch_ranks=3)
    with pytest.raises(RecipeError, match="ep 8 is no multiple of a server's 3 ranks: use 9"):
        captured(style, dp=8, ep=8, global_batch=8)


def test_xla_makes_no_copies_around_gathered_parameters():
    workload = captured("gspmd", dp=32, zero=3, global_batch=32)

    def copied(stack: str) -> int:
        machine = machines.load("tpu-v5p", stack=stack, constants={})
        program = trnsim.project(workload, machine, advise=False, interval=False).program
        return sum(
            op["read_bytes"] + op["write_bytes"]
            for op in program.ops
            if "split_with_sizes_copy" in op["name"] or op["name"] == "aten::cat.out"
        )

    assert copied("maxtext") == 0
    assert copied("torch-compile") > 2 * 16 * 3 * 256 * 128


def test_experts_have_their_own_share_of_the_rate():
    workload = captured("megatron", dp=8, ep=8, global_batch=8)
    seconds = [
        trnsim.project(
            workload, machines.load("h100", [f"stack.grouped_factor={factor}"]), chips=8,
            advise=False, interval=False,
        ).step_time_s
        for factor in (1, 0.0001)
    ]  # fmt: skip
    assert seconds[1] > 2 * seconds[0]


def test_experts_chosen_by_masks_take_a_fixed_share_of_each_sequence():
    """Every product of a layer by hand: the masks' own, and each expert's."""
    style = STYLES["gspmd"].with_(capacity=1.25)
    workload = captured(style, dp=4, ep=4, zero=3, global_batch=8, micro_batch=2)
    places = 512 * 4 * 1.25  # of a sequence, in all experts
    by_mask = 2 * places * 512 * 256
    by_experts = 2 * 2 * places * 3 * 256 * 128  # of as many rows as two sequences have
    others = captured("gspmd", dp=4, ep=4, zero=3, global_batch=8, micro_batch=2)
    masked, of_sorted = (
        trnsim.project(each, "h100", chips=4, advise=False, interval=False, top=0).model_flops
        for each in (workload, others)
    )
    # A layer forward and backward: masks choose and put back in two sequences each, 1 + 1 forward
    # and 1 + 2 backward; experts have 1.25 times as many rows.
    ranks, layers = 4, 2
    expected = ranks * layers * (2 * 5 * by_mask + 3 * by_experts * (1 - 1 / 1.25))
    assert masked - of_sorted == expected
