# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Every study runs at its smallest size, gives a verdict, and its numbers are those that hand
arithmetic from the published figures gives."""

import functools
import importlib.util
import re
import sys
from types import SimpleNamespace

import pytest
from command import ROOT, interpreter

from trnsim import machine as machines

FOLDER = ROOT / "examples" / "studies"
STUDIES = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "common.py")
MIB = 1 << 20
LABELS = ("claim", "found", "rests on", "missing", "verdict", "version")


@functools.cache
def printed(study):
    """What `python STUDY --smoke` prints, which ends well."""
    done = interpreter(FOLDER / study, "--smoke", OMP_WAIT_POLICY="passive")
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(study, title):
    """Rows of the table under that title, as dictionaries of text by the header's words."""
    lines = iter(printed(study).splitlines())
    next(line for line in lines if line.startswith(title))
    cells = [re.split(r"\s{2,}", line) for line in iter(lambda: next(lines), "")]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


def first(cell):
    """The number that a cell begins with."""
    return float(re.match(r"[0-9.,e+]+", cell)[0].replace(",", ""))


@pytest.mark.parametrize("study", STUDIES)
def test_each_study_says_what_it_found_and_what_it_could_not(study):
    last = printed(study).rstrip().split("\n\n")[-1]
    assert [line[:9].rstrip() for line in last.splitlines() if line[:1] != " "] == list(LABELS)
    verdict = last[last.index("\nverdict") :]
    assert re.search(r"\b(holds|hold|decided)\b", verdict)


@pytest.mark.parametrize("study", STUDIES)
def test_the_page_lists_each_study_and_its_command(study):
    page = (FOLDER / "README.md").read_text()
    assert f"[{study}]({study})" in page
    assert f"python examples/studies/{study}" in (FOLDER / study).read_text()


def test_trainium_2_beside_1_has_the_quotients_of_peaks_and_of_steps():
    study = "trn1_against_trn2.py"
    rows = {row["case"]: row for row in table(study, "Times as fast")}
    assert first(rows["BF16"]["by peaks"]) == pytest.approx(667 / 190, abs=0.005)
    assert first(rows["FP8"]["by peaks"]) == pytest.approx(1299 / 190, abs=0.005)
    unit = {"s": 1, "ms": 1e-3}
    steps = {
        row["case"]: float(row["step"].split()[0]) * unit[row["step"].split()[1]]
        for row in table(study, "Llama2-7B")
    }
    quotient = steps["Trainium1, BF16"] / steps["BF16"]
    assert first(rows["BF16"]["by steps"]) == pytest.approx(quotient, rel=0.02)


def test_a_torus_and_a_hypercube_are_one_graph():
    rows = {
        (row["op"], int(row["bytes"])): row
        for row in table("hypercube_against_torus.py", "Collectives")
    }
    size, link = 256 * MIB, 128e3  # bytes, bytes a us
    reduced = rows["all_reduce", size]
    # KangaRing: 2n - 1 parts of B / 2n over four links, and as many steps of 2 us, twice.
    kanga = 2 * (31 / 32 * size / (4 * link) + 31 * 2)
    assert first(reduced["torus us"]) == pytest.approx(kanga, abs=0.01)
    # Halving and doubling: 2 (n - 1) / n over one link.
    bound = 2 * 15 / 16 * size / link
    assert bound < first(reduced["cube us"]) < bound * 1.01
    # An all-to-all of 16 parts: 32 hops of them from each chip, over its four links.
    routed = 32 / 16 * size / (4 * link)
    for where in ("torus us", "cube us"):
        assert routed < first(rows["all_to_all", size][where]) < routed * 1.01
    assert "the same graph (64 links each)" in " ".join(
        printed("hypercube_against_torus.py").split()
    )


