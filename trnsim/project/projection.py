# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Projection: one step of one Workload on one machine. It prints itself and shows in a notebook."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.errors import MachineError, ProjectError, WorkloadError
from trnsim.job import check_asked, is_step_mode, make_job, tell_device, texts_of
from trnsim.origin import Origin

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from trnsim import _core
    from trnsim.job import Job
    from trnsim.plan import Comparison, Scaling, Search
    from trnsim.report.chakra import ChakraFiles
    from trnsim.workload import RunFile


class Projection:
    """What a step costs, where its time goes and what limits it.

    Times are in seconds, memory in bytes; `figures` holds the same in exact picoseconds.

    Attributes:
        figures: the exact result, as csrc/project/projection.h states it.
        run: everything that a report needs; for the writers of trnsim.report.
        guesses: what stood open, each as (name, value, effect); dictionaries in `to_dict`.
        origin: the script or the model, where a run file said it.
    """

    def __init__(self, run: _core.Run, asked: Mapping[str, Any]) -> None:
        """asked: options of `project` that a run file keeps, for who projects it again."""
        self.run = run
        self.figures = run.projection
        self._asked = dict(asked)
        self.origin = Origin()

    @property
    def machine(self) -> _core.Machine:
        """The machine, with overrides applied."""
        return self.run.machine

    @property
    def workload(self) -> _core.Workload:
        """What the script asked of the device as rank 0."""
        return self.run.workloads[0]

    @property
    def workloads(self) -> list[_core.Workload]:
        """The same of every role, in the order of `roles`."""
        return self.run.workloads

    @property
    def program(self) -> _core.Program:
        """Rank 0's step as engine tasks and transfers for this machine."""
        return self.run.programs[0]

    @property
    def programs(self) -> list[_core.Program]:
        """The same of every role, in the order of `roles`."""
        return self.run.programs

    @property
    def timeline(self) -> _core.Timeline:
        """Start and end of every task, in picoseconds, of one rank of each class in cohorts."""
        return self.run.timeline

    @property
    def cohorts(self) -> _core.Cohorts:
        """Which ranks were simulated as one; every rank a class of its own without folding."""
        return self.run.cohorts

    @property
    def step_time_s(self) -> float:
        """From all engines idle to the last task of any rank, in seconds."""
        return self.figures.step_ps / 1e12

    @property
    def step_time_interval_s(self) -> tuple[float, float]:
        """How far the step moves when every figure of the machine moves to its bounds."""
        return self.figures.interval_low_ps / 1e12, self.figures.interval_high_ps / 1e12

    @property
    def cost_usd_per_step_interval(self) -> tuple[float, float] | None:
        """Dollars at both ends of the step's interval; the price is taken as it is."""
        p = self.figures
        if p.cost_usd_per_step is None or not p.step_ps:
            return None
        a_ps = p.cost_usd_per_step / p.step_ps
        return a_ps * p.interval_low_ps, a_ps * p.interval_high_ps

    @property
    def cost_usd_per_step_of_instances(self) -> float | None:
        """Dollars when chips are rented in whole instances; None where their size is not known."""
        p = self.figures
        if p.cost_usd_per_step is None or not p.instance_chips:
            return None
        rented = -(-p.chips_used // p.instance_chips) * p.instance_chips
        return p.cost_usd_per_step * rented / p.chips_used

    @property
    def breakdown_ps(self) -> dict[str, int]:
        """Where the step goes, mean over ranks; sums to step_ps."""
        return parts_ps(self.figures.breakdown)

    @property
    def slowdown_ps(self) -> dict[str, int] | None:
        """What the faults add to the parts of the step, mean over ranks; None without faults."""
        without = self.figures.healthy_breakdown
        if without is None:
            return None
        return {name: ps - parts_ps(without)[name] for name, ps in self.breakdown_ps.items()}

    @property
    def breakdown_s(self) -> dict[str, float]:
        """The same in seconds."""
        return {name: time_ps / 1e12 for name, time_ps in self.breakdown_ps.items()}

    @property
    def fits(self) -> bool:
        """Whether the peak of memory fits a rank."""
        return self.figures.fits

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("run", "figures"):  # not made yet: copy, pickle
            raise AttributeError(name)
        return getattr(self.figures, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n for n in dir(self.figures) if n[0] != "_")})

    def to_dict(self) -> dict[str, Any]:
        """The document of `trnsim run --json`: plain numbers, strings, lists and dicts."""
        from trnsim.report import to_json

        return to_json(self)

    def write(
        self,
        directory: str | os.PathLike[str],
        name: str = "run",
        command: Sequence[str] | None = None,
    ) -> Path:
        """Writes projection.json, timeline.parquet, a Perfetto trace, traces for torch.profiler's
        tools and the run file NAME.trnsim, which every verb reads, into `directory`; returns it.

        `command` is the script and its arguments, for whoever reads the run file; None: what
        `origin` says.
        """
        from trnsim.report import write_outputs

        folder = Path(directory)
        write_outputs(self, folder)
        self.save(folder / f"{name}.trnsim", command)
        return folder

    def save(self, path: str | os.PathLike[str], command: Sequence[str] | None = None) -> None:
        """Writes the run file alone; `command` as of `write`."""
        from trnsim.machine import stack_of
        from trnsim.workload import save_run

        save_run(
            path,
            self.workloads,
            machine=_found_from_anywhere(self.machine.name),
            machine_hash=self.machine.hash,
            **(self.origin if command is None else Origin(tuple(command))).to_dict(),
            options={
                "chips": self.figures.chips,
                "ranks_per_chip": self.figures.ranks_per_chip,
                "overrides": list(self.figures.overrides),
                "stack": stack_of(self.machine),
                **self._asked,
            },
        )

    def write_chakra(self, directory: str | os.PathLike[str], name: str = "trace") -> ChakraFiles:
        """Writes the step as Chakra execution traces, NAME.RANK.et for every rank and the groups as
        NAME.json, into `directory`; returns their paths and what they leave out. Needs protobuf.
        Raises ReportError.
        """
        from trnsim.report.chakra import write_chakra

        return write_chakra(self, directory, name)

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        scaling: Scaling | str | os.PathLike[str] | None = None,
        comparison: Comparison | str | os.PathLike[str] | None = None,
        search: Search | str | os.PathLike[str] | None = None,
        figures: bool = True,
    ) -> Path:
        """Writes the report as one HTML file that asks for nothing from anywhere, and returns its
        path; needs matplotlib.

        scaling, comparison and search (what trnsim.scale, trnsim.compare and trnsim.search return,
        or the JSON documents of their verbs) add a section each. figures=False leaves out
        how far single figures of the machine move the step, which simulates it many times more.
        Raises ReportError, PlanError.
        """
        from trnsim.report.page import write_page

        return write_page(
            self, path, scaling=scaling, comparison=comparison, search=search, figures=figures
        )

    def __repr__(self) -> str:
        from trnsim.report.words import duration, percent

        mfu = "" if self.figures.mfu is None else f", MFU {percent(self.figures.mfu)}"
        fits = "fits" if self.fits else "does not fit"
        return (
            f"<Projection {self.figures.machine}: step {duration(self.step_time_s)}{mfu} on "
            f"{self.figures.chips_used} of {self.figures.chips} chips, {fits}>"
        )

    def __str__(self) -> str:
        from trnsim.report import to_text

        return to_text(self)

    def _repr_html_(self) -> str:
        from trnsim.report.notebook import to_html

        return to_html(self)


