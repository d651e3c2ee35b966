# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Project Rainier has five times the computing power of its predecessor: of which predecessor?

    python examples/studies/rainier_predecessor.py

Nobody has published what the cluster before had. The study turns the claim around: how many chips
of each kind Rainier would be five times of, by peaks and by what a training step sustains.
"""

import common

import trnsim
from trnsim.recipes import STYLES, Layout, Model, capture

CLAIMED = 5
RAINIER_CHIPS = 400_000
RAINIER_PEAK = 130e18  # FLOP/s, the other figure that is quoted
FP8, BF16 = "float8_e4m3fn", "bfloat16"
CHIPS = 64
NEURON = STYLES["neuron"].with_(attention="flash")
CANDIDATES = {  # the stack, and how its framework writes the step
    "trn1": ("neuron", "neuron"),
    "a100": ("megatron", "megatron"),
    "h100": ("nemo", "megatron"),
    "tpu-v5p": ("maxtext", "gspmd"),
}


def sustained(name: str, stack: str, style, smoke: bool) -> common.Figure:
    """FLOP/s of a chip in a step of 64 chips."""
    model = Model.preset("Llama3-8B").with_(**({"layers": 2} if smoke else {}))
    layout = Layout(tp=8, dp=8, micro_batch=1, global_batch=16 if smoke else 32, sequence=4096)
    servers = trnsim.machine.load(name).server_chips
    workloads = capture(model, layout, style, ranks_per_server=servers)
    projection = common.project(workloads, name, ranks=CHIPS, stack=stack)
    flops, time = projection.model_flops / CHIPS, common.time_of(projection)
    return common.Figure(flops / time.value, flops / time.high, flops / time.low)


def in_thousands(count: common.Figure) -> str:
    """Chips, with their interval."""
    return "{:.0f} ({:.0f} to {:.0f})".format(*(x / 1e3 for x in vars(count).values()))


def main() -> None:
    smoke = common.is_smoke(__doc__)
    ours = sustained("trn2-ultra", "neuron", NEURON, smoke)
    peak = trnsim.machine.load("rainier").published_flops[BF16]
    rows, by_step, by_exa = [], {}, {}
    for name, (stack, style) in CANDIDATES.items():
        machine = trnsim.machine.load(name)
        theirs = sustained(name, stack, style, smoke)
        ratio = common.quotient(ours, theirs)
        chips = common.Figure(*(x * RAINIER_CHIPS / CLAIMED for x in vars(ratio).values()))
        by_step[name] = chips
        by_peak = RAINIER_CHIPS * peak / CLAIMED / machine.published_flops[BF16]
        by_exa[name] = (
            RAINIER_PEAK / CLAIMED / machine.published_flops.get(FP8, machine.published_flops[BF16])
        )
        rows.append((
            name, f"{theirs.value / 1e12:.0f}", ratio, f"{by_peak / 1e3:.0f}", in_thousands(chips),
            f"{by_exa[name] / 1e3:.0f}",
        ))  # fmt: skip
    common.print_table(
        "A predecessor of which Rainier is five times",
        ("chip", "TFLOP/s sustained", "Trainium2 is faster by", "thousands by BF16 peak",
         "thousands by steps", "thousands by 130 EFLOP/s"),
        rows,
    )  # fmt: skip
    widest = max(max(by_step[n].value, by_exa[n]) for n in by_step)
    narrowest = min(min(by_step[n].value, by_exa[n]) for n in by_step)
    common.print_verdict(
        claim="Project Rainier has five times the computing power of the cluster before it",
        found="it is five times "
        + ", or ".join(f"{in_thousands(chips)} thousand {n}" for n, chips in by_step.items())
        + " by steps; read as 130 EFLOP/s, "
        + ", or ".join(f"{count / 1e3:.0f} thousand {n}" for n, count in by_exa.items()),
        rests_on=f"{RAINIER_CHIPS:,} Trainium2 as planned in 2024; steps of 64 chips, which scale "
        "alike; Trainium2 never compared with a published step; independent intervals",
        missing="how many chips of which kind the predecessor has, and whether the five counts "
        "peaks, and of which format, or chips, or trained tokens",
        verdict="cannot be decided: the predecessor is not published, and what would fit reaches "
        f"from {narrowest / 1e3:.0f} to {widest / 1e3:.0f} thousand chips",
    )


if __name__ == "__main__":
    main()