def test_an_all_reduce_goes_over_planes_and_then_along_z():
    rows = {
        (row["over"], int(row["bytes"])): first(row["us"])
        for row in table("server_against_ultraserver.py", "All-reduce")
    }
    size = 1 << 30
    server = 2 * (31 / 32 * size / (4 * 128e3) + 31 * 2)
    along_z = 2 * (size / 16 * 3 / 8 / 64e3 + 3 * 1.5)
    assert rows["a server", size] == pytest.approx(server, rel=1e-4)
    assert rows["an UltraServer", size] == pytest.approx(server + along_z, rel=1e-3)


def test_fewer_ports_up_bound_an_all_to_all_under_tors():
    rows = {
        (row["op"], row["paths"], row["ports down:up"]): row
        for row in table("fabric_transport.py", "256 MiB")
    }
    size, nic = 256 * MIB, 25e3  # bytes, bytes a us
    half = size / 2  # a chip sends to the 64 chips of the other pod
    even, thin = (rows["all_to_all", "sprayed", over] for over in ("1:1", "3:1"))
    assert half / nic < first(even["ToR us"]) == first(even["rails us"]) < 1.01 * half / nic
    bound = 48 * half / (16 * nic)  # of 64 ports 48 chips are below and 16 links above
    assert bound < first(thin["ToR us"]) < 1.01 * bound
    assert first(thin["rails us"]) == first(even["rails us"])  # a rail's chips share a switch


def test_a_wider_network_saves_what_the_ring_between_pods_sends():
    rows = {int(row["bytes"]): row for row in table("scale_out_bandwidth.py", "All-reduce")}
    row, size, pods = rows[1 << 30], 1 << 30, 2
    sent = 2 * size / 64 * (pods - 1) / pods
    saved = first(row["us at 200 Gb/s"]) - first(row["us at 800 Gb/s"])
    assert saved == pytest.approx(sent / 25e3 - sent / 100e3, abs=0.2)


def test_an_all_to_all_of_an_ultraserver_is_bound_by_its_z_links():
    (row,) = (
        row for row in table("scale_up_worlds.py", "Collectives")
        if (row["op"], row["bytes"], row["machine"]) == ("all_to_all", str(1 << 30), "rainier")
    )  # fmt: skip
    bound = (1 << 30) / 2 / 64e3  # on average a hop along Z for each byte, over two links
    assert bound < first(row["64 chips"]) < bound * 1.01
    worlds = {row["machine"]: row for row in table("scale_up_worlds.py", "Worlds")}
    assert first(worlds["rainier"]["BF16 FLOP a byte sent"]) == round(667e3 / (4 * 128 + 2 * 64))
    assert first(worlds["tpu-v6e"]["GB/s a chip sends"]) == 4 * 90


def test_the_roofline_bends_where_peaks_over_bandwidths_say():
    rows = {row["machine"]: row for row in table("machine_balance.py", "Published peaks")}
    for name, balance in (("trn2", 667 / 2.9), ("h100", 989 / 3.35), ("tpu-v6e", 918 / 1.638)):
        assert first(rows[name]["FLOP a byte"]) == pytest.approx(balance, abs=0.05)
    assert 655 / 2.9 == pytest.approx(225.9, abs=0.05)


def test_slowed_engines_never_cost_more_than_their_share():
    for row in table("collective_cores.py", "A step longer"):
        kept = first(row["beside messages keep"].split()[1]) / 100
        assert 1 <= first(row["longer by"]) <= 1 / kept + 0.01


def test_no_engine_computes_more_than_it_runs():
    rows = {row["workload"]: row for row in table("engine_ratio.py", "Engines run")}
    for row in rows.values():
        at_physical_peak = first(row["MFU"]) * 667 / 629.1456
        assert first(row["tensor"]) >= at_physical_peak - 0.1
    assert first(rows["pointwise"]["vector"]) > first(rows["pointwise"]["tensor"])


