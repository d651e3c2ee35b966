# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A skew of experts in `trnsim scale`, `compare` and `search`, as a user asks for it."""

import json
import re

import pytest
from command import trnsim as command

CONFIG = {
    "model_type": "mixtral", "hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 2048,
    "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
SMALL = [
    "--chips", "8", "--global-batch", "8", "--sequence", "1024", "--tp", "1", "--pp", "1",
    "--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "none",
]  # fmt: skip


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def told(*words):
    done = command(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_curve_says_its_skew_and_takes_longer(config):
    scale = ["scale", config, "--machine", "h100:megatron", *SMALL, "--ep", "8"]
    (even,), (skewed,) = (
        told(*scale, *more)["points"] for more in ([], ["--expert-skew", "zipf:1.20"])
    )
    assert even["layout"]["expert_skew"] == "" and "hottest_over_mean" not in even["layout"]
    assert skewed["layout"]["expert_skew"] == "zipf:1.2"
    # 8 experts on 8 ranks, 2 of a token: the first has a share of 1/sum(k^-1.2) of all choices,
    # 0.429, so 3.43 times the mean of 1/8
    assert skewed["layout"]["hottest_over_mean"] == pytest.approx(3.43, rel=0.01)
    assert skewed["step_time_s"] > even["step_time_s"]


def test_waits_for_the_fullest_rank_are_said_where_they_are_large(config):
    scale = ["scale", config, "--machine", "h100:megatron", *SMALL, "--ep", "8"]
    skewed = command(*scale, "--expert-skew", "zipf:1.2").stdout
    said = (
        "% of the step, holds the time that ranks wait in an exchange for the fullest expert rank"
    )
    share = re.search(rf"exposed communication on world, ([\d.]+) {said}", skewed)
    assert float(share[1]) > 10
    assert "wait in an exchange" not in command(*scale).stdout


def test_machines_are_compared_under_one_skew(config):
    rows = told("compare", config, "--machines", "h100:megatron,trn2", *SMALL, "--ep", "8",
                "--expert-skew", "zipf:1.2")["rows"]  # fmt: skip
    assert [row["layout"]["expert_skew"] for row in rows] == ["zipf:1.2", "zipf:1.2"]
    first, second = (row["layout"]["hottest_over_mean"] for row in rows)
    assert first == second > 3


def test_a_search_finds_the_layouts_of_one_that_leaves_nothing_out(config):
    search = ["search", config, "--machine", "h100:megatron", *SMALL, "--ep", "1,2,8",
              "--intervals", "0", "--expert-skew", "zipf:1.2"]  # fmt: skip
    pruned, exhaustive = (told(*search, *more) for more in ([], ["--exhaustive"]))
    answers = [
        [(row["ep"], row["step_time_s"], row["memory_peak_bytes"]) for row in found["best"]]
        for found in (pruned, exhaustive)
    ]
    assert answers[0] == answers[1] and len(answers[0]) == 3
    assert {row["ep"] for row in exhaustive["simulated"]} == {1, 2, 8}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--expert-skew", "zipf:x"], "expert_skew 'zipf:x': write zipf:S with S from 0 to 16"),
        (["--expert-skew", "1.2"], "expert_skew '1.2': write zipf:S"),
        (["--expert-skew", "zipf:17"], "expert_skew 'zipf:17': write zipf:S with S from 0 to 16"),
    ],
)
@pytest.mark.parametrize("verb", ["scale", "compare", "search"])
def test_a_wrong_request_is_one_line(config, verb, words, why):
    machines = "--machines" if verb == "compare" else "--machine"
    done = command(verb, config, machines, "h100:megatron", *SMALL, *words)
    assert done.returncode == 2 and why in done.stderr, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_dense_model_has_no_experts_to_skew(config):
    dense = {name: value for name, value in CONFIG.items() if "expert" not in name}
    config.write_text(json.dumps({**dense, "model_type": "llama"}))
    done = command("search", config, *SMALL, "--expert-skew", "zipf:1")
    assert done.returncode == 2 and "which has no experts" in done.stderr
