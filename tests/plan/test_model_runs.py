# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A model by its name in `trnsim scale` and `trnsim compare`, and layouts that cannot be."""

import json
import re

import pytest
from command import trnsim as command

import trnsim
from trnsim.errors import PlanError, RecipeError
from trnsim.machine import stacks as stacks_of_trnsim
from trnsim.plan import RunOptions, Space, compare, model_runs, scale, search
from trnsim.plan.documents import read_comparison, read_scaling
from trnsim.plan.layouts import styles_of
from trnsim.plan.model_runs import batches_of, named_model
from trnsim.recipes import Layout, Model, capture
from trnsim.report.plan import no_stack_line

DENSE = Model(layers=4, hidden=512, ffn=1024, heads=8, vocab=2048, name="dense")
EXPERTS = DENSE.with_(experts=8, topk=2, expert_ffn=512, name="experts")
FORTY = DENSE.with_(heads=40, hidden=640, kv_heads=40, name="forty")
ONE = {"pp": (1,), "cp": (1,), "zero": (1,), "micro_batch": (1,), "recompute": ("none",)}
CONFIG = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 2048, "_name_or_path": "mine",
}  # fmt: skip


def space(**given):
    return Space(**{"sequence": 1024, **ONE, "tp": (2,), **given})


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


# --- what a row holds ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def given():
    """A model in a given layout at two sizes."""
    return scale(DENSE, chips=[4, 16], space=space(global_batch=8))


