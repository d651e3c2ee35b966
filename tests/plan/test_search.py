# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim search`: bounds leave out no answer, rules say what works, and nothing is tried twice."""

import dataclasses
import itertools
import json

import pytest
from command import trnsim as command

import trnsim
from trnsim.errors import PlanError, RecipeError
from trnsim.plan import layout_search
from trnsim.plan.bounds import alone, bound_of, kind_of, model_of_kind
from trnsim.plan.layout_search import Found, search
from trnsim.plan.layouts import Candidate, Refused, Space, candidates, styles_of
from trnsim.plan.script_runs import RunOptions, targets_of
from trnsim.plan.trials import Trial
from trnsim.recipes import Layout, Model
from trnsim.recipes.style import style_of

DENSE = Model(layers=4, hidden=512, ffn=1024, heads=8, vocab=2048, name="dense")
EXPERTS = DENSE.with_(experts=8, topk=2, expert_ffn=512, dense_layers=1, name="experts")
WINDOWS = DENSE.with_(layers=6, window=256, window_every=3, name="windows")


def target(name="trn2"):
    (found,) = targets_of([name], RunOptions())
    return found


def space(**given):
    return Space(**{"sequence": 1024, "global_batch": 16, **given})


def layouts(model, asked, chips=16, machine="trn2"):
    return candidates(model, target(machine).machine, chips, 1, asked, Refused())


def named(found):
    return [one.order() for one in found]


# --- bounds leave out no answer ------------------------------------------------------------------

SPACES = {
    "dense": (DENSE, "trn2", space(tp=(1, 4), pp=(1, 2, 4), cp=(1,), micro_batch=(1, 2),
                                   zero=(1,))),
    "sharded": (DENSE, "h100:torchtitan",
                space(tp=(1, 2), pp=(1,), cp=(1, 2))),
    "experts": (EXPERTS, "trn2", space(tp=(1, 2), pp=(1, 2), cp=(1,), ep=(2, 8), zero=(1,),
                                       micro_batch=(1,), recompute=("none", "full"))),
    "skewed": (EXPERTS, "h100:megatron",
               space(tp=(1, 2), pp=(1, 2), cp=(1,), ep=(2, 8), zero=(1,), micro_batch=(1,),
                     recompute=("none", "full"), expert_skew="zipf:1.2")),
    "windows": (WINDOWS, "trn2:neuron", space(tp=(2, 4), pp=(1, 2), cp=(1,), micro_batch=(1,))),
}  # fmt: skip


@pytest.fixture(scope="module", params=SPACES)
def both(request):
    """A search with bounds and one without."""
    model, machine, asked = SPACES[request.param]
    return [
        search(model, machine=machine, chips=16, space=asked, top=3, intervals=0, prune=prune)
        for prune in (True, False)
    ]


def test_the_answers_are_those_of_an_exhaustive_search(both):
    pruned, exhaustive = both
    assert exhaustive.counts.simulated == exhaustive.counts.layouts > 6
    assert pruned.counts.layouts == exhaustive.counts.layouts
    assert named(pruned.best) == named(exhaustive.best)
    assert named(pruned.front) == named(exhaustive.front)


def test_no_step_is_below_its_bound(both):
    pruned, exhaustive = both
    assert pruned.wrong_bounds == () and pruned.counts.layers > 0
    for one in exhaustive.simulated:  # by the published peak, and states alone
        assert one.bound.seconds <= one.trial.step_time_s
        assert one.bound.memory_bytes <= one.trial.memory_peak_bytes


@pytest.mark.parametrize("skew", ["", "zipf:0.8", "zipf:4"])
def test_every_measured_bound_holds(skew):
    """All are measured where all are asked for."""
    asked = space(tp=(1, 2), pp=(1, 2), cp=(1, 2), ep=(1, 8), zero=(1,), micro_batch=(1,),
                  recompute=("full",), expert_skew=skew)  # fmt: skip
    done = search(EXPERTS, chips=16, space=asked, top=10_000, intervals=0)
    assert done.counts.simulated == done.counts.layouts and done.wrong_bounds == ()
    tight = [one.bound.seconds / one.trial.step_time_s for one in done.simulated]
    assert max(tight) > 0.75  # or it would rule out nothing


