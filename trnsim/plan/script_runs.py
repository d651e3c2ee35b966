# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim run --json` of a script in a process of its own, as a user would run it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trnsim.asked import check_fields
from trnsim.errors import MachineError, PlanError, TrnSimError
from trnsim.job import check_asked, make_job, texts_of
from trnsim.origin import command_of
from trnsim.plan.kept import Kept, key_of
from trnsim.plan.progress import Teller

_ROOT = Path(__file__).resolve().parents[2]
_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); from trnsim.plan.inputs import watch; "
    "watch(sys.argv.pop(1)); from trnsim.cli import main; main()"
)
_NO_REPORT = "trnsim: no report: "
LONGEST_REASON = 300
PATIENCE_S = 10.0


@dataclass(frozen=True)
class RunOptions:
    """What every run of a script is asked for; None is the default of `trnsim run`.

    Attributes:
        overrides: figures to change, "KEY=VALUE" on every machine or "MACHINE:KEY=VALUE" on one.
        stack: the stack sheet of machines that are given without one.
        tokens_per_rank, samples_per_rank: of a step, for scripts of which a run cannot tell.
        step, ranks_per_chip, collectives, max_roles, check_ranks, cuda, stop_after_step: as of
            `trnsim run`.
    """

    ranks_per_chip: int | None = None
    step: int | None = None
    overrides: tuple[str, ...] = ()
    stack: str | None = None
    collectives: str | None = None
    max_roles: int = 64
    check_ranks: int = 2
    cuda: bool | None = None
    stop_after_step: bool = False
    tokens_per_rank: int | None = None
    samples_per_rank: int | None = None

    def __post_init__(self) -> None:
        check_fields(PlanError, self)
        check_asked(PlanError, tokens_per_rank=self.tokens_per_rank, step=self.step,
                    samples_per_rank=self.samples_per_rank, check_ranks=self.check_ranks,
                    max_roles=self.max_roles)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A machine with its overrides and its stack, and how a user named it."""

    label: str
    name: str
    stack: str | None
    overrides: tuple[str, ...]
    machine: Any  # _core.Machine


def targets_of(labels: Iterable[str], options: RunOptions) -> list[Target]:
    """The machines, each "NAME" or "NAME:STACK"; a name may be a machine file's path.

    Raises:
        PlanError: none, one twice, or an override of a machine that is not among them.
        MachineError: an unknown machine or stack, or an override that is no figure of a machine.
    """
    from trnsim import machine as machines

    labels = [label.strip() for label in texts_of(PlanError, "machines", labels)]
    if not labels or not all(labels):
        raise PlanError("a machine has no name: list them as --machines trn2-ultra,h100")
    if twice := [label for i, label in enumerate(labels) if label in labels[:i]]:
        raise PlanError(f"{twice[0]} is listed twice: list each machine once")
    names = [label.partition(":")[0] for label in labels]
    split = [_of_one_machine(text) for text in options.overrides]
    for name, text in split:
        if name and name not in names:
            raise PlanError(
                f"--set {name}:{text} is of no machine that is listed: write {names[0]}:{text}"
            )
    found = []
    for label, name in zip(labels, names, strict=True):
        overrides = tuple(text for of, text in split if of in ("", name))
        stack = label.partition(":")[2] or options.stack
        try:
            machine = machines.load(name, overrides, stack)
        except MachineError as error:
            if len(labels) == 1:
                raise
            is_of_all = any(not of and f"--set {text}:" in str(error) for of, text in split)
            how = f"; for one machine alone write {name}:KEY=VALUE" if is_of_all else ""
            raise MachineError(f"{label}: {error}{how}") from None
        found.append(Target(label, name, stack, overrides, machine))
    return found


def _of_one_machine(text: str) -> tuple[str, str]:
    """The machine's name, "" for all of them, and the assignment."""
    name, is_of_one, assignment = text.partition(":")
    return (name.strip(), assignment) if is_of_one and "=" not in name else ("", text)


class Reported:
    """What has the document of a run, or none."""

    document: Mapping[str, Any] | None

    def figure(self, name: str) -> Any:
        """Of the document; None where that has none."""
        return None if self.document is None else self.document.get(name)

    def in_a_step(self, what: str) -> float | None:
        """Of "tokens" or "samples", those of all ranks; None where the run does not know."""
        rate, step_s = self.figure(f"{what}_per_s"), self.figure("step_time_s")
        return None if rate is None or not step_s else rate * step_s


