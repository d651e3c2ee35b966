# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The presets: which there are, how far they grow, and how a part of a pod is placed."""

import pytest
from typer.testing import CliRunner

from trnsim import machine
from trnsim.cli import app
from trnsim.errors import MachineError

GPUS = [
    "v100", "a100-40gb", "a100", "h100", "h100-500w", "h100-efa", "h200", "b200", "b200-efa",
    "b300", "b300-efa", "gb200-nvl72", "gb200-nvl36x2", "gb300-nvl72",
]  # fmt: skip
TRAINIUM = ["trn1", "trn1n", "inf2", "trn2", "trn2-ultra", "rainier", "trn3"]
TPUS = ["tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-7x"]
PRESETS = sorted([*TRAINIUM, *GPUS, *TPUS])
RACKS = ["gb200-nvl72", "gb200-nvl36x2", "gb300-nvl72"]


def value(loaded, key: str) -> str:
    return next(figure.value for figure in loaded.figures if figure.key == key)


def names_of(topology, links) -> list[str]:
    return [topology.link_name(link) for link in links]


def test_the_presets_are_found():
    assert machine.presets() == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_as_toml_loads_to_an_equal_machine(name, tmp_path):
    loaded = machine.load(name)
    (tmp_path / "mine.toml").write_text(machine.to_toml(loaded))
    again = machine.load(tmp_path / "mine.toml")
    assert again == loaded
    assert machine.figures(again) == machine.figures(loaded)
    assert again.hash == loaded.hash
    assert machine.to_toml(again) == machine.to_toml(loaded)


