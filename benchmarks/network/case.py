# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Contended transfers beside SimGrid 3.32 on its own routes, one core, CPU seconds.

All transfers of 1 MB start at time 0 on tori without latency. SimGrid (peer.cpp) writes down the
links of each and its end; our program (network.cpp) sends the same over the same links through the
Transfers and solver that a step uses, each by itself and, where a budget says so, folded, with the
fold in the time. Ends must agree to 1e-9 relative and 1 ps, since ours are rounded up to whole
picoseconds; that is checked in the run.

SimGrid comes from Debian's packages, into a temporary folder: it is never linked into trnsim or
shipped with it. Where apt-get cannot get them the benchmark is skipped and says so. The largest
all-to-all takes SimGrid minutes and runs with TRNSIM_BENCHMARK_LARGE=1 only.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import compile_cpp, compile_ours

HERE = Path(__file__).resolve().parent
PACKAGES = [
    "libsimgrid-dev", "libsimgrid3.32", "libboost1.74-dev", "libboost-context1.74.0",
    "libboost-stacktrace1.74.0", "libns3.37", "libgsl27", "libgslcblas0",
]  # fmt: skip
# The fluid model alone, and event times exact to far below a picosecond.
FLAGS = [
    "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0", "--cfg=network/TCP-gamma:0",
    "--cfg=network/loopback-bw:1e15", "--cfg=surf/precision:1e-14",
    "--cfg=maxmin/precision:1e-12", "--log=xbt_cfg.thresh:warning",
]  # fmt: skip
BYTES, BANDWIDTH_BPS, REPEATS = 1_000_000, 100_000_000_000, 5
# name, flows, pods, torus, random pairs in each pod (0: all to all), budgets by way
CASES = [
    ("all-to-all in 1 pod", 4032, 1, (4, 4, 4), 0, {"each": 40}),
    ("all-to-all in 4 pods", 16128, 4, (4, 4, 4), 0, {"each": 150, "folded": 400}),
    ("random pairs", 1000, 1, (8, 8, 8), 1000, {"each": 40}),
    ("random pairs", 4000, 1, (8, 8, 16), 4000, {"each": 80}),
]
LARGE_CASES = [("all-to-all in 16 pods", 64512, 16, (4, 4, 4), 0, {"each": 500})]


def build_peer(folder: Path) -> Path:
    """SimGrid unpacked under folder, and our program for it."""
    try:
        subprocess.run(
            ["apt-get", "download", "-q", *PACKAGES], cwd=folder, check=True, capture_output=True,
            text=True,
        )  # fmt: skip
    except FileNotFoundError:
        skip("there is no apt-get here")
    except subprocess.CalledProcessError as error:
        skip(f"apt-get cannot get SimGrid 3.32: {error.stderr.strip().splitlines()[-1]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder / "root")], check=True)
    include = folder / "root/usr/include"
    (library,) = (folder / "root/usr/lib").glob("*-linux-gnu")
    return compile_cpp(
        HERE / "peer.cpp", folder, "-isystem", str(include), f"-L{library}", "-lsimgrid",
        f"-Wl,-rpath,{library}", f"-Wl,-rpath-link,{library}",
    )  # fmt: skip


def skip(reason: str):
    print(f"trnsim: benchmark 'network' is skipped: {reason}", file=sys.stderr)
    sys.exit(0)


def output_of(*command, **environment: str) -> list[str]:
    done = subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, text=True,
        env=os.environ | environment,
    )  # fmt: skip
    return done.stdout.split()


def worst_difference_ps(peer_ends: Path, our_ends: Path) -> float:
    """Raises when an end differs by more than 1e-9 of its time and 1 ps."""
    peer = [1e12 * float(line) for line in peer_ends.read_text().splitlines()]
    ours = [int(line) for line in our_ends.read_text().splitlines()]
    worst = 0.0
    for index, (theirs_ps, ours_ps) in enumerate(zip(peer, ours, strict=True)):
        difference = abs(theirs_ps - ours_ps)
        if difference > 1e-9 * theirs_ps + 1:
            raise SystemExit(
                f"trnsim: transfer {index} ends at {ours_ps} ps, in SimGrid at {theirs_ps:.3f} ps"
            )
        worst = max(worst, difference)
    return worst


def measure(peer: Path, ours: Path, folder: Path, case: tuple) -> list[dict]:
    name, flows, pods, torus, pairs, budgets = case
    routes, peer_ends, our_ends = (folder / part for part in ("routes", "peer_ends", "our_ends"))
    libraries = str(next((folder / "root/usr/lib").glob("*-linux-gnu")))
    (peer_s,) = output_of(
        peer, pods, *torus, pairs, BYTES, BANDWIDTH_BPS, routes, peer_ends, *FLAGS,
        LD_LIBRARY_PATH=libraries,
    )  # fmt: skip
    common = {"case": name, "flows": flows, "torus": "x".join(map(str, torus))}
    peer_row = {"solves": "", "whole_solves": "", "ratio": 1, "budget_ratio": "", "worst_ps": ""}
    rows = [common | {"engine": "SimGrid 3.32", "cpu_s": peer_s} | peer_row]
    for way, budget in budgets.items():
        arguments = (routes, BYTES, BANDWIDTH_BPS, our_ends, way)
        runs = [output_of(ours, *arguments) for _ in range(REPEATS)]
        our_s = statistics.median(float(run[0]) for run in runs)
        worst = worst_difference_ps(peer_ends, our_ends)
        our_row = {
            "engine": "trnsim" if way == "each" else "trnsim, folded", "cpu_s": f"{our_s:.6f}",
            "solves": runs[0][1], "whole_solves": runs[0][2],
            "ratio": f"{float(peer_s) / our_s:.0f}", "budget_ratio": budget,
            "worst_ps": f"{worst:.2f}",
        }  # fmt: skip
        rows.append(common | our_row)
    return rows


def run() -> list[dict]:
    cases = CASES + (LARGE_CASES if os.environ.get("TRNSIM_BENCHMARK_LARGE") else [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peer, ours = build_peer(folder), compile_ours(HERE / "network.cpp", folder)
        rows = []
        for case in cases:
            rows += measure(peer, ours, folder, case)
    return rows
