# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Machine files: presets, extension, overrides, and one clear line for everything that is wrong."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnsim import machine
from trnsim.errors import MachineError


def value(loaded, key: str) -> str:
    return next(figure.value for figure in loaded.figures if figure.key == key)


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def message(path) -> str:
    with pytest.raises(MachineError) as raised:
        machine.load(path)
    text = str(raised.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_trn2_bounds_a_kernel_by_the_physical_array():
    trn2 = machine.load("trn2")
    core = "chip.neuroncore."
    array = (
        Fraction(value(trn2, core + "tensor_rows"))
        * Fraction(value(trn2, core + "tensor_columns"))
        * 2
        * Fraction(value(trn2, core + "tensor_clock"))
        * Fraction(value(trn2, core + "cores"))
        / 1000
    )
    assert Fraction(value(trn2, "chip.peak.physical.bfloat16")) == array
    assert Fraction(value(trn2, "chip.peak.published.bfloat16")) > array


def test_hbm_is_what_the_lowering_golden_examples_count_with():
    trn2 = machine.load("trn2")
    per_core = Fraction(value(trn2, "chip.hbm.bandwidth")) / 8  # bytes per ps
    assert 1 / per_core == Fraction(80, 29)
    assert trn2.rank_memory_bytes() == 96 * 2**30 - 768 * 10**6
    assert trn2.rank_memory_bytes(4) == (96 * 2**30 - 768 * 10**6) // 4


def test_trn2_files_name_the_claims_that_are_wrong():
    text = (Path(machine.__file__).parent / "data" / "trn2.toml").read_text()
    for claim in ("46 TB/s", "2 TB/s", "130 EFLOP/s"):
        assert claim in text


def test_ultra_is_trn2_with_a_third_axis():
    trn2, ultra = machine.load("trn2"), machine.load("trn2-ultra")
    changed = {row["figure"] for row in machine.figures(ultra) if row not in machine.figures(trn2)}
    links = {"scale_up.chips_z", "scale_up.bandwidth_z"}
    assert changed == links | {"power.per_chip", "price.instance_chips"}
    assert trn2.legal_chip_counts == list(range(1, 17))
    assert ultra.legal_chip_counts == [*range(1, 17), 32, 48, 64]


def test_rainier_is_ultra_servers_under_a_fabric():
    ultra, rainier = machine.load("trn2-ultra"), machine.load("rainier")
    changed = [row for row in machine.figures(rainier) if row not in machine.figures(ultra)]
    assert {row["figure"].split(".")[0] for row in changed} == {"fabric", "site"}
    assert rainier.max_chips == 400_000
    counts = rainier.legal_chip_counts
    assert counts[:20] == [*ultra.legal_chip_counts, 128]
    assert counts[-1] == 400_000
    with pytest.raises(MachineError, match="one pod of 64, rainier takes whole pods.*64 or 128"):
        machine.placement(rainier, chips=96)


def test_rainier_is_ultra_within_a_pod():
    ultra, rainier = machine.load("trn2-ultra"), machine.load("rainier")
    for chips in (5, 16, 48, 64):
        small, large = machine.topology(ultra, chips), machine.topology(rainier, chips)
        names = [small.link_name(i) for i in range(small.link_count)]
        assert names == [large.link_name(i) for i in range(large.link_count)]
        assert small.route(0, chips - 1) == large.route(0, chips - 1)


def test_rainier_reaches_every_chip_and_the_file_says_what_was_guessed():
    rainier = machine.load("rainier")
    topology = machine.topology(rainier, 400_000)
    assert topology.tiers[-2:] == ["leaf up", "leaf down"]
    route = [topology.link_name(link) for link in topology.route(0, 399_999)]
    assert route[0] == "nic up 0"
    assert route[-1] == "nic down 399999"
    assert len(route) == 6
    rate = topology.link(topology.route(0, 64)[0]).rate
    assert rate == 25 * 10**9 * 1024  # 200 Gb/s a chip
    confidence = {row["figure"]: row["confidence"] for row in machine.figures(rainier)}
    assert confidence["fabric.tor.oversubscription"] == "guessed"
    assert confidence["fabric.leaf.oversubscription"] == "guessed"


def test_the_nics_of_a_gpu_are_one_port():
    topology = machine.topology(machine.load("h100-efa"), 16)
    names = [topology.link_name(link) for link in topology.route(3, 11)]
    assert names == ["nic up 3", "nic down 11"]  # one rail
    assert topology.link(topology.route(3, 11)[0]).rate == 50 * 10**9 * 1024
    assert topology.can_multicast


def test_more_links_than_ids_are_refused(tmp_path):
    figures = {
        "server.chips": 4, "fabric.pods": 512, "fabric.rails": 4, "fabric.nic.count": 16,
        "fabric.tor.radix": 1_000_000, "fabric.tor.oversubscription": '"1/999999"',
        "fabric.leaf.radix": 1_000_000, "fabric.spine.radix": 1_000_000,
    }  # fmt: skip
    lines = [
        f'{key} = {{ value = {value}, unit = "1", source = "a test", confidence = "given" }}'
        for key, value in figures.items()
    ]
    path = tmp_path / "many.toml"
    path.write_text("\n".join(['extends = "h100-efa"', *lines]))
    with pytest.raises(MachineError, match="has 4096004096 links .* use fewer chips"):
        machine.topology(machine.load(str(path)), 2048)


def test_faults_are_taken_by_name():
    trn2 = machine.load("trn2")
    topology = machine.topology(trn2, 16, {"0>1": 0, "chip 5": 0.5})
    assert [topology.link_name(i) for i in topology.route(0, 1)] == ["x- 0>3", "x- 3>2", "x- 2>1"]
    slow = topology.link(topology.route(5, 6)[0])
    assert slow.rate * 2 == slow.healthy_rate
    with pytest.raises(MachineError, match="'0>7', which is no link"):
        machine.topology(trn2, 16, {"0>7": 0})


def test_a_user_file_extends_a_preset(tmp_path):
    path = write(
        tmp_path,
        """
        extends = "trn2"
        description = "faster memory"
        [chip.hbm]
        bandwidth = { value = 3.2, unit = "TB/s", source = "a letter", confidence = "guessed" }
        """,
    )
    mine = machine.load(path)
    assert mine.name == str(path)
    assert mine.description == "faster memory"
    assert value(mine, "chip.hbm.bandwidth") == "3.2"
    assert len(mine.figures) == len(machine.load("trn2").figures)
    second = write(tmp_path, 'extends = "mine.toml"\n', "second.toml")
    assert machine.load(second).hash == mine.hash


def test_a_file_with_another_kind_of_network_states_all_of_it(tmp_path):
    figure = 'kind = { value = "hypercube", unit = "word", source = "mine", confidence = "given" }'
    rest = ("axes", 4, "1"), ("bandwidth", 128, "GB/s"), ("hop_latency", 1, "us")
    lines = [
        f'{key} = {{ value = {number}, unit = "{unit}", source = "mine", confidence = "given" }}'
        for key, number, unit in rest
    ]
    text = "\n".join(['extends = "trn2"', "[scale_up]", figure, *lines])
    cube = machine.load(write(tmp_path, text))
    kept = {f.key for f in cube.figures if f.key.startswith("scale_up.")}
    assert kept == {f"scale_up.{key}" for key in ("kind", "axes", "bandwidth", "hop_latency")}
    assert value(cube, "chip.hbm.bandwidth") == value(machine.load("trn2"), "chip.hbm.bandwidth")
    assert len(machine.topology(cube, 16).links) == 64
    assert "scale_up.hop_latency" in message(write(tmp_path, text.rpartition("\n")[0]))
    same = figure.replace("hypercube", "torus")
    mine = machine.load(write(tmp_path, f'extends = "trn2"\n[scale_up]\n{same}'))
    assert value(mine, "scale_up.bandwidth_x") == "128"


def test_bounds_move_the_figures_of_one_kind_by_their_confidence():
    trn2 = machine.load("trn2")
    bounds = machine.at_bounds(trn2)
    moved = {
        kind: {
            f.key: Fraction(value(at, f.key)) / Fraction(f.value)
            for f in trn2.figures
            if f.value != "0" and value(at, f.key) != f.value
        }
        for kind, (at, _) in bounds.items()
    }
    assert moved["links"] == {f"scale_up.bandwidth_{axis}": Fraction(11, 10) for axis in "xy"}
    assert moved["collective latency"]["collectives.kanga_step_latency"] == Fraction(1, 2)
    assert Fraction(value(bounds["links"][1], "scale_up.bandwidth_x")) == Fraction(1152, 10)
    keys = [key for figures in moved.values() for key in figures]
    assert len(keys) == len(set(keys))
    given = machine.apply(trn2, ["scale_up.bandwidth_x=128GB/s"])
    assert Fraction(value(machine.at_bounds(given)["links"][0], "scale_up.bandwidth_x")) == 128


def test_interference_is_in_no_preset_and_may_be_stated(tmp_path):
    for name in machine.presets():
        assert not any("interference" in figure.key for figure in machine.load(name).figures)
    share = '{ value = 0.8, unit = "1", source = "a trace", confidence = "measured" }'
    path = write(tmp_path, f'extends = "trn2"\n[chip.interference]\ndma = {share}')
    mine = machine.load(path)
    assert value(mine, "chip.interference.dma") == "0.8"
    write(tmp_path, machine.to_toml(mine), "again.toml")
    again = machine.load(tmp_path / "again.toml")
    assert again == mine
    assert again.hash == mine.hash
    by_hand = machine.load("trn2", ["chip.interference.dma=0.8"])
    assert by_hand.hash == mine.hash
    assert machine.load(path, ["chip.interference.dma=0.8"]).hash == mine.hash
    row = machine.figures(by_hand)[-1]
    assert row["figure"] == "chip.interference.dma"
    assert row["confidence"] == "given"
    text = 'extends = "trn2"\n[chip.interference]\ndam = ' + share
    assert "did you mean dma?" in message(write(tmp_path, text))


def test_digits_are_kept_as_written(tmp_path):
    digits = "2.90000000000000001"
    path = write(
        tmp_path,
        f'extends = "trn2"\nchip.hbm.bandwidth = {{ value = {digits}, unit = "TB/s", '
        'source = "x", confidence = "guessed" }',
    )
    assert value(machine.load(path), "chip.hbm.bandwidth") == digits


FIGURE = '{ value = 3, unit = "TB/s", source = "x", confidence = "guessed" }'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chip.hbm.bandwith = " + FIGURE, "did you mean chip.hbm.bandwidth?"),
        ("chip.hbm.bandwidth = 3", "is no figure"),
        ("chip = 3", "is no figure"),
        ('chip.hbm.bandwidth = { value = 3, unit = "TB/s", source = "x" }', "has no confidence"),
        ("chip.hbm.bandwidth = " + FIGURE.replace("source", "sauce"), "did you mean source?"),
        ("chip.hbm.bandwidth = " + FIGURE.replace("guessed", "gessed"), "did you mean guessed?"),
        ("chip.hbm.bandwidth = " + FIGURE.replace("TB/s", "GiB"), "chip.hbm.bandwidth = 3 GiB"),
        ("chip.hbm.bandwidth = " + FIGURE.replace("3", "-3"), "negative"),
        ("chip.hbm.bandwidth = " + FIGURE.replace("3", "nan"), "not a number"),
        ("chip.hbm.bandwidth = " + FIGURE.replace("3", "true"), "no number"),
        ("chip.hbm.bandwidth = " + FIGURE.replace('"x"', "7"), "put it in quotes"),
        ("chip.hbm.bandwidth = " + FIGURE.replace('"x"', '""'), "no source"),
        ("chip.hbm.bandwidth = " + FIGURE + "\nchip.hbm.bandwidth = 4", "line 3"),
        ("[chip", "line 2"),
        ("chip.hbm.bandwidth = " + FIGURE.replace("3", "9" * 5000), "not TOML"),
        ("description = 4", "put it in quotes"),
    ],
)
def test_a_wrong_file_is_one_clear_line(text, expected, tmp_path):
    assert expected in message(write(tmp_path, 'extends = "trn2"\n' + text))


