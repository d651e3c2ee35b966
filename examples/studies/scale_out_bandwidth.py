# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""800 against 200 Gbit/s of scale-out network for each chip: what four times the NIC brings.

    python examples/studies/scale_out_bandwidth.py

Eight UltraServers with the NICs that EC2 offers, and with four times that, under the same switches
with ports four times as fast. Layouts differ in what they send between UltraServers.
"""

import common

import trnsim
from trnsim.recipes import STYLES, Layout, Model, capture

MATTERS = 1.05  # times as fast, from where we say that it does
POD = 64
GBPS = (200, 800)
SIZES = (16 << 20, 1 << 30)
NEURON = STYLES["neuron"].with_(attention="flash")


def machine(gbps: int, stack: str | None = None):
    """rainier with that much for each chip; what is compared counts as exact.

    A collective alone takes no stack: neuron's, fitted to steps, hides a part of its messages.
    """
    return trnsim.machine.load(
        "rainier", [f"fabric.nic.bandwidth={gbps}Gbps", f"fabric.port_bandwidth={gbps}Gbps"],
        stack,
    )  # fmt: skip


def cases(pods: int, layers: int) -> dict:
    """Model, layout and style of each, by what it sends between UltraServers."""
    chips = pods * POD
    dense = Model.preset("Llama3-70B").with_(layers=layers)
    experts = Model.preset("DeepSeekV3-671B-4L")
    common_ = {"micro_batch": 1, "sequence": 8192}
    moe = {"dp": chips, "global_batch": 2 * chips, "micro_batch": 1, "sequence": 4096}
    data = {"tp": 16, "dp": chips // 16, **common_}
    return {
        "gradients, 1 sequence a replica": (
            dense, Layout(**data, global_batch=chips // 16), NEURON),
        "gradients, 16 sequences": (dense, Layout(**data, global_batch=chips), NEURON),
        "FSDP over all chips": (
            dense, Layout(dp=chips, zero=3, global_batch=chips, **common_), "fsdp"),
        "experts in an UltraServer": (experts, Layout(ep=POD, **moe), "megatron"),
        "experts over UltraServers": (experts, Layout(ep=min(256, chips), **moe), "megatron"),
    }  # fmt: skip


def all_reduce(pods: int) -> list[tuple]:
    """Rows of an all-reduce over all chips on both."""
    machines = [machine(gbps) for gbps in GBPS]
    rows = []
    for size in SIZES:
        timed = [
            trnsim.collective("all_reduce", m, chips=pods * POD, ranks_per_chip=1, sizes=[size])
            for m in machines
        ]
        (a,), (b,) = (done.rows for done in timed)
        rows.append((
            size, f"{a.time_us:.1f}", f"{b.time_us:.1f}", f"{a.time_us / b.time_us:.3f}",
            a.algorithm,
        ))  # fmt: skip
    return rows


def main() -> None:
    smoke = common.is_smoke(__doc__)
    pods, layers = (2, 1) if smoke else (8, 8)
    slow, fast = (machine(gbps, "neuron") for gbps in GBPS)
    common.print_table(
        f"All-reduce over {pods} UltraServers",
        ("bytes", "us at 200 Gb/s", "us at 800 Gb/s", "faster by", "algorithm"),
        all_reduce(pods),
    )
    rows, gains = [], {}
    for name, (model, layout, style) in cases(pods, layers).items():
        if smoke and model.experts:
            continue
        workloads = capture(model, layout, style, ranks_per_server=16)
        time = common.seconds(workloads, ranks=layout.world)
        gains[name] = common.spread(lambda a, b, time=time: time(a) / time(b), slow, fast)
        rows.append((
            name, model.name, common.duration(time(slow)), common.duration(time(fast)), gains[name]
        ))  # fmt: skip
    common.print_table(
        f"Steps on {pods * POD} chips",
        ("between UltraServers", "model", "at 200 Gb/s", "at 800 Gb/s", "faster by"), rows,
    )  # fmt: skip
    best, least = max(gains, key=lambda n: gains[n].value), min(gains, key=lambda n: gains[n].value)
    common.print_verdict(
        claim="a Trainium2 chip needs 800 Gbit/s of scale-out where an UltraServer has 200",
        found=f"with four times the network a step is faster by a factor of {gains[best]} at most "
        f"({best}) and {gains[least]} at least ({least})",
        rests_on="no oversubscription and even spraying, both guessed; the share of messages that "
        "Trainium1's software hides; neuron style reduces gradients after the backward; paired "
        "intervals",
        missing="the oversubscription of the fabric, and what EFA reaches of its line rate",
        verdict=f"it matters, {MATTERS - 1:.0%} or more: {common.judge(gains, MATTERS)}",
    )


if __name__ == "__main__":
    main()
