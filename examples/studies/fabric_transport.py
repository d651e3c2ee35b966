# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Rainier's network between UltraServers: ToR against rails, spraying against ECMP, what dies.

    python examples/studies/fabric_transport.py

AWS puts all chips of a server under the switch of its rack; others give each chip of a server a
switch of its own (rails). Both with packets sprayed over all paths, with hashed ECMP under several
seeds, and with fewer ports up than down; then what a dead switch takes out, in boxes of one switch
and in chassis of many.
"""

import statistics

import common

import trnsim
from trnsim import _core

MATTERS = 1.05  # times as fast, from where we say that it does
POD = 64
SIZE = 256 << 20
SEEDS = 5
CHASSIS = 16  # switches in one, as 16 line cards
WIRINGS = {"ToR": [], "rails": ["fabric.rails=16"]}
PATHS = {"sprayed": ["fabric.ecmp=sprayed"], "hashed": ["fabric.ecmp=hashed"]}
OPS = ("all_reduce", "all_to_all")


def machine(*overrides):
    """rainier with these figures."""
    return trnsim.machine.load("rainier", overrides)


def most_on_a_link(hashed, chips: int, seed: int) -> int:
    """Flows on the fullest link up from an edge switch, where each chip sends one to the chip at
    its place of the next pod."""
    topology = trnsim.machine.topology(hashed, chips, seed=seed)
    loads: dict[int, int] = {}
    for chip in range(chips):
        for link in topology.route(chip, (chip + POD) % chips):
            if topology.link(link).tier == "tor up":
                loads[link] = loads.get(link, 0) + 1
    return max(loads.values(), default=0)


def collectives(chips: int) -> tuple[list[tuple], dict[str, common.Figure]]:
    """Rows of each op, wiring and way, and what rails bring."""
    rows, gains = [], {}

    def time(op, of):
        return (
            trnsim.collective(op, of, chips=chips, ranks_per_chip=1, sizes=[SIZE]).rows[0].time_us
        )

    for op in OPS:
        for way, how in PATHS.items():
            for over in (1, 3):
                thin = [f"fabric.tor.oversubscription={over}"]
                pair = [machine(*how, *thin, *wiring) for wiring in WIRINGS.values()]
                gain = common.spread(lambda a, b, op=op: time(op, a) / time(op, b), *pair)
                gains[f"{op}, {way}, {over}:1"] = gain
                rows.append((op, way, f"{over}:1", *(f"{time(op, of):.1f}" for of in pair), gain))
    return rows, gains


def main() -> None:
    smoke = common.is_smoke(__doc__)
    chips = (2 if smoke else 16) * POD
    rows, gains = collectives(chips)
    common.print_table(
        f"{SIZE >> 20} MiB over {chips} chips",
        ("op", "paths", "ports down:up", "ToR us", "rails us", "rails faster by"), rows,
    )  # fmt: skip
    most = {
        wiring: [most_on_a_link(machine("fabric.ecmp=hashed", *figures), chips, seed)
                 for seed in range(SEEDS)]
        for wiring, figures in WIRINGS.items()
    }  # fmt: skip
    common.print_table(
        "Flows on the fullest link up, hashed, where 1 is what an even spread gives at most",
        ("wiring", "median of seeds", "worst"),
        [(name, statistics.median(of), max(of)) for name, of in most.items()],
    )
    dies = [
        (wiring, row.tier, box, row.chips_cut, row.pods_hit, f"{row.pod_nics_left:.3f}",
         row.chips_slowed, f"{row.left_sprayed:.4f}", f"{row.left_ecmp:.3f}")
        for wiring, figures in WIRINGS.items() for box in (1, CHASSIS)
        for row in _core.blast_radius(machine(*figures), chips, box)
    ]  # fmt: skip
    common.print_table(
        "What the worst box takes out",
        ("wiring", "tier", "switches in it", "chips cut off", "pods", "NICs left",
         "chips slowed", "paths left", "of a pair on ECMP"), dies,
    )  # fmt: skip
    common.print_verdict(
        claim="a fabric under rails serves collectives faster than one under ToRs",
        found="rails are faster by a factor of "
        + "; ".join(f"{gain} for {name}" for name, gain in gains.items())
        + "; hashed flows meet on a link up to "
        + " and ".join(f"{max(of)} at once ({name})" for name, of in most.items()),
        rests_on="ports and oversubscription of Rainier's switches, which are guessed; an even "
        "spread for SRD; one flow for a pair of chips under ECMP; paired intervals",
        missing="how SRD's paths share their load, and what it leaves of a line",
        verdict=f"it matters, {MATTERS - 1:.0%} or more: {common.judge(gains, MATTERS)}",
    )


if __name__ == "__main__":
    main()