def test_a_point_is_the_reference_program_s_step(given):
    for point, batch in zip(given.points, (8, 32), strict=True):
        layout = Layout(tp=2, dp=point.chips // 2, global_batch=batch, sequence=1024)
        step = trnsim.project(capture(DENSE, layout), "trn2", chips=point.chips, advise=False)
        assert point.figure("step_time_s") == step.step_time_s
        assert tuple(point.figure("step_time_interval_s")) == step.step_time_interval_s
        assert point.figure("memory_peak_bytes") == step.figures.memory_peak_bytes
        assert point.in_a_step("tokens") == pytest.approx(batch * 1024)
        chosen = point.figure("layout")
        assert {name: chosen[name] for name in ("tp", "dp", "global_batch")} == {
            "tp": 2, "dp": point.chips // 2, "global_batch": batch,
        }  # fmt: skip
        assert (chosen["chosen_by"], chosen["style"]) == ("request", "megatron")
    first, last = given.points
    rates = [point.figure("tokens_per_s") / point.chips for point in (last, first)]
    assert given.efficiency(last) == pytest.approx(rates[0] / rates[1])


def test_the_table_says_which_layout_and_who_chose_it(given):
    printed = str(given)
    assert "tp2 dp8 mb1 zero1" in printed and "layout as asked for" in printed
    assert "weak scaling: 8 to 32 sequences a step" in printed and "no stack" in printed


def test_each_group_that_stops_the_scaling_has_its_own_share_of_the_projection():
    done = scale(DENSE, chips=[4, 16], strong=16, space=space())
    stop, shares = done.stop, []
    for chips in (4, 16):
        layout = Layout(tp=2, dp=chips // 2, global_batch=16, sequence=1024)
        step = trnsim.project(capture(DENSE, layout), "trn2", chips=chips, advise=False)
        of = {name: time / step.figures.step_ps
              for name, time in step.figures.exposed_by_group_ps.items()}  # fmt: skip
        shares.append((step.breakdown_ps["exposed_communication"] / step.figures.step_ps, of))
    (first, before), (last, after) = shares
    assert stop.part == "exposed_communication" and stop.group in stop.groups
    assert (stop.first_share, stop.last_share) == pytest.approx((first, last))
    assert set(stop.groups) == set(after) >= {"tp", "dp"}
    for name, ends in stop.groups.items():
        assert ends == pytest.approx((before[name], after[name])), name
    assert sum(after.values()) == pytest.approx(last)
    assert f", of which {stop.group} " in str(done)


@pytest.mark.parametrize(
    ("machine", "stacks"),
    [("trn2", ["neuron"]), ("tpu-v6e", ["maxtext", "axlearn"]), ("h100", ["megatron", "nemo"])],
)
def test_the_stacks_of_a_machine_are_named(machine, stacks):
    line = no_stack_line(machine)
    assert all(f"{machine}:{stack}" in line for stack in stacks) and "STACK" not in line
    assert ("neuron" in line) == (machine == "trn2") and "inference" not in line
    for stack in re.findall(rf"{machine}:([\w.-]+)", line):
        assert stack in stacks_of_trnsim() and any(styles_of(stack))
    assert "no/file.toml:STACK" in no_stack_line("no/file.toml")


def test_without_a_layout_the_search_chooses_one():
    asked = space(tp=(1, 4), micro_batch=(1, 2))
    (point,) = scale(DENSE, chips=[8], strong=16, space=asked).points
    best = search(DENSE, chips=8, space=space(tp=(1, 4), micro_batch=(1, 2), global_batch=16),
                  intervals=0).best[0]  # fmt: skip
    chosen = point.figure("layout")
    assert (chosen["chosen_by"], chosen["allowed"]) == ("search", 4)
    assert chosen["tp"] == best.candidate.layout.tp
    assert point.figure("step_time_s") == best.trial.step_time_s


def test_strong_scaling_has_one_batch_at_every_size():
    done = scale(DENSE, chips=[2, 8], strong=8, space=space())
    assert [point.in_a_step("samples") for point in done.points] == [pytest.approx(8)] * 2
    assert done.notes == [] and "8 sequences a step at every size" in str(done)


def test_a_step_of_many_micro_batches_is_on_the_line_through_two(monkeypatch):
    def shorter(model, layout):
        return [layout.with_(global_batch=layout.dp * count) for count in (6, 8)]

    asked = {
        "chips": [4], "space": space(global_batch=4 * 24, tp=(1,)),
        "options": RunOptions(overrides=("site.grid_intensity=0.35kg/kWh", "site.pue=1.2")),
    }  # fmt: skip
    (whole,) = scale(DENSE, **asked).points
    monkeypatch.setattr(model_runs, "simulated_lengths", shorter)
    (line,) = scale(DENSE, **asked).points
    assert line.figure("layout") == whole.figure("layout")
    for name in ("step_time_s", "mfu", "model_flops", "tokens_per_s", "cost_usd_per_step",
                 "energy_j_per_step", "energy_site_j_per_step", "carbon_kg_per_step",
                 "memory_peak_bytes"):  # fmt: skip
        assert line.figure(name) == pytest.approx(whole.figure(name), rel=0.005), name
    for name in ("breakdown_s", "engine_busy"):
        assert line.figure(name) == pytest.approx(whole.figure(name), rel=0.02, abs=1e-4), name
    low, high = line.figure("step_time_interval_s")
    assert [low, high] == pytest.approx(whole.figure("step_time_interval_s"), rel=0.02)
    assert any("steps of 6 and 8" in str(guess) for guess in line.figure("guesses"))


def test_chips_that_a_layout_leaves_idle_are_said():
    done = scale(DENSE, machine="rainier", chips=[192], strong=2,
                 space=space(tp=(8,), pp=(4,), least_used=0.3))  # fmt: skip
    (point,) = done.points
    assert (point.figure("chips"), point.figure("chips_used")) == (192, 64)
    assert "leaves 128 of 192 chips idle" in str(done)


def test_batches_grow_with_the_chips():
    assert batches_of(8, [64, 128, 192]) == {64: 8, 128: 16, 192: 24}
    assert batches_of(1, [2, 3]) == {2: 1, 3: 2}
    done = scale(DENSE, chips=[2, 3], space=space(tp=(1,), global_batch=1, least_used=0.5))
    assert done.ran == [] or any("not quite in proportion" in note for note in done.notes)


def test_points_are_kept_and_read_back(tmp_path):
    ask = {"chips": [4], "space": space(), "out": tmp_path}
    first, again = scale(DENSE, **ask), scale(DENSE, **ask)
    assert [first.points[0].reused, again.points[0].reused] == [False, True]
    assert again.points[0].document == json.loads(json.dumps(first.points[0].document))
    other = scale(DENSE, **{**ask, "space": space(tp=(4,))})
    assert not other.points[0].reused
    read = read_scaling(tmp_path / "scaling.json")
    assert read.model == "dense" and "tp4 mb1 zero1" in str(read)


# --- several machines ----------------------------------------------------------------------------


def test_machines_are_compared_on_one_step(tmp_path):
    done = compare(DENSE, machines=["trn2", "h100:nemo"], chips=8, space=space(global_batch=16))
    assert [row.in_a_step("samples") for row in done.rows] == [pytest.approx(16)] * 2
    (first, second) = (row.figure("layout") for row in done.rows)
    assert (first["tp"], second["tp"], second["style"]) == (2, 2, "megatron")
    printed = str(done)
    assert "a step has 16 sequences on every machine" in printed and "tp2 dp4" in printed
    kept = tmp_path / "comparison.json"
    kept.write_text(json.dumps(done.to_dict()))
    assert str(read_comparison(kept)).splitlines()[0] == printed.splitlines()[0]


def test_each_machine_has_the_programs_of_its_stack():
    asked = space(global_batch=16, zero=None)
    done = compare(DENSE, machines=["trn2:neuron", "h100:torchtitan"], chips=8, space=asked)
    styles = [row.figure("layout")["style"] for row in done.rows]
    assert styles == ["neuron", "torchtitan"]


def test_what_a_machine_cannot_do_is_a_row_with_the_reason():
    done = compare(DENSE, machines=["trn2", "rainier"], chips=16,
                   space=space(global_batch=16, tp=(8,), pp=(4,)))  # fmt: skip
    assert all("= 32 ranks on 16 chips" in row.reason for row in done.rows) and not done.base
    few = RunOptions(overrides=("chip.hbm.total=769MB",))
    asked = space(tp=(1, 2), global_batch=8)
    (row,) = compare(DENSE, machines=["trn2"], chips=4, space=asked, options=few).rows
    assert "none of 2 layouts fits into a rank's memory, all by" in row.reason
    given = space(global_batch=8)
    (row,) = compare(DENSE, machines=["trn2"], chips=4, space=given, options=few).rows
    assert row.document is not None and not row.document["fits"]  # as a script's would be


def test_a_batch_that_one_machine_cannot_share_out_is_refused_with_some_that_all_can():
    batch = 64  # 24 of h100 cost as much as 64: dp 16 and dp 6

    def compared(count):
        return compare(DENSE, machines=["trn2-ultra", "h100"], chips=64, equal="dollars",
                       space=space(pp=(2,), global_batch=count))  # fmt: skip

    refused = [row.reason for row in compared(batch).rows if row.document is None]
    assert refused
    for reason in refused:
        rule, _, use = reason.partition(": use ")
        assert "is the largest of up to" in rule and "chips, or" not in use
        proposed = re.match(r"global_batch ([\d,]+) or ([\d,]+), which suits every machine", use)
        below, above = (int(number.replace(",", "")) for number in proposed.groups())
        assert batch / 2 < below < batch < above < 2 * batch
    for count in (below, above):
        assert all(row.in_a_step("samples") == pytest.approx(count) for row in compared(count).rows)


def test_a_machine_whose_layout_no_batch_suits_has_its_own_rule_as_before():
    done = compare(DENSE, machines=["trn2-ultra", "h100"], chips=16, equal="dollars",
                   space=space(global_batch=16, tp=(8,)))  # fmt: skip
    assert "= 8 ranks on 5 chips with 1 each: use smaller degrees" in done.rows[1].reason


# --- names ---------------------------------------------------------------------------------------


def test_a_file_that_exists_goes_before_a_name(tmp_path, monkeypatch, config):
    monkeypatch.chdir(tmp_path)
    assert named_model("llama3-8b").name == "Llama3-8B"
    (tmp_path / "llama3-8b").write_text("print()")
    assert named_model("llama3-8b") is None
    assert named_model("llama3-8b", is_module=True) is None
    assert named_model("nowhere.py") is None and named_model("./nowhere") is None
    assert named_model(config).name == named_model(str(tmp_path)).name == "mine"
    assert named_model(DENSE) is DENSE
    with pytest.raises(PlanError, match="no model 'a{300}'"):  # too long for a file system
        named_model("a" * 300)


def test_an_unknown_name_lists_near_ones_and_how_to_give_a_script():
    with pytest.raises(PlanError) as raised:
        named_model("llama3-8bb")
    said = str(raised.value)
    assert "'llama3-8b'" in said and "train.py" in said and "\n" not in said
    with pytest.raises(RecipeError, match="no readable config"):
        named_model("nowhere.json")


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["scale", "llama9-zz", "--chips", "4"], "no script 'llama9-zz', and no model"),
        (["scale", "llama3-8b", "--chips", "4", "--machine", "trn2:nxd-inference"],
         "stack 'nxd-inference' generates text and trains nothing"),
        (["compare", "llama3-8b", "--chips", "4", "--machines", "trn2,trn1:neuronx"],
         "stack 'neuronx' generates text and trains nothing"),
        (["search", "llama3-8b", "--chips", "4", "--machine", "trn2:optimum-neuron"],
         "stack 'optimum-neuron' generates text and trains nothing"),
        (["scale", "llama3-8b", "--chips", "4", "--check-ranks", "1"],
         "--check-ranks is for a script"),
        (["scale", "llama3-8b", "--chips", "4", "--", "--batch"], "a model takes no arguments"),
        (["scale", "llama3-8b", "--chips", "4", "--tp", "two"], "--tp 'two' is no list"),
        (["scale", "llama3-8b", "--chips", "4", "--strong", "8", "--global-batch", "8"],
         "give one of them"),
        (["run", "llama3-8b"], "trnsim search llama3-8b --save FILE writes its step for"),
        (["run", "a" * 300], "give the path of a Python file"),
        (["run", "llama9-zz"], "no script 'llama9-zz': give the path of a Python file"),
        (["scale", __file__, "--chips", "4", "--tp", "2"], "a script decides its own layout"),
        (["compare", "llama3-8b", "--machines", "trn2"], "no count of chips"),
        (["compare", "llama3-8b", "llama3-70b", "--tp", "2"], "without --machines"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_one_line(words, why):
    done = command(*words)
    assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1


CANNOT_BE = {
    "40 heads on tp 64": (
        FORTY, "trn2-ultra", 64, {"tp": (64,)},
        "tp 64 does not divide 40 heads: use 8", "near it works: tp 8",
    ),
    "1,472 chips": (
        DENSE.with_(layers=8), "h100", 1472, {"tp": (8,), "pp": (8,), "global_batch": 32},
        "dp 16 is the largest of up to 23 that divides 32 micro-batches, and takes 1,024 of 1,472",
        "chips: use 1,024 chips, or global_batch 46 with dp 23",
    ),
    "more expert parallel ranks than ranks": (
        EXPERTS, "trn2", 4, {"tp": (1,), "ep": (8,)},
        "ep 8 is more than the tp x cp x dp = 4 ranks of a stage: use 4", "near it works: tp 1",
    ),
    "a sequence that cp does not divide": (
        DENSE, "trn2", 12, {"cp": (3,)},
        "sequence 1024 is not a multiple of 2 x cp 3: use 1026, or cp 2", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CANNOT_BE)
def test_what_cannot_be_names_the_rule_and_what_works(name):
    model, machine, chips, given, rule, near = CANNOT_BE[name]
    asked = space(**{"global_batch": 24, **given})
    with pytest.raises(PlanError) as raised:
        search(model, machine=machine, chips=chips, space=asked)
    (point,) = scale(model, machine=machine, chips=[chips], space=asked).points
    (row,) = compare(model, machines=[machine], chips=chips, space=asked).rows
    for said in (str(raised.value), point.reason, row.reason):
        assert rule in said and near in said and "\n" not in said


def test_what_is_named_near_it_works():
    asked = space(tp=(64,), global_batch=24)
    (point,) = scale(FORTY, machine="trn2-ultra", chips=[64], space=asked).points
    _, _, works = point.reason.partition("near it works: ")
    for one in works.split(" or "):
        words = one.split()
        sizes = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        layout = Layout(**sizes, global_batch=24, sequence=1024)
        layout.check(FORTY)
        assert 0.9 * 64 <= layout.world <= 64


@pytest.mark.parametrize(
    ("model", "given", "why"),
    [
        (DENSE, {"tp": 8, "pp": 4, "dp": 46, "global_batch": 32},
         "global_batch 32 is not a multiple of micro_batch 1 x dp 46 = 46: use 46"),
        (EXPERTS, {"ep": 8, "dp": 4, "global_batch": 4},
         "ep 8 is more than the tp x cp x dp = 4 ranks of a stage: use 4"),
        (EXPERTS, {"ep": 3, "dp": 4, "global_batch": 4}, "ep 3 does not divide tp x cp x dp = 4"),
        (DENSE, {"cp": 3}, "sequence 1024 is not a multiple of 2 x cp 3: use 1026, or cp 2"),
        (FORTY, {"tp": 64}, "tp 64 does not divide 40 heads: use 8"),
        (DENSE.with_(ffn=1000), {"tp": 16}, "tp 16 does not divide 8 heads: use 8"),
        (DENSE.with_(heads=16, ffn=1000), {"tp": 16}, "tp 16 does not divide ffn 1000: use 8"),
    ],
)  # fmt: skip
def test_a_layout_in_python_names_the_rule_and_what_works(model, given, why):
    with pytest.raises(RecipeError) as raised:
        Layout(**{"sequence": 1024, **given}).check(model)
    assert why in str(raised.value) and "\n" not in str(raised.value)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_trains_a_config(config):
    done = command("scale", config, "--chips", "2,4", "--sequence", "1024", "--tp", "2", "--pp",
                   "1", "--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "full",
                   "--global-batch", "4", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["model"] == "mine" and document["scaling"] == "weak"
    layouts = [point["layout"] for point in document["points"]]
    assert [(each["dp"], each["global_batch"]) for each in layouts] == [(1, 4), (2, 8)]
    assert {each["recompute"] for each in layouts} == {"full"}