def test_a_file_without_a_base_must_be_complete(tmp_path):
    assert "chip.architecture is missing" in message(write(tmp_path, 'description = "empty"'))


def test_files_that_extend_each_other_are_refused(tmp_path):
    write(tmp_path, 'extends = "b.toml"', "a.toml")
    path = write(tmp_path, 'extends = "a.toml"', "b.toml")
    with pytest.raises(MachineError, match="extends itself"):
        machine.load(path)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    assert "UTF-8" in message(path)
    assert "does not exist" in message(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("trn2-utlra", "did you mean trn2-ultra?"),
        ("H100", "did you mean h100?"),
        ("x", "use one of"),
    ],
)
def test_a_name_that_is_nearly_right_gets_the_nearest(name, expected):
    assert expected in message(name)


def test_a_number_in_quotes_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    figure = 'bandwidth = { value = "3.2", unit = "TB/s", source = "me", confidence = "given" }'
    path.write_text(f'extends = "trn2"\n[chip.hbm]\n{figure}\n')
    with pytest.raises(MachineError, match="without quotes"):
        machine.load(path)


def test_overrides_change_a_figure_once():
    changed = machine.load("trn2", ["chip.hbm.bandwidth=3.2TB/s"])
    with pytest.raises(MachineError, match="'chip.hbm.bandwidth' is set twice .* keep one"):
        machine.load("trn2", ["chip.hbm.bandwidth=3TB/s", "chip.hbm.bandwidth=3.2TB/s"])
    assert changed == machine.apply(
        machine.load("trn2", ["chip.hbm.bandwidth=3TB/s"]), ["chip.hbm.bandwidth=3.2TB/s"]
    )
    assert value(changed, "chip.hbm.bandwidth") == "3.2"
    assert changed == machine.load("trn2", ["chip.hbm.bandwidth=3.2 TB/s"])
    assert changed != machine.load("trn2")
    with pytest.raises(MachineError, match="--set chip.hbm.bandwidth=-1TB/s: .* is negative"):
        machine.load("trn2", ["chip.hbm.bandwidth=-1TB/s"])


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"chips": 0}, "0 chips"),
        ({"ranks": -1}, "-1 ranks"),
        ({"chips": 2, "ranks": 3}, "contradict"),
        ({"ranks": 6, "ranks_per_chip": 4}, "use 8 ranks"),
        ({"chips": 2, "ranks_per_chip": 2}, "use one of 1, 4, 8"),
        ({"chips": 17}, "use up to 16"),
    ],
)
def test_counts_that_cannot_be_are_refused(counts, expected):
    with pytest.raises(MachineError, match=expected):
        machine.placement(machine.load("trn2"), **counts)


def test_counts_follow_from_each_other():
    trn2 = machine.load("trn2")
    assert machine.placement(trn2).ranks == 1
    placed = machine.placement(trn2, ranks=64, ranks_per_chip=4)
    assert (placed.chips, placed.ranks_per_server, placed.chip_of(63)) == (16, 64, 15)


@settings(max_examples=60, deadline=None)
@given(chips=st.sampled_from([1, 2, 3, 5, 6, 7, 9, 11, 13, 14, 15, 16, 32, 48, 64]), data=st.data())
def test_routes_are_paths_over_present_chips(chips, data):
    topology = machine.topology(machine.load("trn2-ultra"), chips)
    start = data.draw(st.integers(0, chips - 1))
    end = data.draw(st.integers(0, chips - 1))
    at = start
    for link in (topology.links[i] for i in topology.route(start, end)):
        assert link.from_node == at
        at = link.to_node
        assert at < chips
    assert at == end
