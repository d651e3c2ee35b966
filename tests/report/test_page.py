# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The report: one HTML file that fetches nothing and holds the figures of the JSON document."""

import base64
import json
import re
from xml.etree import ElementTree

import pytest
import small_workload
from report_documents import LAYOUT, SCALING, SEARCH, SLOW, Reader, written

import trnsim
from trnsim import _core
from trnsim.errors import PlanError, ReportError
from trnsim.plan.documents import read_comparison, read_scaling, read_search
from trnsim.report import to_json, words
from trnsim.report.page import make_page, render_page, write_page
from trnsim.report.palette import DOINGS, KINDS, PARTS

pytest.importorskip("matplotlib", reason="the report needs matplotlib: trnsim[report]")


@pytest.fixture(scope="module")
def scaling(tmp_path_factory):
    return written(tmp_path_factory.mktemp("scaling") / "scaling.json", SCALING)


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    return written(tmp_path_factory.mktemp("search") / "search.json", SEARCH)


@pytest.fixture(scope="module")
def comparison(four_chips, tmp_path_factory):
    """Run files beside each other, as trnsim compare --json has them."""
    folder = tmp_path_factory.mktemp("comparison")
    run = four_chips.write(folder, "four") / "four.trnsim"
    return written(folder / "comparison.json", trnsim.compare([run, run]).to_dict())


@pytest.fixture(scope="module")
def page(four_chips, scaling, comparison):
    made = make_page(four_chips, scaling=scaling, comparison=comparison, command=["train.py", "-x"])
    return render_page(made)


@pytest.fixture(scope="module")
def read(page):
    return Reader(page)


@pytest.fixture(scope="module")
def stages():
    """Two stages of a pipeline that send activations and gradients to each other."""
    from trnsim.recipes import Layout, Model, capture

    model = Model(layers=2, hidden=64, ffn=128, heads=2, vocab=256)
    layout = Layout(pp=2, dp=2, micro_batch=1, global_batch=8, sequence=32)
    return trnsim.project(capture(model, layout, "megatron"), "trn2", advise=False)


def test_the_page_is_well_formed(read):
    assert read.open == [] and read.wrong == []
    assert len(set(read.ids)) == len(read.ids)
    assert {link[1:] for link in read.links} <= set(read.ids)


def test_nothing_is_fetched_and_no_script_runs(page, read):
    assert "script" not in read.tags and "link" not in read.tags and "iframe" not in read.tags
    assert read.fetched and all(part.startswith("data:image/svg+xml;base64,")
                                for part in read.fetched)  # fmt: skip
    outside = re.sub(r'"data:[^"]*"', "", page)
    assert not re.search(r"https?://|url\(|@import|\son\w+=", outside.split("<body>")[0])
    assert "default-src 'none'" in page


def test_charts_are_svg_that_fetch_nothing_with_words_for_each(read):
    for part in read.fetched:
        svg = ElementTree.fromstring(base64.b64decode(part.split(",", 1)[1]))
        for element in svg.iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:image/png")), value
    assert len(read.alts) == len(read.fetched) / 2  # a wide and a narrow one of each
    assert all(re.search(r"\d", alt) for alt in read.alts)


def test_the_figures_are_those_of_the_document(four_chips, read):
    document = to_json(four_chips)
    low, high = document["step_time_interval_s"]
    tokens = words.count(document["tokens_per_s"])
    expected = [
        words.duration(document["step_time_s"]),
        f"{words.duration(low)} to {words.duration(high)}", document["interval_basis"],
        words.percent(document["mfu"]), f"{tokens} tokens/s",
        words.size(document["memory_peak_bytes"]), words.size(document["memory_capacity_bytes"]),
        words.money(1e6 * document["cost_usd_per_step"]),
        words.count(document["energy_j_per_step"], "J"), document["bottleneck"],
        document["timeline_hash"], document["workload_hash"], document["machine_hash"],
        document["version"], "train.py -x",
    ]  # fmt: skip
    for part, seconds in document["breakdown_s"].items():
        if seconds and part != "exposed_communication":
            expected.append(f"{part} {words.duration(seconds)}")
    for group, seconds in document["exposed_by_group"].items():
        expected.append(f"communication on {group} {words.duration(seconds)}")
    for kind, size in document["memory_by_kind"].items():
        if size:
            expected.append(f"{kind} {words.size(size)}")
    for guess in document["guesses"]:
        expected.append(guess["effect"])
    helpful = [each for each in document["advice"] if abs(each["gain"]) >= 0.001]
    assert 0 < len(helpful) < len(document["advice"])
    for advice in helpful:
        expected.append(f"{advice['change']} {words.duration(advice['step_time_s'])}")
    for each in document["interval_inputs"]:
        ends = each["faster_step_time_s"], each["slower_step_time_s"]
        if any(abs(end / document["step_time_s"] - 1) > 1e-3 for end in ends):
            expected.append(f"{each['input']} {words.duration(ends[0])}")
    missing = [text for text in expected if " ".join(text.split()) not in read.text]
    assert not missing


