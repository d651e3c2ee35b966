# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Layouts that send activations to the host, in searches, curves, documents and reports."""

import json
import re

import pytest
from command import trnsim as command

from trnsim.errors import PlanError
from trnsim.plan import scale
from trnsim.plan.bounds import bound_of, kind_of
from trnsim.plan.layout_search import search
from trnsim.plan.layouts import Candidate, Space
from trnsim.recipes import Layout, Model
from trnsim.recipes.style import style_of
from trnsim.report.plan import layout_words
from trnsim.report.search import front_table

DENSE = Model(layers=4, hidden=512, ffn=1024, heads=8, vocab=2048, name="dense")
EXPERTS = DENSE.with_(experts=8, topk=2, expert_ffn=512, dense_layers=1, name="experts")
ONE = {"tp": (1,), "pp": (1,), "cp": (1,), "zero": (1,), "micro_batch": (1,)}


def space(**given):
    return Space(**{"sequence": 1024, "global_batch": 16, **given})


@pytest.mark.parametrize("model", [DENSE, EXPERTS], ids=lambda model: model.name)
def test_bounds_leave_out_no_answer(model):
    asked = space(tp=(1, 2), pp=(1, 2), cp=(1,), zero=(1,), micro_batch=(1, 2), ep=(1,),
                  recompute=("none", "full"), offload_layers=(0, 2, 4))  # fmt: skip
    pruned, exhaustive = (
        search(model, chips=16, space=asked, top=3, intervals=0, prune=prune)
        for prune in (True, False)
    )
    assert exhaustive.counts.simulated == exhaustive.counts.layouts
    assert pruned.wrong_bounds == () and exhaustive.counts.failed == 0
    for name in ("best", "front"):
        a, b = (getattr(done, name) for done in (pruned, exhaustive))
        assert [one.order() for one in a] == [one.order() for one in b]
    away = {one.candidate.layout.offload_layers for one in exhaustive.simulated}
    assert away == {0, 2, 4}
    refused = "\n".join(exhaustive.refused.examples.values())
    assert "with pp 2: Megatron-LM does not offload in a pipeline" in refused
    assert "with recompute full: Megatron-LM does not offload" in refused


def test_the_bound_of_memory_has_what_stays():
    def held(count, model=EXPERTS):
        layout = Layout(dp=2, global_batch=2, offload_layers=count)
        kinds = {kind_of(model, n): 1000 * 10**n for n in (0, 1)}  # a dense layer, and experts
        candidate = Candidate(layout, style_of("megatron"), 2)
        bound = bound_of(model, candidate, dict.fromkeys(kinds, 0.0), kinds)
        return (
            bound.memory_bytes - bound_of(model, candidate, dict.fromkeys(kinds, 0.0)).memory_bytes
        )

    assert [held(count) for count in range(5)] == [31_000, 30_000, 20_000, 10_000, 0]


def test_documents_and_tables_say_how_many():
    done = search(DENSE, chips=2, space=space(**ONE, offload_layers=(0, 3), recompute=("none",)),
                  intervals=0)  # fmt: skip
    document = json.loads(json.dumps(done.to_dict()))
    assert sorted(row["offload_layers"] for row in document["simulated"]) == [0, 3]
    kept, away = sorted(document["simulated"], key=lambda row: row["offload_layers"])
    assert away["memory_peak_bytes"] < kept["memory_peak_bytes"]
    assert "offload" in str(done).splitlines()[0]
    assert "offload" in front_table(document["simulated"]).header
    del kept["offload_layers"]  # a document from before
    assert "offload" not in front_table([kept]).header
    alone = search(DENSE, chips=2, space=space(**ONE, recompute=("none",)), intervals=0)
    assert "offload" not in str(alone).splitlines()[0]


def test_a_curve_has_it_in_its_layout():
    asked = space(**ONE, recompute=("none",), offload_layers=(2,))
    (point,) = scale(DENSE, machine="trn3", chips=[2], space=asked).points
    layout = point.figure("layout")
    assert layout["offload_layers"] == 2 and layout_words(layout).endswith("zero1 offload2")
    guesses = [guess["value"] for guess in point.figure("guesses")]
    assert any("unknown whether its host has that" in each for each in guesses)


MACHINE = """
extends = "trn2"
description = "its host's memory is known"
[server]
host_memory = {{ value = {value}, unit = "GiB", source = "test", confidence = "given" }}
"""


@pytest.mark.parametrize(("value", "fits"), [(1, False), (64, True)])
def test_a_host_s_memory_is_checked_where_it_is_known(tmp_path, value, fits):
    path = tmp_path / "known.toml"
    path.write_text(MACHINE.format(value=value))
    asked = space(**ONE, recompute=("none",), offload_layers=(4,), global_batch=256)
    (point,) = scale(DENSE.with_(hidden=2048, ffn=8192), machine=str(path), chips=[16],
                     space=asked).points  # fmt: skip
    if fits:
        assert not any("unknown whether" in str(guess) for guess in point.figure("guesses"))
    else:
        assert "of a server's host, which has 1.00 GiB: use fewer offload_layers" in point.reason


def test_a_server_s_host_holds_what_each_of_its_ranks_sends(tmp_path):
    """Under a skew ranks send unlike amounts; together they send as many rows as without one."""
    model = EXPERTS.with_(hidden=2048, ffn=4096, expert_ffn=4096, dense_layers=0)
    path = tmp_path / "known.toml"
    path.write_text(MACHINE.format(value=1).replace('"trn2"', '"h100"'))
    taken = []
    for skew in ("", "zipf:1.2"):
        asked = space(**ONE, ep=(8,), recompute=("none",), offload_layers=(4,), expert_skew=skew)
        (point,) = scale(model, machine=f"{path}:megatron", chips=[8], space=asked).points
        taken.append(float(re.search(r"activations take ([\d.]+) GiB", point.reason)[1]))
    assert taken[1] == pytest.approx(taken[0], rel=0.02)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--offload-layers", "5"], "offload_layers 5 is more than the 4 layers of a stage"),
        (["--offload-layers", "2", "--pp", "2"], "does not offload in a pipeline: use pp 1"),
        (["--offload-layers", "2", "--recompute", "full"], "does not offload what it computes"),
        (["--offload-layers", "x"], "--offload-layers 'x' is no list of whole numbers"),
    ],
)
def test_a_wrong_request_is_one_line(tmp_path, words, why):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "vocab_size": 2048,
        "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8,
    }))  # fmt: skip
    done = command(
        "search", str(path), "--chips", "4", "--global-batch", "8", "--sequence", "1024",
        "--tp", "1", "--recompute", "none", *words,
    )  # fmt: skip
    assert done.returncode == 2 and why in done.stderr, done.stderr


def test_a_space_that_makes_no_sense():
    with pytest.raises(PlanError, match="offload_layers -1: use 0 or more"):
        space(offload_layers=(-1,))
