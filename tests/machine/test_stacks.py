# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Stack sheets: what they lay over a machine, and what they do to a step."""

from __future__ import annotations

import itertools

import pytest

from trnsim import machine as machines
from trnsim.errors import MachineError

SHEET = """
description = "a test's"
[stack]
level = { value = "fused", unit = "word", source = "test", confidence = "given" }
[on."H100 SXM".stack]
gemm_factor = { value = 0.5, unit = "1", source = "test", confidence = "given" }
[on."A100 SXM".stack]
gemm_factor = { value = 0.25, unit = "1", source = "test", confidence = "given" }
"""


def value(machine, key: str) -> str | None:
    found = [figure.value for figure in machine.figures if figure.key == key]
    return found[0] if found else None


@pytest.mark.parametrize("name", machines.stacks())
def test_every_sheet_loads_on_every_machine(name: str) -> None:
    for preset in machines.presets():
        machine = machines.load(preset, stack=name)
        assert machines.stack_of(machine) == name
        assert all(figure.source for figure in machine.figures)


def test_a_sheet_says_what_it_says_for_the_chip(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SHEET)
    machine = machines.load("h100", stack=path, constants={})
    assert value(machine, "stack.gemm_factor") == "0.5"
    assert value(machine, "stack.level") == "fused"
    assert machines.stack_of(machine) == str(path)
    assert machine.hash != machines.load("h100").hash
    assert value(machines.load("trn2", stack=path, constants={}), "stack.gemm_factor") is None


def test_constants_are_of_the_chip_and_its_kernel() -> None:
    figure = {"value": 0.7, "unit": "1", "source": "test", "confidence": "inferred"}
    constants = {"H100 SXM": {"attention_factor": {"cudnn": figure | {"value": 1}}}}
    assert value(machines.load("h100", stack="nemo", constants=constants), "stack.attention_factor")
    other = machines.load("h100", stack="torch-eager", constants=constants)
    assert value(other, "stack.attention_factor") is None


def figure(number: float) -> dict[str, object]:
    return {"value": number, "unit": "1", "source": "test", "confidence": "inferred"}


CONSTANTS = {
    "H100 SXM": {"gemm_factor": figure(1)},
    "unseen": {"gemm_factor": figure(2), "attention_factor": {"any": figure(3)}},
    "stack": {"nemo": {"link_factor": figure(4)}},
    "stack_error": {"megatron": figure(5), "unseen": figure(6)},
}


def test_a_sheet_has_the_constants_of_the_nearest_one_that_it_extends() -> None:
    for name in ("nemo", "nemo-26.04"):
        machine = machines.load("h100", stack=name, constants=CONSTANTS)
        assert value(machine, "stack.link_factor") == "4"
        assert value(machine, "stack.error") == "5"
    machine = machines.load("h100", stack="torchtitan", constants=CONSTANTS)
    assert value(machine, "stack.link_factor") is None
    assert value(machine, "stack.error") is None
    assert value(machine, "stack.error_of_other_machines") == "6"


def test_a_chip_that_was_never_fitted_has_the_medians_and_the_error_of_others() -> None:
    machine = machines.load("trn2", stack="nemo", constants=CONSTANTS)
    assert value(machine, "stack.gemm_factor") == "2"
    assert value(machine, "stack.attention_factor") == "3"
    assert value(machine, "stack.error") is None
    assert value(machine, "stack.error_of_other_machines") == "6"
    assert value(machines.load("trn2", constants=CONSTANTS), "stack.gemm_factor") is None


@pytest.mark.parametrize(
    ("factor", "ranks", "times"),
    [
        ("link_factor", 8, 2),  # a server
        ("network_factor", 8, 1),
        ("network_factor", 16, 2),  # two, whose NICs are the limit
    ],
)
def test_links_inside_of_servers_and_between_have_factors_of_their_own(
    factor, ranks, times
) -> None:
    import trnsim

    half = machines.load("h100", [f"stack.{factor}=0.5"])
    whole = machines.load("h100")
    slow, fast = (
        trnsim.collective("all_gather", m, sizes=[1 << 34], ranks=ranks, algorithm=name).rows[0]
        for m in (half, whole)
        for name in ["ring" if ranks == 8 else "rail_ring"]
    )
    assert slow.time_us == pytest.approx(times * fast.time_us, rel=0.01)


# Shares of links that the library's algorithms keep busy.
EFFICIENCIES = [f"collectives.{name}_efficiency" for name in ("link", "mesh", "rdh", "multicast")]
OPS = ("all_reduce", "all_gather", "all_to_all")


def collective_us(machine, op: str, ranks: int, algorithm: str = "") -> tuple[float, str]:
    import trnsim

    ask = {"sizes": [1 << 34], "ranks": ranks, "ranks_per_chip": 1, "algorithm": algorithm}
    row = trnsim.collective(op, machine, **ask).rows[0]
    return row.time_us, row.algorithm


@pytest.mark.parametrize("preset", machines.presets())
def test_no_stack_takes_a_link_above_its_line_rate(preset: str) -> None:
    bare = machines.load(preset)
    have = {figure.key for figure in bare.figures}
    busy = machines.apply(bare, [f"{key}=1" for key in EFFICIENCIES if key in have])
    hasty = machines.apply(bare, ["stack.link_factor=1000", "stack.network_factor=1000"])
    stacked = [machines.load(preset, stack=name) for name in machines.stacks()]
    factors = ("stack.link_factor", "stack.network_factor", "collectives.base_latency")
    different = {tuple(value(each, key) for key in factors): each for each in stacked}
    pairs = [(hasty, op) for op in OPS] + [(each, OPS[1]) for each in different.values()]
    pod = bare.pod_chips
    groups = [min(pod, 16), *[chips for chips in bare.legal_chip_counts if pod < chips <= 128][:1]]
    for ranks, (machine, op) in itertools.product(groups, pairs):
        time_us, algorithm = collective_us(machine, op, ranks)
        least_us, _ = collective_us(busy, op, ranks, algorithm)
        assert time_us >= least_us * (1 - 1e-6), (op, ranks, algorithm)


def test_servers_of_trainium_2_send_no_faster_than_their_nics() -> None:
    plain = machines.load("rainier")
    fast = machines.apply(plain, ["stack.network_factor=1.352"])  # as Trainium 1 was once fitted
    assert collective_us(fast, "all_gather", 128) == collective_us(plain, "all_gather", 128)


def test_only_a_chip_with_steps_hides_messages_as_in_them() -> None:
    key = "stack.network_factor"
    fitted, other = (machines.load(name, stack="neuron") for name in ("trn1", "rainier"))
    assert float(value(fitted, key)) > 1 and value(other, key) == "1"
    source = next(figure.source for figure in other.figures if figure.key == key)
    assert source.endswith(f"(on others {value(fitted, key)})")


def test_an_unknown_sheet_is_named_with_the_nearest() -> None:
    said = r"no stack is called 'megatrn': did you mean megatron\?"
    with pytest.raises(MachineError, match=said):
        machines.load("h100", stack="megatrn")


def test_an_unknown_level_is_refused(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SHEET.replace('"fused"', '"hasty"'))
    with pytest.raises(MachineError, match="hasty"):
        machines.load("h100", stack=path)
