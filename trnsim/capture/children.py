# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Other ranks of a job: the script run again in processes of their own, their output in logs.

Each child gets a request as JSON, and what others have said that ran before; it leaves its Workload
as a run file, and beside it what stages of a pipeline said of their shapes.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from trnsim.capture.one_rank import Request, capture_rank, enter
from trnsim.errors import CaptureError
from trnsim.leave import leave
from trnsim.workload import Workload

POLL_S = 0.02
MOST_ROUNDS = 256  # of runs again: more than a pipeline has stages
_ROOT = Path(__file__).resolve().parents[2]
_START = (
    "import sys; sys.path.append(sys.argv[2]); "
    "from trnsim.capture.children import main; main(sys.argv[1])"
)


@dataclass
class Children:
    """Runs a script as ranks that it is asked for, several at a time.

    Attributes:
        request: what they have in common.
        environment: variables that the script started with.
        logs: folder of their output; one is made when None.
        last_step: where a script ends whose step is only compared, as `run_script` takes it.
        shapes: what stages of a pipeline have said so far.
        objects, tensors: what rank 0 sent to all ranks, as ``pipelining.Shapes`` has them.
    """

    request: Request
    environment: dict[str, str]
    logs: Path | None = None
    folder: str = field(default_factory=os.getcwd)  # where the script starts
    last_step: int = 0
    shapes: dict[Any, Any] = field(default_factory=dict)
    objects: dict[Any, Any] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)
    _is_compared: dict[int, bool] = field(default_factory=dict)  # ranks that have run
    _used: dict[int, dict[Any, Any]] = field(default_factory=dict)  # what they took to be said
    _sources: dict[int, set[int]] = field(default_factory=dict)  # whose stages they guessed
    _failed: dict[int, CaptureError] = field(default_factory=dict)

    def capture(self, ranks: Sequence[int], only_compared: bool) -> dict[int, Workload]:
        """Their Workloads, and those of ranks that had to run before them or once more.

        With only_compared the script ends after the step that is measured. A stage of a pipeline
        guesses what one says that has not run yet. Where that says something else, also in a later
        call, the rank of the first runs again: each time one stage more is right.

        Raises:
            CaptureError: a rank failed; the message names it and its log.
        """
        ranks = sorted(ranks)
        self._announce(ranks, only_compared)
        found = self._run_all(ranks, only_compared)
        for _ in range(MOST_ROUNDS):
            again = [rank for rank in self._used if self._took_wrong(rank, only_compared)]
            if not again:
                again = sorted(self._guessed_by_failed())
                if again:
                    self._announce(again, only_compared)
            if not again:
                break
            found |= self._run_all(again, only_compared)
        else:
            raise CaptureError(
                f"the stages of the pipeline on rank {again[0]} do not settle on their shapes: "
                "give each PipelineStage its input_args"
            )
        if self._failed:
            raise next(iter(self._failed.values()))
        return found

    def _announce(self, ranks: list[int], only_compared: bool) -> None:
        if self.logs is None:
            self.logs = Path(tempfile.mkdtemp(prefix="trnsim-ranks-"))
        self.logs.mkdir(parents=True, exist_ok=True)
        is_one = len(ranks) == 1
        what = f"which {'does' if is_one else 'do'} other work"
        if only_compared:
            what = f"to see whether {'it does' if is_one else 'they do'} the same"
            what += " (--check-ranks 0 goes without)"
        one = "rank" if is_one else "ranks"
        listed = ", ".join(map(str, ranks[:12])) + (", ..." if len(ranks) > 12 else "")
        print(
            f"trnsim: the script runs again as {one} {listed}, {what}", file=sys.stderr, flush=True
        )

    def tidy(self) -> None:
        """Removes logs that nothing was written to, and their folder when it is empty; says where
        the others are."""
        if self.logs is None or not self.logs.is_dir():  # no rank ran
            return
        for log in self.logs.glob("rank*.log"):
            if log.stat().st_size == 0:
                log.unlink()
        written = len([*self.logs.glob("rank*.log")])
        if written:
            whose = "a rank" if written == 1 else f"{written} ranks"
            print(f"trnsim: output of {whose} that ran again: {self.logs}/rank*.log",
                  file=sys.stderr, flush=True)  # fmt: skip
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
                        self._take(*each, found)
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
        self._is_compared[rank] = only_compared
        known = {"known": self.shapes, "objects": self.objects, "tensors": self.tensors}
        request.path(".known").write_bytes(pickle.dumps(known))
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

    def _take(
        self, request: Request, process: subprocess.Popen[bytes], found: dict[int, Workload]
    ) -> None:
        from trnsim.workload import load

        rank, made = request.rank, request.path(".trnsim")
        self._failed.pop(rank, None)
        self._used[rank], self._sources[rank] = {}, set()
        if request.path(".said").exists():
            said, self._used[rank], sources = pickle.loads(request.path(".said").read_bytes())
            self._sources[rank] = set(sources)
            self.shapes = self.shapes | said if not self._is_compared[rank] else said | self.shapes
        if process.returncode == 0 and made.exists():
            found[rank] = load(made)
            return
        log = self._log(rank)
        why = _why(log, rank, process.returncode)
        error = CaptureError(
            f"the script failed as rank {rank} with {why} (its output is in {log})"
        )
        if not self._used[rank]:
            raise error
        self._failed[rank] = error

    # --- shapes of pipelines ---------------------------------------------------------------------

    def _took_wrong(self, rank: int, only_compared: bool) -> bool:
        if self._is_compared[rank] != only_compared:
            return False
        used = self._used[rank].items()
        return any(key in self.shapes and self.shapes[key] != was for key, was in used)

    def _guessed_by_failed(self) -> set[int]:
        """Ranks that have not run, whose stages a rank guessed that failed: perhaps by that."""
        guessed = set().union(*(self._sources[rank] for rank in self._failed))
        return guessed - set(self._is_compared) - {self.request.rank}

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


def _why(log: Path, rank: int, code: int) -> str:
    """What ended a script, in a line: its exception, or what the runtime said before an abort."""
    lines = [line.strip() for line in log.read_text(errors="replace").split("\n") if line.strip()]
    lines = [line.removeprefix(f"[rank{rank}]: ") for line in lines]  # as torch marks exceptions
    last = lines[-1] if lines else "no output"
    if code >= 0:
        return f"exit code {code}: {last[:200]}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    # What follows these is a stack.
    marks = ("what():", "trnsim: ", "Fatal Python error:")
    said = (line for mark in marks for line in reversed(lines) if line.startswith(mark))
    return f"{name}: {next(said, last).removeprefix('what():').strip()[:200]}"


def main(path: str) -> NoReturn:
    """What a child runs."""
    leave(_run(path))


def _run(path: str) -> int:
    request = Request(**json.loads(Path(path).read_text()))
    job = request.make_job()
    enter(request)
    from trnsim.capture import pipelining

    shapes = pipelining.Shapes(**pickle.loads(request.path(".known").read_bytes()))
    try:
        captured = capture_rank(request, job, shapes=shapes)
    finally:  # also of a run that failed: perhaps by what it took others to say
        said = (shapes.said, shapes.used, shapes.sources)
        request.path(".said").write_bytes(pickle.dumps(said))
    if captured.exit_code == 0:
        captured.workload.role = f"rank{request.rank}"
        captured.workload.save(request.path(".trnsim"))
    return captured.exit_code