@dataclass(frozen=True)
class Outcome:
    """What a run gave: the document of `trnsim run --json`, or the reason that there is none.

    Attributes:
        seconds: that the run took, in the session in which it ran.
        reused: it was kept from an earlier session.
    """

    document: Mapping[str, Any] | None
    reason: str = ""
    seconds: float | None = None
    reused: bool = False


@dataclass(frozen=True)
class ScriptRuns:
    """Runs one script wherever it is asked for.

    Attributes:
        script: the path of a Python file, or with is_module a module's name.
        kept: where documents are kept for the next time; None for nowhere.
        teller: says on stderr how far we are.
    """

    script: str
    is_module: bool
    options: RunOptions
    kept: Kept | None
    teller: Teller

    def run(self, target: Target, chips: int, arguments: Iterable[str]) -> Outcome:
        """The outcome on so many chips; a request that the machine refuses is a reason, too."""
        arguments = [*arguments]
        try:
            job = make_job(target.machine, chips=chips, ranks_per_chip=self.options.ranks_per_chip)
        except TrnSimError as error:
            self.teller.skip()
            return Outcome(None, str(error))
        asked = self._options(target, chips, job.placement.ranks)
        words = [*asked, *command_of(self.script, self.is_module, arguments)]
        name, key = f"{target.label.replace('/', '_')}-{chips}", ""
        if self.kept is not None:
            key = key_of(command=words, machine=target.machine.hash)
            saved = self.kept.find(name, key)
            if saved is not None:
                self.teller.skip()
                return Outcome(saved["document"], "", saved["seconds"], reused=True)
        with self.teller.running(f"{target.label} on {chips} chips"):
            outcome, files = _run(words)
        if self.kept is not None and outcome.document is not None:
            saved = {"seconds": outcome.seconds, "document": dict(outcome.document)}
            self.kept.keep(name, key, files, saved)
        return outcome

    def _options(self, target: Target, chips: int, ranks: int) -> list[str]:
        """Options of `trnsim run`. Memory that does not fit is a figure of the result."""
        given = asdict(self.options)
        words = ["--machine", target.name, "--chips", str(chips), "--no-oom"]
        for name in ("ranks_per_chip", "step", "collectives", "max_roles", "check_ranks"):
            if given[name] is not None:
                words += ["--" + name.replace("_", "-"), str(given[name])]
        for name in ("tokens", "samples"):
            if given[f"{name}_per_rank"] is not None:
                words += [f"--{name}-per-step", str(given[f"{name}_per_rank"] * ranks)]
        words += ["--stack", target.stack] if target.stack else []
        for text in target.overrides:
            words += ["--set", text]
        if self.options.cuda is not None:
            words.append("--cuda" if self.options.cuda else "--no-cuda")
        return words + ["--stop-after-step"] * self.options.stop_after_step


def _run(words: list[str]) -> tuple[Outcome, list[str]]:
    """What `trnsim run --json WORDS` gives, and the files that it rested on."""
    with tempfile.TemporaryDirectory(prefix="trnsim-") as folder:
        printed, said, rested_on = (Path(folder) / name for name in ("stdout", "stderr", "inputs"))
        command = [sys.executable, "-P", "-c", _START, str(_ROOT), str(rested_on), "run", "--json"]
        began = time.monotonic()
        with open(printed, "wb") as out, open(said, "wb") as err:
            process = subprocess.Popen(
                [*command, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
            try:
                code = process.wait()
            except BaseException:
                _end(process)
                raise
        seconds = time.monotonic() - began
        lines = said.read_text(errors="replace").splitlines()
        if code == 0:
            with contextlib.suppress(OSError, ValueError):
                document = json.loads(printed.read_bytes())
                return Outcome(document, "", seconds), json.loads(rested_on.read_text())
    reason = _why(code, [line.strip() for line in lines if line.strip()])
    return Outcome(None, reason, seconds), []


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a run that nobody waits for; an interrupt lets it end the ranks that it started."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _why(code: int, lines: list[str]) -> str:
    """Why a run gave no document, in a line: what trnsim said, or how the script ended."""
    last = lines[-1] if lines else ""
    if code == 2 and last.startswith("trnsim: ") and not last.startswith(_NO_REPORT):
        return _short(last.removeprefix("trnsim: "))
    own = [line for line in lines if not line.startswith(("trnsim: ", "[trnsim]"))]
    said = f": {own[-1]}" if own else ""
    if code == 0:
        return _short(f"the run printed no document{said}")
    if code > 0:
        return _short(f"the script ended with exit code {code}{said}")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    killed = " (the system may have run out of memory)" if name == "SIGKILL" else ""
    return _short(f"the run was ended by {name}{killed}{said}")


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 3] + "..."
