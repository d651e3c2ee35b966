# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""One step under disturbances, with chance deciding where: distributions over many seeds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.asked import checked
from trnsim.errors import PlanError
from trnsim.job import check_asked, texts_of
from trnsim.plan.shown import Shown

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.project import Projection
    from trnsim.workload import RunFile

EXACT_TASKS = 2**25  # of a step of all ranks, up to which jitter is simulated rank by rank
ANY_TASKS = 2**62
MOST_TASKS = 2**37  # rank by rank, of all seeds of a disturbance: hours
LONGEST_LIST = 64  # of a seed's chips or links in the document


@dataclass(frozen=True)
class DisturbedJob:
    """A job whose step was simulated: the one that was asked for, or one of fewer pods.

    Attributes:
        label: the run file.
        chips: that it uses.
        step_s: of the undisturbed step.
        tokens, samples: of a step, over all ranks; None where they are not known.
    """

    label: str
    chips: int
    step_s: float
    tokens: float | None
    samples: float | None

    def work_of(self, whole: DisturbedJob) -> float | None:
        """The share of another job's tokens (samples) that a step has; None: not known."""
        for mine, its in ((self.tokens, whole.tokens), (self.samples, whole.samples)):
            if mine and its:
                return mine / its
        return None


@dataclass(frozen=True)
class DisturbedRow:
    """One disturbance over all seeds.

    Attributes:
        text: the disturbance as it was given.
        found: its outcomes, from the core.
        of: the result that it belongs to.
    """

    text: str
    found: _core.Disturbed
    of: Disturbance

    @property
    def affected(self) -> float:
        """Share of the seeds that stop, lose pods, or take more than 0.1 % longer."""
        return self.found.affected / len(self.found.outcomes)

    @property
    def stopped(self) -> float:
        """Share of the seeds of which the job cannot go on."""
        return self.found.stopped / len(self.found.outcomes)

    @property
    def mean_s(self) -> float | None:
        """Mean step of the seeds that go on, in seconds, at the upper bound; None without any."""
        steps = [outcome.high_ps for outcome in self.found.outcomes if not outcome.stops]
        return sum(steps) / len(steps) / 1e12 if steps else None

    @property
    def widest_bounds(self) -> float:
        """By how much the upper bound of a seed is above its lower one at most; 0: all exact."""
        going = (outcome for outcome in self.found.outcomes if outcome.high_ps)
        return max((one.high_ps / one.low_ps - 1 for one in going), default=0.0)

    def at(self, percentile: float) -> tuple[_core.Outcome, _core.Breakdown | None]:
        """The seed at 5, 50, 95, 99 or 100 % by the time of a step, or where seeds go on as jobs of
        other work by that of a token (sample), and where the time of its step goes."""
        for one in self.found.at:
            if one.percentile == percentile:
                return self.found.outcomes[one.outcome], one.breakdown
        raise PlanError(f"no percentile {percentile} was taken: use 5, 50, 95, 99 or 100")

    def slowdown(self, outcome: _core.Outcome) -> float | None:
        """By which share a token (sample) takes longer than undisturbed; of a job that does not
        lose chips, the step. None where the seed stops, or the work of the smaller job is not
        known."""
        if outcome.stops:
            return None
        base, job = self.of.jobs[0], self.of.jobs[outcome.job]
        longer = outcome.high_ps / 1e12 / base.step_s
        if outcome.job == 0:
            return longer - 1
        work = job.work_of(base)
        return None if work is None else longer / work - 1

    def to_dict(self) -> dict[str, Any]:
        """The row of the document."""
        from trnsim.report.blast import blast_of, blast_row

        of = self.of.projection
        dead = blast_of(of.machine, of.figures.chips, self.text)
        names = {5: "p5", 50: "p50", 95: "p95", 99: "p99", 100: "worst"}
        return {
            "disturbance": self.text,
            "affected": self.affected,
            "stopped": self.stopped,
            "mean_step_time_s": self.mean_s,
            "widest_bounds": self.widest_bounds,
            "different_draws": self.found.simulated,
            "blast_radius": [blast_row(row) for row in dead],
            **{name: self._percentile(*self.at(at)) for at, name in names.items()},
            "seeds": [self._seed(outcome) for outcome in self.found.outcomes],
        }

    def _percentile(
        self, outcome: _core.Outcome, breakdown: _core.Breakdown | None
    ) -> dict[str, Any]:
        return self._seed(outcome) | {
            "breakdown_s": None if breakdown is None else parts_s(breakdown)
        }

    def _seed(self, outcome: _core.Outcome) -> dict[str, Any]:
        drawn, goes_on = outcome.drawn, not outcome.stops
        short = max(len(drawn.slow_chips), len(drawn.faults), len(drawn.what)) <= LONGEST_LIST
        return {
            "seed": outcome.seed,
            "step_time_s": outcome.high_ps / 1e12 if goes_on else None,
            "step_time_at_least_s": outcome.low_ps / 1e12 if goes_on else None,
            "slowdown": self.slowdown(outcome),
            "stops": outcome.stops or None,
            "chips": self.of.jobs[outcome.job].chips if goes_on else None,
            "pods_out": list(drawn.pods_out),
            "what": list(drawn.what[:LONGEST_LIST]),
            "slow_chips": list(drawn.slow_chips) if short else None,
            "faults": list(drawn.faults) if short else None,
        }


