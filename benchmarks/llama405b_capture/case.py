# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Two training steps of Llama 405B under FSDP2 x TP 8 x PP 16, captured on 16,384 ranks.

train.py is the script: torch's own parallelism, nothing of ours in it. Each stage of the pipeline
is captured in a process of its own, as `trnsim run` does. The peer is the limit that was set: 60 s
and 4 GiB. Seconds are CPU seconds of the process, its imports (torch, the device, and what the
script imports of torch) apart; "of all" is their sum over the 16 stages, and the largest memory.
"""

import importlib
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RANKS, STAGES, RANKS_PER_SERVER = 16384, 16, 16
LIMIT_S, LIMIT_MIB = 60, 4096
IMPORTS = (  # of the script
    "torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.parallel",
)  # fmt: skip


def capture(stage: int, said: Path) -> dict:
    """Runs the script as the first rank of a stage, in this process. The file holds what stages
    before it have said of their shapes, as `trnsim run` passes it on."""
    began = time.process_time()
    import trnsim.device  # noqa: F401
    from trnsim.capture.pipelining import Shapes
    from trnsim.capture.script import run_script
    from trnsim.capture.world import World

    for name in IMPORTS:
        importlib.import_module(name)
    imported = time.process_time()
    world = World(stage * RANKS // STAGES, RANKS, RANKS_PER_SERVER)
    shapes = Shapes(pickle.loads(said.read_bytes()) if said.exists() else {})
    script = str(HERE / "train.py")
    done = run_script(script, world=world, no_oom=True, shapes=shapes, others_follow=True)
    if done.exit_code:
        raise SystemExit(done.exit_code)
    said.write_bytes(pickle.dumps(shapes.known | shapes.said))
    return {
        "stage": stage,
        "records": len(done.workload),
        "import_cpu_s": round(imported - began, 2),
        "capture_cpu_s": round(time.process_time() - imported, 2),
        "limit_s": LIMIT_S,
        "peak_MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "limit_MiB": LIMIT_MIB,
    }


def measure(stage: int, said: Path) -> dict:
    """The row of one stage, from a process of its own."""
    root = str(HERE.parent.parent)
    done = subprocess.run(
        [sys.executable, __file__, str(stage), str(said)],
        check=True, stdout=subprocess.PIPE, text=True,
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join((root, os.environ.get("PYTHONPATH", ""))),
            # or threads that wait count as work
            "OMP_WAIT_POLICY": "passive",
        },
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def run() -> list[dict]:
    """The first stage, one in the middle, the last, and all."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(stage, Path(folder) / "said") for stage in range(STAGES)]
    total = rows[0] | {
        "stage": "of all",
        "records": sum(row["records"] for row in rows),
        "peak_MiB": max(row["peak_MiB"] for row in rows),
    }
    for name in ("import_cpu_s", "capture_cpu_s"):
        total[name] = round(sum(row[name] for row in rows), 2)
    return [rows[0], rows[STAGES // 2], rows[-1], total]


if __name__ == "__main__":
    print(json.dumps(capture(int(sys.argv[1]), Path(sys.argv[2]))))