def parts_ps(breakdown: _core.Breakdown) -> dict[str, int]:
    names = ("compute", "exposed_communication", "bubble", "host", "stall")
    return {name: getattr(breakdown, f"{name}_ps") for name in names}


def _found_from_anywhere(machine: str) -> str:
    """A machine file by its absolute path; a preset by its name."""
    return os.path.abspath(os.path.expanduser(machine)) if machine.endswith(".toml") else machine


_NUMBERS = ("step", "tokens_per_step", "samples_per_step")  # of what is asked; None: not given


def project(
    workload: _core.Workload | Sequence[_core.Workload] | RunFile | str | os.PathLike[str],
    machine: str | os.PathLike[str] | _core.Machine | None = None,
    *,
    chips: int | None = None,
    ranks: int | None = None,
    ranks_per_chip: int | None = None,
    step: int | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    stack: str | None = None,
    tokens_per_step: int | None = None,
    samples_per_step: int | None = None,
    top: int = 10,
    advise: bool = True,
    interval: bool = True,
    fold: bool = True,
    collectives: str | None = None,
    slow_chips: Iterable[str] = (),
    faults: Iterable[str] = (),
    group: ProcessGroup | None = None,
) -> Projection:
    """Projects the measured step of `workload` on `machine`. Nothing is run but the simulator.

    What is not given for a run file is as in the run that wrote it; a machine begins anew.

    Args:
        workload: a Workload, one of every role, a run file's path, or what `load_run` makes of it.
        machine: a preset's name, a machine file's path, or a Machine; None: the run file's own, or
            "trn2" for a Workload.
        chips, ranks, ranks_per_chip: size of the job; that of the script when nothing is given.
        step: whole step to measure, from 0; None: the second, or the only one.
        overrides: figures of the machine to change, as "key=value" or a mapping.
        stack: a stack sheet's name or path; on a run file's own machine its own when None.
        tokens_per_step, samples_per_step: those of all ranks; None: counted from the first inputs.
        top: how many ops and modules to list.
        advise: simulate the step again with one thing doubled or free at a time.
        interval: simulate the step again with the machine's figures at their bounds.
        fold: simulate ranks that behave the same as one; False: each, with the same result.
        collectives: "fluid", or "step": rings and halvings as messages between neighbours.
        slow_chips: "17=1.25@3ms" for chip 17 computing 1.25 times as long, from 3 ms on.
        faults: "x+ 0>1=0" for a dead link, "nic up 5=0.5@10ms" for half of its bandwidth from
            10 ms on; "chip 5" or "tor 3" stand for all links of a node. Links that are dead from
            the start are routed around. The step without them is projected too.
        group: processes that project the same and share the simulations of interval and advice.

    Raises:
        MachineError: an unknown machine, contradictory counts, or counts that it cannot hold; a
            link that it does not have, or faults that cut it apart.
        WorkloadError: no such run file, no step to measure, no such step, or a negative count.
        ProjectError: the script ran as another number of ranks than the chips hold.
        LowerError, SimulateError: the step cannot be run on this machine, or in this way.
    """
    asked: dict[str, Any] = {
        "step": step, "tokens_per_step": tokens_per_step, "samples_per_step": samples_per_step,
        "collectives": collectives,
        "slow_chips": texts_of(ProjectError, "slow_chips", slow_chips),
        "faults": texts_of(ProjectError, "faults", faults),
    }  # fmt: skip
    counts = {"chips": chips, "ranks": ranks, "ranks_per_chip": ranks_per_chip}
    check_asked(top=top, **{name: asked[name] for name in _NUMBERS})
    file = _run_file_of(workload)
    if file is not None:
        _fill_from(file, machine is None, asked, counts)
        workload, machine = file.workloads, machine or _machine_of(file, stack)
    roles = _roles_of(workload)
    job = _job_of(roles, machine or "trn2", overrides, stack, **counts)
    options = {"top": top, "advise": advise, "interval": interval, "fold": fold}
    done = _project(roles, job, asked, group, **options)
    done.origin = Origin.of(None if file is None else file.manifest)
    return done


