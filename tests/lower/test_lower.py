# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Lowering from Python: rules are listed with their sources, a step becomes a Program."""

import numpy as np
import pytest

from trnsim import machine as machines
from trnsim.errors import LowerError
from trnsim.lower import lower_step, rules
from trnsim.workload import Workload

ADD = "aten::add.Tensor(self: float32[N], other: float32[N]) -> (out0: float32[N])"
CELL = (
    "aten::_thnn_fused_gru_cell(input_gates: float32[N], hidden_gates: float32[N], "
    "hx: float32[N]) -> (out0: float32[N])"
)
ODD = "mylib::odd(x: float32[N]) -> (out0: float32[N])"


def ints(values):
    return np.array(values, dtype=np.int64)


def chain(signatures, elements=1 << 20):
    """A Workload in which each op reads what the op before it wrote: op k writes storage k + 1."""
    texts = [text.replace("N", str(elements)) for text in signatures]
    inputs = [text.split(" -> ")[0].count(": ") for text in texts]
    uses = []
    for i, count in enumerate(inputs):
        uses += [i] * count + [i + 1]
    count, counts = len(texts), ints([n + 1 for n in inputs])
    fixed = {"sequence_nr": -1, "region": -1, "payload": -1, "value": -1}
    fixed |= dict.fromkeys(["module", "stream", "kind", "phase", "no_grad", "fallback_read"], 0)
    records = {name: ints([value] * count) for name, value in fixed.items()}
    records |= {
        "signature": ints(range(count)),
        "uses_begin": np.cumsum(counts) - counts,
        "uses_count": counts,
    }
    calls = ["kind", "group", "bytes", "peer", "tag", "async", "dtype", "splits_values"]
    storages = {"bytes": 4 * elements, "born": 0, "died": -1, "kind": 0}
    facts = {"role": "rank0", "rank": 0, "world_size": 1, "ranks_per_server": 1, "seed": 0}
    facts |= {"mode": "phantom", "unknown_reads": 0, "parameter_count": 0, "notes": []}
    return Workload.from_columns(
        {
            "records": records,
            "uses": {"storage": ints(uses), "version": ints([0] * len(uses))},
            "calls": {name: ints([]) for name in calls} | {"splits_offsets": ints([0])},
            "storages": {name: ints([value] * (count + 1)) for name, value in storages.items()},
            "allocations": {name: ints([]) for name in ["record", "storage", "stream", "is_free"]},
            "signatures": {"text": texts},
            "modules": {"path": [""]},
            "regions": {"description": []},
            "groups": {"name": [""], "ranks": ["0"]},
            "facts": facts,
        }
    )


def lower(workload, machine="trn2", ranks_per_chip=None, **options):
    loaded = machines.load(machine)
    place = machines.placement(loaded, 1, None, ranks_per_chip)
    return lower_step(workload, workload.choose_step(-1), loaded, place, **options)


def test_every_rule_names_its_family_and_its_source():
    listed = rules()
    assert len({rule["op"] for rule in listed}) == len(listed) > 300
    assert all(rule["source"] and rule["family"] for rule in listed)
    assert {"matmul", "attention", "convolution", "optimizer"} <= {r["family"] for r in listed}


def test_a_chain_of_pointwise_ops_is_one_fused_op_that_reads_its_input_once():
    program = lower(chain([ADD, ADD, ADD]))
    (op,) = program.ops
    assert op["name"] == "aten::add.Tensor + aten::add.Tensor + aten::add.Tensor"
    assert op["read_bytes"] == 4 << 20
    assert op["bound_ps"] >= op["floor_ps"] > 0
    assert sum(program.tasks["duration_ps"]) > 0


def test_eager_moves_what_every_op_moves():
    program = lower(chain([ADD, ADD, ADD]), stack="eager")
    assert [op["read_bytes"] + op["write_bytes"] for op in program.ops] == [8 << 20] * 3


def test_coverage_lists_an_op_that_no_rule_knows():
    program = lower(chain([ADD, ODD]))
    rows = {row["rule"]: row for row in program.coverage()}
    assert rows["fallback"]["rule_class"] == "fallback"
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    unknown = [g["value"] for g in program.guesses if g["name"] == "op without a cost rule"]
    assert unknown == ["mylib::odd"]


@pytest.mark.parametrize(("machine", "is_guess"), [("h100", True), ("trn2", False)])
def test_a_gpu_has_recurrent_layers_cell_by_cell_and_says_so(machine, is_guess):
    program = lower(chain([CELL]), machine=machine)
    guesses = [g["effect"] for g in program.guesses if g["name"] == "recurrent layers"]
    assert (len(guesses) == 1 and "too slow" in guesses[0]) if is_guess else guesses == []


def test_a_gpu_launches_every_op_from_the_host():
    program = lower(chain([ADD, ADD]), machine="h100")
    assert list(program.tasks["kind"]) == ["launch", "compute", "launch", "compute"]


def test_an_unknown_stack_is_refused_in_one_line():
    with pytest.raises(LowerError, match="has no stack 'fast': use fused or eager"):
        lower(chain([ADD]), stack="fast")


# Measured on one physical core of Trainium2: 1,801 us for a blocked bfloat16 GEMM of 4096 cubed,
# whose operands have the contraction on the partitions (neuron-agentic-development,
# example-bounds-analysis.md).
def test_a_large_matmul_takes_what_was_measured():
    mm = (
        "aten::mm(self: bfloat16[4096,4096]{1,4096}, mat2: bfloat16[4096,4096]) -> "
        "(out0: bfloat16[4096,4096])"
    )
    (op,) = lower(chain([mm], elements=4096 * 4096), ranks_per_chip=8).ops
    assert op["bound"] == "tensor"
    assert op["bound_ps"] / 1e6 + 3.8 == pytest.approx(1801, rel=0.01)


def test_a_program_prints_every_task():
    program = lower(chain([ADD]))
    lines = str(program).splitlines()
    assert len(lines) == len(program) + 1
    assert "launch" in lines[1]
    assert "aten::add.Tensor" in lines[2]
