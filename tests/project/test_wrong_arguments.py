# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Arguments that are not what they should be: a typed error of one line that names them."""

import pytest
import small_workload

import trnsim
from trnsim import _core
from trnsim.errors import LowerError, MachineError, ProjectError, SimulateError, WorkloadError
from trnsim.simulate import simulate_seeds, simulate_system


def refused(error, said, call, *arguments, **named):
    """The call raises just that, in a line."""
    with pytest.raises(error) as raised:
        call(*arguments, **named)
    assert type(raised.value) is error
    message = str(raised.value)
    assert said in message and "\n" not in message


@pytest.mark.parametrize(
    ("error", "asked", "said"),
    [
        (LowerError, {"sizes": [2**63]}, "sizes has 9223372036854775808: use 1 to"),
        (LowerError, {"sizes": [2**53]}, "use 1 to 9007199254740991"),
        (LowerError, {"sizes": [0]}, "sizes has 0: use 1 to"),
        (LowerError, {"sizes": [1.5]}, "sizes has 1.5, which is not a whole number"),
        (LowerError, {"sizes": {1.5}}, "sizes has 1.5, which is not a whole number"),
        (LowerError, {"sizes": ["1M"]}, "sizes has '1M', which is not a whole number"),
        (LowerError, {"sizes": "1M"}, "sizes '1M' is not a list"),
        (LowerError, {"sizes": 1 << 20}, "sizes 1048576 is not a list"),
        (LowerError, {"routing": []}, "a routing over 0 ranks does not fit 4"),
        (LowerError, {"routing": [1, 2, 3]}, "a routing over 3 ranks does not fit 4"),
        (
            WorkloadError,
            {"routing": [1.5, 1, 1, 1]},
            "routing has 1.5, which is not a whole number",
        ),
        (WorkloadError, {"routing": ["a", 1, 1, 1]}, "routing has 'a', which is not a whole"),
        (WorkloadError, {"routing": [2**63, 1, 1, 1]}, "routing has 9223372036854775808: use 0 to"),
        (WorkloadError, {"routing": [-1, 1, 1, 1]}, "routing has -1: use 0 to"),
        (WorkloadError, {"routing": 5}, "routing 5 is not a list"),
        (ProjectError, {"faults": [5]}, "faults has 5, which is not a text"),
        (ProjectError, {"faults": "x+ 0>1=0"}, "faults 'x+ 0>1=0' is not a list of texts"),
        (MachineError, {"overrides": "a=b"}, "overrides 'a=b' is not a list of texts"),
        (ProjectError, {"faults": {"a": 1}}, "faults {'a': 1} is not a list of texts"),
        (MachineError, {"overrides": [5]}, "overrides has 5, which is not a text"),
        (MachineError, {"chips": -1, "ranks": None}, "chips -1 is negative: use at least 1"),
        (MachineError, {"ranks": -1}, "ranks -1 is negative: use at least 1"),
    ],
)
def test_of_a_collective(error, asked, said):
    refused(error, said, trnsim.collective, "all_to_all", "trn2", **{"ranks": 4, **asked})


def test_whole_numbers_of_other_libraries_are_taken():
    import numpy as np

    asked = {"ranks": 4, "interval": False}
    sizes = np.array([1 << 20, 1 << 21])
    routing = np.array([3, 3, 3, 1])
    done = trnsim.collective("all_to_all", "trn2", sizes=sizes, routing=routing, **asked)
    same = trnsim.collective(
        "all_to_all", "trn2", sizes=[1 << 20, 1 << 21], routing=[3, 3, 3, 1], **asked
    )
    assert done == same


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "a routing over 0 ranks does not fit 4"),
        (b" \n", "a routing over 0 ranks does not fit 4"),
        (b"9223372036854775808 1 1 1", "has 9223372036854775808: use 0 to 9223372036854775807"),
        (b"9" * 5000 + b" 1 1 1", "is no routing: a whole number for each rank"),
        (b"\xff\xfe 1 1 1", "is no routing: a whole number for each rank"),
        (b"1 1.5 1 1", "is no routing: a whole number for each rank"),
    ],
)
def test_of_a_file_of_routing(text, said, tmp_path):
    path = tmp_path / "routing"
    path.write_bytes(text)
    with pytest.raises((LowerError, WorkloadError)) as raised:
        trnsim.collective("all_to_all", "trn2", ranks=4, routing=str(path))
    assert said in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("workload", [b"x", ["a"], None, 5, [None], {"a": 1}])
