# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a goodput rests on: failures, checkpoints and restarts, each with bounds and a source."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnsim.asked import check_fields
from trnsim.errors import PlanError

if TYPE_CHECKING:
    from trnsim import _core
    from trnsim.project import Projection

_SHEET = Path(__file__).parent / "goodput.toml"
# Shares that a figure may be off by what it rests on, as the interval of a step has them.
_BOUNDS = {"measured": 0.05, "published": 0.10, "inferred": 0.25, "guessed": 0.50, "given": 0.0}
_GBPS = 1e9 / 8  # bytes a second
Interval = tuple[float, float, float]  # value, low, high


_MOST = {"draws": 1e6, "seed": 2**63 - 1, "spares": 1e6, "every_minutes": 1e7}


@dataclass(frozen=True)
class GoodputOptions:
    """What is known better than by us; None: from the run, the machine, or our sheet.

    Attributes:
        mtbf_hours: between interruptions of the whole job. chip_mtbf_hours: of one chip. One of
            them at most.
        every_minutes: of work between checkpoints; None: the best.
        synchronous: the job stands still until a checkpoint is written, not only while it is copied
            to the memory of the hosts.
        checkpoint_gb: bytes of a checkpoint, in 1e9. bytes_per_parameter: the same, by parameter.
        path: to storage, by its name in our sheet ("ebs", "ena").
        server_gb_per_s: what a server writes to storage and reads from it, in 1e9 bytes a second.
        store_gb_per_s: what the storage takes and gives, of all servers; None: it keeps up.
        blocking_s, upload_s: of a checkpoint, measured: how long the job stands still, and how long
            the upload beside the work takes.
        restart_minutes: from a failure to the first step, with the load of the checkpoint.
        spares: servers (UltraServers) that stand by; None: there is always one. repair_hours: until
            one that failed stands by again.
        bytes_per_token, bytes_per_sample: that the job reads.
        pue: power of the site over that of its servers. grid_g_per_kwh: grams of CO2.
        draws, seed: runs that are drawn at random, to see what chance does.
    """

    mtbf_hours: float | None = None
    chip_mtbf_hours: float | None = None
    every_minutes: float | None = None
    synchronous: bool = False
    checkpoint_gb: float | None = None
    bytes_per_parameter: float | None = None
    path: str | None = None
    server_gb_per_s: float | None = None
    store_gb_per_s: float | None = None
    blocking_s: float | None = None
    upload_s: float | None = None
    restart_minutes: float | None = None
    spares: int | None = None
    repair_hours: float | None = None
    bytes_per_token: float | None = None
    bytes_per_sample: float | None = None
    pue: float | None = None
    grid_g_per_kwh: float | None = None
    draws: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(PlanError, self)

    def check(self) -> None:
        """Raises PlanError for numbers that mean nothing, and for two that say the same."""
        may_be_0 = ("blocking_s", "upload_s", "restart_minutes", "spares", "repair_hours", "seed",
                    "grid_g_per_kwh")  # fmt: skip
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or isinstance(value, (bool, str)):
                continue
            least = "0 or more" if field.name in may_be_0 else "more than 0"
            if not math.isfinite(value) or value < 0 or (value == 0 and field.name not in may_be_0):
                raise PlanError(f"{option(field.name)} {value:g}: use a number of {least}")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise PlanError(f"{option(name)} {value:g}: use at most {most:g}")
        if self.pue is not None and self.pue < 1:
            raise PlanError(f"--pue {self.pue:g}: a site draws no less than its servers: use 1.1")
        for one, other in (
            ("mtbf_hours", "chip_mtbf_hours"),
            ("checkpoint_gb", "bytes_per_parameter"),
            ("path", "server_gb_per_s"),
            ("bytes_per_token", "bytes_per_sample"),
        ):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise PlanError(f"{option(one)} and {option(other)} say the same: give one of them")
        if (self.spares is None) != (self.repair_hours is None):
            raise PlanError(
                "--spares and --repair-hours go together: how many stand by, and how long a repair "
                "takes"
            )
        if self.synchronous and self.upload_s:
            raise PlanError("--sync has no upload beside the work: give --blocking-s alone")
        if self.is_measured:
            self._check_measured()

    @property
    def is_measured(self) -> bool:
        """Whether all times that the size of a checkpoint and the way to storage decide were
        given."""
        has_upload = self.upload_s is not None or self.synchronous
        return self.blocking_s is not None and has_upload and self.restart_minutes is not None

    def _check_measured(self) -> None:
        """Raises PlanError for what is left without use where all times were measured."""
        times = "--blocking-s and --restart-minutes, with --sync,"
        if not self.synchronous:
            times = "--blocking-s, --upload-s and --restart-minutes"
        for name in ("checkpoint_gb", "bytes_per_parameter", "path", "server_gb_per_s",
                     "store_gb_per_s"):  # fmt: skip
            if getattr(self, name) is not None:
                raise PlanError(
                    f"{option(name)} changes nothing beside measured times ({times}): leave it "
                    "out, or one of them"
                )


