# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`with trnsim.simulate(machine, chips=...) as sim:` records a block and projects it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trnsim.errors import CaptureError

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.job import Job


class Simulation:
    """A block of code on the device `trn`, as one rank of a job on a machine.

    The projection is made when it is first asked for, after the block.

    Attributes:
        job: the machine and the placement of ranks.
    """

    def __init__(
        self,
        job: Job,
        *,
        mode: str | None = None,
        step: int | None = None,
        top: int = 10,
        no_oom: bool = False,
        fold: bool = True,
        collectives: str = "fluid",
    ) -> None:
        self.job = job
        self._mode, self._step, self._top, self._no_oom = mode, step, top, no_oom
        self._fold, self._collectives = fold, collectives
        self._workload: _core.Workload | None = None
        self._projection: Any = None

    def __enter__(self) -> Self:
        from trnsim.capture import script
        from trnsim.device import clock

        script.start_capture(self.job.world(), self._mode, self.job.capacity_bytes, self._no_oom)
        try:
            clock.install(self.job.machine, self.job.placement.ranks_per_chip)
        except BaseException:
            script.stop_capture()
            raise
        self._workload = self._projection = None
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        from trnsim.capture import script
        from trnsim.device import clock

        clock.remove()
        workload = script.stop_capture()
        if kind is None:
            self._workload = workload

    @property
    def workload(self) -> _core.Workload:
        """What the block asked of the device."""
        if self._workload is None:
            raise CaptureError("the simulated block has not ended: ask after the with statement")
        return self._workload

    @property
    def projection(self) -> Any:
        """What the measured step costs: step time, breakdown, memory; prints and shows itself."""
        if self._projection is None:
            import trnsim

            self._projection = trnsim.project(
                self.workload,
                self.job.machine,
                chips=self.job.placement.chips,
                ranks_per_chip=self.job.placement.ranks_per_chip,
                step=self._step,
                top=self._top,
                fold=self._fold,
                collectives=self._collectives,
            )
        return self._projection

    @property
    def timeline(self) -> Any:
        """Start and end of every task of the measured step, in picoseconds."""
        return self.projection.timeline

    def write(self, directory: str | os.PathLike[str], name: str = "run") -> Path:
        """Writes what `Projection.write` does into `directory`, and returns it."""
        return self.projection.write(directory, name)


def simulate(
    machine: str | _core.Machine = "trn2",
    *,
    chips: int | None = None,
    ranks: int | None = None,
    ranks_per_chip: int | None = None,
    mode: str | None = None,
    step: int | None = None,
    top: int = 10,
    no_oom: bool = False,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    stack: str | None = None,
    fold: bool = True,
    collectives: str = "fluid",
) -> Simulation:
    """A context in which ops on `torch.device("trn")` are recorded and then projected.

        with trnsim.simulate("trn2-ultra", chips=64) as sim:
            loss = model(batch); loss.backward(); optimizer.step()
        print(sim.projection)

    Args:
        machine: a preset's name, the path of a machine file, or a Machine.
        chips, ranks, ranks_per_chip: size of the job; one chip when nothing is given.
        mode: "phantom" (shapes only) or "compute" (values too); None keeps the present one. It can
            change only while no tensor is on the device.
        step: whole step to measure, from 0; None takes the second, or the only one.
        top: how many ops and modules to list.
        no_oom: over capacity is reported instead of raised as torch.OutOfMemoryError.
        overrides: figures of the machine to change, as "key=value" or a mapping.
        stack: a stack sheet's name or path, for a machine that is given by name or path.
        fold: simulate ranks that behave the same as one; False simulates each, with the same
            result.
        collectives: "fluid" or "step", as of `trnsim.project`.

    Raises:
        MachineError: an unknown machine, contradictory counts, or counts that it cannot hold.
        WorkloadError: a negative step or top.
        LowerError: another word for collectives.
        CaptureError: on entering, when another capture is running.
    """
    from trnsim.job import check_asked, is_step_mode, make_job

    check_asked(step=step, top=top)
    is_step_mode(collectives)
    job = make_job(
        machine, chips=chips, ranks=ranks, ranks_per_chip=ranks_per_chip, overrides=overrides,
        stack=stack,
    )  # fmt: skip
    return Simulation(
        job, mode=mode, step=step, top=top, no_oom=no_oom, fold=fold, collectives=collectives
    )