def step_seconds(
    workloads: Sequence[_core.Workload],
    machines: Sequence[_core.Machine],
    ranks_per_chip: int | None = None,
) -> list[float]:
    """What `project` gives as step_time_s on each of several variants of one machine, in seconds.
    The steps are simulated as there and not taken apart, which takes a fraction of the time.

    Args:
        workloads: one of every role.
        machines: at least one, all of the same chips, pods and servers.
        ranks_per_chip: of the job; as the machine has it when None.

    Raises what `project` does.
    """
    from trnsim import _core

    roles = _roles_of(workloads)
    job = _job_of(
        roles, machines[0], (), None, chips=None, ranks=None, ranks_per_chip=ranks_per_chip
    )
    return [ps / 1e12 for ps in _core.step_times(roles, list(machines), job.placement)]


def _roles_of(given: _core.Workload | Sequence[_core.Workload]) -> list[_core.Workload]:
    """One Workload of each role; raises WorkloadError for anything else."""
    from trnsim import _core

    roles = [given] if isinstance(given, _core.Workload) or not _is_list(given) else list(given)
    for role in roles:
        if not isinstance(role, _core.Workload):
            raise WorkloadError(
                f"{reprlib.repr(role)} is no Workload: give one, one of each role, a run file's "
                "path, or what trnsim.workload.load_run returns"
            )
    return roles


def _run_file_of(given: object) -> RunFile | None:
    """None where no run file is meant."""
    from trnsim import workload as workloads

    if isinstance(given, (str, os.PathLike)):
        return workloads.load_run(given)
    return given if isinstance(given, workloads.RunFile) else None


def _is_list(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray))