def option(name: str) -> str:
    """The command's name of an attribute of GoodputOptions."""
    return "--" + {"synchronous": "sync"}.get(name, name.replace("_", "-"))


@dataclass(frozen=True)
class Input:
    """One number with its bounds, and what it rests on.

    Attributes:
        name: what it is.
        value, low, high: in the unit.
        confidence: as of a machine's figures: measured, published, inferred, guessed or given.
        source: where it is from, in words.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    confidence: str
    source: str

    @property
    def triple(self) -> Interval:
        """(value, low, high)."""
        return self.value, self.low, self.high

    def in_(self, unit: str, factor: float) -> Input:
        """The same in a unit of which `factor` make one of this."""
        value, low, high = (factor * each for each in self.triple)
        return Input(self.name, value, low, high, unit, self.confidence, self.source)


def given(name: str, value: float, unit: str, by: str) -> Input:
    """An input that whoever asks fixes by an option."""
    return Input(name, value, value, value, unit, "given", option(by))


def _sure(
    name: str, value: float, unit: str, confidence: str, source: str,
    low: float | None = None, high: float | None = None,
) -> Input:  # fmt: skip
    bound = _BOUNDS[confidence]
    low = value * (1 - bound) if low is None else low
    high = value * (1 + bound) if high is None else high
    return Input(name, value, low, high, unit, confidence, source)


@functools.cache
def sheet() -> dict[str, Any]:
    """goodput.toml."""
    return tomllib.loads(_SHEET.read_text(encoding="utf-8"))


def _from_sheet(name: str, figure: Mapping[str, Any]) -> Input:
    return _sure(
        name, figure["value"], figure["unit"], figure["confidence"], figure["source"],
        figure.get("low"), figure.get("high"),
    )  # fmt: skip


# --- failures ------------------------------------------------------------------------------------


def failure_rate(machine: _core.Machine, chips: int, options: GoodputOptions) -> Input:
    """Interruptions of the whole job, an hour."""
    name = "failures of the job"
    if options.mtbf_hours is not None:
        return given(name, 1 / options.mtbf_hours, "1/h", "mtbf_hours")
    if options.chip_mtbf_hours is not None:
        return given(name, chips / options.chip_mtbf_hours, "1/h", "chip_mtbf_hours")
    known = sheet()["failures"]
    figure = known.get(machine.chip_name, known["any"])
    return _from_sheet(name, figure["per_chip_hour"]).in_("1/h", chips)


def failures_by_part(machine: _core.Machine, rate: Input) -> dict[str, float]:
    """Of the rate, in its unit, as published for one job; empty where that says nothing of it."""
    known = sheet()["failures"]
    row = known.get(machine.chip_name, known["any"])
    if rate.confidence == "given" or not row.get("by_part"):
        return {}
    return {part: share * rate.value for part, share in parts().items()}


def parts() -> dict[str, float]:
    """Shares of the published interruptions by part; they add up to 1."""
    counts = {name: row["count"] for name, row in sheet()["parts"].items()}
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def replaced_share() -> float:
    """Of the interruptions, those after which a server has to be repaired."""
    return sum(share for name, share in parts().items() if sheet()["parts"][name]["replaced"])


def spare_unit_chips(machine: _core.Machine) -> int:
    """Chips that a failure takes out of service: a server, or with it its torus of NeuronLink."""
    return machine.pod_chips if machine.architecture == "neuroncore" else machine.server_chips


# --- checkpoints ---------------------------------------------------------------------------------


def _held_bytes(projection: Projection) -> float:
    """Parameters and optimizer states of all ranks, replicas too, if all held as much as the role
    that takes most: no checkpoint has more."""
    kinds = projection.figures.memory_by_kind
    return projection.figures.ranks * float(kinds.get("parameters", 0) + kinds.get("optimizer", 0))


def checkpoint_bytes(projection: Projection, options: GoodputOptions) -> Input:
    """Of a checkpoint, every value of the model and its optimizer once. Raises PlanError."""
    name = "checkpoint"
    if options.checkpoint_gb is not None:
        return given(name, 1e9 * options.checkpoint_gb, "bytes", "checkpoint_gb")
    parameters = projection.figures.parameters
    if not parameters:
        raise PlanError(
            "the run knows no parameters of a model, so no size of a checkpoint: give "
            "--checkpoint-gb"
        )
    if options.bytes_per_parameter is not None:
        size = given(name, options.bytes_per_parameter, "bytes", "bytes_per_parameter")
        return size.in_("bytes", parameters)
    size = _from_sheet(name, sheet()["checkpoint"]["per_parameter"])
    size = Input(
        name, size.value, size.low, size.high, "bytes", size.confidence,
        f"{parameters:,} parameters of {size.value} bytes: {size.source}",
    ).in_("bytes", parameters)  # fmt: skip
    held = _held_bytes(projection)
    # A script that was captured for one step has no optimizer states yet at its peak of memory.
    has_states = projection.figures.memory_by_kind.get("optimizer", 0) > 0
    if not has_states or held >= size.value:
        return size
    source = "all parameters and optimizer states that the ranks hold: no more can be written"
    return Input(name, held, min(size.low, held), held, "bytes", "inferred", source)


def server_path(machine: _core.Machine, options: GoodputOptions) -> Input | None:
    """Bytes a second between a server and storage; None where nobody says. Raises PlanError."""
    name = "server to storage"
    if options.server_gb_per_s is not None:
        return given(name, 1e9 * options.server_gb_per_s, "bytes/s", "server_gb_per_s")
    paths = sheet()["path"].get(machine.chip_name, {})
    if options.path is not None:
        if options.path not in paths:
            known = ", ".join(paths) or "none"
            raise PlanError(
                f"no bandwidth of '{options.path}' is known for a server of {machine.name} (known: "
                f"{known}): give what a server writes, as --server-gb-per-s"
            )
        chosen = options.path
    elif paths:
        chosen = min(paths, key=lambda path: paths[path]["value"])
    else:
        return None
    return _from_sheet(f"{name} ({chosen})", paths[chosen]).in_("bytes/s", _GBPS)


NO_PATH = (
    "no way from a server of this machine to storage is known: give what a server writes "
    "(--server-gb-per-s), or what was measured (--blocking-s, --upload-s and --restart-minutes)"
)


def check_path(machine: _core.Machine, options: GoodputOptions) -> None:
    """Raises PlanError where `server_path` knows none."""
    if server_path(machine, options) is None:
        raise PlanError(NO_PATH)


def front_end(machine: _core.Machine) -> Input | None:
    """Bytes a second of a server's front end, over which data is loaded; None: not known."""
    paths = sheet()["path"].get(machine.chip_name, {})
    if "ena" not in paths:
        return None
    return _from_sheet("front end (ena)", paths["ena"]).in_("bytes/s", _GBPS)