def test_every_figure_of_the_machine_stands_there_with_its_source(four_chips, read):
    for figure in four_chips.machine.figures:
        assert figure.key in read.text and " ".join(figure.source.split()) in read.text
    assert "What is not modelled" in read.text and "Around the step" in read.text


def test_scaling_and_comparison_are_those_of_their_documents(read, four_chips):
    assert "80.0 %" in read.text  # 640 / 8 against 400 / 4 tokens a second and chip
    assert "9.00 ms to 12.0 ms" in read.text and "16 chips: no run: the script failed" in read.text
    assert "Run files, against the first, on trn2." in read.text


def test_sections_without_data_are_absent_and_say_why(four_chips):
    page = make_page(four_chips, figures=False)
    absent = {part.title: part.reason for part in page.absent}
    assert set(absent) == {"Pipeline", "Scaling", "Comparison", "Layouts"}
    assert all(reason and "\n" not in reason for reason in absent.values())
    shown = {section.anchor for section in page.sections}
    assert not {"pipeline", "scaling", "comparison"} & shown
    assert {"engines", "links", "memory", "sensitivity"} <= shown
    read = Reader(render_page(page))
    assert "Single figures were not moved" in read.text
    for title, reason in absent.items():
        assert f"{title} : {reason}" in read.text or f"{title}: {reason}" in read.text


def test_one_rank_has_no_links_and_no_mfu_where_it_multiplies_nothing():
    script = small_workload.Script()
    a = script.storage(4096)
    script.op("aten::relu(self: float32[1024]) -> (out0: float32[1024])", [a], [a], 0)
    alone = trnsim.project(script.workload(), "trn2", advise=False, interval=False)
    page = make_page(alone)
    assert {"Links", "What would help", "What moves the answer", "Pipeline"} <= {
        part.title for part in page.absent
    }
    values = {card.name: card.value for card in page.cards}
    assert values["MFU"] == "unknown" and values["throughput"] == "unknown"
    assert Reader(render_page(page)).wrong == []


def test_energy_of_the_site_and_co2_are_cards_where_they_are_known(four_chips):
    assert not {"energy of the site, a step", "CO2 of a step"} & {
        card.name for card in make_page(four_chips, figures=False).cards
    }
    # A site of PUE 2 draws twice what its chips do; 0.5 kg a kWh of 3.6 MJ.
    given = ["power.per_chip=500W", "site.pue=2", "site.grid_intensity=0.5kg/kWh"]
    green = trnsim.project(four_chips.run.workloads, "trn2", chips=4, overrides=given)
    page = make_page(green, figures=False)
    cards = {card.name: card for card in page.cards}
    joules = 4 * 500 * green.step_time_s
    assert green.energy_site_j_per_step == pytest.approx(2 * joules)
    site, carbon = cards["energy of the site, a step"], cards["CO2 of a step"]
    assert site.value == words.count(2 * joules, "J") and "times its PUE" in site.note
    assert carbon.value == words.count(1e3 * 2 * joules * 0.5 / 3.6e6, "g")
    assert "of the site's energy" in carbon.note
    read = Reader(render_page(page))
    assert "CO2 of a step" in read.text and read.wrong == []


def test_names_of_the_script_are_no_markup():
    script = small_workload.Script()
    a = script.storage(4096)
    script.op("aten::relu(self: float32[1024]) -> (out0: float32[1024])", [a], [a], 0,
              "<img src=http://x>&")  # fmt: skip
    quick = {"advise": False, "interval": False}
    text = render_page(make_page(trnsim.project(script.workload(), "trn2", **quick)))
    assert "&lt;img src=http://x&gt;&amp;" in text and "<img src=http" not in text


def test_stages_of_a_pipeline_are_rows(stages):
    page = make_page(stages, figures=False)
    (section,) = [section for section in page.sections if section.anchor == "pipeline"]
    assert section.title == "The pipeline, stage by stage"
    read = Reader(render_page(page))
    assert all(f"rank {role.rank}" in read.text for role in stages.workloads)


