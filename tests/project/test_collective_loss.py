# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a collective alone loses to its own transfers, on every machine, and what it takes where
that is known."""

import pytest

import trnsim

OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
    "all_to_all", "sendrecv",
)  # fmt: skip
COUNTS = (2, 4, 8, 16, 64, 128, 256)


def run(op, machine, **asked):
    """trnsim.collective without its interval."""
    return trnsim.collective(op, machine, interval=False, **asked)


def placed(machine):
    """Of COUNTS, those that the machine can be cut to."""
    counts = []
    for ranks in COUNTS:
        try:
            place = trnsim.machine.placement(machine, ranks=ranks)
            trnsim.machine.topology(machine, place.chips)
        except trnsim.errors.MachineError:
            continue
        counts.append(ranks)
    return counts


@pytest.mark.parametrize("way", ["fluid", "step"])
@pytest.mark.parametrize("name", trnsim.machine.presets())
def test_no_more_is_lost_to_contention_than_there_is(name, way):
    machine = trnsim.machine.load(name)
    counts = placed(machine)
    assert counts
    for ranks in counts if way == "fluid" else [n for n in counts if n <= 16]:
        for op in OPS:
            done = run(op, machine, ranks=ranks, sizes=[1, 1 << 20, 1 << 30], collectives=way)
            for row in done.rows:
                assert 0 <= row.contention_loss < 1, (op, ranks, row)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("machine", "ranks", "faults"),
    [
        ("h100-efa", 16, ["nic up 3=0.5"]),
        ("h100-efa", 16, ["nic up 3=0"]),
        ("h100-efa", 24, []),
        ("trn2", 16, ["x+ 0>1=0"]),
        ("trn2", 16, ["chip 5=0.5"]),
        ("rainier", 128, ["nic up 3=0.25", "x+ 0>1=0"]),
    ],
)
def test_nor_with_slow_and_dead_links(op, machine, ranks, faults):
    for way in ("fluid", "step"):
        done = run(op, machine, ranks=ranks, sizes=[8, 1 << 28], faults=faults, collectives=way)
        for row in done.rows:
            assert 0 <= row.contention_loss < 1, (way, row)


@pytest.mark.parametrize(
    ("machine", "ranks", "nic_GBps"), [("h100-efa", 16, 50), ("b200", 16, 50), ("h100-efa", 32, 50)]
)
def test_rails_lose_nothing_where_links_are_their_own(machine, ranks, nic_GBps):
    """Each NIC carries its own ring, B/m a pass, which is what the busiest link takes."""
    (row,) = run("all_reduce", machine, ranks=ranks, sizes=[1 << 30], algorithm="rail_ring").rows
    assert row.contention_loss == pytest.approx(0, abs=1e-6)
    nic_us = 2 * (1 << 30) * (ranks - 1) / ranks / 8 / nic_GBps / 1e3
    assert row.time_us > nic_us


def test_messages_between_servers_have_the_whole_nic():
    (row,) = run("sendrecv", "h100-efa", ranks=16, sizes=[1 << 30]).rows
    assert row.algbw_GBps == pytest.approx(50, rel=0.01)
    # 8 members of a server send 1/16 of the buffer each to each of the 8 of the other.
    (row,) = run("all_to_all", "h100-efa", ranks=16, sizes=[1 << 30]).rows
    assert row.time_us == pytest.approx((512 << 20) / 50e9 * 1e6, rel=0.02)


def test_messages_in_a_server_have_the_librarys_share_of_a_link():
    (row,) = run("sendrecv", "h100-efa", ranks=8, sizes=[1 << 30]).rows
    assert row.algbw_GBps == pytest.approx(370, rel=0.01)


def test_a_loss_is_what_transfers_share():
    """15 others' parts come over each one's link of a switch, one after the other."""
    (row,) = run("all_to_all", "gb200-nvl72", ranks=16, sizes=[1 << 34]).rows
    assert row.contention_loss == pytest.approx(14 / 15, rel=0.01)


def test_without_an_interval_there_is_none():
    done = run("all_reduce", "trn2", ranks=4, sizes=[1 << 20])
    assert done.rows[0].time_interval_us is None and done.interval_basis is None
    assert not done.rows[0].relieved_us
    header, row = str(done).splitlines()
    assert "interval" not in header and row.endswith(" %")
    whole = trnsim.collective("all_reduce", "trn2", ranks=4, sizes=[1 << 20])
    assert str(whole).splitlines()[0].endswith("interval(us)")
    assert whole.rows[0].time_us == done.rows[0].time_us
