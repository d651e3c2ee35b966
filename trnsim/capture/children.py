# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Other ranks of a job: the script run again in processes of their own, their output in logs.

Each child gets a request as JSON and leaves its Workload as a run file, and beside it what stages
of a pipeline said of their shapes.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trnsim.errors import CaptureError
from trnsim.workload import Workload

POLL_S = 0.02
_ROOT = Path(__file__).resolve().parents[2]
_START = (
    "import sys; sys.path.append(sys.argv[2]); "
    "from trnsim.capture.children import main; main(sys.argv[1])"
)


@dataclass
class Request:
    """One run of a script as one rank; everything is as `trnsim run` was asked for."""

    script: str
    arguments: list[str]
    is_module: bool
    machine: str
    overrides: list[str]
    chips: int
    ranks_per_chip: int
    mode: str
    no_oom: bool
    is_cuda: bool = False
    stop_after_step: int | None = None
    rank: int = 0
    folder: str = ""

    def path(self, ending: str) -> Path:
        """A file of this rank."""
        return Path(self.folder) / f"rank{self.rank}{ending}"


@dataclass
class Children:
    """Runs a script as ranks that it is asked for, several at a time.

    Attributes:
        request: what they have in common.
        environment: variables that the script started with.
        logs: folder of their output; one is made when None.
        last_step: where a script ends whose step is only compared, as `run_script` takes it.
        shapes: what stages of a pipeline have said so far, and what was taken to be so.
    """

    request: Request
    environment: dict[str, str]
    logs: Path | None = None
    folder: str = field(default_factory=os.getcwd)  # where the script starts
    last_step: int = 0
    shapes: dict[Any, Any] = field(default_factory=dict)
    taken: dict[int, dict[Any, Any]] = field(default_factory=dict)  # by rank
    objects: dict[Any, bytes] = field(default_factory=dict)  # what rank 0 broadcast

    def capture(self, ranks: Sequence[int], only_compared: bool) -> dict[int, Workload]:
        """Their Workloads. With only_compared the script ends after the step that is measured.

        Raises:
            CaptureError: a rank failed; the message names it and its log.
        """
        ranks = sorted(ranks)
        self._announce(ranks, only_compared)
        found = self._run_all(ranks, only_compared)
        while again := [rank for rank in ranks if self._took_wrong(rank)]:
            found |= self._run_all(again, only_compared)
        return found

    def _announce(self, ranks: list[int], only_compared: bool) -> None:
        if self.logs is None:
            self.logs = Path(tempfile.mkdtemp(prefix="trnsim-ranks-"))
        self.logs.mkdir(parents=True, exist_ok=True)
        what = "to see whether it does the same" if only_compared else "whose messages it exchanges"
        if len(ranks) > 1 and only_compared:
            what = "to see whether they do the same"
        one = "rank" if len(ranks) == 1 else "ranks"
        listed = ", ".join(map(str, ranks[:12])) + (", ..." if len(ranks) > 12 else "")
        print(
            f"trnsim: the script runs again as {one} {listed}, {what}; output in "
            f"{self.logs}/rank*.log",
            file=sys.stderr,
            flush=True,
        )

    def tidy(self) -> None:
        """Removes logs that nothing was written to, and their folder when it is empty."""
        if self.logs is None:
            return
        for log in self.logs.glob("rank*.log"):
            if log.stat().st_size == 0:
                log.unlink()
        if not any(self.logs.iterdir()):
            self.logs.rmdir()

    # --- processes -------------------------------------------------------------------------------

    def _run_all(self, ranks: list[int], only_compared: bool) -> dict[int, Workload]:
        with tempfile.TemporaryDirectory(prefix="trnsim-") as folder:
            waiting = [self._asked(rank, folder, only_compared) for rank in ranks]
            running: list[tuple[Request, subprocess.Popen[bytes]]] = []
            found: dict[int, Workload] = {}
            try:
                while waiting or running:
                    while waiting and len(running) < (os.cpu_count() or 1):
                        request = waiting.pop(0)
                        running.append((request, self._start(request)))
                    ended = [each for each in running if each[1].poll() is not None]
                    for each in ended:
                        running.remove(each)
                        found[each[0].rank] = self._take(*each)
                    if not ended:
                        time.sleep(POLL_S)
            finally:
                for _, process in running:
                    process.kill()
                    process.wait()
        return found

    def _asked(self, rank: int, folder: str, only_compared: bool) -> Request:
        request = Request(**asdict(self.request))
        request.rank, request.folder = rank, folder
        if only_compared:
            request.stop_after_step = self.last_step
        request.path(".shapes").write_bytes(pickle.dumps((self.shapes, self.objects)))
        request.path(".json").write_text(json.dumps(asdict(request)))
        return request

    def _log(self, rank: int) -> Path:
        assert self.logs is not None
        return self.logs / f"rank{rank}.log"

    def _start(self, request: Request) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-c", _START, str(request.path(".json")), str(_ROOT)]
        with open(self._log(request.rank), "wb") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _take(self, request: Request, process: subprocess.Popen[bytes]) -> Workload:
        from trnsim.workload import load

        made = request.path(".trnsim")
        if process.returncode != 0 or not made.exists():
            log = self._log(request.rank)
            lines = log.read_text(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
            last = last.removeprefix(f"[rank{request.rank}]: ")  # as torch marks exceptions
            raise CaptureError(
                f"the script failed as rank {request.rank} with exit code {process.returncode}: "
                f"{last[:200]} (its output is in {log})"
            )
        said, taken = pickle.loads(request.path(".said").read_bytes())
        self.shapes |= said
        self.taken[request.rank] = taken
        return load(made)

    # --- shapes of pipelines ---------------------------------------------------------------------

    def _took_wrong(self, rank: int) -> bool:
        taken = self.taken.get(rank, {})
        return any(key in self.shapes and self.shapes[key] != was for key, was in taken.items())

    def check_first(self, rank: int, taken: dict[Any, Any]) -> None:
        """Raises CaptureError when the rank that ran first took a stage to say something else."""
        for (source, to, _), was in taken.items():
            said = self.shapes.get((source, to, 0), was)
            if said != was:
                raise CaptureError(
                    f"rank {rank} took the tensors from stage {source} to stage {to} of the "
                    f"pipeline to be like those that it knew, and they are not: {said}; give the "
                    "PipelineStage its input_args"
                )


def main(path: str) -> None:
    """What a child runs."""
    request = Request(**json.loads(Path(path).read_text()))
    os.environ["TRNSIM_AUTOLOAD"] = "1"
    if request.is_cuda:
        from trnsim.capture.cuda import early

        early.load()
    import trnsim.device  # noqa: F401  before torch, which would only warn where it fails
    from trnsim import _torch
    from trnsim.capture import pipelining, run_script
    from trnsim.device import clock
    from trnsim.job import make_job

    job = make_job(
        request.machine, chips=request.chips, ranks_per_chip=request.ranks_per_chip,
        overrides=request.overrides,
    )  # fmt: skip
    clock.install(job.machine, job.placement.ranks_per_chip)
    world = job.world(request.rank)
    # For good: what the script leaves is freed after the capture, on this rank's device.
    _torch.set_device_count(world.local_world_size)
    known, objects = pickle.loads(request.path(".shapes").read_bytes())
    shapes = pipelining.Shapes(known, objects=objects)
    captured = run_script(
        request.script, request.arguments, is_module=request.is_module,
        world=world, mode=request.mode, capacity_bytes=job.capacity_bytes,
        no_oom=request.no_oom, stop_after_step=request.stop_after_step, shapes=shapes,
        others_follow=True,
    )  # fmt: skip
    if captured.exit_code != 0:
        sys.exit(captured.exit_code)
    captured.workload.role = f"rank{request.rank}"
    captured.workload.save(request.path(".trnsim"))
    request.path(".said").write_bytes(pickle.dumps((shapes.said, shapes.taken)))
