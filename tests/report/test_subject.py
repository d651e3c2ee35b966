# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a report says it is of, and that a section of another job says so."""

import json

import pytest
import small_workload
from report_documents import SCALING, SEARCH, Reader, written

import trnsim
from trnsim.origin import Origin
from trnsim.plan.documents import read_comparison, read_scaling
from trnsim.plan.scaling import Point, Scaling
from trnsim.report.page import make_page, render_page
from trnsim.workload import load_run

pytest.importorskip("matplotlib", reason="the report needs matplotlib: trnsim[report]")

MODEL = {"name": "llama", "layers": 4, "hidden": 512}
ONE = {"tp": 1, "pp": 1, "vp": 1, "cp": 1, "ep": 1, "dp": 4, "zero": 1, "micro_batch": 2,
       "recompute": "none", "global_batch": 8, "sequence": 32}  # fmt: skip
OF_MODEL = Origin((), MODEL, ONE)
OF_SCRIPT = Origin(("jobs/train.py", "--layers", "2"))


@pytest.fixture
def projection():
    return trnsim.project(small_workload.train(world_size=4), "trn2", advise=False, interval=False)


def curve(origin, machine="trn2", stack=None, **more):
    """A curve whose points have layouts where it is of a model."""
    layout = dict(origin.layout or {})
    points = tuple(
        Point(document["chips"], {**document, "layout": layout, "workload_hash": "another"} | more)
        for document in SCALING["points"][:1]
    )
    return Scaling(points, machine, stack, 4, {}, None, origin)


def notices(projection, origin, done, which="scaling"):
    """Of the page, and of the section, which have to be the same."""
    projection.origin = origin
    page = make_page(projection, figures=False, **{which: done})
    text = Reader(render_page(page)).text
    for notice in page.notices:
        _, rest = notice.split(": ", 1)
        in_section = rest[0].upper() + rest[1:]
        assert text.count(notice) == 1 and text.count(in_section) == 1
    return page.notices


@pytest.mark.parametrize(
    ("mine", "its", "said"),
    [
        (OF_SCRIPT, OF_MODEL, "another job: model llama (4 layers, hidden 512), not script train"),
        (OF_MODEL, OF_SCRIPT, "another job: script train.py, not model llama (4 layers"),
        (OF_SCRIPT, Origin(("other.py",)), "another script: other.py, not train.py --layers 2"),
        (OF_SCRIPT, Origin(("train.py",)), "other arguments of train.py: none, not --layers 2"),
        (OF_MODEL, Origin((), {"name": "qwen"}, ONE), "another model: qwen, not llama (4 layers"),
        (OF_MODEL, Origin((), MODEL | {"hidden": 64}, ONE), "llama (4 layers, hidden 64), not"),
        (OF_MODEL, Origin((), MODEL, ONE | {"sequence": 64}), "sequences of 64 tokens, not 32"),
        (OF_MODEL, Origin((), MODEL, ONE | {"global_batch": 16}), "steps of 16 sequences, not 8"),
        (OF_SCRIPT, Origin(), "not known: the document does not say what it is of"),
        (Origin(), OF_MODEL, "not known: the run file does not say its script or model"),
    ],
)
def test_a_section_of_another_job_says_so_there_and_at_the_head(projection, mine, its, said):
    (notice,) = notices(projection, mine, curve(its))
    sure = "perhaps not" if "not known" in said else "not"
    assert notice.startswith(f"Scaling: {sure} of this report's run: ") and said in notice


def test_the_same_job_on_the_same_machine_is_not_remarked_on(projection):
    assert notices(projection, OF_SCRIPT, curve(OF_SCRIPT)) == []
    assert notices(projection, OF_SCRIPT, curve(Origin(("/home/train.py", "--layers", "2")))) == []
    assert notices(projection, OF_MODEL, curve(OF_MODEL)) == []
    share = Origin(("train.py", "--batch={share}"))
    assert notices(projection, Origin(("train.py", "--batch=8")), curve(share)) == []
    assert notices(projection, Origin(("train.py", "--b=8")), curve(share))
    same_work = curve(Origin(), workload_hash=projection.figures.workload_hash)
    assert notices(projection, Origin(), same_work) == []


def test_another_machine_or_stack_is_said(projection):
    (notice,) = notices(projection, OF_SCRIPT, curve(OF_SCRIPT, "h100", "nemo"))
    assert notice.endswith("run: another machine: h100 under nemo, not trn2.")
    (notice,) = notices(projection, OF_SCRIPT, curve(OF_SCRIPT, "trn2", "megatron"))
    assert "another stack on trn2: megatron, not none" in notice
    (notice,) = notices(projection, OF_SCRIPT, curve(Origin(), "h100"))
    assert notice.startswith("Scaling: not of this report's run: another machine: h100, not trn2;")