def test_a_wrong_bound_is_said(monkeypatch):
    def too_high(*given):
        bound = bound_of(*given)
        return dataclasses.replace(bound, seconds=10.0)

    monkeypatch.setattr(layout_search, "bound_of", too_high)
    asked = space(tp=(4,), pp=(1,), cp=(1,), zero=(1,), micro_batch=(1,), recompute=("none",))
    done = search(DENSE, chips=16, space=asked, intervals=0)
    assert len(done.wrong_bounds) == 1
    assert "NOT PROVEN: 1 simulated" in str(done)


# --- the front -----------------------------------------------------------------------------------


def found(seconds, memory, chips=16, capacity=100):
    trial = Trial(seconds, memory, capacity, {}, {}, None, "", None, None, (1,))
    layout = Layout(dp=chips, global_batch=chips)
    return Found(Candidate(layout, style_of("megatron"), chips), trial, None)


def answers(*several, top=1, slower_by=1.0):
    made = layout_search._Answers(top, slower_by)
    for one in several:
        made.add(one)
    return made


def beaten(one, others):
    """The obvious way."""
    mine = (one.trial.step_time_s, one.trial.memory_peak_bytes, one.chip_seconds)
    for other in others:
        its = (other.trial.step_time_s, other.trial.memory_peak_bytes, other.chip_seconds)
        if its != mine and all(a <= b for a, b in zip(its, mine, strict=True)):
            return True
    return False


def test_the_front_is_what_nobody_beats():
    several = [
        found(1 + i % 5, 10 + (7 * i) % 11, chips)
        for i, chips in zip(range(40), itertools.cycle((4, 8, 16)), strict=False)
    ]
    front = answers(*several, slower_by=10.0).front()
    assert {named([one])[0] for one in several if not beaten(one, several)} == set(named(front))


def test_what_does_not_fit_is_no_answer_and_the_front_ends_where_asked():
    fast, slow, slower = found(1.0, 90), found(1.4, 50), found(1.6, 10)
    made = answers(found(0.5, 101), slower, slow, fast, slower_by=0.5)
    assert made.found == [fast, slow, slower] and made.front() == [fast, slow]


# --- rules ---------------------------------------------------------------------------------------


def test_data_parallelism_takes_what_is_left():
    found = layouts(DENSE, space(tp=(2,), pp=(2,), cp=(1,), micro_batch=(2,), zero=(1,)))
    assert {(one.layout.dp, one.layout.world, one.chips) for one in found} == {(4, 16, 16)}


def test_degrees_suit_model_and_machine():
    found = layouts(DENSE, space())
    assert {one.layout.tp for one in found} == {1, 2, 4, 8}  # heads
    assert {one.layout.pp for one in found} == {1, 2, 4}  # 3 would leave chips idle
    assert {one.layout.zero for one in found if one.layout.pp > 1} == {1}
    assert {one.layout.recompute for one in found} == {"none", "full"}  # fused: no scores to drop
    scores = layouts(DENSE, space(styles=styles_of("neuron")))
    assert {one.layout.recompute for one in scores} == {"none", "selective", "full"}
    assert {one.layout.zero for one in scores} == {1}


