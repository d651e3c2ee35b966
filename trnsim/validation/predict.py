# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What we say for a row: configured, captured, simulated. One function a kind of row."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.errors import TrnSimError
from trnsim.validation.rows import Quantity, Row
from trnsim.validation.score import Outcome

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.recipes.layout import Layout
    from trnsim.validation.ablation import Term


@dataclass(frozen=True)
class Settings:
    """How rows are predicted.

    Attributes:
        captures: folder of run files, by what they depend on; None keeps none.
        constants: in place of those fitted, in the form of constants.toml; {} for facts alone.
        overrides: figures to change on every machine.
        without: a term of ablation.TERMS that training steps are predicted without.
    """

    captures: Path | None = None
    constants: Mapping[str, Any] | None = None
    overrides: tuple[str, ...] = ()
    without: str = ""

    @property
    def term(self) -> Term | None:
        """What is left out."""
        from trnsim.validation.ablation import TERMS

        return TERMS[self.without] if self.without else None


@dataclass(frozen=True)
class _Prediction:
    value: float
    low: float | None = None
    high: float | None = None
    algorithm: str = ""
    also: tuple[tuple[Quantity, float, float | None, float | None], ...] = ()


class Skipped(Exception):
    """The row cannot be predicted; the text says why."""


def predict(row: Row, settings: Settings) -> Outcome:
    """The outcome of a row; where it cannot be predicted, with the reason. Never raises for a row
    that we refuse."""
    about, published = row.about, row.published
    blank = Outcome(
        id=row.id, system=row.system, kind=row.kind, case=row.case, family=row.family,
        stack=about.stack if about else "", quantity=published.name if published else "",
        unit=published.unit if published else "", published=published.value if published else None,
    )  # fmt: skip
    blank = replace(blank, also=tuple(_of(blank, each) for each in row.quantities[1:]))
    try:
        if published is None:
            raise Skipped("the row gives nothing that we predict")
        if about is None:
            raise Skipped(f"no machine of ours is '{row.system}'")
        found = _BY_KIND[row.kind](row, settings)
    except (Skipped, TrnSimError) as error:
        return _skipped(blank, str(error))
    except Exception as error:  # noqa: BLE001 - a defect of ours, listed as what it is
        return _skipped(blank, f"failed: {type(error).__name__}: {error}".splitlines()[0])
    also = tuple(
        replace(_of(blank, quantity), predicted=value, low=low, high=high)
        for quantity, value, low, high in found.also
    )
    return replace(
        blank, predicted=found.value, low=found.low, high=found.high, algorithm=found.algorithm,
        also=also,
    )  # fmt: skip


def _of(outcome: Outcome, quantity: Quantity) -> Outcome:
    """The outcome of another figure of the same row."""
    return replace(
        outcome, quantity=quantity.name, unit=quantity.unit, published=quantity.value, also=()
    )


def _skipped(outcome: Outcome, why: str) -> Outcome:
    also = tuple(replace(each, skipped=why) for each in outcome.also)
    return replace(outcome, skipped=why, also=also)


def machine_of(row: Row, settings: Settings, of_step: bool = True) -> _core.Machine:
    """The machine of the row, under its stack; the bare one where no step is predicted."""
    from trnsim import machine as machines

    about = row.about
    assert about is not None
    machine = machines.load(
        about.machine,
        (*about.overrides, *settings.overrides),
        about.stack or None if of_step else None,
        constants=settings.constants,
    )
    return settings.term.leave_out(machine) if settings.term and of_step else machine


# --- training steps -------------------------------------------------------------------------------


def _train(row: Row, settings: Settings) -> _Prediction:
    machine = machine_of(row, settings)
    (seconds,) = step_seconds(captured(row, settings), machine)
    return _Prediction(seconds, *_within(seconds, own_error(machine)))


def _within(value: float, error: float | None) -> tuple[float | None, float | None]:
    """The interval of a value whose logarithm is known to that error; none where it is None."""
    return (None, None) if error is None else (value / math.exp(error), value * math.exp(error))


# --- inference ------------------------------------------------------------------------------------


def _infer(row: Row, settings: Settings) -> _Prediction:
    from trnsim.validation.inference import error_of, figures_of

    found = figures_of(row, settings)
    machine = machine_of(row, settings)
    each = [(quantity, found[quantity.name]) for quantity in row.quantities]
    also = [
        (quantity, value, *_within(value, error_of(quantity.name, machine, settings)))
        for quantity, value in each
    ]
    (_, value, low, high), *rest = also
    return _Prediction(value, low, high, also=tuple(rest))