def _fill_from(
    run: RunFile, same_machine: bool, asked: dict[str, Any], counts: dict[str, Any]
) -> None:
    """Puts what the run was asked for where nobody asks for something else. On another machine its
    ranks per chip, slow chips and faults are left out."""
    saved = run.manifest["options"]
    kept = ["step", "tokens_per_step", "samples_per_step", "collectives"]
    if same_machine:
        kept += ["slow_chips", "faults"]
        if counts["ranks_per_chip"] is None:
            counts["ranks_per_chip"] = saved.get("ranks_per_chip")
    asked |= {key: saved[key] for key in kept if key in saved and asked[key] in (None, [])}
    if counts["chips"] is None and counts["ranks"] is None:
        counts["chips"] = saved.get("chips")


def _machine_of(run: RunFile, stack: str | None) -> _core.Machine:
    """The machine that the run was on; MachineError when its figures are others by now. With
    another stack it is that machine under it."""
    from trnsim import machine as machines
    from trnsim.workload.files import CHAKRA

    if run.manifest.get("format") == CHAKRA:
        raise ProjectError("a Chakra trace names no machine: name one, as --machine trn2")
    name = run.manifest["machine"] or "trn2"
    options = run.manifest["options"]
    overrides = options.get("overrides", [])
    if stack is not None:
        return machines.load(name, overrides, stack)
    machine = machines.load(name, overrides, options.get("stack"))
    if run.manifest["machine_hash"] not in (None, machine.hash):
        raise MachineError(
            f"machine '{name}' is not what the run was on: its figures changed; name the machine "
            "(--machine) to project on it as it is now"
        )
    return machine


def _job_of(
    roles: Sequence[_core.Workload],
    machine: str | os.PathLike[str] | _core.Machine,
    overrides: Iterable[str] | Mapping[str, Any],
    stack: str | None,
    **counts: int | None,
) -> Job:
    """The job; where it does not hold the ranks of the script, what does is named."""
    from trnsim import _core

    if not roles:
        raise ProjectError("a projection of no Workload: give at least one")
    workload = roles[0]
    world = workload.world_size
    if counts["chips"] is None and counts["ranks"] is None:
        counts["ranks"] = world
    if not isinstance(machine, _core.Machine):
        machine = os.fspath(machine)
    machine = make_job(machine, overrides=overrides, stack=stack).machine
    try:
        job = make_job(machine, **counts)
    except MachineError as error:
        if world == 1:
            raise
        raise MachineError(f"{error}; the script ran as {world} ranks{_holders(world)}") from None
    if world not in (1, job.placement.ranks):
        place = job.placement
        enough = f"as many chips as hold {world}{_holders(world)}"
        if counts["ranks_per_chip"] and world % place.ranks_per_chip == 0:
            enough = f"--chips {world // place.ranks_per_chip}"
        raise ProjectError(
            f"the script ran as {world} ranks, but {place.chips} chips hold {place.ranks}: run it "
            f"again as {place.ranks} ranks, or give {enough}"
        )
    return job


def _holders(ranks: int) -> str:
    """ ", which trn2-ultra, v100, a100 or others can hold": the smallest of ours, a rank a chip."""
    from trnsim import machine as machines

    names = []
    for name in machines.presets():
        machine = machines.load(name)
        try:
            machines.topology(machine, machines.placement(machine, ranks=ranks).chips)
        except MachineError:
            continue
        names.append((machine.max_chips, name))
    listed = [name for _, name in sorted(names)[:3]] + ["others"] * (len(names) > 3)
    if len(listed) < 2:
        return f", which {listed[0]} can hold" if listed else ""
    return f", which {', '.join(listed[:-1])} or {listed[-1]} can hold"


def _project(
    roles: list[_core.Workload],
    job: Job,
    asked: Mapping[str, Any],
    group: ProcessGroup | None = None,
    **options: Any,
) -> Projection:
    from trnsim import _core
    from trnsim.project.progress import watch
    from trnsim.simulate.processes import AllGather

    counter = _core.ProjectProgress()
    given = {key: value for key, value in asked.items() if key != "collectives"}
    counts = {name: -1 if asked[name] is None else asked[name] for name in _NUMBERS}
    with watch(counter, "simulating"):
        run = _core.project_step(
            roles,
            job.machine,
            placement=job.placement,
            progress=counter,
            all_gather=None if group is None else AllGather(group),
            process=0 if group is None else group.rank(),
            processes=1 if group is None else group.size(),
            step_mode=is_step_mode(asked["collectives"]),
            **{**given, **counts, **options},
        )
    tell_device(run.timeline.engine)
    return Projection(run, asked)