@dataclass(frozen=True)
class Disturbance(Shown):
    """What `disturb` found.

    Attributes:
        projection: of the undisturbed step.
        jobs: the job, then those of fewer pods.
        found: of each disturbance, from the core.
        seeds, first_seed, spares: as asked.
    """

    projection: Projection
    jobs: tuple[DisturbedJob, ...]
    found: tuple[_core.Disturbed, ...]
    seeds: int
    first_seed: int
    spares: int

    @property
    def rows(self) -> tuple[DisturbedRow, ...]:
        """One a disturbance."""
        return tuple(DisturbedRow(each.text, each, self) for each in self.found)

    @property
    def guesses(self) -> list[dict[str, str]]:
        """What had to be assumed, as of `trnsim run --json`."""
        found = []
        text = " ".join(row.text for row in self.rows)
        for word, (value, effect) in _ASSUMED.items():
            if word in text:
                found.append({"name": word, "value": value, "effect": effect})
        if any(row.widest_bounds > 0 for row in self.rows):
            found.append({"name": "bounds", "value": _BOUNDS, "effect": "exact with --exact"})
        return found

    def to_dict(self) -> dict[str, Any]:
        """The document of `trnsim disturb --json`."""
        import trnsim

        projection = self.projection
        return {
            "machine": projection.machine.name,
            "chips": self.jobs[0].chips,
            "ranks": projection.figures.ranks,
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "spares": self.spares,
            "step_time_s": projection.step_time_s,
            "step_time_interval_s": list(projection.step_time_interval_s),
            "interval_basis": projection.figures.interval_basis,
            "breakdown_s": projection.breakdown_s,
            "jobs": [
                {
                    "run": job.label,
                    "chips": job.chips,
                    "step_time_s": job.step_s,
                    "tokens_per_step": job.tokens,
                    "samples_per_step": job.samples,
                }
                for job in self.jobs
            ],
            "rows": [row.to_dict() for row in self.rows],
            "guesses": self.guesses,
            "overrides": list(projection.figures.overrides),
            "version": trnsim.__version__,
        }

    def __str__(self) -> str:
        from trnsim.report.disturbance import disturbance_text

        return disturbance_text(self)


_ASSUMED = {
    "jitter": (
        (
            "each chip's time is normal around the machine's, the same in all its engines and all "
            "through the step"
        ),
        "HBM, links and host keep their speed",
    ),
    "dead-chip": (
        "a dead chip takes its pod out of service",
        "to detect, restart and restore takes time that is not in the step",
    ),
    "dead-domain": (
        "power domains are so many pods in a row, from the first",
        "the machine's file knows no power domains",
    ),
    "dead-switch": (
        (
            "by=spray: packets spread evenly over the switches that are left; by=ecmp: a pair of "
            "chips keeps to one path, and the next switch takes all of a dead one's"
        ),
        "real transports are between the two",
    ),
    "ecmp-hash": (
        "each pair of chips keeps to one path, hashed anew by each seed, evenly over switches",
        "transports that spray packets over many paths do not collide so",
    ),
    "link": (
        "a link is one direction; what crossed a dead one goes around it",
        "the library may build other rings",
    ),
}
_BOUNDS = (
    "jitter on so many ranks is bounded: the eight slowest chips are simulated as drawn, all "
    "others as slow as the slowest, and as fast as the fastest, of the rest"
)


def parts_s(breakdown: _core.Breakdown) -> dict[str, float]:
    """Where a step goes, mean over ranks, in seconds."""
    from trnsim.project.projection import parts_ps

    return {name: ps / 1e12 for name, ps in parts_ps(breakdown).items()}


