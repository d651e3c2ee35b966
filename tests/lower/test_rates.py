# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Rates of products and attention on presets, beside the measurements that they come from."""

import pytest
from small_workload import FORWARD, FORWARD_BEGIN, OPTIMIZER_BEGIN, OPTIMIZER_END, Script

from trnsim import machine as machines
from trnsim.lower import lower_step

FP8 = "float8_e4m3fn"
# Best products measured and their shapes, M x N x K: github.com/stas00/ml-engineering at 744d01e1,
# compute/accelerator/README.md.
BEST = [
    ("a100", "bfloat16", 271.2, (1024, 10240, 5120)),
    ("h100", "bfloat16", 794.5, (2048, 2048, 13312)),
    ("h200", "bfloat16", 794.5, (2048, 2048, 13312)),
    ("b200", "bfloat16", 1745.0, (1792, 16128, 3072)),
    ("b300", "bfloat16", 1769.0, (12288, 18432, 1024)),
    ("gb200-nvl72", "bfloat16", 1822.0, (4096, 9728, 2048)),
    ("b200", FP8, 3432.5, (15360, 4096, 3072)),
    ("b300", FP8, 3353.3, (3072, 6144, 7168)),
    ("gb200-nvl72", FP8, 3615.6, (19456, 5120, 1536)),
    # github.com/AI-Hypercomputer/tpu-recipes at c8cfe2f6, microbenchmarks
    ("tpu-v6e", "bfloat16", 827.47, (8192, 8192, 8192)),
    ("tpu-7x", "bfloat16", 2 * 956.38, (32768, 32768, 32768)),  # two devices a chip
]
# A device of TPU7x, of which a chip has two, by size: ironwood of the same microbenchmarks.
DEVICE = {256: 18.29, 512: 105.1, 2048: 679.3, 4096: 892.9, 32768: 956.4}
# Their best shapes leave multiprocessors idle by our tiles: compared over shapes.
BEST_OVER_SHAPES = [("h100", FP8, 1402.6), ("h200", FP8, 1453.4)]


def ops_of(machine, text, inputs, ranks_per_chip=1):
    script = Script()
    script.marker(FORWARD_BEGIN, 1)
    script.op(text, [script.storage(size) for size in inputs], [script.storage(inputs[0])], FORWARD)
    script.marker(OPTIMIZER_BEGIN, 1)
    script.marker(OPTIMIZER_END, 1)
    workload = script.workload()
    place = machines.placement(machine, 1, None, ranks_per_chip)
    return lower_step(workload, workload.choose_step(-1), machine, place).ops


def tflops(machine, dtype, shape, ranks_per_chip=1):
    m, n, k = shape
    text = f"aten::mm(self: {dtype}[{m},{k}], mat2: {dtype}[{k},{n}]) -> (out0: bfloat16[{m},{n}])"
    (op,) = ops_of(machine, text, [2 * m * k, 2 * k * n], ranks_per_chip)
    return 2 * m * n * k / op["bound_ps"]


@pytest.mark.parametrize(("name", "dtype", "measured", "shape"), BEST)
def test_the_best_product_measured_runs_at_its_rate(name, dtype, measured, shape):
    assert tflops(machines.load(name), dtype, shape) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("size", "measured"), DEVICE.items())
def test_small_products_on_a_tpu_wait_for_their_operands(size, measured):
    ours = tflops(machines.load("tpu-7x"), "bfloat16", (size, size, size), ranks_per_chip=2)
    assert ours == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(("name", "dtype", "measured"), BEST_OVER_SHAPES)
def test_the_best_of_many_products_runs_at_the_best_rate_measured(name, dtype, measured):
    machine = machines.load(name)
    sizes = range(1024, 16385, 3072)
    best = max(tflops(machine, dtype, (m, n, 8192)) for m in sizes for n in sizes)
    assert best == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    "name",
    [name for name in machines.presets() if machines.load(name).architecture != "neuroncore"],
)
def test_no_product_is_faster_than_the_peak(name):
    machine = machines.load(name)
    for row in machines.figures(machine):
        dtype = row["figure"].removeprefix("chip.peak.published.")
        if dtype not in ("bfloat16", "float16", "float32", FP8):
            continue
        assert tflops(machine, dtype, (4096, 4096, 4096)) < float(row["value"])


def attention_us(name, length, head=128, kernel=""):
    chip = "tpu" if name.startswith("tpu") else "gpu"
    machine = machines.load(name, [f"chip.{chip}.attention_kernel={kernel}"] if kernel else [])
    tokens, width = 16384, 2048
    shape = f"bfloat16[{tokens // length},{width // head},{length},{head}]"
    text = (
        f"aten::_scaled_dot_product_flash_attention(query: {shape}, key: {shape}, value: {shape}) "
        f"-> (out0: {shape})"
    )
    (op,) = ops_of(machine, text, [2 * tokens * width] * 3)
    flops = 4 * tokens * length * width
    return flops / op["bound_ps"]


def test_attention_runs_at_the_rate_of_the_kernel_that_is_chosen():
    # arXiv 2407.08608, head size 128 at 8k: FlashAttention-2, FlashAttention-3, cuDNN, Triton
    for kernel, measured in {"": 370, "flash3": 646, "cudnn": 600, "triton": 392}.items():
        assert attention_us("h100", 8192, kernel=kernel) == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize("name", ["a100", "b200", "tpu-v5p", "v100"])
def test_attention_gains_with_length_and_never_passes_the_peak(name):
    machine = machines.load(name)
    peak = next(
        float(f.value)
        for f in machine.figures
        if f.key == f"chip.peak.published.{'float16' if name == 'v100' else 'bfloat16'}"
    )
    rates = [attention_us(name, length) for length in (512, 2048, 8192)]
    assert rates == sorted(rates)
    assert rates[-1] < peak