def test_a_mixture_of_memories_has_the_harmonic_mean_of_their_rates():
    rows = table("other_die_memory.py", "Longer by")
    for row in rows:
        remote, slower = first(row["of the other die"]) / 100, float(row["at a rate of"])
        times = 1 - remote + remote / slower
        assert first(row["TB/s"]) == pytest.approx(2.9 / times, abs=0.001)
        assert 1 <= first(row["step"]) <= first(row["copy"]) <= times + 0.001
    moved = 3 * 4 * (1 << 26) / 2.9e6  # us: two tensors read and one written, in float32
    fixed = 13 + 1.9 + 1.9  # us: launch, fill and drain, which no memory makes longer
    expected = (times * moved + fixed) / (moved + fixed)
    assert first(rows[-1]["copy"]) == pytest.approx(expected, rel=0.003)


def test_exaflops_are_chips_times_peaks():
    rows = {row["format"]: row for row in table("rainier_exaflops.py", "Peaks")}
    for name, peak in (("dense FP8", 1299), ("dense BF16", 667), ("FP32", 181), ("sparse", 2563)):
        assert first(rows[name]["EFLOP/s of 400,000"]) == pytest.approx(0.4 * peak, abs=0.05)
        assert first(rows[name]["chips for 130 EFLOP/s"]) == pytest.approx(130e6 / peak, abs=1)


def test_a_fifth_of_rainier_is_counted_by_peaks():
    rows = {row["chip"]: row for row in table("rainier_predecessor.py", "A predecessor")}
    for chip, peak, in_fp8 in (("trn1", 190, 190), ("a100", 312, 312), ("h100", 989, 1979)):
        by_peak = 400 * 667 / 5 / peak
        assert first(rows[chip]["thousands by BF16 peak"]) == pytest.approx(by_peak, abs=0.5)
        by_exa = 130e3 / 5 / in_fp8
        assert first(rows[chip]["thousands by 130 EFLOP/s"]) == pytest.approx(by_exa, abs=0.5)


@pytest.fixture(scope="module")
def common():
    spec = importlib.util.spec_from_file_location("studies_common", FOLDER / "common.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def bandwidth(machine):
    (figure,) = (f for f in machine.figures if f.key == "scale_up.bandwidth_x")
    numerator, _, denominator = figure.value.partition("/")
    return float(numerator) / float(denominator or 1)


def test_what_variants_have_in_common_cancels(common):
    trn2, wider = machines.load("trn2"), machines.load("trn2-ultra")
    assert vars(common.spread(lambda a, b: bandwidth(a) / bandwidth(b), trn2, wider)) == {
        "value": 1, "low": 1, "high": 1
    }  # fmt: skip
    alone = common.spread(bandwidth, trn2)
    assert (alone.low, alone.high) == pytest.approx((128 * 0.9, 128 * 1.1))
    given = machines.load("trn2", ["scale_up.bandwidth_x=128GB/s"])
    half = common.spread(lambda a, b: bandwidth(a) / bandwidth(b), trn2, given)
    assert (half.low, half.high) == pytest.approx((0.9, 1.1))


def test_independent_errors_add_as_squares_of_logarithms(common):
    a, b = common.Figure(8, 4, 16), common.Figure(2, 1, 4)
    ratio = common.quotient(a, b)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((4, 4 / 2**2**0.5, 4 * 2**2**0.5))
    exact = common.quotient(a, common.Figure(2, 2, 2))
    assert (exact.low, exact.high) == pytest.approx((2, 8))


def test_a_verdict_goes_by_whole_intervals(common):
    sure, never, unsure = (SimpleNamespace(low=a, high=b) for a, b in ((4, 5), (1, 3), (3, 5)))
    assert common.judge({"a": sure}, 4) == "holds"
    assert common.judge({"a": never}, 4) == "does not hold"
    assert common.judge({"a": unsure}, 4).startswith("cannot be decided")
    mixed = common.judge({"a": sure, "b": never, "c": unsure}, 4)
    assert mixed == "holds only for a; cannot be decided for c; does not hold for b"
    assert common.judge({"b": never, "c": unsure}, 4).startswith("holds for none surely")