def own_error(machine: _core.Machine) -> float | None:
    """What nine in ten published steps under the machine's stack stay within, as a logarithm: of
    chips that were calibrated where this one was, of chips left out of the fit else; None where
    neither is known."""
    figures = {figure.key: figure.value for figure in machine.figures}
    for key in ("stack.error", "stack.error_of_other_machines"):
        if key in figures:
            return float(figures[key])
    return None


@dataclass(frozen=True)
class Captured:
    """The Workloads of a training step, one a role: of the step itself, or, where it has very many
    micro-batches, of two shorter ones.

    Attributes:
        layout: of the step.
        steps: layouts that are simulated, and their Workloads.
        ranks_per_chip: of the job.
    """

    layout: Layout
    steps: tuple[tuple[Layout, list[_core.Workload]], ...]
    ranks_per_chip: int


def step_seconds(captured: Captured, *machines: _core.Machine) -> list[float]:
    """The step of a training row on each of several variants of a machine."""
    from trnsim.project.projection import step_seconds as seconds_on
    from trnsim.recipes.lengths import at_length

    of_lengths = [
        seconds_on(workloads, machines, captured.ranks_per_chip) for _, workloads in captured.steps
    ]
    layouts = [layout for layout, _ in captured.steps]
    return [at_length(each, layouts, captured.layout) for each in zip(*of_lengths, strict=True)]


