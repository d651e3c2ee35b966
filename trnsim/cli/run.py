# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim run`: runs a script on the simulated device and projects its measured step."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnsim.cli import options, output
from trnsim.errors import CaptureError
from trnsim.origin import command_of

if TYPE_CHECKING:
    from trnsim.capture.cuda.choice import DeviceChoice
    from trnsim.capture.one_rank import Request
    from trnsim.job import Job


def add_to(app: typer.Typer) -> None:
    """Adds the verb; what follows the script belongs to the script, --help included."""
    app.command(
        name="run",
        context_settings={"allow_interspersed_args": False},
        epilog="Example: trnsim run --machine trn2-ultra --chips 64 train.py --batch-size 8",
    )(run)


def run(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="The script, or with -m a module.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments.")
    ] = None,
    is_module: options.IsModule = False,
    machine: options.Machine = "trn2",
    chips: options.Chips = None,
    ranks: options.Ranks = None,
    ranks_per_chip: options.RanksPerChip = None,
    mode: options.RunMode = options.Mode.phantom,
    step: options.Step = None,
    stop_after_step: options.StopAfterStep = False,
    top: options.Top = 10,
    overrides: options.Overrides = None,
    stack: options.Stack = None,
    tokens_per_step: options.TokensPerStep = None,
    samples_per_step: options.SamplesPerStep = None,
    no_oom: options.NoOom = False,
    no_fold: options.NoFold = False,
    collectives: options.Collectives = None,
    slow_chips: options.SlowChips = None,
    faults: options.Faults = None,
    max_roles: options.MaxRoles = 64,
    check_ranks: options.CheckRanks = 2,
    out: options.Out = None,
    as_json: options.Json = False,
    cuda: options.Cuda = None,
) -> None:
    """Run a training script, unchanged, and say how long a step takes on a machine.

    The script gets the device "trn" (or "cuda") and torchrun's variables; prints, exceptions and
    exit code are rank 0's. If distributed it runs again, output in logs, as the ranks that rank 0
    has messages with, and as a few others to see whether they do the same.
    """
    from trnsim.capture.children import Children, Request
    from trnsim.job import check_script, is_step_mode, make_job

    check_script(script, is_module)
    output.check_out(out)
    is_step_mode(collectives)
    options.let_threads_sleep(mode)
    job = make_job(
        machine, chips=chips, ranks=ranks, ranks_per_chip=ranks_per_chip, overrides=overrides or [],
        stack=stack,
    )  # fmt: skip
    job.check_scenario(slow_chips or [], faults or [])
    document = output.claim_json(as_json)
    choice = _choose_device(script, arguments or [], is_module, cuda)
    last = None if not stop_after_step else 0 if step is None else step + 1
    request = Request(
        script, arguments or [], is_module, machine, overrides or [], job.placement.chips,
        job.placement.ranks_per_chip, mode.value, no_oom, choice.is_cuda, last,
    )  # fmt: skip
    children = Children(request, dict(os.environ), None if out is None else out / "logs")
    children.last_step = 0 if step is None else step + 1
    captured = _capture(job, request, choice)
    workloads = _roles(captured, children, step, max_roles, check_ranks)
    projection = _project(
        workloads, job, step=step, top=top, tokens_per_step=tokens_per_step,
        samples_per_step=samples_per_step, fold=not no_fold, collectives=collectives,
        slow_chips=slow_chips or [], faults=faults or [],
    )  # fmt: skip
    if out is not None:
        _write(projection, out, request)
    output.finish(projection, document)


def _write(projection: Any, out: Path, request: Request) -> None:
    name = request.script.rpartition(".")[2] if request.is_module else Path(request.script).stem
    command = command_of(request.script, request.is_module, request.arguments)
    projection.write(out, name, command)


def _capture(job: Job, request: Request, choice: DeviceChoice) -> Any:
    from trnsim.capture.one_rank import capture_rank

    choice.enter()
    try:
        captured = capture_rank(request, job, notes=choice.notes())
    except CaptureError as error:
        raise CaptureError(f"{error}{choice.advice(error)}") from None
    _exit_where_it_failed(captured, choice)
    job.check_ranks(captured.workload.world_size)
    return captured


def _choose_device(
    script: str, arguments: list[str], is_module: bool, asked: bool | None
) -> DeviceChoice:
    from trnsim.capture.cuda.choice import DeviceChoice
    from trnsim.capture.cuda.request import find

    name = os.environ.get("TRNSIM_DEVICE_NAME", "trn")
    request = find(script, arguments, is_module=is_module, device_name=name)
    return DeviceChoice(asked, request, name)


def _roles(
    captured: Any, children: Any, step: int | None, max_roles: int, check_ranks: int
) -> list[Any]:
    """The Workload of every role of the job."""
    from trnsim.capture.roles import Finder, as_workloads

    first = captured.workload
    if first.world_size == 1:
        return [first]
    children.shapes |= captured.shapes.said
    children.objects, children.tensors = captured.shapes.objects, captured.shapes.tensors
    finder = Finder(
        children.capture, step=step, max_roles=max_roles, checked=check_ranks,
        at_once=os.cpu_count() or 1,
    )  # fmt: skip
    roles = finder.find(first)
    children.check_first(first.rank, captured.shapes.used)
    children.tidy()
    first.notes = [*first.notes, *finder.notes]
    return as_workloads(roles)


def _exit_where_it_failed(captured: Any, choice: DeviceChoice) -> None:
    if captured.exit_code == 0:
        return
    import torch

    line = choice.explain(captured.exception)
    if line is not None:
        print(f"trnsim: {line}", file=sys.stderr)

    if isinstance(captured.exception, torch.OutOfMemoryError):
        print(
            "trnsim: the model is too large for the device: --no-oom shows by how much",
            file=sys.stderr,
        )
    else:
        for line in _ways_on(captured.workload):
            print(f"trnsim: {line}", file=sys.stderr)
    ended = f"trnsim: no report: the script ended with exit code {captured.exit_code}"
    print(ended, file=sys.stderr)
    raise typer.Exit(captured.exit_code)


def _ways_on(workload: Any) -> Iterator[str]:
    """What may help where the script would not have failed on the machine itself."""
    if workload.unknown_reads > 0:
        yield (
            f"the script had read {workload.unknown_reads} values that phantom mode does not know "
            "(a bool reads False, a number 1): if it failed over one, use --mode compute"
        )
    if sum(step.whole for step in workload.find_steps()) > 1:
        yield "it had done whole steps before: --stop-after-step ends it there and reports them"


def _project(workloads: list[Any], job: Job, **asked: Any) -> Any:
    import trnsim

    place = job.placement
    return trnsim.project(
        workloads,
        job.machine,
        chips=place.chips,
        ranks_per_chip=place.ranks_per_chip,
        **asked,
    )