@pytest.mark.parametrize("name", PRESETS)
def test_every_figure_of_a_preset_says_where_it_comes_from(name):
    rows = machine.figures(machine.load(name))
    assert len(rows) > 50
    for row in rows:
        assert len(row["source"]) > 3, row
        assert row["confidence"] in {"measured", "published", "inferred", "guessed"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_what_it_is(name):
    loaded = machine.load(name)
    kind = "gpu" if name in GPUS else "tpu" if name in TPUS else "neuroncore"
    assert loaded.architecture == kind
    assert loaded.description
    assert loaded.rank_memory_bytes() > 10 * 2**30
    assert 1 in loaded.legal_chip_counts


@pytest.mark.parametrize("name", PRESETS)
def test_the_command_shows_a_preset_with_sources(name):
    shown = CliRunner().invoke(app, ["info", name])
    assert shown.exit_code == 0
    assert machine.load(name).description in shown.output
    assert "chip.hbm.bandwidth" in shown.output and "published" in shown.output


@pytest.mark.parametrize("name", [n for n in GPUS if n not in ("v100", "a100", "a100-40gb")])
def test_gpus_grow_to_sixteen_thousand_through_the_fabric(name):
    loaded = machine.load(name)
    pod = 64 if name in RACKS else 8
    topology = machine.topology(loaded, 16384)
    assert topology.pod_count == 16384 // pod
    route = names_of(topology, topology.route(0, 16383))
    assert route[0] == "nic up 0" and route[-1] == "nic down 16383"
    with pytest.raises(MachineError, match="whole pods|of each"):
        machine.placement(loaded, chips=16384 - 4)


def test_h100_grows_by_whole_servers_under_rails():
    h100 = machine.load("h100")
    assert h100.legal_chip_counts[:10] == [1, 2, 3, 4, 5, 6, 7, 8, 16, 24]
    topology = machine.topology(h100, 64)
    assert names_of(topology, topology.route(3, 11)) == ["nic up 3", "nic down 11"]  # one rail
    assert len(topology.route(3, 12)) == 4  # over a switch between rails
    assert topology.link(topology.route(3, 11)[0]).rate == 50 * 10**9 * 1024
    with pytest.raises(MachineError, match="beyond one pod of 8, h100 takes whole pods.*8 or 16"):
        machine.placement(h100, chips=12)


@pytest.mark.parametrize("name", RACKS)
def test_a_rack_gives_64_of_its_72_gpus_to_a_job_of_several_racks(name):
    rack = machine.load(name)
    within = [1, 2, 3, *range(4, 73, 4)]
    assert rack.legal_chip_counts[: len(within) + 2] == [*within, 128, 192]
    assert machine.placement(rack, chips=128).ranks_per_server == 4
    one, two = machine.topology(rack, 72), machine.topology(rack, 128)
    assert (one.pod_count, one.pod_chips) == (1, 72)
    assert (two.pod_count, two.pod_chips) == (2, 64)
    assert names_of(one, one.route(0, 71)) == ["up 0", "down 71"]
    assert names_of(two, two.route(0, 63)) == ["up 0", "down 63"]
    assert names_of(two, two.route(0, 64))[0] == "nic up 0"
    with pytest.raises(MachineError, match="64 chips of each .scale_up.job_chips.: use 128 or 192"):
        machine.placement(rack, chips=144)


def test_whole_racks_are_a_choice():
    whole = machine.load("gb200-nvl72", ["scale_up.job_chips=72"])
    assert machine.topology(whole, 144).pod_count == 2
    assert machine.topology(whole, 72).pod_count == 1
    with pytest.raises(MachineError, match="whole pods"):
        machine.placement(whole, chips=128)
    with pytest.raises(MachineError, match="whole servers, at most 72"):
        machine.load("gb200-nvl72", ["scale_up.job_chips=66"])
    with pytest.raises(MachineError, match="at most 72"):
        machine.load("gb200-nvl72", ["scale_up.job_chips=76"])


def test_a_slice_of_a_tpu_pod_is_a_box_of_its_own():
    v5e = machine.load("tpu-v5e")
    assert v5e.legal_chip_counts[:9] == [1, 4, 8, 16, 32, 64, 128, 256, 512]
    line = machine.topology(v5e, 16)  # 4x4, of which no axis closes
    assert line.link_count == 2 * 4 * 3 * 2
    assert names_of(line, line.route(0, 3)) == ["x+ 0>1", "x+ 1>2", "x+ 2>3"]
    closed = machine.topology(v5e, 256)
    assert names_of(closed, closed.route(0, 15)) == ["x- 0>15"]
    assert names_of(closed, closed.route(0, 240)) == ["y- 0>240"]
    half = machine.topology(v5e, 128)  # 8 x 16: Y closes
    assert len(half.route(0, 7)) == 7
    assert names_of(half, half.route(0, 120)) == ["y- 0>120"]
    with pytest.raises(MachineError, match="no slice of tpu-v5e has as many: use 16 or 32"):
        machine.placement(v5e, chips=24)


def test_a_cube_of_a_tpu_pod_closes_all_axes():
    v5p = machine.load("tpu-v5p")
    cube = machine.topology(v5p, 64)
    assert cube.link_count == 64 * 6
    assert names_of(cube, cube.route(0, 3)) == ["x- 0>3"]
    assert machine.topology(v5p, 8).link_count == 8 * 3
    assert v5p.max_chips >= 18432


def test_slices_of_tpus_are_joined_by_the_data_centre_network():
    v5e = machine.load("tpu-v5e")
    two = machine.topology(v5e, 512)
    assert (two.pod_count, two.pod_chips) == (2, 256)
    assert names_of(two, two.route(0, 511)) == ["nic up 0", "nic down 511"]
    small = machine.load("tpu-v5p", ["scale_up.job_chips=64"])
    assert machine.topology(small, 128).pod_count == 2
    assert machine.topology(small, 64).pod_count == 1
    with pytest.raises(MachineError, match="one of scale_up.slices"):
        machine.load("tpu-v5p", ["scale_up.job_chips=100"])


@pytest.mark.parametrize(
    ("slices", "problem"),
    [
        ("4x4 2x2", "not ascending at '2x2'"),
        ("2x2 32x2", "'32x2', which is no box"),
        ("2x2 4y4", "'4y4', which is no box"),
        ("2x2 4x**", "'4x..', which is no box"),
        (" ", "is empty|has no value"),
    ],
)
def test_shapes_that_are_none_are_refused(slices, problem):
    with pytest.raises(MachineError, match=problem):
        machine.load("tpu-v5e", [f"scale_up.slices={slices}"])


def test_attention_kernels_are_chosen_by_name():
    h100 = machine.load("h100")
    assert value(h100, "chip.gpu.attention_kernel") == "flash2"
    chosen = machine.load("h100", ["chip.gpu.attention_kernel=cudnn"])
    assert value(chosen, "chip.gpu.attention_kernel") == "cudnn"
    with pytest.raises(MachineError, match="write cudnn or flash2 or flash3 or triton"):
        machine.load("h100", ["chip.gpu.attention_kernel=flash9"])


def test_trainium_generations_differ_by_file_only():
    trn1, trn3 = machine.load("trn1"), machine.load("trn3")
    assert value(trn1, "chip.neuroncore.tensor_clock") == "2.8"
    assert value(trn1, "chip.neuroncore.narrow_copy_speedup") == "1"
    assert value(trn3, "chip.neuroncore.tensor_fp8_speedup") == "4"
    assert machine.load("inf2").legal_chip_counts == list(range(1, 13))
    nic = [machine.topology(machine.load(name), 32) for name in ("trn1", "trn1n")]
    rates = [topology.link(topology.route(0, 16)[0]).rate for topology in nic]
    assert rates[1] == 2 * rates[0] == 2 * 6.25e9 * 1024