def captured(row: Row, settings: Settings) -> Captured:
    """The Workloads of the row's recipe, from the folder of captures where it has them."""
    from trnsim import recipes
    from trnsim.recipes.lengths import simulated_lengths

    configured = recipes.configure(dict(row.columns))
    if isinstance(configured, str):
        raise Skipped(configured)
    model, layout, style = configured
    if settings.term:
        layout = settings.term.without(layout)
    steps = tuple(
        (each, _workloads((model, each, style), settings))
        for each in simulated_lengths(model, layout)
    )
    chips = int(row.number("chips") or 0)
    return Captured(layout, steps, max(1, layout.world // max(1, chips)))


def _workloads(configured: tuple[Any, ...], settings: Settings) -> list[_core.Workload]:
    from trnsim import recipes

    return captured_once(settings, configured, lambda: recipes.capture(*configured))


def captured_once(
    settings: Settings, configured: tuple[Any, ...], capture: Callable[[], list[_core.Workload]]
) -> list[_core.Workload]:
    """What `capture` makes of a configuration, from the folder of captures where it is there."""
    from trnsim.workload import load_run, save_run

    if settings.captures is None:
        return capture()
    key = "\n".join([_programs(), *map(repr, configured)])
    path = settings.captures / (hashlib.sha256(key.encode()).hexdigest()[:24] + ".trnsim")
    if path.is_file():
        return load_run(path).workloads
    workloads = capture()
    settings.captures.mkdir(parents=True, exist_ok=True)
    save_run(path, workloads)
    return workloads


@functools.cache
def _programs() -> str:
    """What a capture depends on beside its configuration: the reference programs, torch and us."""
    import torch

    import trnsim
    from trnsim import recipes

    sources = hashlib.sha256()
    for path in sorted(Path(recipes.__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    return f"{trnsim.__version__} {torch.__version__} {sources.hexdigest()}"


# --- collectives ----------------------------------------------------------------------------------

_OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "sendrecv",
}
# Words in a row's notes or op that name the algorithm, and ours for it in a pod and over several.
_FORCED = (
    ("nvlstree", None),
    ("ring forced", ("ring", "rail_ring")),
    ("(ring)", ("ring", "rail_ring")),
    ("tree forced", ("tree", "rail_tree")),
)
# What the host needs for a call of torch.distributed, in us, where a row's notes say that it was
# timed in a loop of them: on 8 H200 one takes 40 whatever its size, from 32 to 256 KiB
# (ml-engineering network/README.md).
_HOST_CALL_US = 40.0
# Words in a row's notes that name a network which no machine of ours has.
_OTHER_NETWORKS = {"A3 Mega": "GPUDirect-TCPXO of Google's A3 Mega"}


def _collective(row: Row, settings: Settings) -> _Prediction:
    import trnsim

    op = _OPS.get(row["op"].split()[0] if row["op"] else "")
    if op is None:
        raise Skipped(f"no collective of ours is '{row['op']}'")
    ranks, size = row.number("ranks"), row.number("msg_bytes")
    if not ranks or not size:
        raise Skipped("the row gives no number of ranks or no size")
    for word, network in _OTHER_NETWORKS.items():
        if word in row["notes"]:
            raise Skipped(f"its network is the {network}: no machine of ours")
    if "DCN" in row["op"]:
        raise Skipped(
            "it is of pairs of chips, one a slice, over the data centre network: no group of ours, "
            "and the sheet's bandwidth of that network is this figure"
        )
    if (row.number("busbw_GBps") or 1) < 0.1:
        raise Skipped(f"busbw {row['busbw_GBps']} GB/s is printed with two decimals: one digit")
    machine = machine_of(row, settings, of_step=False)
    if 1 < (row.number("nodes") or 1) == ranks and machine.server_chips > 1:
        raise Skipped("it is of one chip of each server: a job of ours fills its servers")
    per_chip = machine.ranks_per_chip_allowed[-1] if row.system.startswith("Trn") else None
    is_of_transfer = "transferred bytes" in row["notes"]  # without the member's own part
    if is_of_transfer:
        size = size * ranks / (ranks - 1)
    done = trnsim.collective(
        op, machine, sizes=[int(size)], ranks=int(ranks), ranks_per_chip=per_chip,
        algorithm=_algorithm(row, machine),
    )  # fmt: skip
    found = done.rows[0]
    low_us, high_us = found.time_interval_us
    least_us = _HOST_CALL_US if "torch" in row["notes"] else 0.0
    time_us, low_us, high_us = (max(each, least_us) for each in (found.time_us, low_us, high_us))
    published = row.published
    assert published is not None
    if published.name == "time":
        return _Prediction(time_us, low_us, high_us, found.algorithm)
    is_busbw = published.name == "busbw" or is_of_transfer
    value = found.busbw_GBps if is_busbw else found.algbw_GBps
    scale = value * found.time_us
    return _Prediction(scale / time_us, scale / high_us, scale / low_us, found.algorithm)


def _algorithm(row: Row, machine: _core.Machine) -> str:
    notes = row["notes"].lower()
    for word, names in _FORCED:
        if word in notes or (names and notes.strip() == names[0]):
            if names is None:
                raise Skipped("NCCL's NVLSTree is not modelled")
            return names[(row.number("nodes") or 1) > 1]
    return ""


# --- kernels --------------------------------------------------------------------------------------


def _gemm(row: Row, settings: Settings) -> _Prediction:
    sizes = [row.number(name) for name in ("M", "N", "K")]
    if not all(sizes):
        raise Skipped("the row gives no M, N and K")
    if "unstated" in row["precision"] or "host-timed" in row["notes"]:
        raise Skipped("timed from the host, launch included")
    m, n, k = (int(size or 0) for size in sizes)
    is_float8 = "fp8" in row["precision"]

    def product(torch: Any) -> Any:
        if not is_float8:
            a = torch.empty(m, k, device="trn", dtype=torch.bfloat16)
            return torch.mm(a, torch.empty(k, n, device="trn", dtype=torch.bfloat16))
        a = torch.empty(m, k, device="trn", dtype=torch.float8_e4m3fn)
        b = torch.empty(n, k, device="trn", dtype=torch.float8_e4m3fn).t()
        one = torch.ones((), device="trn")
        return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)

    devices = 2 if "per device" in row["notes"] else 1  # of a chip
    seconds = _kernel_seconds(product, row, settings, devices)
    return _Prediction(2 * m * n * k / seconds / 1e12)


def _hbm(row: Row, settings: Settings) -> _Prediction:
    size = row.number("msg_bytes")
    if row["op"] != "copy" or not size:
        raise Skipped(f"no kernel of ours is '{row['op']}'")
    count = int(size) // 2

    def copy(torch: Any) -> Any:
        return torch.empty(count, device="trn", dtype=torch.bfloat16).clone()

    return _Prediction(2 * size / _kernel_seconds(copy, row, settings) / 1e9)


def _kernel_seconds(
    run: Callable[[Any], Any], row: Row, settings: Settings, devices: int = 1
) -> float:
    """Of the longest kernel of what `run` does on a chip, or one of its `devices`, launch and fill
    apart, and without what a training step leaves of the chip's rates."""
    import torch

    import trnsim

    machine = machine_of(row, settings, of_step=False)
    with trnsim.simulate(machine, chips=1, ranks_per_chip=devices, mode="phantom") as sim:
        kept = run(torch)  # what nobody keeps would not be written
    del kept
    return max(op["bound_ps"] for op in sim.projection.program.ops) / 1e12


def _nothing(row: Row, settings: Settings) -> _Prediction:
    raise Skipped(f"rows of kind {row.kind} are not predicted yet")


_BY_KIND: dict[str, Callable[[Row, Settings], _Prediction]] = {
    "train": _train,
    "collective": _collective,
    "gemm": _gemm,
    "hbm": _hbm,
    "infer": _infer,
    "p2p": _nothing,
    "engine": _nothing,
}
