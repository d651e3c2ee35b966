# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Dedicated cores for collectives, against collectives that take cores from the computation.

    python examples/studies/collective_cores.py

A step with messages beside its computation runs three ways: nothing interferes; engines lose the
share that 20 of 132 multiprocessors are while a message moves, as DeepSeek-V3 gave them on H800;
and Trainium2's own case, where the cores are spared but its DMA engines and HBM are shared.
"""

import common

import trnsim
from trnsim.recipes import Layout, Model, capture

TAKEN, ALL = 20, 132  # multiprocessors: arXiv 2412.19437, section 3.2.1
DMA_KEEPS = (0.9, 0.7, 0.5)
MATTERS = 1.01
ENGINES = {"trn2-ultra": ("tensor", "vector", "scalar", "gpsimd"), "h100": ("tensor", "vector")}


def machine(name: str, stack: str, keeps: dict[str, float]):
    """The machine, of which engines keep those shares of their speed beside a message."""
    return trnsim.machine.load(
        name, [f"chip.interference.{engine}={share:.6f}" for engine, share in keeps.items()], stack
    )


def loss(time, name: str, stack: str, keeps: dict[str, float]) -> common.Figure:
    """How many times as long the step takes as without interference."""
    pair = machine(name, stack, keeps), machine(name, stack, {})
    ratio = common.spread(lambda a, b: time(a) / time(b), *pair)
    return common.Figure(ratio.value, max(1.0, ratio.low), ratio.high)


def layouts(smoke: bool) -> dict:
    """Model, layout and style whose messages run beside the computation."""
    model = Model.preset("Llama3-70B").with_(layers=1 if smoke else 4)
    one = {"micro_batch": 1, "sequence": 8192}
    fsdp = Layout(dp=64, zero=3, global_batch=64, **one)
    tensor = Layout(tp=8, dp=8, global_batch=32, **one)
    return {"FSDP": (model, fsdp, "fsdp"), "tp 8 x dp 8": (model, tensor, "megatron")}


def main() -> None:
    smoke = common.is_smoke(__doc__)
    kept = 1 - TAKEN / ALL
    rows, by_cores, by_dma = [], {}, {}
    for layout_name, (model, layout, style) in layouts(smoke).items():
        for name, stack in (("trn2-ultra", "neuron"), ("h100", "nemo")):
            servers = trnsim.machine.load(name).server_chips
            workloads = capture(model, layout, style, ranks_per_server=servers)
            time = common.seconds(workloads, ranks=layout.world)
            on = f"{layout_name} on {name}"
            free = common.duration(time(machine(name, stack, {})))
            by_cores[on] = loss(time, name, stack, dict.fromkeys(ENGINES[name], kept))
            rows.append((layout_name, name, free, f"engines {kept:.0%}", by_cores[on]))
            for share in DMA_KEEPS[1:2] if smoke else DMA_KEEPS:
                if name == "h100":
                    continue
                by_dma[layout_name, share] = loss(time, name, stack, {"dma": share})
                rows.append(
                    (layout_name, name, free, f"dma {share:.0%}", by_dma[layout_name, share])
                )
    common.print_table(
        "A step longer by a factor of",
        ("layout", "machine", "undisturbed", "beside messages keep", "longer by"), rows,
    )  # fmt: skip
    worst = max(by_dma, key=lambda case: by_dma[case].value)
    ours = {name: ratio for name, ratio in by_cores.items() if "trn2" in name}
    break_even = {
        layout: [share for (of, share), ratio in by_dma.items()
                 if of == layout and ratio.value >= ours[f"{layout} on trn2-ultra"].value]
        for layout in dict.fromkeys(of for of, _ in by_dma)
    }  # fmt: skip
    common.print_verdict(
        claim="dedicated collective cores keep Trainium2's engines free, where GPUs give up "
        "multiprocessors",
        found=f"giving up {TAKEN} of {ALL} would make a step longer by a factor of "
        + "; ".join(f"{ratio} ({name})" for name, ratio in by_cores.items())
        + f"; sharing the DMA engines costs up to {by_dma[worst]} "
        f"({worst[0]}, {worst[1]:.0%} kept)",
        rests_on=f"{TAKEN} of {ALL} multiprocessors, which one published program chose; engines "
        "that slow down evenly while any message moves on their chip; paired intervals",
        missing="the share of its DMA and HBM rate that a Trainium2 chip keeps beside a collective",
        verdict=f"the spared cores are worth {MATTERS - 1:.0%} of a step or more: "
        + common.judge(ours, MATTERS)
        + "; lost again "
        + ", ".join(
            f"for {name} if the DMA engines keep {max(shares):.0%} or less" if shares
            else f"for {name} at no share that was tried"
            for name, shares in break_even.items()
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
