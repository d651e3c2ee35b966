# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Time and memory from 64 to 400,000 chips, folded and rank by rank, as a table and a plot.

The step is that of benchmarks/llama405b/step.py in one stage: tensor parallel in a pod, data
parallel between pods. Where both ways run they must have one hash. The plot goes beside the table.
"""

import importlib.util
import math
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PODS = [*(2**i for i in range(13)), 6250]
LARGEST_BY_RANK = 512  # pods: the next size takes two minutes


def _module(path: Path):
    spec = importlib.util.spec_from_file_location(f"growth_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run() -> list[dict]:
    """Rows by size, with the ways of one size together; writes the plot."""
    measure = _module(HERE.parent / "llama405b" / "case.py").measure
    rows = []
    for pods in PODS:
        ways = ("classes", "ranks") if pods <= LARGEST_BY_RANK else ("classes",)
        found = [measure(pods, 1, "none", way) for way in ways]
        if len({row["timeline_hash"] for row in found}) > 1:
            raise SystemExit(f"trnsim: the two ways differ at {pods} pods: {found}")
        for row in found:
            total = row["fold_cpu_s"] + row["simulate_cpu_s"]
            rows.append({
                "chips": row["chips"], "way": row["way"], "ranks_simulated": row["ranks_simulated"],
                "make_cpu_s": row["fold_cpu_s"], "simulate_cpu_s": row["simulate_cpu_s"],
                "total_cpu_s": round(total, 3), "peak_MiB": row["peak_MiB"],
                "timeline_hash": row["timeline_hash"],
            })  # fmt: skip
    if "--dry-run" not in sys.argv:
        runner = _module(HERE.parent / "run.py")
        folder = runner.HERE / "results" / runner.processor()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "growth.svg").write_text(plot(rows), encoding="utf-8")
    return rows


def plot(rows: list[dict]) -> str:
    """Two panels with logarithmic axes: CPU seconds and MiB over chips, a line for each way."""
    panels = (("total_cpu_s", "CPU seconds"), ("peak_MiB", "peak memory, MiB"))
    body = "".join(_panel(rows, key, title, 440 * i) for i, (key, title) in enumerate(panels))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="910" height="340" '
        'font-family="sans-serif" font-size="12"><rect width="910" height="340" fill="white"/>'
        f"{body}</svg>\n"
    )


def _panel(rows: list[dict], key: str, title: str, left: int) -> str:
    x0, x1, y0, y1 = left + 60, left + 420, 290, 60
    low = math.floor(math.log10(min(row[key] for row in rows)))
    high = math.ceil(math.log10(max(row[key] for row in rows)))

    def x(chips: float) -> float:
        return x0 + (math.log10(chips) - 1) / 5 * (x1 - x0)

    def y(value: float) -> float:
        return y0 + (math.log10(value) - low) / (high - low) * (y1 - y0)

    parts = [f'<text x="{x0}" y="24" font-size="14">{title}</text>']
    for chips in (10**i for i in range(1, 7)):
        at = x(chips)
        parts.append(f'<path d="M{at:.1f} {y0}V{y1}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:.1f}" y="{y0 + 18}" text-anchor="middle">{chips:,}</text>')
    for power in range(low, high + 1):
        at = y(10.0**power)
        label = f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"
        parts.append(f'<path d="M{x0} {at:.1f}H{x1}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<text x="{(x0 + x1) / 2}" y="{y0 + 38}" text-anchor="middle">chips</text>')
    for way, name, colour, shift in (
        ("classes", "folded", "#1b6ca8", 0), ("ranks", "rank by rank", "#c2410c", 70),
    ):  # fmt: skip
        points = [(x(row["chips"]), y(row[key])) for row in rows if row["way"] == way]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for px, py in points:
            parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>')
        parts.append(f'<text x="{x0 + shift}" y="46" fill="{colour}">{name}</text>')
    return "".join(parts)