def host_link(machine: _core.Machine) -> Input:
    """Bytes a second between a chip and the memory of its host."""
    key = "server.host_link_bandwidth"
    figure = next(figure for figure in machine.figures if figure.key == key)
    rate = machine.host_link_bytes_per_s
    return _sure("chip to host", rate, "bytes/s", figure.confidence, figure.source)


@dataclass(frozen=True)
class Paths:
    """Where bytes go between chips and storage.

    Attributes:
        chips, servers: that share them.
        host_link: of a chip. server: to storage; None where nobody says.
        store: bytes a second of the storage, for all servers; None: it keeps up.
    """

    chips: int
    servers: int
    host_link: Input
    server: Input | None
    store: float | None

    def over_host_links(self, size: Input) -> Interval:
        """Seconds, as (value, low, high), spread evenly over the chips."""
        link = self.host_link
        rates = (link.value, link.high, link.low)
        return _of(size.triple, [self.chips * rate for rate in rates])

    def to_storage(self, size: Input) -> Interval:
        """Seconds, as (value, low, high), spread evenly over the servers. Raises PlanError."""
        if self.server is None:
            raise PlanError(NO_PATH)
        path = self.server
        rates = [self.servers * rate for rate in (path.value, path.high, path.low)]
        return _of(size.triple, [min(rate, self.store or math.inf) for rate in rates])

    @property
    def writers_bytes_per_s(self) -> float | None:
        """Of all servers together, if the storage keeps up."""
        return None if self.server is None else self.servers * self.server.value


def _of(size: tuple[float, ...], rates: list[float]) -> Interval:
    value, low, high = (each / rate for each, rate in zip(size, rates, strict=True))
    return value, low, high


