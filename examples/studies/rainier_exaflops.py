# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""130 EFLOP/s for the 400,000 Trainium2 chips of Project Rainier: in which number format?

    python examples/studies/rainier_exaflops.py

Peaks are arithmetic. What a training step sustains of them is projected, for it is the other way
to read the figure.
"""

import common

import trnsim
from trnsim.recipes import Layout, Model, capture

CLAIMED = 130e18  # FLOP/s
CHIPS = 400_000
NAMES = {
    "float8_e4m3fn": "dense FP8", "bfloat16": "dense BF16", "float32": "FP32",
}  # fmt: skip
SPARSE = 2563e12  # FLOP/s a chip, FP8 or BF16, 4:16: aws-neuron-sdk trainium2.rst


def peaks() -> dict[str, float]:
    """Published peaks of a chip in FLOP/s, by what they are called."""
    published = trnsim.machine.load("rainier").published_flops
    return {name: published[dtype] for dtype, name in NAMES.items()} | {"sparse": SPARSE}


def step(smoke: bool) -> common.Figure:
    """FLOP/s that 64 chips sustain in training, scaled to all chips."""
    model = Model.preset("Llama2-7B" if smoke else "Llama3-70B")
    layout = Layout(tp=16, dp=4, micro_batch=1, global_batch=16 if smoke else 64, sequence=4096)
    workloads = capture(model, layout, "neuron", ranks_per_server=16)
    projection = common.project(workloads, "trn2-ultra", stack="neuron")
    all_chips = projection.model_flops * CHIPS / projection.chips
    time = common.time_of(projection)
    return common.Figure(all_chips / time.value, all_chips / time.high, all_chips / time.low)


def main() -> None:
    smoke = common.is_smoke(__doc__)
    of_chip = peaks()
    rows = [
        (name, f"{peak / 1e12:.0f}", f"{CHIPS * peak / 1e18:.1f}", f"{CLAIMED / peak:,.0f}")
        for name, peak in of_chip.items()
    ]
    common.print_table(
        "Peaks", ("format", "TFLOP/s a chip", "EFLOP/s of 400,000", "chips for 130 EFLOP/s"), rows
    )
    sustained = step(smoke)
    in_exa = common.Figure(*(x / 1e18 for x in (sustained.value, sustained.low, sustained.high)))
    share = common.Figure(*(x / CHIPS / of_chip["dense BF16"] for x in vars(sustained).values()))
    common.print_table(
        "Training in BF16 without losses between UltraServers",
        ("sustained EFLOP/s of 400,000", "MFU"), [(in_exa, share)],
    )  # fmt: skip
    fits = [name for name, peak in of_chip.items() if abs(CHIPS * peak / CLAIMED - 1) < 0.1]
    nearest = min(
        of_chip, key=lambda n: abs(round(CLAIMED / of_chip[n], -5) * of_chip[n] - CLAIMED)
    )
    chips = CLAIMED / of_chip[nearest]
    reading = (
        "130 EFLOP/s lies within what training may sustain"
        if sustained.low <= CLAIMED <= sustained.high
        else "it is not what training sustains either"
    )
    common.print_verdict(
        claim="Project Rainier has 400,000 Trainium2 chips and 130 EFLOP/s",
        found=f"400,000 chips have {CHIPS * of_chip['dense FP8'] / 1e18:.0f} EFLOP/s in dense FP8 "
        f"and {CHIPS * of_chip['dense BF16'] / 1e18:.0f} in dense BF16; 130 EFLOP/s are "
        f"{chips:,.0f} chips in {nearest}; training in BF16 sustains {in_exa} EFLOP/s",
        rests_on="published peaks; a projected step of 64 chips, of which no published step of "
        "Trainium2 confirms anything, times 6,250",
        missing="which format and how many chips the 130 EFLOP/s count",
        verdict=f"holds as a peak in {', '.join(fits)}"
        if fits
        else f"does not hold as a peak in any format: it fits {round(chips, -3):,.0f} chips in "
        f"{nearest}; {reading}",
    )


if __name__ == "__main__":
    main()
