# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim goodput`: a long run of a step, by hand arithmetic. The formulas themselves are tested
against a slow simulation in tests/cpp/project/test_goodput.cpp."""

import contextlib
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from command import trnsim as command
from small_workload import ALL_REDUCE, step_of_calls, train

import trnsim
from trnsim import _core
from trnsim import machine as machines
from trnsim.cli import app, output
from trnsim.cli.goodput import parse_count
from trnsim.errors import PlanError, TrnSimError
from trnsim.plan import GoodputOptions
from trnsim.plan import goodput_inputs as inputs
from trnsim.plan.goodput_inputs import (
    checkpoint_bytes,
    failure_rate,
    parts,
    replaced_share,
    sheet,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "goodput.txt"
TOKENS = 1_000_000  # of a step
TIMED = ["--blocking-s", 20, "--upload-s", 90, "--restart-minutes", 5, "--mtbf-hours", 10]
HOUR = 3600.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run files of 4 and of 64 ranks, and of 8 on GPUs, and one without a model or
    tokens; the first has many tokens."""
    made = tmp_path_factory.mktemp("goodput")
    quick = {"advise": False, "interval": False}
    trnsim.project(train(world_size=4), "trn2", tokens_per_step=TOKENS, **quick).write(made, "four")
    trnsim.project(train(world_size=64), "trn2-ultra", **quick).write(made, "pod")
    trnsim.project(train(world_size=8), "h100", **quick).write(made, "gpus")
    bare = step_of_calls(4, {}, [(ALL_REDUCE, 1 << 20, "", -1, 0)])
    trnsim.project(bare, "trn2", **quick).write(made, "bare")
    return made


@pytest.fixture
def asked(folder, monkeypatch):
    """Takes a run file's name and the verb's arguments, and gives the document of --json. In this
    process: the command itself is what the last tests run."""
    taken = []
    document = SimpleNamespace(write=taken.append)
    monkeypatch.setattr(output, "claim_json", lambda wanted: document if wanted else None)

    def run(name, *arguments):
        words = ["goodput", "--json", f"{name}.trnsim", *map(str, arguments)]
        with contextlib.chdir(folder):
            typer.main.get_command(app).main(words, "trnsim", standalone_mode=False)
        return taken.pop()

    return run


def named(document, name):
    return next(one for one in document["inputs"] if one["name"].startswith(name))


# --- shares of the time --------------------------------------------------------------------------


def test_energy_has_the_switches_and_co2_the_grid_of_the_machine():
    rainier = machines.load("rainier", ["site.grid_intensity=350g/kWh"])
    options = GoodputOptions()
    assert inputs.watts_per_chip(rainier) == pytest.approx(750 + 14.375 + 17.03125 + 8.515625)
    assert inputs.watts_per_chip(machines.load("trn2-ultra")) == 750
    assert inputs.grid_kg_per_kwh(rainier, options) == pytest.approx(0.35)
    given = GoodputOptions(grid_g_per_kwh=100)
    assert inputs.grid_kg_per_kwh(rainier, given) == pytest.approx(0.1)
    found = inputs.pue(rainier, options)
    assert (found.value, found.low, found.high) == (1.125, 1.10, 1.15)
    mine = inputs.pue(machines.load("h100", ["site.pue=1.4,guessed"]), options)
    assert (mine.value, mine.low, mine.high) == pytest.approx((1.4, 1.2, 1.6))
    assert inputs.pue(machines.load("h100"), options) is None


def test_goodput_is_the_formula_of_what_was_given(asked):
    document = asked("four", *TIMED, "--every-minutes", 30)
    rate, restart, blocking, upload = 1 / (10 * HOUR), 300, 20, 90
    work = document["checkpoint_every_s"]
    assert work == pytest.approx(30 * 60, abs=document["step_time_s"])
    cycle = math.exp(rate * (restart + upload)) * math.expm1(rate * (work + blocking)) / rate
    assert document["goodput"] == pytest.approx(work / cycle, rel=1e-12)
    shares = document["shares"]
    assert sum(shares.values()) == pytest.approx(1) and shares["waiting"] == 0
    assert shares["kept"] == document["goodput"]
    assert shares["checkpoints"] == pytest.approx(document["goodput"] * blocking / work)
    assert shares["restarts"] == pytest.approx(-math.expm1(-rate * restart))
    low, high = document["goodput_interval"]  # only the step moves, and with it the interval
    assert low <= document["goodput"] <= high and high - low < 0.01


