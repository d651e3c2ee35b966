# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The HBM of the other die of a Trainium2 package is slower to reach: what does that cost?

    python examples/studies/other_die_memory.py

Nobody publishes the rate between the dies, so the study sweeps it: a share of the bytes is read
from the other die at a share of the rate, and the HBM is as fast as the two in turn. A kernel that
only moves bytes shows the worst case, a training step the usual one.
"""

import common
import torch

import trnsim
from trnsim.recipes import STYLES, Layout, Model, capture

BANDWIDTH = 2.9  # TB/s of the machine file, exact here: what is compared is the change
REMOTE = (0.25, 0.5)  # share of the bytes; half, where the dies' memories interleave
SLOWER = (0.8, 0.5, 0.25)  # rate of the other die's, of the own one's
LIMIT = 1.05  # a step that takes longer by this has a problem


def rate(remote: float, slower: float) -> float:
    """TB/s of the mixture: times add, so rates are a harmonic mean."""
    return BANDWIDTH / (1 - remote + remote / slower)


def machine(bandwidth: float):
    """trn2 with that bandwidth."""
    return trnsim.machine.load("trn2", [f"chip.hbm.bandwidth={bandwidth:.6f}TB/s"], "neuron")


def copies(elements: int):
    """The Workload of a step that adds large tensors, in float32."""
    with trnsim.simulate("trn2", mode="phantom", no_oom=True) as simulation:
        terms = [torch.empty(elements, device="trn") for _ in range(2)]
        for _ in range(2):
            torch.add(*terms, out=terms[0])
            torch.trn.step()
    return simulation.workload


def longer(time, mixed, base) -> common.Figure:
    """How many times as long a step takes; slower memory makes none faster."""
    ratio = common.spread(lambda a, b: time(a) / time(b), mixed, base)
    return common.Figure(ratio.value, max(1.0, ratio.low), ratio.high)


def main() -> None:
    smoke = common.is_smoke(__doc__)
    model = Model.preset("Llama2-7B").with_(layers=1 if smoke else 8)
    layout = Layout(tp=4, dp=4, micro_batch=1, global_batch=8, sequence=4096)
    flash = STYLES["neuron"].with_(attention="flash")
    of_step = common.seconds(capture(model, layout, flash, ranks_per_server=16), ranks=16)
    of_copy = common.seconds(copies(1 << 26 if smoke else 1 << 30))
    base = machine(BANDWIDTH)
    rows, losses = [], {}
    for remote in REMOTE:
        for slower in SLOWER:
            mixed = machine(rate(remote, slower))
            step, copy = (longer(time, mixed, base) for time in (of_step, of_copy))
            losses[remote, slower] = step
            rows.append((f"{remote:.0%}", slower, f"{rate(remote, slower):.3f}", copy, step))
    common.print_table(
        "Longer by a factor of", ("of the other die", "at a rate of", "TB/s", "copy", "step"), rows
    )
    worst = max(losses, key=lambda case: losses[case].value)
    least = min(losses, key=lambda case: losses[case].value)
    harmless = [case for case, loss in losses.items() if loss.high < LIMIT]
    common.print_verdict(
        claim="the HBM of the other die is slower, which costs Trainium2 performance",
        found=f"a step takes {losses[least]} times as long where {least[0]:.0%} of its bytes come "
        f"at {least[1]} of the rate, and {losses[worst]} where {worst[0]:.0%} come at {worst[1]}",
        rests_on="a rate for a rate: no latency, no wait of one die for the other; ranks of a "
        "logical core each hold their own memory and need not read the other die's at all",
        missing="the bandwidth between the dies, the latency of the other die's HBM, and which "
        "share of its bytes a step reads there",
        verdict=f"cannot be decided; it costs less than {LIMIT - 1:.0%} in {len(harmless)} of "
        f"{len(losses)} cases"
        + ("" if not harmless else ", surely where "
           + ", ".join(f"{r:.0%} come at {s}" for r, s in harmless)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
