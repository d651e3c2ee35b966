# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Transports of a fabric, paths through it, and what goes with its switches: beside slow sums."""

import itertools
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
import small_workload

import trnsim
from trnsim import _core
from trnsim import machine as machines
from trnsim.errors import MachineError, ProjectError

# 8 pods of 16 chips, 4 clusters of two ToRs: the file says the ports.
SMALL = Path(__file__).resolve().parent.parent / "helpers" / "small-fabric.toml"
CHIPS = 128


def small(*more):
    return machines.load(SMALL, more)


# --- what a transport leaves ---------------------------------------------------------------------


def share_that_arrives(loss, window, goes_back, packets, seed):
    """Packets in order over transmissions, one packet after the other."""
    draw = random.Random(seed)
    sent = 0
    for _ in range(packets):
        sent += 1
        while draw.random() < loss:
            sent += window if goes_back else 1  # what was on its way behind it, and itself
    return packets / sent


@pytest.mark.parametrize("goes_back", [True, False])
@pytest.mark.parametrize("loss", [0.001, 0.02, 0.1])
def test_losses_cost_what_sending_again_costs(loss, goes_back):
    how = "go_back_n" if goes_back else "selective"
    machine = small("fabric.transport.kind=rdma-ecmp", f"fabric.transport.loss={loss}",
                    f"fabric.transport.retransmit={how}")  # fmt: skip
    shares = machine.transport_shares
    packet, nic_Bps, round_trip_s = 4096 + 82, 25e9, 13e-6
    window = -(-nic_Bps * round_trip_s // packet)
    assert shares["window"] == window
    again = loss * window if goes_back else 0
    assert shares["retransmit"] == pytest.approx((1 - loss) / (1 - goes_back * loss + again))
    seen = share_that_arrives(loss, int(window), goes_back, 400_000, seed=3)
    assert shares["retransmit"] == pytest.approx(seen, rel=0.02)


def test_the_rates_of_links_are_what_is_left():
    bare, carried = (
        machines.topology(small("fabric.ecmp=sprayed", *more), CHIPS)
        for more in ((), ("fabric.transport.kind=srd",))
    )
    shares = small("fabric.transport.kind=srd").transport_shares
    assert shares["header"] == 4096 / (4096 + 82)
    product = shares["header"] * shares["retransmit"] * shares["congestion"]
    assert product - 4e-6 < shares["all"] <= product
    moved = Counter()
    for before, after in zip(bare.links, carried.links, strict=True):
        of_fabric = before.tier.split()[0] in ("nic", "tor", "leaf")
        expected = Fraction(round(shares["all"] * 10**6), 10**6) if of_fabric else 1
        assert after.rate == before.rate * expected
        moved[of_fabric] += 1
    assert moved[True] > 0 < moved[False]


def test_presets_have_no_transport_of_their_own():
    """Their rates were fitted with all that a transport takes in them."""
    for name in machines.presets():
        assert machines.load(name).transport_shares is None, name


def test_a_guessed_transport_widens_the_interval_and_says_so():
    workload = small_workload.train(world_size=CHIPS)
    kind = ["fabric.transport.kind=srd", "fabric.transport.loss=0.01,guessed"]
    asked = {"chips": CHIPS, "advise": False}
    plain = trnsim.project(workload, SMALL, **asked)
    carried = trnsim.project(workload, SMALL, overrides=kind, **asked)
    assert carried.figures.step_ps > plain.figures.step_ps
    names = [{name for name, *_ in each.figures.inputs} for each in (plain, carried)]
    assert "transport" not in names[0] and "transport" in names[1]
    assert ["transport between pods", "srd"] in [list(one[:2]) for one in carried.figures.guesses]
    assert kind[0] in carried.figures.overrides


@pytest.mark.parametrize(
    ("name", "overrides", "problem"),
    [
        ("rainier", ["fabric.transport.kind=sdr"], "did you mean srd"),
        ("trn2", ["fabric.transport.kind=srd"], "has no fabric between pods"),
        ("rainier", ["fabric.transport.kind=srd", "fabric.transport.loss=0.5"], "below 1/2"),
        ("rainier", ["fabric.transport.loss=0.1"], "has no figure fabric.transport.loss"),
        ("rainier", ["fabric.ecmp=random"], "d_mod_k or hashed or sprayed"),
    ],
)
def test_what_is_no_transport_is_refused(name, overrides, problem):
    with pytest.raises(MachineError, match=problem):
        machines.load(name, overrides)


# --- paths ---------------------------------------------------------------------------------------


def expected_most(balls, bins):
    """The mean of the fullest of `bins` when `balls` fall at random: from the share of the ways to
    throw them that leave no bin with more than m, by a product of power series."""
    factorial = [1]
    for n in range(1, balls + 1):
        factorial.append(factorial[-1] * n)
    mean, before = Fraction(0), Fraction(0)
    for most in range(1, balls + 1):
        ways = [Fraction(1)] + [Fraction(0)] * balls
        for _ in range(bins):
            ways = [
                sum(ways[n - k] / factorial[k] for k in range(min(most, n) + 1))
                for n in range(balls + 1)
            ]
        share = ways[balls] * factorial[balls] / Fraction(bins) ** balls
        mean += most * (share - before)
        before = share
    return float(mean)


def test_the_closed_form_of_collisions_is_that_of_all_ways_to_throw():
    thrown = [max(Counter(way).values()) for way in itertools.product(range(3), repeat=5)]
    assert expected_most(5, 3) == pytest.approx(sum(thrown) / len(thrown))


def loads_upward(topology, pairs):
    up = Counter()
    for pair in pairs:
        up.update(name for link in topology.route(*pair)
                  if (name := topology.link_name(link)).startswith("tor 0>"))  # fmt: skip
    return up


def test_hashed_flows_collide_as_balls_in_bins():
    """16 chips under one ToR each send one flow to another: the fullest of 4 links up."""
    machine = small("fabric.ecmp=hashed")
    pairs = [(chip, 32 + chip) for chip in range(16)]
    seeds = 300
    most = [max(loads_upward(machines.topology(machine, CHIPS, seed=seed), pairs).values())
            for seed in range(seeds)]  # fmt: skip
    assert sum(most) / seeds == pytest.approx(expected_most(16, 4), rel=0.03)
    assert len(set(most)) > 2


def links_of_paths(from_chip, to_chip):
    """Of each path of two chips in the Clos of single links, the names of its links between
    switches: from their places, by the ports of SMALL."""
    start, end = from_chip // 16, to_chip // 16
    left, right = start // 2, end // 2
    for plane, top in itertools.product(range(4), range(4)):
        low, high = f"leaf {left * 4 + plane}", f"leaf {right * 4 + plane}"
        spine = f"spine {plane * 4 + top}"
        across = [] if left == right else [f"{low}>{spine}", f"{spine}>{high}"]
        yield [f"tor {start}>{low}", *across, f"{high}>tor {end}"] if start != end else []


def test_an_even_spread_loads_a_wide_link_as_all_that_are_in_it():
    chosen, sprayed = (
        machines.topology(small(f"fabric.ecmp={ecmp}"), CHIPS) for ecmp in ("d_mod_k", "sprayed")
    )
    rates = {chosen.link_name(i): chosen.link(i).rate for i in range(chosen.link_count)}
    draw = random.Random(5)
    flows = [(*draw.sample(range(CHIPS), 2), draw.randint(1, 9)) for _ in range(60)]
    singly, widely = Counter(), Counter()
    for from_chip, to_chip, size in flows:
        paths = list(links_of_paths(from_chip, to_chip))
        for name in itertools.chain(*paths):
            singly[name] += Fraction(size, len(paths))
        for link in sprayed.route(from_chip, to_chip):
            if sprayed.link(link).tier.split()[0] in ("tor", "leaf"):
                widely[link] += size
    tors = {name: load for name, load in singly.items() if "tor" in name}
    assert set(singly) <= set(rates)
    checked = Counter()
    for link, load in widely.items():
        name, rate = sprayed.link_name(link), sprayed.link(link).rate
        if "tor" in name:
            tor = re.search(r"tor \d+", name)[0]
            goes_up = name.startswith("tor")
            mine = [
                each
                for each in tors
                if (each.startswith(f"{tor}>") if goes_up else each.endswith(f">{tor}"))
            ]
        else:
            cluster = int(re.search(r"leaves (\d+)", name)[1])
            leaves = [f"leaf {cluster * 4 + plane}" for plane in range(4)]
            goes_up = name.startswith("leaves")
            mine = [
                each
                for each in singly
                if "spine" in each and each.split(">")[0 if goes_up else 1] in leaves
            ]
        assert len(mine) == (4 if "tor" in name else 16)
        for each in mine:  # all alike, and as full as the wide one
            assert singly[each] / rates[each] == Fraction(load, rate)
        checked["tor" in name] += 1
    assert checked[True] >= 10 and checked[False] == 8


# --- what goes with a switch ---------------------------------------------------------------------


@pytest.mark.parametrize("box", [1, 2, 3, 4, 8])
def test_the_blast_radius_is_what_chips_notice(box):
    """Every box of every tier: chips without a way over the fabric, and chips with fewer."""
    tiers = {"tor": 8, "leaf": 16, "spine": 16}
    rows = {row.tier: row for row in _core.blast_radius(small(), CHIPS, box)}
    assert {name: row.switches for name, row in rows.items()} == tiers
    paths = {pair: list(links_of_paths(*pair))
             for pair in itertools.permutations(range(0, CHIPS, 8), 2)}  # fmt: skip
    for tier, count in tiers.items():
        worst = (0, 0)
        for first in range(0, count, box):
            dead = {f"{tier} {i}" for i in range(first, min(first + box, count))}
            left = {}
            for (chip, other), ways in paths.items():
                if chip // 16 == other // 16:
                    continue
                alive = [
                    way
                    for way in ways
                    if not dead & {end for link in way for end in link.split(">")}
                ]
                here = f"tor {chip // 16}" in dead
                share = 0.0 if here else len(alive) / len(ways)
                theirs = f"tor {other // 16}" in dead
                if not theirs or here:
                    left.setdefault(chip, []).append(share)
            cut = {chip for chip, shares in left.items() if max(shares) == 0}
            worst = max(
                worst,
                (
                    8 * len(cut),
                    8
                    * sum(
                        1
                        for chip, shares in left.items()
                        if chip not in cut and min(shares) < 1 and _loses_own(chip, dead, tier)
                    ),
                ),
            )
        assert (rows[tier].chips_cut, rows[tier].chips_slowed) == worst, (tier, box)


def _loses_own(chip, dead, tier):
    """Whether paths of the chip's own side die, not only those at the other end of some pairs."""
    if tier == "spine":
        return True
    cluster = chip // 32
    return any(int(name.split()[1]) // 4 == cluster for name in dead)


def test_shares_of_paths_and_nics_that_are_left():
    by_box = {box: {row.tier: row for row in _core.blast_radius(small(), CHIPS, box)}
              for box in (1, 2, 4)}  # fmt: skip
    assert [by_box[box]["leaf"].left_sprayed for box in (1, 2)] == [3 / 4, 2 / 4]
    assert [by_box[box]["leaf"].left_ecmp for box in (1, 2)] == [1 / 2, 1 / 3]
    assert by_box[4]["leaf"].chips_cut == 32 and by_box[4]["leaf"].pods_hit == 2
    assert [by_box[box]["spine"].left_sprayed for box in (1, 4)] == [15 / 16, 12 / 16]
    assert by_box[1]["tor"].pod_nics_left == 0  # a pod of 16 under one ToR
    spread = {row.tier: row for row in _core.blast_radius(machines.load("h100"), 512, 1)}
    assert spread["tor"].pod_nics_left == 7 / 8  # rails: a NIC of each server
    with pytest.raises(MachineError, match="use no switch between pods"):
        _core.blast_radius(small(), 16, 1)
    with pytest.raises(MachineError, match="holds none"):
        _core.blast_radius(small(), CHIPS, 0)


def test_a_dead_box_narrows_what_sprays():
    workload = small_workload.train(world_size=CHIPS)
    overrides = ["fabric.ecmp=sprayed"]
    asked = {"chips": CHIPS, "seeds": 6, "overrides": overrides, "interval": False}
    what = ["dead-switch:tier=leaf", "dead-switch:tier=leaf,box=3", "dead-switch:tier=spine,box=8",
            "dead-switch:tier=leaf,box=4", "dead-switch:tier=tor"]  # fmt: skip
    done = trnsim.disturb(workload, what, SMALL, **asked)
    alone = trnsim.disturb(workload, what, SMALL, one_by_one=True, **asked)
    for row, slow in zip(done.rows, alone.rows, strict=True):
        for one, other in zip(row.found.outcomes, slow.found.outcomes, strict=True):
            assert (one.high_ps, one.stops) == (other.high_ps, other.stops)
    one, three, spines, parted, tor = done.rows
    rows = done.to_dict()["rows"]
    said = [row["blast_radius"][0] for row in rows]
    assert [(row["box"], row["chips_slowed"]) for row in said[:3]] == [(1, 32), (3, 64), (8, CHIPS)]
    assert f"a dead box of 8 switches (spine), the worst of 2, leaves {CHIPS} chips 50.00 %" in str(
        done
    ).replace("\n", " ")
    for seed in three.found.outcomes[:4]:
        leaves = [int(re.match(r"leaf (\d+) is dead, those", text)[1]) for text in seed.drawn.what]
        assert leaves == list(range(leaves[0], leaves[0] + len(leaves))) and leaves[0] % 3 == 0
        faults = []
        for cluster, dead in Counter(leaf // 4 for leaf in leaves).items():
            ends = [(f"tor {2 * cluster + i}", f"leaves {cluster}") for i in (0, 1)]
            ends.append((f"leaves {cluster}", "spines 0"))
            for low, high in ends:
                faults += [f"{way}={(4 - dead) / 4}" for way in (f"{low}>{high}", f"{high}>{low}")]
        by_hand = trnsim.project(workload, SMALL, chips=CHIPS, overrides=overrides, faults=faults,
                                 advise=False, interval=False)  # fmt: skip
        assert seed.high_ps == by_hand.figures.step_ps
    assert one.mean_s <= three.mean_s and spines.stopped == 0
    assert parted.stopped == 1 and tor.stopped == 1  # a box of all four leaves parts the cluster
    with pytest.raises(ProjectError, match="spreads packets over all paths"):
        trnsim.disturb(workload, ["dead-switch:tier=leaf,by=ecmp"], SMALL, **asked)


# --- power ---------------------------------------------------------------------------------------


def test_a_chip_s_part_of_the_switches_is_that_of_a_full_fabric():
    watts = ["fabric.tor.power=100W", "fabric.leaf.power=60W", "fabric.spine.power=80W"]
    machine = small(*watts)
    rows = {row.tier: row.switches for row in _core.blast_radius(machine, CHIPS, 1)}
    # 16 leaves reach 4 spine ports each up: 8 ports of a spine serve 8 clusters, of which 4 exist
    all_w = rows["tor"] * 100 + rows["leaf"] * 60 + rows["spine"] * 80 * 4 / 8
    assert machine.network_power_per_chip_w == pytest.approx(all_w / CHIPS)
    assert machines.load("h100").network_power_per_chip_w is None


def test_energy_of_the_site_and_co2_are_sums_of_what_draws():
    workload = small_workload.train(world_size=CHIPS)
    asked = {"chips": CHIPS, "advise": False, "interval": False}
    site = ["site.pue=1.25", "site.grid_intensity=400g/kWh", "power.per_chip=800W"]
    p = trnsim.project(workload, "rainier", overrides=site, **asked).figures
    step_s = p.step_ps / 1e12
    network_w = 460 / 32 + 1090 / 64 + 2180 / 256
    assert p.energy_j_per_step == pytest.approx(CHIPS * 800 * step_s)
    assert p.energy_network_j_per_step == pytest.approx(CHIPS * network_w * step_s)
    site_j = CHIPS * (800 + network_w) * 1.25 * step_s
    assert p.energy_site_j_per_step == pytest.approx(site_j)
    assert p.carbon_kg_per_step == pytest.approx(site_j / 3.6e6 * 0.4)
    bare = trnsim.project(workload, "h100", overrides=site[1:], **asked).figures
    assert bare.energy_network_j_per_step is None and bare.energy_site_j_per_step is None
    assert bare.carbon_kg_per_step == pytest.approx(bare.energy_j_per_step / 3.6e6 * 0.4)
    said = [name for name, _, _ in bare.guesses]
    assert "CO2 of cooling and losses of the site" in said
    assert "energy of the switches between servers" in said
    with pytest.raises(MachineError, match="draws no less than what it houses"):
        machines.load("h100", ["site.pue=0.9"])