def test_the_best_interval_stands_beside_young_and_daly(asked):
    document = asked("four", *TIMED)
    step, mtbf, blocking = document["step_time_s"], 10 * HOUR, 20
    best, young, daly = document["checkpoint_choices"]
    assert [best["name"], young["name"], daly["name"]] == ["exact", "Young 1974", "Daly 2006"]
    assert young["formula_s"] == pytest.approx(math.sqrt(2 * blocking * mtbf))
    x = blocking / (2 * mtbf)
    assert daly["formula_s"] == pytest.approx(
        math.sqrt(2 * blocking * mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - blocking
    )
    u = best["formula_s"] / mtbf
    assert 1 - u == pytest.approx(math.exp(-u - blocking / mtbf))
    assert best["goodput"] >= max(young["goodput"], daly["goodput"]) > 0.9
    for choice in (young, daly):
        assert choice["steps"] == pytest.approx(choice["formula_s"] / step, abs=0.51)
    assert document["checkpoint_every_steps"] == best["steps"]


def test_a_synchronous_checkpoint_blocks_for_its_upload(asked):
    size = ["--checkpoint-gb", 100, "--server-gb-per-s", 5, "--restart-minutes", 5]
    background = asked("four", *size)
    standing = asked("four", *size, "--sync")
    # 100 GB from one server at 5 GB/s; 6.3 s, and 25 GB a chip at 31 GB/s.
    assert named(background, "upload")["value"] == pytest.approx(20)
    assert named(background, "checkpoint blocks")["value"] == pytest.approx(6.3 + 25 / 31)
    assert named(standing, "checkpoint blocks")["value"] == pytest.approx(26.3 + 25 / 31)
    assert named(standing, "upload")["value"] == 0
    assert standing["goodput"] < background["goodput"]


def test_storage_that_takes_less_than_its_servers_is_the_limit(asked):
    size = ["--checkpoint-gb", 100, "--server-gb-per-s", 5]
    fast = asked("pod", *size)  # four servers
    slow = asked("pod", *size, "--store-gb-per-s", 2)
    assert named(fast, "upload")["value"] == pytest.approx(5)
    assert named(slow, "upload")["value"] == pytest.approx(50)
    assert any("20 GB/s together" in note for note in fast["notes"])
    assert not any("storage" in note for note in slow["notes"])
    restart = [named(document, "restart")["value"] for document in (fast, slow)]
    assert restart[1] > restart[0] > 600  # the load takes the same way


def test_an_upload_longer_than_the_interval_is_said(asked):
    document = asked("four", "--blocking-s", 5, "--upload-s", 600, "--restart-minutes",
                       5, "--every-minutes", 2)  # fmt: skip
    assert any("the job waits for it" in note for note in document["notes"])


# Shares of effective time that were published: Llama 3 on 16,384 H100 ("more than 90 %", arXiv
# 2407.21783), ByteRobust on 9,600 GPUs for three months (97 %, arXiv 2509.16293).
@pytest.mark.parametrize(("chips", "published"), [(16_384, 0.90), (9_600, 0.97)])
def test_published_runs_are_within_the_interval_of_our_guesses(chips, published):
    rate = failure_rate(machines.load("h100"), chips, GoodputOptions()).in_("1/s", 1 / HOUR)
    known = [sheet()["restart"]["duration"], sheet()["checkpoint"]["overhead"]]
    (restart, blocking) = (
        tuple(scale * figure[bound] for bound in ("value", "low", "high"))
        for scale, figure in zip((60, 1), known, strict=True)
    )
    done = _core.estimate_goodput(
        step_s=(5, 5, 5), failures_per_s=rate.triple, restart_s=restart, blocking_s=blocking,
        upload_s=(3, 3, 3), every=0, steps=0, spares=None, runs=1, seed=0,
    )  # fmt: skip
    value, low, high = done.goodput
    assert low <= published <= high and 0.9 < value < 0.97
    assert high - low < 0.15  # and it says something


# --- what it rests on ----------------------------------------------------------------------------


def test_failures_grow_with_chips_and_are_a_guess_on_trainium(asked):
    four, pod = asked("four"), asked("pod")
    rate = 419 / (54 * 24 * 16_384)
    for document, chips in ((four, 4), (pod, 64)):
        failures = named(document, "failures of the job")
        assert failures["value"] == pytest.approx(chips * rate, rel=1e-3)
        assert failures["confidence"] == "guessed" and "H100" in failures["source"]
        assert sum(document["failures_per_hour_by_part"].values()) == pytest.approx(
            failures["value"]
        )
    by_hand = asked("pod", "--chip-mtbf-hours", 6400)
    assert named(by_hand, "failures of the job")["value"] == pytest.approx(0.01)
    assert by_hand["failures_per_hour_by_part"] is None


def test_failures_of_h100_are_published_and_parts_are_those_of_the_table():
    gpus = machines.load("h100")
    rate = failure_rate(gpus, 16_384, GoodputOptions())
    assert rate.confidence == "published"
    assert 54 * 24 * rate.value == pytest.approx(419, rel=1e-3)
    assert sum(row["count"] for row in sheet()["parts"].values()) == 419
    assert parts()["HBM"] == pytest.approx(72 / 419) and replaced_share() == 356 / 419
    a100 = failure_rate(machines.load("a100"), 992, GoodputOptions())
    assert a100.value * 61 * 24 == pytest.approx(105, rel=1e-2)
    assert a100.low < a100.value < a100.high


def test_each_figure_of_the_sheet_has_bounds_a_source_and_a_confidence():
    def figures(node):
        if "value" in node:
            yield node
        for child in node.values():
            if isinstance(child, dict):
                yield from figures(child)

    found = list(figures({key: part for key, part in sheet().items() if key != "parts"}))
    assert len(found) == 10
    for figure in found:
        assert figure["source"] and figure["confidence"] in ("published", "inferred", "guessed")
        assert figure.get("low", 0) <= figure["value"] <= figure.get("high", math.inf)


def test_a_checkpoint_has_fourteen_bytes_a_parameter_where_ranks_hold_as_many(folder, asked):
    pod = asked("pod")
    parameters = trnsim.project(folder / "pod.trnsim", advise=False, interval=False).parameters
    size = named(pod, "checkpoint")
    assert size["value"] == 14 * parameters and size["low"] == 10 * parameters
    size = named(asked("pod", "--bytes-per-parameter", 12), "checkpoint")
    assert size["value"] == 12 * parameters and size["confidence"] == "given"


@pytest.mark.parametrize(
    ("kinds", "ranks", "size"),
    [
        ({"parameters": 400, "optimizer": 800}, 1, (1200, 1000, 1200)),  # float32 and Adam
        ({"parameters": 100, "optimizer": 200}, 4, (1200, 1000, 1200)),  # all of it in shards
        ({"parameters": 400, "optimizer": 400}, 1, (800, 800, 800)),  # momentum alone
        ({"parameters": 400, "optimizer": 800}, 4, (1400, 1000, 1600)),  # replicas
        ({"parameters": 400}, 1, (1400, 1000, 1600)),  # states that a first step has not made yet
    ],
)
def test_no_checkpoint_is_larger_than_what_its_ranks_hold(kinds, ranks, size):
    figures = SimpleNamespace(parameters=100, ranks=ranks, memory_by_kind=kinds)
    found = checkpoint_bytes(SimpleNamespace(figures=figures), GoodputOptions())
    assert found.triple == size


def test_paths_are_those_of_the_machine(asked):
    slowest = named(asked("four"), "server to storage (ebs)")
    ena = named(asked("four", "--path", "ena"), "server to storage (ena)")
    assert (slowest["value"], ena["value"]) == (10e9, 12.5e9)
    assert slowest["low"] == pytest.approx(7.5e9)  # inferred: 25 %


def test_data_is_read_through_the_front_end(asked):
    data = asked("four")["data_loading"]
    document = asked("four", "--bytes-per-token", 2)
    rate = 2 * TOKENS / document["step_time_s"]
    mine = document["data_loading"]
    assert mine["bytes_per_s"] == pytest.approx(rate)
    assert mine["bytes_per_s_a_server"] == mine["bytes_per_s"]  # one server
    assert mine["share_of_front_end"] == pytest.approx(rate / 12.5e9)
    assert data["bytes_per_s"] == pytest.approx(2 * rate)


# --- days, dollars, energy -----------------------------------------------------------------------


def test_days_dollars_and_energy_are_those_of_the_steps(asked):
    document = asked("four", *TIMED, "--tokens", "2T", "--pue", 1.2,
                       "--grid-g-per-kwh", 400)  # fmt: skip
    run = document["training"]
    assert run["tokens"] == 2 * 10**12 and run["steps"] == 2 * 10**12 // TOKENS
    bare = run["steps"] * document["step_time_s"] / (24 * HOUR)
    assert run["days_without_failures_and_checkpoints"] == pytest.approx(bare)
    # The start has no restart before it, the last upload nothing beside it: not quite bare / g.
    assert run["days"] == pytest.approx(bare / document["goodput"], abs=200 / (24 * HOUR))
    hours = 24 * run["days"]
    assert run["failures"] == pytest.approx(hours / 10)
    assert run["usd"] == pytest.approx(hours * 4 * 2.235)
    assert run["usd_of_instances"] == pytest.approx(hours * 16 * 2.235)
    assert run["mwh"] == pytest.approx(hours * 4 * 843.75 * 1.2 / 1e6)
    assert run["mwh_of_chips"] == pytest.approx(hours * 4 * 500 / 1e6)
    assert run["tonnes_co2"] == pytest.approx(run["mwh"] * 0.4)
    chance = run["days_by_chance"]
    assert chance["p5"] <= chance["p50"] <= chance["p95"]
    low, high = run["days_interval"]
    assert low < min(run["days"], chance["p5"] + 1e-9) and high > run["days"]
    assert document["price_date"] == "2026-05"


def test_steps_round_up_and_stand_in_for_tokens(asked):
    some = asked("four", "--tokens", TOKENS * 10 + 1)["training"]
    assert some["steps"] == 11
    steps = asked("four", "--steps", 11)["training"]
    assert steps["tokens"] is None
    assert {**steps, "tokens": 0} == {**some, "tokens": 0}


def test_what_no_one_knows_is_null(folder, asked):
    known = ["--server-gb-per-s", 5, "--steps", 1000, "--machine", "b300"]
    run = asked("gpus", *known)["training"]
    assert run["usd"] is None and run["usd_interval"] is None and run["mwh"] > 0
    said = command("goodput", "gpus.trnsim", *known, cwd=folder)
    assert "no price is known" in said.stdout and "no PUE is known" in said.stdout
    given = asked("gpus", *known, "--set", "price.per_chip_hour=2USD/h")
    assert given["training"]["usd"] == pytest.approx(given["training"]["days"] * 24 * 8 * 2)


def test_spares_are_waited_for_and_paid(asked):
    run = [*TIMED, "--tokens", "9000T", "--draws", 300, "--tokens-per-step", TOKENS]
    free = asked("pod", *run)
    few, many = (asked("pod", *run, "--spares", n, "--repair-hours", 20) for n in (0, 20))
    assert few["shares"]["waiting"] > 0.3 and many["shares"]["waiting"] == 0
    assert few["training"]["days"] > 1.5 * free["training"]["days"]
    assert many["training"]["days"] == pytest.approx(free["training"]["days"], rel=0.02)
    assert sum(few["shares"].values()) == pytest.approx(1)
    assert few["goodput"] == few["shares"]["kept"]
    assert (few["spare_chips"], many["spare_chips"]) == (0, 20 * 64)  # a torus goes with its chip
    hours = 24 * many["training"]["days"]
    assert many["training"]["usd"] == pytest.approx(hours * (64 + 1280) * 2.235)


def test_choices_and_what_moves_the_goodput_wait_for_repairs_too(asked):
    run = [*TIMED, "--tokens", "9000T", "--draws", 300, "--tokens-per-step", TOKENS]
    done = asked("pod", *run, "--spares", 0, "--repair-hours", 20)
    best, young = done["checkpoint_choices"][:2]
    low, high = done["goodput_interval"]
    assert done["shares"]["waiting"] > 0.3
    assert best["goodput"] == done["goodput"] >= young["goodput"]
    assert young["goodput"] == pytest.approx(done["goodput"], rel=0.01)
    for one in done["moved"]:
        assert low <= min(one["goodput"]) <= max(one["goodput"]) <= high, one["input"]
    # No input has bounds but the step, whose other intervals are worse than the best.
    step = next(one["goodput"] for one in done["moved"] if one["input"] == "step time")
    assert max(step) < done["goodput"] and max(step) == pytest.approx(done["goodput"], rel=0.01)


def test_the_same_seed_draws_the_same_runs(asked):
    def chance(seed):
        run = asked("four", *TIMED, "--tokens", "9000T", "--draws", 50, "--seed", seed)
        return run["training"]["days_by_chance"]

    assert chance(1) == chance(1) != chance(2)


# --- the command ---------------------------------------------------------------------------------


def test_text_is_as_committed(folder):
    run = ["--tokens", "9000T", "--tokens-per-step", TOKENS, "--every-minutes", 60]
    said = command("goodput", "pod.trnsim", *run, "--spares", 1, "--repair-hours", 24, cwd=folder)
    assert said.returncode == 0, said.stderr
    assert said.stdout == GOLDEN.read_text()


def test_python_prints_what_the_command_does(folder):
    done = trnsim.goodput(folder / "four.trnsim", tokens=10**12, options=GoodputOptions(draws=100))
    said = command("goodput", "four.trnsim", "--tokens", "1T", "--draws", 100, cwd=folder)
    assert str(done) + "\n" == said.stdout
    again = command(
        "goodput", "--json", "four.trnsim", "--tokens", "1T", "--draws", 100, cwd=folder
    )
    assert json.loads(again.stdout) == json.loads(json.dumps(done.to_dict()))
    assert done.goodput[0] == done.estimate.shares.kept
    assert done.every_s == done.every_steps * done.projection.step_time_s


@pytest.mark.parametrize(
    ("text", "count"),
    [("15.6T", 15_600_000_000_000), ("300B", 3 * 10**11), ("1e12", 10**12), ("7", 7),
     ("2.5k", 2500), (" 1.5e9 ", 1_500_000_000), (".5m", 500_000)],
)  # fmt: skip
def test_counts(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "T", "0", "1.5", "-3B", "1e", "3 X", "nan", "1e400"])
def test_what_is_no_count(text):
    with pytest.raises(PlanError):
        parse_count(text)