@pytest.mark.parametrize(
    ("model", "machine", "chips", "given", "why"),
    [
        (DENSE.with_(heads=40, hidden=640, kv_heads=40), "trn2-ultra", 64, {"tp": (64,)},
         "tp 64 does not divide 40 heads: use 8"),
        (DENSE, "h100", 1472, {"tp": (8,), "pp": (4,), "global_batch": 32, "micro_batch": (1,)},
         ("dp 32 is the largest of up to 46 that divides 32 micro-batches, and takes 1,024 of "
          "1,472 chips: use 1,024 chips, or global_batch 46 with dp 46")),
        (DENSE, "trn2", 16, {"cp": (3,), "least_used": 0.5},
         "sequence 1024 is not a multiple of 2 x cp 3: use 1026"),
        (EXPERTS, "trn2", 16, {"ep": (16,), "cp": (1,)},
         "ep 16 does not divide 8 experts: use 8"),
        (DENSE, "trn2", 16, {"ep": (2,), "cp": (1,)}, "ep 2 of a model without experts: use ep 1"),
        (DENSE, "trn2", 16, {"tp": (8,), "pp": (4,)},
         "tp 8 x pp 4 x cp 1 = 32 ranks on 16 chips with 1 each: use smaller degrees"),
        (DENSE, "trn2", 16, {"pp": (8,)},
         "4 layers over pp 8 x vp 1 pieces: use pp x vp of 4"),
        (DENSE, "trn2:neuron", 16, {"zero": (3,)},
         "FSDP (zero 3) is not in the stack's programs: use another stack, or another zero"),
        (DENSE, "trn2", 16, {"micro_batch": (32,)},
         "global_batch 16 is not a multiple of micro_batch 32: use 32"),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_be_names_the_rule_and_what_works(model, machine, chips, given, why):
    one = {"tp": (1,), "pp": (1,), "cp": (1,), "zero": (1,), "micro_batch": (1,),
           "recompute": ("none",), **given}  # fmt: skip
    with pytest.raises(PlanError) as raised:
        search(model, machine=machine, chips=chips, space=space(**one))
    assert why in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"precision": "int3"}, "precision 'int3'"),
        ({"global_batch": -1}, "global_batch -1"),
        ({"tp": (0,)}, "tp 0"),
        ({"recompute": ("some",)}, "recompute 'some'"),
        ({"least_used": 0.0}, "least_used 0"),
    ],
)
def test_a_space_that_makes_no_sense(given, why):
    with pytest.raises((PlanError, RecipeError), match=why):
        space(**given)


# --- what bounds are made of ---------------------------------------------------------------------


def test_layers_are_measured_by_kind():
    kinds = sorted({kind_of(WINDOWS, n) for n in range(6)})
    assert kinds == [(False, 0), (False, 256)]
    alike = model_of_kind(WINDOWS, (False, 256))
    assert {kind_of(alike, n) for n in range(6)} == {(False, 256)}
    assert {kind_of(EXPERTS, n) for n in range(4)} == {(False, 0), (True, 0)}
    assert model_of_kind(EXPERTS, (False, 0)).experts == 0
    layout = Layout(tp=2, pp=4, cp=2, ep=8, dp=8, global_batch=64)
    assert alone(layout, (True, 0)).world == 8 and alone(layout, (False, 0)).world == 4
    assert alone(layout.with_(pp=1, zero=3), (True, 0)) is None


def test_the_bound_of_a_pipeline_is_its_closed_form():
    """(m + (p - 1) / v) layers of a stage, where all stages are alike."""
    layout = Layout(pp=4, vp=2, dp=4, global_batch=32, sequence=1024)
    model = DENSE.with_(layers=16)
    candidate = Candidate(layout, style_of("megatron"), 16)
    bound = bound_of(model, candidate, {(False, 0): 0.5})
    assert bound.seconds == pytest.approx((8 + 3 / 2) * 4 * 0.5)


def test_states_are_those_of_the_reference_program():
    """Layers hold 2 bytes of weights, 4 of gradients, and 8 of moments over data parallel ranks."""
    layout = Layout(tp=2, pp=2, dp=4, global_batch=8, sequence=1024)
    bound = bound_of(DENSE, Candidate(layout, style_of("megatron"), 16), {(False, 0): 1.0})
    per_layer = (4 * 512 * 512 + 3 * 512 * 1024) / 2
    assert bound.memory_bytes == pytest.approx(2 * per_layer * (2 + 4 + 8 / 4))


# --- the command ---------------------------------------------------------------------------------

CONFIG = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 2048,
}  # fmt: skip
ASKED = ["--chips", "16", "--sequence", "1024", "--global-batch", "16", "--pp", "1,2",
         "--zero", "1", "--micro-batch", "1", "--recompute", "none", "--cp", "1"]  # fmt: skip


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