def test_the_same_run_gives_the_same_bytes(four_chips, page, scaling, comparison):
    again = make_page(four_chips, scaling=scaling, comparison=comparison,
                      command=["train.py", "-x"])  # fmt: skip
    assert render_page(again) == page


def test_the_file_is_small(page):
    assert len(page) < 1_500_000


def test_a_page_that_cannot_be_written_leaves_nothing(four_chips, tmp_path):
    with pytest.raises(ReportError, match="there is no folder"):
        four_chips.to_html(tmp_path / "missing" / "report.html")
    with pytest.raises(ReportError, match="it is a folder"):
        four_chips.to_html(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_one_line_says_what_to_install(four_chips, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ReportError, match=r"pip install 'trnsim\[report\]'"):
        four_chips.to_html(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_from_python_a_path_comes_back(four_chips, tmp_path):
    path = four_chips.to_html(tmp_path / "report.html", figures=False)
    assert path == tmp_path / "report.html" and path.read_text().startswith("<!DOCTYPE html>")
    assert path.read_bytes() == write_page(four_chips, path, figures=False).read_bytes()


# --- documents -----------------------------------------------------------------------------------


def test_a_curve_and_a_comparison_come_back_as_they_were(scaling, comparison):
    curve = read_scaling(scaling)
    assert [p.chips for p in curve.points] == [4, 8, 16] and len(curve.ran) == 2
    assert curve.efficiency(curve.ran[1]) == pytest.approx(0.8)
    assert read_comparison(comparison).to_dict() == json.loads(comparison.read_text())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d.pop("points"), "'points' is missing"),
        (lambda d: d.update(points=3), "'points' is 3"),
        (lambda d: d.update(points=[3]), r"'points\[0\]' is no JSON object"),
        (lambda d: d["points"][0].update(chips="4"), r"'points\[0\].chips' is \"4\""),
        (lambda d: d["points"][0].pop("mfu"), r"'points\[0\].mfu' is missing"),
        (lambda d: d["points"][0].update(step_time_interval_s=[1]), "step_time_interval_s"),
        (lambda d: d["points"][2].pop("reason"), r"'points\[2\].reason' is missing"),
        (lambda d: d["points"][0].update(breakdown_s={}), "no breakdown"),
    ],
)
def test_what_is_no_scaling_is_refused_with_the_place(tmp_path, change, why):
    document = json.loads(json.dumps(SCALING))
    change(document)
    with pytest.raises(PlanError, match=why):
        read_scaling(written(tmp_path / "wrong.json", document))


def test_the_front_of_a_search_is_a_section(four_chips, search):
    read = Reader(render_page(make_page(four_chips, search=search, figures=False)))
    assert "layouts" in read.ids and not read.wrong
    (alt,) = [alt for alt in read.alts if "money of the front" in alt]
    assert "1: 1.00 s, 20.0 GiB, $0.5" in alt and "2: 1.10 s, 10.0 GiB" in alt
    assert "3 of 7 layouts" in read.text and "NOT PROVEN" not in read.text
    nothing = SEARCH | {"simulated": [SLOW | {"fits": False}], "front": [], "best": []}
    page = make_page(four_chips, search=nothing, figures=False)
    assert any("no layout of the search fits" in absent.reason for absent in page.absent)


def test_what_is_no_search_is_refused_with_the_place(tmp_path, scaling):
    with pytest.raises(PlanError, match="no document of trnsim search"):
        read_search(scaling)
    wrong = SEARCH | {"front": [LAYOUT | {"fits": 3}]}
    with pytest.raises(PlanError, match=r"'front\[0\].fits' is 3"):
        read_search(written(tmp_path / "search.json", wrong))


def test_documents_of_other_verbs_are_refused(tmp_path, scaling, comparison):
    with pytest.raises(PlanError, match="no document of trnsim scale"):
        read_scaling(comparison)
    with pytest.raises(PlanError, match="no document of trnsim compare"):
        read_comparison(scaling)
    (tmp_path / "text").write_text("no")
    with pytest.raises(PlanError, match="it is no JSON"):
        read_scaling(tmp_path / "text")
    with pytest.raises(PlanError, match="cannot read"):
        read_scaling(tmp_path / "missing")


def test_every_word_of_the_core_has_a_colour(four_chips):
    assert set(DOINGS) == set(_core.DOINGS)
    assert set(KINDS) == set(four_chips.figures.memory_by_kind)
    assert set(PARTS) == set(four_chips.breakdown_ps)