MEASURED = ("--upload-s", 5, "--blocking-s", 3, "--restart-minutes", 2)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("gpus", [], "no way from a server of this machine to storage is known"),
        ("gpus", ["--path", "ebs"], "no bandwidth of 'ebs' is known for a server of h100"),
        ("four", ["--path", "nvme"], "(known: ebs, ena): give what a server writes"),
        ("bare", ["--tokens", "1T"], "does not know the tokens of its step"),
        ("bare", [], "knows no parameters of a model"),
        ("four", ["--tokens", "1T", "--steps", 3], "--tokens and --steps say the same"),
        ("four", ["--tokens", "soon"], "'soon' is no count of tokens"),
        ("four", ["--steps", 0], "--steps 0: use 1 to"),
        ("four", ["--mtbf-hours", 0], "--mtbf-hours 0: use a number of more than 0"),
        ("four", ["--mtbf-hours", "nan"], "--mtbf-hours nan: use a number"),
        ("four", ["--mtbf-hours", 3, "--chip-mtbf-hours", 3], "say the same: give one"),
        ("four", ["--restart-minutes", -1], "--restart-minutes -1: use a number of 0 or more"),
        ("four", ["--spares", 2], "--spares and --repair-hours go together"),
        ("four", ["--spares", 2, "--repair-hours", 2], "give --tokens or --steps"),
        ("four", ["--pue", 0.9], "a site draws no less than its servers"),
        ("four", ["--sync", "--upload-s", 3], "--sync has no upload"),
        ("four", ["--checkpoint-gb", 3, "--bytes-per-parameter", 3], "say the same"),
        ("four", ["--bytes-per-token", 3, "--bytes-per-sample", 3], "say the same"),
        ("four", [*MEASURED, "--checkpoint-gb", 9], "--checkpoint-gb changes nothing beside"),
        ("four", [*MEASURED, "--bytes-per-parameter", 9], "--bytes-per-parameter changes nothing"),
        ("four", [*MEASURED, "--path", "ebs"], "(--blocking-s, --upload-s and --restart-minutes)"),
        ("four", [*MEASURED, "--server-gb-per-s", 9], "--server-gb-per-s changes nothing beside"),
        ("four", ["--sync", *MEASURED[2:], "--store-gb-per-s", 9], "(--blocking-s and --restart-"),
        ("four", ["--draws", 0], "--draws 0: use a number of more than 0"),
        ("four", ["--draws", 10**9], "--draws 1e+09: use at most 1e+06"),
        ("four", ["--mtbf-hours", 0.01, "--restart-minutes", 60], "less than 1 % of the time"),
        ("four", ["--every-minutes", 1e6, "--mtbf-hours", 1], "less than 1 % of the time"),
        ("four", ["--steps", 10**15, "--mtbf-hours", 1], "too long to be drawn"),
        ("none", [], "none.trnsim"),
    ],
)
def test_wrong_requests_are_one_line(asked, name, arguments, said):
    with pytest.raises(TrnSimError) as error:
        asked(name, *arguments)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_the_command_ends_with_2(folder):
    done = command("goodput", "gpus.trnsim", "--json", cwd=folder)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("trnsim: no way from a server")