def test_the_command_finds_keeps_and_saves(config, tmp_path):
    kept, run = tmp_path / "kept", tmp_path / "best.trnsim"
    given = ["search", config, *ASKED, "--intervals", "1", "--out", str(kept), "--json"]
    first = command(*given, "--save", str(run))
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert document["counts"]["simulated"] == len(list((kept / "layouts").iterdir())) > 3
    best = document["best"][0]
    low, high = best["step_time_interval_s"]
    assert low <= best["step_time_s"] <= high and best["on_front"]
    assert best["tokens_per_s"] == pytest.approx(16 * 1024 / best["step_time_s"])
    again = json.loads(command(*given).stdout)  # from the folder
    assert again["best"] == document["best"] and again["front"] == document["front"]
    # What was saved is what was found.
    projected = trnsim.project(run)
    assert projected.step_time_s == best["step_time_s"]
    assert projected.to_dict()["tokens_per_s"] == pytest.approx(best["tokens_per_s"])


def test_what_was_kept_is_of_the_figures_that_the_files_had(tmp_path):
    """In one process, too: what a machine file or a sheet says is read anew by each search."""
    machine, stack = tmp_path / "mine.toml", tmp_path / "sheet.toml"
    stack.write_text('extends = "megatron"\ndescription = "a sheet"\n')
    times = []
    for TBps in ("3.2", "0.32"):
        machine.write_text(
            f'extends = "h100"\ndescription = "mine"\n[chip.hbm]\nbandwidth = {{ value = {TBps}, '
            'unit = "TB/s", source = "test", confidence = "given" }\n'
        )
        for out in (tmp_path / "kept", None, tmp_path / "kept"):
            done = search(
                DENSE, machine=f"{machine}:{stack}", chips=8, intervals=0, out=out, jobs=1,
                space=space(tp=(8,), pp=(1,), cp=(1,), zero=(1,), micro_batch=(1,),
                            recompute=("none",)),
            )  # fmt: skip
            times.append(done.best[0].trial.step_time_s)
    assert times[0] == times[1] == times[2] < times[3] == times[4] == times[5]


def test_the_table(config):
    done = command("search", config, *ASKED, "--intervals", "0", "--top", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["tp", "pp", "vp", "dp"] and lines[1].startswith("*")
    assert "layouts that the rules allow" in done.stdout


def test_chips_are_rounded_aloud():
    asked = space(tp=(8,), pp=(1,), cp=(1,), zero=(1,), micro_batch=(1,), recompute=("none",))
    done = search(DENSE, machine="rainier", chips=72, space=asked, intervals=0)
    assert done.asked_chips == (72,) and done.chips == (64,)
    assert "chips rounded to what rainier can be cut to: 64" in str(done)


def test_where_none_fits(config):
    done = command("search", config, *ASKED, "--set", "chip.hbm.total=769MB", "--intervals", "0")
    assert done.returncode == 1 and "NONE FITS" in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["llama9-1b", *ASKED], "no model 'llama9-1b'"),
        (["llama3-8b", *ASKED, "--tp", "two"], "--tp 'two' is no list of whole numbers"),
        (["llama3-8b", *ASKED, "--slower-by", "ten"], "--slower-by 'ten' is no share"),
        (["llama3-8b", *ASKED, "--machine", "trn9"], "trn9"),
        (["llama3-8b", *ASKED, "--chips", "64"], "trn2"),
        (["llama3-8b", *ASKED, "--save", "/nowhere/best.trnsim"], "there is no folder '/nowhere'"),
        (["llama3-405b", "--save", "."], "--save .: it is a folder: name a file in it"),
        (["llama3-405b", "--save", "/proc/best.trnsim"], "--save /proc/best.trnsim: it cannot be"),
        (["llama3-405b", "--save", "a" * 300], "File name too long"),
    ],
)
def test_a_wrong_request_is_one_line(words, why):
    done = command("search", *words)
    assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1