def test_of_what_is_projected(workload):
    refused(WorkloadError, "is no Workload: give one", trnsim.project, workload)


@pytest.mark.parametrize(
    ("error", "asked", "said"),
    [
        (ProjectError, {"faults": [5]}, "faults has 5"),
        (ProjectError, {"faults": "x+ 0>1=0"}, "faults 'x+ 0>1=0' is not a list"),
        (ProjectError, {"slow_chips": "0=2"}, "slow_chips '0=2' is not a list"),
        (ProjectError, {"slow_chips": [0]}, "slow_chips has 0"),
        (ProjectError, {"slow_chips": None}, "slow_chips None is not a list"),
        (MachineError, {"overrides": "a=b"}, "overrides 'a=b' is not a list"),
        (MachineError, {"chips": -1}, "chips -1 is negative: use at least 1"),
    ],
)
def test_of_a_projection(error, asked, said):
    refused(error, said, trnsim.project, small_workload.train(), "trn2", **asked)
    if "overrides" in asked:
        refused(error, said, trnsim.simulate, "trn2", **asked)
        refused(error, said, trnsim.machine.load, "trn2", asked["overrides"])


@pytest.fixture(scope="module")
def systems():
    """A job of 128 ranks, all of them and folded."""
    machine = trnsim.machine.load("rainier")
    workload = small_workload.train(world_size=128)
    place = trnsim.machine.placement(machine, 128)
    topology = _core.make_topology(machine, 128)
    program = _core.lower_step(workload, workload.choose_step(), machine, place, "", "")
    whole = _core.make_system(program, machine, topology, place, 128)
    folded = _core.make_cohorts([(program, "0..127")], machine, topology, place, []).system
    assert len(folded.ranks) < 128
    return whole, folded


@pytest.mark.parametrize(
    ("seeds", "spread", "said"),
    [
        ([-1], 100, "seeds has -1: use 0 to 18446744073709551615"),
        ([2**64], 100, "seeds has 18446744073709551616: use 0 to"),
        ([1.5], 100, "seeds has 1.5, which is not a whole number"),
        (["1"], 100, "seeds has '1', which is not a whole number"),
        (3, 100, "seeds 3 is not a list"),
        ([1], -1, "spread -1: use 0 to"),
        ([1], 1.5, "spread 1.5 is not a whole number"),
        ([1], 2**31, "spread 2147483648: use 0 to 2147418110"),
    ],
)
def test_of_seeds(seeds, spread, said, systems):
    refused(SimulateError, said, simulate_seeds, systems[0], seeds, spread)


def test_the_ends_of_what_seeds_may_be_are_taken(systems):
    assert len(simulate_seeds(systems[0], [0, 2**64 - 1], 0)) == 2
    for system in (None, "x"):
        refused(SimulateError, "no System", simulate_seeds, system, [1], 5)
        refused(SimulateError, "no System", simulate_system, system)
    said = "group True is no process group"
    refused(SimulateError, said, simulate_system, systems[0], group=True)
    refused(SimulateError, said, simulate_seeds, systems[0], [1], 5, group=True)


def test_one_draw_is_not_that_of_many_chips(systems):
    whole, folded = systems
    assert len(set(simulate_seeds(whole, [1, 2, 3], 1 << 12))) == 3
    said = "of a folded System stands for"
    refused(SimulateError, said, simulate_seeds, folded, [1], 1 << 12)
    refused(SimulateError, "fold=False", folded.with_rank, 0, 1 << 17, 0)
    refused(SimulateError, said, folded.with_factor_changes, 0, [(5, 1 << 17)])
    refused(SimulateError, said, folded.with_link_changes, 0, [(5, 0)])
