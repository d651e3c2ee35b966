# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trainium2 trains four times as fast as Trainium1, chip for chip.

    python examples/studies/trn1_against_trn2.py

The same model and global batch on 16 chips of each, a rank a logical core as AWS runs them. What
is known of the software on Trainium1 is fitted to published steps; on Trainium2 no step is
published, so the median of other chips stands in, and Trainium1's own beside it.
"""

import common

import trnsim
from trnsim.recipes import Layout, Model, capture

CLAIMED = 4.0
CHIPS = 16
TRN1_CORES, TRN2_CORES = 32, 64  # ranks: one a logical core


def step(model, machine, cores, tp, batch, precision="bf16", overrides=()):
    """The projected step of the model on 16 chips."""
    layout = Layout(
        tp=tp, dp=cores // tp, micro_batch=1, global_batch=batch, sequence=4096,
        precision=precision,
    )  # fmt: skip
    workloads = capture(model, layout, "neuron", ranks_per_server=cores)
    per_chip = cores // CHIPS
    return common.project(
        workloads, machine, stack="neuron", ranks_per_chip=per_chip, overrides=overrides
    )


def software_of_trn1() -> str:
    """The share of GEMM rates that Trainium1's software reaches, for Trainium2."""
    factor = trnsim.machine.fitted_constants()["Trainium"]["gemm_factor"]["value"]
    return f"stack.gemm_factor={factor}"


def main() -> None:
    smoke = common.is_smoke(__doc__)
    model = Model.preset("Llama2-7B").with_(**({"layers": 2} if smoke else {}))
    batch = 32
    old = step(model, "trn1", TRN1_CORES, 8, batch)
    as_trn1 = [software_of_trn1()]
    cases = {
        "BF16": step(model, "trn2", TRN2_CORES, 8, batch),
        "BF16, tp 4 as memory allows": step(model, "trn2", TRN2_CORES, 4, batch),
        "BF16, software of Trainium1": step(model, "trn2", TRN2_CORES, 8, batch, "bf16", as_trn1),
        "FP8": step(model, "trn2", TRN2_CORES, 8, batch, "fp8"),
    }
    times = {"Trainium1, BF16": old, **cases}
    common.print_table(
        f"{model.name}, {model.layers} layers, global batch {batch}, 4096 tokens, 16 chips",
        ("case", "step", "interval", "MFU", "memory a rank", "fits"),
        [
            (name, common.duration(p.step_time_s),
             "{:.3g} to {:.3g} s".format(*p.step_time_interval_s), f"{p.mfu:.1%}",
             f"{p.memory_peak_bytes / 2**30:.1f} GiB", "yes" if p.fits else "no")
            for name, p in times.items()
        ],
    )  # fmt: skip
    ratios = {
        name: common.quotient(common.time_of(old), common.time_of(p)) for name, p in cases.items()
    }
    published = [trnsim.machine.load(name) for name in ("trn1", "trn2")]
    peaks = [machine.published_flops for machine in published]
    paper = {
        "BF16": peaks[1]["bfloat16"] / peaks[0]["bfloat16"],
        "FP8": peaks[1]["float8_e4m3fn"] / peaks[0]["bfloat16"],
    }
    rows = [(name, f"{paper[name.split(',')[0]]:.2f}", r) for name, r in ratios.items()]
    common.print_table("Times as fast as Trainium1", ("case", "by peaks", "by steps"), rows)
    prices = [machine.price_usd_per_chip_hour for machine in published]
    best = max(ratios, key=lambda name: ratios[name].value)
    common.print_verdict(
        claim="Trainium2 trains four times as fast as Trainium1",
        found="; ".join(f"{name} {r}" for name, r in ratios.items())
        + f"; at {prices[1]} against {prices[0]} USD an hour, that is at most "
        f"{ratios[best].value * prices[0] / prices[1]:.2g} times as much for the money",
        rests_on="Trainium1: its 24 published steps; Trainium2: kernel formulas, and constants of "
        "software that are medians of other chips; errors of the two are taken to be independent",
        missing="a training step on Trainium2 with its layout, measured",
        verdict=common.judge(ratios, CLAIMED)
        + f"; the nearest to four is {min(ratios, key=lambda n: abs(ratios[n].value - CLAIMED))}",
    )


if __name__ == "__main__":
    main()
