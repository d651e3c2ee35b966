# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Tensor parallelism over the 64 chips of an UltraServer, instead of the 16 of a server.

    python examples/studies/server_against_ultraserver.py

The same 64 chips run the same batch three ways: tensor parallel over all of them, over each server
beside data parallelism, and both again without the Z links, as four servers joined by EFA. A last
column has one sequence alone, where nothing but tensor parallelism can use more chips.
"""

import common

import trnsim
from trnsim.recipes import STYLES, Layout, Model, capture

SERVER, ULTRASERVER = 16, 64
STYLE = STYLES["neuron"].with_(attention="flash")
SIZES = (1 << 20, 64 << 20, 1 << 30)
ULTRA = "trn2-ultra"
SEPARATE = common.HERE / "separate-servers.toml"


def collectives() -> list[tuple]:
    """All-reduces over a server, an UltraServer, and four servers."""
    rows = []
    for name, machine, chips in (
        ("a server", ULTRA, SERVER), ("an UltraServer", ULTRA, ULTRASERVER),
        ("four servers on EFA", SEPARATE, ULTRASERVER),
    ):  # fmt: skip
        done = trnsim.collective(
            "all_reduce", str(machine), chips=chips, ranks_per_chip=1, sizes=SIZES
        )
        rows += [
            (name, row.size_bytes, f"{row.time_us:.1f}",
             "{:.4g} to {:.4g}".format(*row.time_interval_us), f"{row.busbw_GBps:.0f}",
             row.algorithm)
            for row in done.rows
        ]  # fmt: skip
    return rows


def step(model, tp: int, dp: int, batch: int):
    """What gives its time on a machine."""
    layout = Layout(tp=tp, dp=dp, micro_batch=1, global_batch=batch, sequence=8192)
    workloads = capture(model, layout, STYLE, ranks_per_server=SERVER)
    return common.seconds(workloads, ranks=tp * dp)


def study(model, batch: int):
    """Rows of the table, and the ratios that the verdict needs."""
    ultra = trnsim.machine.load(ULTRA, stack="neuron")
    separate = trnsim.machine.load(SEPARATE, stack="neuron")
    over_all, over_server = step(model, 64, 1, batch), step(model, 16, 4, batch)
    one_64, one_16 = step(model, 64, 1, 1), step(model, 16, 1, 1)
    throughput = common.spread(lambda m: over_server(m) / over_all(m), ultra)
    links = common.spread(
        lambda u, s: min(over_server(s), over_all(s)) / min(over_server(u), over_all(u)),
        ultra, separate,
    )  # fmt: skip
    alone = common.spread(lambda m: one_16(m) / one_64(m), ultra)
    times = [f(m) for m in (ultra, separate) for f in (over_all, over_server)]
    row = (model.name, *map(common.duration, times), throughput, links, alone)
    return row, throughput, links, alone


def main() -> None:
    smoke = common.is_smoke(__doc__)
    layers, batch = (1, 4) if smoke else (4, 32)
    names = ("Llama3-70B",) if smoke else ("Llama3-70B", "Llama3.1-405B")
    common.print_table(
        "All-reduce", ("over", "bytes", "us", "interval", "busbw GB/s", "algorithm"), collectives()
    )
    found = {n: study(Model.preset(n).with_(layers=layers), batch) for n in names}
    common.print_table(
        f"Steps of {layers} layers, {batch} sequences of 8192 tokens, 64 chips",
        ("model", "UltraServer tp 64", "UltraServer tp 16 dp 4", "servers tp 64",
         "servers tp 16 dp 4", "tp 64 is faster by", "UltraServer is faster by",
         "one sequence, 64 over 16 chips"),
        [row for row, *_ in found.values()],
    )  # fmt: skip
    by_throughput = {name: ratio for name, (_, ratio, _, _) in found.items()}
    by_links = {name: links for name, (_, _, links, _) in found.items()}
    by_sequence = {name: alone for name, (_, _, _, alone) in found.items()}
    common.print_verdict(
        claim="an UltraServer lets tensor parallelism span 64 chips instead of a server's 16",
        found="at equal chips and batch, tp 64 is faster than tp 16 x dp 4 by a factor of "
        + "; ".join(f"{r} for {n}" for n, r in by_throughput.items())
        + "; one sequence alone goes faster on 64 chips than on 16 by "
        + "; ".join(f"{r} for {n}" for n, r in by_sequence.items())
        + "; the Z links beat EFA, each at its better layout, by "
        + "; ".join(f"{r} for {n}" for n, r in by_links.items()),
        rests_on="a rank a chip, flash attention, no overlap of gradients with the backward; "
        "paired intervals: errors common to both sides cancel",
        missing="NeuronLink's protocol efficiency along Z, and an all-reduce of 64 chips, measured",
        verdict="tensor parallelism over 64 for throughput: "
        + common.judge(by_throughput, 1.0)
        + "; for the time of one sequence: "
        + common.judge(by_sequence, 1.0)
        + "; the UltraServer over four servers: "
        + common.judge(by_links, 1.0),
    )


if __name__ == "__main__":
    main()