@checked(PlanError)
def disturb(
    run: RunFile | str | os.PathLike[str] | _core.Workload | list[_core.Workload],
    disturbances: Iterable[str],
    machine: str | os.PathLike[str] | _core.Machine | None = None,
    *,
    seeds: int = 100,
    first_seed: int = 0,
    spares: int = 0,
    smaller: Iterable[str | os.PathLike[str]] = (),
    chips: int | None = None,
    ranks_per_chip: int | None = None,
    step: int | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    stack: str | None = None,
    collectives: str | None = None,
    interval: bool = True,
    exact: bool = False,
    one_by_one: bool = False,
) -> Disturbance:
    """Simulates one step under each disturbance, once a seed, which decides where it strikes.

    Args:
        run: what `trnsim.project` takes.
        disturbances: each "NAME:KEY=VALUE,...", or several that happen at once with + between:
            jitter:sigma=S, straggler:factor=F,chips=K, throttle:factor=F,chips=K,
            slow-link:share=S,tier=T,links=K, dead-link:tier=T,links=K, dead-chip:chips=K,
            dead-domain:pods=P,domains=K, dead-switch:tier=T,switches=K,by=spray|ecmp,
            ecmp-hash.
        machine, chips, ranks_per_chip, step, overrides, stack, collectives: as `trnsim.project`.
        seeds, first_seed: how many, and the first; the same seed draws the same.
        spares: idle pods in the fabric's next places, which replace pods out of service.
        smaller: run files of the job on fewer pods: as which it goes on where spares do not do.
        interval: of the undisturbed step too, as `trnsim.project`.
        exact: simulate jitter rank by rank on any number of ranks, in place of bounds.
        one_by_one: every rank of each draw alone, on the reference engine: the same, slowly.

    Raises:
        PlanError: a run that has slow chips or faults of its own, or counts that make no sense.
        ProjectError: a disturbance that is none, or that this job cannot have; jitter that takes
            hours.
        MachineError, WorkloadError, LowerError, SimulateError: as `trnsim.project`.
    """
    import trnsim
    from trnsim.workload import load_run

    texts = _checked(disturbances, seeds, first_seed, spares)
    asked: dict[str, Any] = {"step": step, "collectives": collectives, "advise": False, "top": 0}
    of_base = asked | {"chips": chips, "overrides": overrides, "stack": stack}
    is_path = isinstance(run, (str, os.PathLike))
    label, job = (os.fspath(run), load_run(run)) if is_path else ("the job", run)
    base = trnsim.project(job, machine, ranks_per_chip=ranks_per_chip, interval=False, **of_base)
    if base.figures.faults:
        raise PlanError(
            f"the run has slow chips or faults of its own ({base.figures.faults[0]}): name its "
            "machine (--machine) to begin anew"
        )
    per_chip = base.figures.ranks_per_chip
    paths = [os.fspath(path) for path in smaller]
    of_smaller = asked | {"ranks_per_chip": per_chip, "interval": False}
    others = [trnsim.project(path, base.machine, **of_smaller) for path in paths]
    jobs = [_job(name, each) for name, each in zip([label, *paths], [base, *others], strict=True)]
    works = [job.work_of(jobs[0]) or 1.0 for job in jobs[1:]]
    found = _simulate(
        base, list(zip(others, works, strict=True)), disturbances=texts, first_seed=first_seed,
        seeds=seeds, spare_pods=spares, exact_tasks=ANY_TASKS if exact else EXACT_TASKS,
        most_tasks=MOST_TASKS, one_by_one=one_by_one,
    )  # fmt: skip
    if interval:  # last: what is refused is refused before it
        base = trnsim.project(job, machine, ranks_per_chip=ranks_per_chip, **of_base)
    return Disturbance(base, tuple(jobs), tuple(found.rows), seeds, first_seed, spares)


def _checked(disturbances: Iterable[str], seeds: int, first_seed: int, spares: int) -> list[str]:
    """The disturbances; raises for what can be seen to be wrong before there is a step."""
    from trnsim import _core

    texts = texts_of(PlanError, "disturbances", disturbances)
    if not texts:
        raise PlanError("no disturbance: give one or more, such as straggler:factor=1.1")
    check_asked(PlanError, seeds=seeds, first_seed=first_seed, spares=spares)
    if not seeds:
        raise PlanError("a distribution of 0 seeds: use at least 1")
    for text in texts:
        _core.parse_disturbance(text)
    return texts


def _simulate(
    base: Projection, others: list[tuple[Projection, float]], **asked: Any
) -> _core.Disturbances:
    """Of the job, and of smaller jobs with their shares of its work."""
    from trnsim import _core
    from trnsim.project.progress import watch

    counter = _core.ProjectProgress()
    with watch(counter, "simulating draws"):
        return _core.disturb_step(
            **_of(base), machine=base.machine, fold=True,
            step_mode=base._asked["collectives"] == "step",
            smaller=[(*_of(each).values(), work) for each, work in others],
            progress=counter, **asked,
        )  # fmt: skip


def _of(projection: Projection) -> dict[str, Any]:
    """Workloads, placement and step of a projection, as the core takes them."""
    from trnsim import machine as machines

    figures, step = projection.figures, projection._asked["step"]
    placement = machines.placement(
        projection.machine, chips=figures.chips, ranks_per_chip=figures.ranks_per_chip
    )
    return {
        "workloads": projection.run.workloads,
        "placement": placement,
        "step": -1 if step is None else step,
    }


def _job(label: str, projection: Projection) -> DisturbedJob:
    figures, step_s = projection.figures, projection.step_time_s
    tokens, samples = (
        None if rate is None else rate * step_s
        for rate in (figures.tokens_per_s, figures.samples_per_s)
    )
    return DisturbedJob(Path(label).name, figures.chips_used, step_s, tokens, samples)