def test_a_search_of_another_model_or_machine_is_said(projection):
    found = SEARCH | {"space": {"sequence": 64, "global_batch": 8}, "model": MODEL}
    (notice,) = notices(projection, OF_MODEL, found, "search")
    assert "sequences of 64 tokens, not 32; another machine: rainier, not trn2" in notice
    page = make_page(projection, search=found, figures=False)
    text = Reader(render_page(page)).text
    assert "Of llama (4 layers, hidden 512) on rainier; 8 sequences of 64 tokens a step." in text
    (notice,) = notices(projection, OF_MODEL, found | {"model": {"name": "qwen"}}, "search")
    assert "another model: qwen" in notice


def test_run_files_beside_each_other_are_known_by_their_work(projection, tmp_path):
    mine, other = tmp_path / "mine.trnsim", tmp_path / "other.trnsim"
    projection.save(mine)
    trnsim.project(small_workload.train(world_size=4, layers=3), "trn2", advise=False).save(other)
    assert notices(projection, Origin(), trnsim.compare([mine, other]), "comparison") == []
    (notice,) = notices(projection, OF_SCRIPT, trnsim.compare([other, other]), "comparison")
    assert notice.startswith("Comparison: perhaps not of this report's run: whether it is the same")
    one = trnsim.compare(mine, machines=["rainier"], chips=4)
    (notice,) = notices(projection, Origin(), one, "comparison")
    assert notice.endswith("run: another machine: rainier, not trn2.")


def test_the_head_names_model_layout_work_machine_and_stack(projection):
    projection.origin = OF_MODEL
    page = make_page(projection, figures=False)
    assert page.title == "llama (4 layers, hidden 512): a training step on 4 chips of trn2"
    facts = dict(page.facts)
    assert facts["layout"] == "dp4 mb2 zero1"
    assert facts["work"] == "8 sequences of 32 tokens a step"
    assert facts["stack"] == "none: by the machine's figures alone"
    assert facts["machine"].startswith("trn2, 4 chips, 4 ranks")
    page = make_page(projection, figures=False, command=["jobs/train.py", "-x", "a b"])
    assert page.title == "train.py: a training step on 4 chips of trn2"
    assert dict(page.facts)["script"] == "jobs/train.py -x 'a b'"
    read = Reader(render_page(page))
    assert "jobs/train.py -x 'a b'" in read.text and "4 ranks" in read.text
    projection.origin = Origin()
    page = make_page(projection, figures=False)
    assert page.title == "A training step on 4 chips of trn2"
    assert dict(page.facts)["script or model"] == "the run file does not say it"


def test_run_files_keep_what_they_are_of(projection, tmp_path):
    projection.origin = OF_MODEL
    projection.save(tmp_path / "model.trnsim")
    again = trnsim.project(tmp_path / "model.trnsim", advise=False, interval=False)
    assert again.origin == OF_MODEL
    again.write(tmp_path / "out", "again")
    assert Origin.of(load_run(tmp_path / "out" / "again.trnsim").manifest) == OF_MODEL
    projection.save(tmp_path / "script.trnsim", ["train.py", "-x"])
    assert Origin.of(load_run(tmp_path / "script.trnsim").manifest) == Origin(("train.py", "-x"))


def test_a_search_saves_its_model_and_layout(tmp_path):
    from trnsim.plan import Space
    from trnsim.recipes import Model

    model = Model(layers=2, hidden=64, ffn=128, heads=2, vocab=256, name="small")
    space = Space(sequence=32, global_batch=4, tp=(1,), pp=(1,), micro_batch=(1,), zero=(1,))
    done = trnsim.search(model, chips=4, space=space, intervals=0, jobs=1)
    done.save(tmp_path / "best.trnsim", done.best[0])
    origin = Origin.of(load_run(tmp_path / "best.trnsim").manifest)
    assert origin.model == json.loads(json.dumps(model.to_dict()))
    assert origin.layout["global_batch"] == 4 and origin.layout["dp"] == 4
    step = trnsim.project(tmp_path / "best.trnsim", advise=False, interval=False)
    page = make_page(step, search=done, figures=False)
    assert page.notices == []
    assert page.title == "small (2 layers, hidden 64): a training step on 4 chips of trn2"


def test_documents_say_what_they_are_of_and_old_ones_at_most_a_model(tmp_path):
    old = written(tmp_path / "old.json", SCALING | {"model": "llama"})
    assert read_scaling(old).origin == Origin(model={"name": "llama"})
    new = SCALING | {"origin": OF_SCRIPT.to_dict()}
    curve_of = read_scaling(written(tmp_path / "new.json", new))
    assert curve_of.origin == OF_SCRIPT
    assert curve_of.to_dict()["origin"]["command"] == ["jobs/train.py", "--layers", "2"]
    rows = {"rows": [], "equal": "chips", "asked_chips": 4, "origin": OF_MODEL.to_dict()}
    assert read_comparison(written(tmp_path / "rows.json", rows)).origin == OF_MODEL
    assert Origin.of("text") == Origin.of({"command": 3, "model": "x"}) == Origin()
    assert Origin(("-m", "pkg.train", "-x")).name == "pkg.train -x"
