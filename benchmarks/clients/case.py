# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Public training scripts, unmodified, through `trnsim run` in phantom mode on `trn2`.

TRNSIM_CLIENTS names a folder of checkouts (clients/scripts.py says which, and at which commits); a
folder `NAME_deps` beside one holds packages that it needs and the environment lacks. Each script
runs in a fresh copy, on small data that is made here. The peer is the same script on the CPU, where
it has such a run: its wall seconds, and its last printed result beside that of compute mode. Wall
seconds hold imports, and the runs as other ranks. Where ranks do not do the same, a row says so,
and has the step as if they did (`--check-ranks 0`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clients.scripts import SCRIPTS, Script

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900


def version_of(script: Script, file: Path) -> str:
    """The commit, where the file is the one that the commit has."""
    content = file.read_bytes()
    digest = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return script.commit if digest == script.blob else f"not known to be {script.commit}"


def why_not(script: Script, checkouts: str | None) -> str:
    """Why there is nothing to run, or an empty string."""
    if checkouts is None:
        return "skipped: TRNSIM_CLIENTS names no folder of checkouts"
    if not (Path(checkouts) / script.checkout / script.file).is_file():
        return f"skipped: no {script.checkout}/{script.file} in TRNSIM_CLIENTS"
    return ""


def start(script: Script, checkouts: Path, begin: list[str], extra: str) -> tuple:
    """One run in a copy of its own: what it did, and its wall seconds."""
    source = checkouts / script.checkout
    with tempfile.TemporaryDirectory() as folder:
        copy, data = Path(folder) / "copy", Path(folder) / "data"
        data.mkdir()
        for part in script.copied:
            if (source / part).is_file():
                copy.mkdir(exist_ok=True)
                shutil.copy(source / part, copy / part)
            else:
                shutil.copytree(source / part, copy / part, symlinks=True)
        script.prepare(copy, data)
        words = {"data": str(data), "copy": str(copy)}
        variables = {k: v for k, v in os.environ.items() if not k.startswith("TRNSIM_")}
        own = {k: v.format(**words) for k, v in script.variables.items()}
        paths = [own.pop("PYTHONPATH", ""), str(checkouts / f"{script.checkout}_deps"), str(ROOT)]
        paths.append(variables.get("PYTHONPATH", ""))
        variables |= own | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(data / "cache"), "OMP_WAIT_POLICY": "passive", "TERM": "dumb",
        }  # fmt: skip
        target = ["-m", script.module] if script.module else [str(copy / script.file)]
        arguments = f"{script.arguments} {extra}".format(**words).split()
        began = time.monotonic()
        done = subprocess.run(
            [*begin, *target, *arguments], cwd=copy / script.cwd, env=variables, text=True,
            capture_output=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        return done, time.monotonic() - began


def on_trn(script: Script, checkouts: Path, chips: int, *options: str) -> tuple:
    """`trnsim run`: what it did, its document (None where it failed), and its wall seconds."""
    begin = [sys.executable, "-m", "trnsim", "run", "--json", *options]
    begin += ["--machine", "trn2-ultra" if chips > 16 else "trn2", "--chips", str(chips)]
    done, seconds = start(script, checkouts, begin, script.on_trn)
    document = json.loads(done.stdout) if done.returncode == 0 else None
    return done, document, seconds


def result_of(script: Script, done: subprocess.CompletedProcess) -> str:
    """The last result that the script printed."""
    found = re.findall(script.result, done.stdout + done.stderr)
    return found[-1] if done.returncode == 0 and found else "none"


def last_line(done: subprocess.CompletedProcess) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return re.sub(r" \(its output is in .*", "", lines[-1].strip())[:300] if lines else ""


def what_it_says(document: dict) -> dict[str, object]:
    """The columns that come from a report."""
    unknown = document["fallback_ops"]
    low, high = document["step_time_interval_s"]
    return {
        "step_time_us": round(document["step_time_s"] * 1e6, 3),
        "interval_low_us": round(low * 1e6, 3),
        "interval_high_us": round(high * 1e6, 3),
        "parameters": document["parameters"],
        "untranslated_share": round(sum(op["share"] for op in unknown), 6),
        "untranslated_ops": " ".join(sorted(op["name"] for op in unknown)),
    }


def values_of(script: Script, checkouts: Path) -> dict[str, object]:
    """The columns of compute mode, and of the CPU."""
    done, document, _ = on_trn(script, checkouts, 1, "--mode", "compute")
    if document is None:
        return {"exit_code": done.returncode, "reason": f"compute mode: {last_line(done)}"}
    on_cpu, seconds = start(script, checkouts, [sys.executable], script.on_cpu)
    if on_cpu.returncode != 0:
        return {"reason": f"on the CPU: {last_line(on_cpu)}"}
    row: dict[str, object] = {
        "compute_step_time_us": round(document["step_time_s"] * 1e6, 3),
        "cpu_wall_s": round(seconds, 1),
    }
    if script.no_values:
        return row | {"reason": f"results are not compared: {script.no_values}"}
    mine, theirs = result_of(script, done), result_of(script, on_cpu)
    if mine != theirs:
        row["reason"] = "results differ"
    return row | {"result_on_trn": mine, "result_on_cpu": theirs}


def row_of(script: Script, chips: int, checkouts: str | None) -> dict[str, object]:
    """The row of one script on some chips."""
    row: dict[str, object] = dict.fromkeys((
        "script", "version", "chips", "exit_code", "step_time_us", "interval_low_us",
        "interval_high_us", "parameters", "untranslated_share", "untranslated_ops", "wall_s",
        "compute_step_time_us", "result_on_trn", "result_on_cpu", "cpu_wall_s", "reason",
    ), "")  # fmt: skip
    row |= {"script": script.name, "chips": chips, "reason": why_not(script, checkouts)}
    if row["reason"]:
        return row
    folder = Path(checkouts)
    row["version"] = version_of(script, folder / script.checkout / script.file)
    done, document, seconds = on_trn(script, folder, chips)
    row |= {"exit_code": done.returncode, "wall_s": round(seconds, 1)}
    if document is None:
        row["reason"] = last_line(done)
        if chips > 1:
            _, document, _ = on_trn(script, folder, chips, "--check-ranks", "0")
            row["reason"] += " (step: with --check-ranks 0)" if document else ""
    if document is None:
        return row
    row |= what_it_says(document)
    return row if script.on_cpu is None else row | values_of(script, folder)


def run() -> list[dict]:
    """A row for each script and number of chips."""
    checkouts = os.environ.get("TRNSIM_CLIENTS")
    return [row_of(script, chips, checkouts) for script in SCRIPTS for chips in script.chips]