def paths_of(projection: Projection, options: GoodputOptions) -> Paths:
    """Of the run's machine, and of its chips in use."""
    machine, chips = projection.machine, projection.figures.chips_used
    servers = -(-chips // machine.server_chips)
    store = None if options.store_gb_per_s is None else 1e9 * options.store_gb_per_s
    return Paths(chips, servers, host_link(machine), server_path(machine, options), store)


def _sum(*intervals: Interval) -> Interval:
    """Of times that follow one another."""
    value, low, high = (sum(each) for each in zip(*intervals, strict=True))
    return value, low, high


def _worst(inputs: list[Input]) -> str:
    """The confidence of what is made of several: that of the least sure."""
    order = ["given", "measured", "published", "inferred", "guessed"]
    return max((one.confidence for one in inputs), key=order.index)


def checkpoint_times(size: Input, paths: Paths, options: GoodputOptions) -> tuple[Input, Input]:
    """Seconds for which a checkpoint blocks the job, and of the upload beside the work."""
    measured = options.blocking_s
    upload = options.upload_s
    if measured is not None and (options.synchronous or upload is not None):
        by = "synchronous" if options.synchronous else "upload_s"
        blocks = given("checkpoint blocks", measured, "s", "blocking_s")
        return blocks, given("upload", upload or 0.0, "s", by)
    overhead = _from_sheet("overhead", sheet()["checkpoint"]["overhead"])
    still = _sum(overhead.triple, paths.over_host_links(size))
    blocking = given("checkpoint blocks", measured or 0.0, "s", "blocking_s")
    if measured is None:
        source = f"the copy to the memory of the hosts, and {overhead.source}"
        sure = _worst([size, paths.host_link, overhead])
        blocking = Input("checkpoint blocks", *still, "s", sure, source)
    if upload is not None:
        return blocking, given("upload", upload, "s", "upload_s")
    written = paths.to_storage(size)
    assert paths.server is not None  # or to_storage has refused
    sure = _worst([size, paths.server])
    if not options.synchronous:
        return blocking, Input("upload", *written, "s", sure, "from the hosts to storage")
    if measured is not None:
        return blocking, given("upload", 0.0, "s", "synchronous")
    source = f"the copy to the memory of the hosts, then to storage, and {overhead.source}"
    both = Input("checkpoint blocks", *_sum(still, written), "s", _worst([blocking, paths.server]),
                 source)  # fmt: skip
    return both, given("upload", 0.0, "s", "synchronous")


def restart(
    projection: Projection, size: Input, paths: Paths, options: GoodputOptions
) -> tuple[Input, Input | None]:
    """Seconds from a failure to the first step again, and of the load that is part of it."""
    if options.restart_minutes is not None:
        return given("restart", 60 * options.restart_minutes, "s", "restart_minutes"), None
    base = _from_sheet("restart", sheet()["restart"]["duration"]).in_("s", 60)
    # Each rank reads what it holds, replicas too.
    held = max(_held_bytes(projection), size.value)
    read = Input("read", held, min(size.low, held), max(held, size.high), "bytes", "inferred", "")
    seconds = _sum(paths.to_storage(read), paths.over_host_links(read))
    load = Input("load of the checkpoint", *seconds, "s", "inferred",
                 "each rank reads what it holds, from storage and to its chip")  # fmt: skip
    whole = _sum(base.triple, load.triple)
    source = f"{base.value / 60:g} min and the load of the checkpoint; {base.source}"
    return Input("restart", *whole, "s", base.confidence, source), load


# --- the site ------------------------------------------------------------------------------------


def pue(machine: _core.Machine, options: GoodputOptions) -> Input | None:
    """Power of the site over that of its servers; None where nobody says."""
    if options.pue is not None:
        return given("PUE", options.pue, "1", "pue")
    value = machine.pue
    if value is None:
        return None
    known = sheet()["pue"].get(machine.name)
    if known is not None and value == known["factor"]["value"]:
        return _from_sheet("PUE", known["factor"])
    figure = next(each for each in machine.figures if each.key == "site.pue")
    off = (value - 1) * _BOUNDS[figure.confidence]  # what is above 1 is what is not sure
    return Input("PUE", value, value - off, value + off, "1", figure.confidence, figure.source)


def grid_kg_per_kwh(machine: _core.Machine, options: GoodputOptions) -> float | None:
    """CO2 of the site's energy; None where nobody says."""
    if options.grid_g_per_kwh is not None:
        return options.grid_g_per_kwh / 1e3
    return machine.grid_kg_per_kwh


def watts_per_chip(machine: _core.Machine) -> float | None:
    """Of a chip with what the machine's file counts to it, and its part of the switches between
    pods where their power is known; None where that of a chip is not."""
    if machine.power_per_chip_w is None:
        return None
    return machine.power_per_chip_w + (machine.network_power_per_chip_w or 0.0)


def bytes_per_token(options: GoodputOptions) -> Input:
    """That the job reads."""
    if options.bytes_per_token is not None:
        return given("bytes of a token", options.bytes_per_token, "bytes", "bytes_per_token")
    return _from_sheet("bytes of a token", sheet()["data"]["per_token"])
