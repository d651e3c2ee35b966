# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a Python caller gives the planning verbs has the types of their signatures, or is refused in
one line; and a script needs no guard around them."""

import inspect
from fractions import Fraction

import numpy as np
import pytest
import small_workload
from command import interpreter

import trnsim
from trnsim.asked import value_of
from trnsim.errors import LowerError, MachineError, PlanError, ProjectError, WorkloadError
from trnsim.plan import GoodputOptions, RunOptions, Space

WRONG = {
    "a text for a number": (lambda: Space(sequence="x"), PlanError, "sequence 'x' is not a whole"),
    "no whole number": (lambda: Space(sequence=1.5), PlanError, "sequence 1.5 is not a whole"),
    "one degree": (lambda: Space(tp=4), PlanError, r"tp 4 is not a list of whole numbers"),
    "a share of a degree": (lambda: Space(tp=1.5), PlanError, "tp 1.5 is not a list of whole"),
    "a degree that is none": (lambda: Space(tp=(1, "a")), PlanError, "tp has 'a', which is not a"),
    "no batch": (lambda: Space(global_batch=None), PlanError, "global_batch None is not a whole"),
    "a yes": (lambda: Space(global_batch=True), PlanError, "global_batch True is not a whole"),
    "a yes in a list": (lambda: Space(pp=(True,)), PlanError, "pp has True, which is not a whole"),
    "one text": (lambda: Space(recompute="full"), PlanError, "recompute 'full' is not a list"),
    "one style": (lambda: Space(styles=("a",)), PlanError, "is not a list of 2 texts"),
    "int8 gradients": (lambda: Space(gradient="int8"), PlanError, "gradient 'int8': use float32"),
    "no degrees": (lambda: Space(tp=()), PlanError, "tp is an empty list: list what is tried"),
    "no states": (lambda: Space(zero=()), PlanError, "zero is an empty list"),
    "gradients alone": (lambda: Space(zero=(1, 2)), PlanError, "zero 2: no reference program"),
    "a share": (lambda: Space(least_used="9"), PlanError, "least_used '9' is not a number"),
    "hours": (lambda: GoodputOptions(mtbf_hours="3"), PlanError, "mtbf_hours '3' is not a number"),
    "yes hours": (lambda: GoodputOptions(mtbf_hours=True), PlanError, "mtbf_hours True is not"),
    "draws": (lambda: GoodputOptions(draws=2.5), PlanError, "draws 2.5 is not a whole number"),
    "half a spare": (lambda: GoodputOptions(spares=1.5), PlanError, "spares 1.5 is not a whole"),
    "sync": (lambda: GoodputOptions(synchronous="no"), PlanError, "synchronous 'no' is not True"),
    "a way": (lambda: GoodputOptions(path=3), PlanError, "path 3 is not a text: use one, or leave"),
    "step": (lambda: RunOptions(step="1"), PlanError, "step '1' is not a whole number"),
    "roles": (lambda: RunOptions(max_roles=None), PlanError, "max_roles None is not a whole"),
    "cuda": (lambda: RunOptions(cuda=1), PlanError, "cuda 1 is not True or False: use one, or"),
    "stack": (lambda: RunOptions(stack=5), PlanError, "stack 5 is not a text"),
    "overrides": (lambda: RunOptions(overrides="a=1"), PlanError, "overrides 'a=1' is not a list"),
    "no run": (lambda: trnsim.goodput(None), PlanError, "run None is not a RunFile or a text or a"),
    "tokens": (lambda: trnsim.goodput("a", tokens="1T"), PlanError, "tokens '1T' is not a whole"),
    "options": (lambda: trnsim.goodput("a", options={}), PlanError, "options {} is not a Goodput"),
    "op": (lambda: trnsim.collective(None), LowerError, "op None is not a text: use one"),
    "machine": (lambda: trnsim.collective("allg", 3), MachineError, "machine 3 is not a text or"),
    "ranks": (lambda: trnsim.collective("allg", ranks=True), MachineError, "ranks True is not"),
    "sizes": (lambda: trnsim.collective("allg", sizes=8), LowerError, "sizes 8 is not a list of"),
    "routing": (lambda: trnsim.collective("a", routing=2), WorkloadError, "routing 2 is not a"),
    "faults": (lambda: trnsim.collective("a", faults="x"), ProjectError, "faults 'x' is not a li"),
    "script": (lambda: trnsim.scale(None), PlanError, "script None is not a text or a path or a"),
    "points": (lambda: trnsim.scale("a.py", points="3"), PlanError, "points '3' is not a whole"),
    "machine list": (lambda: trnsim.scale("a.py", machine=["a"]), PlanError, "is not a text"),
    "what": (lambda: trnsim.compare(None), PlanError, "what None is not a text or a path or a Mo"),
    "runs": (lambda: trnsim.compare(["a", 1]), PlanError, "what has 1, which is not a text or a p"),
    "chips": (lambda: trnsim.compare("a.py", chips="4"), PlanError, "chips '4' is not a whole"),
    "space": (lambda: trnsim.compare("a", space=3), PlanError, "space 3 is not a Space: use one"),
    "jobs": (lambda: trnsim.scale("llama3-8b", chips=[8], jobs=0), PlanError, "jobs 0: use 1 to"),
    "seeds": (lambda: trnsim.disturb("a", ["dead-chip"], seeds=1.5), PlanError, "seeds 1.5 is not"),
    "one disturbance": (lambda: trnsim.disturb("a", "dead-chip"), PlanError, "is not a list of te"),
    "exactly": (lambda: trnsim.disturb("a", ["x"], exact="no"), PlanError, "exact 'no' is not"),
    "model": (lambda: trnsim.search(None), PlanError, "model None is not a Model or a text or a"),
    "top": (lambda: trnsim.search("llama3-8b", top="3"), PlanError, "top '3' is not a whole"),
    "slower": (lambda: trnsim.search("a", slower_by="1"), PlanError, "slower_by '1' is not a num"),
    "intervals": (lambda: trnsim.search("a", intervals=-1), PlanError, "intervals -1 is negative"),
    "processes": (lambda: trnsim.search("a", jobs=-1), PlanError, "jobs -1: use 1 to"),
    "tell": (lambda: trnsim.search("a", tell=3), PlanError, "tell 3 is not a function: use one"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_another_type_is_refused_in_one_line(name):
    ask, error, words = WRONG[name]
    with pytest.raises(error, match=words.replace("(", r"\(")) as said:
        ask()
    assert "\n" not in str(said.value) and len(str(said.value)) < 250


def test_a_long_value_is_cut_to_a_line():
    with pytest.raises(PlanError) as said:
        Space(sequence=np.zeros((100, 100)))
    assert "\n" not in str(said.value) and len(str(said.value)) < 200


def test_numbers_of_other_libraries_become_python_s():
    asked = Space(sequence=np.int64(1024), tp=[np.int32(2), 4], pp=range(1, 3), least_used=1)
    assert asked == Space(sequence=1024, tp=(2, 4), pp=(1, 2), least_used=1.0)
    assert type(asked.sequence) is int and type(asked.tp[0]) is int
    assert value_of(PlanError, "x", "float", Fraction(1, 2)) == 0.5
    assert GoodputOptions(mtbf_hours=3).mtbf_hours == 3


def test_signatures_are_as_they_were():
    for verb in (trnsim.search, trnsim.compare, trnsim.scale, trnsim.goodput, trnsim.disturb):
        assert "**" not in str(inspect.signature(verb)) and verb.__doc__
    with pytest.raises(TypeError, match=r"search\(\) got an unexpected keyword argument 'chip'"):
        trnsim.search("llama3-8b", chip=4)


def test_what_can_be_read_once_is_not_read_twice():
    done = trnsim.collective("allg", "trn2", ranks=4, sizes=(2**k for k in (10, 11)))
    assert [row.size_bytes for row in done.rows] == [1024, 2048]


@pytest.mark.parametrize("smaller", ["small.trnsim", b"small", 3])
def test_one_smaller_job_is_no_list_of_them(tmp_path, smaller):
    run = small_workload.train(world_size=4)
    with pytest.raises(PlanError, match=r"smaller .* is not a list of texts or paths: write smal"):
        trnsim.disturb(run, ["dead-chip"], "trn2", smaller=smaller, interval=False)
    with pytest.raises(PlanError, match="smaller .* is not a list of texts or paths"):
        trnsim.disturb(run, ["dead-chip"], "trn2", smaller=tmp_path, interval=False)


SCRIPT = """
import trnsim
from trnsim.plan import Space
from trnsim.recipes import Model
print("begun as", __name__)
model = Model(layers=2, hidden=256, ffn=512, heads=4, vocab=512, name="small")
space = Space(sequence=256, global_batch=8, tp=(1, 2), pp=(1,), cp=(1,), zero=(1,),
              micro_batch=(1,), recompute=("none",))
done = trnsim.search(model, chips=4, space=space, intervals=1, jobs=2)
print(len(done.best), "layouts")
"""


def test_a_script_without_a_guard_can_search(tmp_path):
    path = tmp_path / "find.py"
    path.write_text(SCRIPT)
    done = interpreter(path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["begun as __main__", "2 layouts", ""]
