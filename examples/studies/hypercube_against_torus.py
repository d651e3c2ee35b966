# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A server of 16 chips as a 2x2x2x2 hypercube, or as a 4x4 torus: which is faster?

    python examples/studies/hypercube_against_torus.py

Both names are in use for the same server. The study lays one graph of links on the other, then
times collectives and a training step on both.
"""

import common

import trnsim
from trnsim.recipes import Layout, Model, capture

CHIPS = 16
GRAY = (0, 1, 3, 2)  # neighbours on a ring of four differ in one bit
SIZES = (1 << 10, 1 << 20, 16 << 20, 256 << 20)
OPS = ("all_reduce", "all_gather", "all_to_all", "sendrecv")


def graph(machine) -> set[tuple[int, int]]:
    """From which chip to which there is a link."""
    return {(x.from_node, x.to_node) for x in trnsim.machine.topology(machine, CHIPS).links}


def cube_number(chip: int) -> int:
    """The chip of the hypercube in the torus's place: both coordinates in Gray code."""
    return GRAY[chip // 4] << 2 | GRAY[chip % 4]


def one_collective(op: str, size: int, algorithm: str = ""):
    """What gives its time in seconds on a machine, and the algorithm that it took."""

    def run(machine):
        done = trnsim.collective(
            op, machine, chips=CHIPS, ranks_per_chip=1, sizes=[size], algorithm=algorithm,
            interval=False,
        )  # fmt: skip
        return done.rows[0].time_us / 1e6, done.rows[0].algorithm

    return run


def ratio(run, cube, torus) -> common.Figure:
    """How many times as long the hypercube takes."""
    return common.spread(lambda a, b: run(a)[0] / run(b)[0], cube, torus)


def main() -> None:
    smoke = common.is_smoke(__doc__)
    torus = trnsim.machine.load("trn2")
    cube = trnsim.machine.load(common.HERE / "hypercube.toml")
    same = {(cube_number(a), cube_number(b)) for a, b in graph(torus)} == graph(cube)
    rows, ratios = [], {}
    for op in OPS:
        for size in SIZES[1::2] if smoke else SIZES:
            run = one_collective(op, size)
            (on_cube, cube_took), (on_torus, torus_took) = run(cube), run(torus)
            ratios[op, size] = ratio(run, cube, torus)
            rows.append((
                op, size, f"{on_torus * 1e6:.2f}", torus_took, f"{on_cube * 1e6:.2f}", cube_took,
                ratios[op, size],
            ))  # fmt: skip
    common.print_table(
        "Collectives over 16 chips, each machine's own choice",
        ("op", "bytes", "torus us", "torus takes", "cube us", "cube takes", "cube over torus"),
        rows,
    )
    model = Model.preset("Llama2-7B").with_(layers=2 if smoke else 8)
    layout = Layout(tp=16, micro_batch=1, global_batch=4, sequence=4096)
    workloads = capture(model, layout, "neuron", ranks_per_server=CHIPS)
    time = common.seconds(workloads, ranks=CHIPS)
    under = [trnsim.machine.load(m.name, stack="neuron") for m in (cube, torus)]
    of_step = common.spread(lambda a, b: time(a) / time(b), *under)
    common.print_table(
        f"A step of {model.name}, {model.layers} layers, tp 16",
        ("torus", "cube", "cube over torus"),
        [(common.duration(time(under[1])), common.duration(time(under[0])), of_step)],
    )
    largest = max(SIZES)
    wires = "the links are one and the same graph" if same else "the links differ"
    direct, reduced = ratios["all_to_all", largest], ratios["all_reduce", largest]
    common.print_verdict(
        claim="a 2x2x2x2 hypercube and a 4x4 torus of 16 chips differ in speed",
        found=f"{wires} ({len(graph(torus))} links each); an all-to-all of {largest >> 20} MiB "
        f"takes {direct} times as long on the hypercube, an all-reduce {reduced} times, a step "
        f"{of_step} times",
        rests_on="our algorithms: on the torus AWS's, which use all four links of a chip; on the "
        "hypercube plain ring and halving-doubling in the order of chip numbers, which use one",
        missing="nothing of the hardware; which order of chips and links a library would choose "
        "on a hypercube",
        verdict="does not hold of the hardware: whatever runs on one runs on the other; what "
        f"differs is the algorithm, by {reduced.value:.1f} times"
        if same and direct.low <= 1 <= direct.high
        else "holds: the networks themselves differ",
    )


if __name__ == "__main__":
    main()
