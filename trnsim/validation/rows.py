# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Rows of a file of published measurements, and what each is compared in."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from trnsim.errors import ValidationError

_NEEDED = ("id", "kind", "system", "framework", "model", "chips", "step_time_s", "op", "time_us")
_TABLES = Path(__file__).parent / "systems.toml"
KINDS = ("train", "collective", "infer", "gemm", "hbm", "p2p", "engine")


@dataclass(frozen=True)
class Row:
    """One published measurement.

    Attributes:
        columns: of the file, as text; "" where a column is empty or missing.
    """

    columns: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.columns.get(column) or ""

    def number(self, column: str) -> float | None:
        """The column as a number; None where it is empty. ValidationError for another word."""
        text = self[column].strip()
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise ValidationError(
                f"row {self.id}: {column} is '{text}': write a number or leave it empty"
            ) from None

    @property
    def id(self) -> str:
        """Its name in the file."""
        return self["id"]

    @property
    def kind(self) -> str:
        """train, collective, infer, gemm, hbm, p2p or engine."""
        return self["kind"]

    @property
    def system(self) -> str:
        """The machine, in the file's words."""
        return self["system"]

    @property
    def family(self) -> str:
        """Rows of one configuration at several sizes: system, framework's first word, and model."""
        what = self["model"] or self["op"]
        return "/".join((self["system"], _first_word(self["framework"]), what))

    @cached_property
    def about(self) -> System | None:
        """What the table of systems says; None where it has no line for the row."""
        systems, system = _systems(), self["system"]
        noted = (key for key in systems if key[0] == system and key[1] and key[1] in self["notes"])
        keys = [*noted, (system, "", _first_word(self["framework"])), (system, "", "")]
        found = next((systems[key] for key in keys if key in systems), None)
        for generation in _tables()["generation"]:
            is_of = found is not None and found.stack == generation["stack"]
            if is_of and self.release < tuple(map(int, generation["before"].split("."))):
                return replace(found, stack=generation["sheet"])
        return found

    @property
    def release(self) -> tuple[int, ...]:
        """The release of the software, as (26, 4, 1) for 26.04.01; () where the row names none."""
        from trnsim.recipes.rows import release_of

        return release_of(self.columns)

    @property
    def case(self) -> str:
        """The kind of step, for statistics: gpu_dense_bf16, gpu_moe, tpu_dense, trn, collective."""
        if self.kind != "train":
            return self.kind
        about = self.about
        chip = about.chip if about else "unknown"
        if chip == "trn":
            return "trn"
        if self["experts"] not in ("", "0"):
            return f"{chip}_moe"
        if chip == "tpu":
            return "tpu_dense"
        return f"{chip}_dense_" + ("fp8" if self.is_float8 else "bf16")

    @property
    def is_float8(self) -> bool:
        """Whether products are in 8 bits or fewer."""
        return any(word in self["precision"].lower() for word in ("fp8", "float8", "nvfp4"))

    @cached_property
    def published(self) -> Quantity | None:
        """What is compared; None where the row gives none."""
        return self.quantities[0] if self.quantities else None

    @cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """All that is compared, what counts as the row's own first: rows of inference may give the
        time of each token and the time to the first one."""
        if self.kind == "infer":
            return tuple(_infer(self))
        found = _QUANTITIES[self.kind](self)
        return (found,) if found is not None else ()


@dataclass(frozen=True)
class System:
    """What a file's system and framework are among our machines and stacks.

    Attributes:
        machine: a preset, with `overrides` where the part differs from it.
        stack: a stack sheet, "" for none.
        chip: gpu, tpu or trn.
    """

    machine: str
    stack: str = ""
    chip: str = "gpu"
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quantity:
    """A published figure with its name and unit."""

    name: str
    value: float
    unit: str


def read(path: str | Path) -> list[Row]:
    """The rows of a file in the format of published.csv.

    Raises ValidationError for a file that is not there or not such a table, and for a kind of row
    that is none of `KINDS`.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValidationError(f"{path} cannot be read ({error}): give a CSV file") from None
    table = csv.DictReader(text.splitlines())
    missing = [name for name in _NEEDED if name not in (table.fieldnames or ())]
    if missing:
        raise ValidationError(
            f"{path} has no column '{missing[0]}': give a table in the format of published.csv"
        )
    rows = [Row({key: value or "" for key, value in each.items() if key}) for each in table]
    for row in rows:
        if row.kind not in KINDS:
            raise ValidationError(
                f"row {row.id}: there are no rows of kind '{row.kind}': use one of "
                + ", ".join(KINDS)
            )
    return rows


def _first_word(framework: str) -> str:
    return framework.split()[0] if framework else ""


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(_TABLES.read_text())


@cache
def _systems() -> dict[tuple[str, str, str], System]:
    """By system, a word in the notes, and the framework's first word, "" for all others."""
    systems = {}
    for entry in _tables()["system"]:
        keys = ("name", "noted", "under")
        values: dict[str, Any] = {k: v for k, v in entry.items() if k not in keys}
        values["overrides"] = tuple(values.get("overrides", ()))
        for framework in entry.get("under", [""]):
            systems[entry["name"], entry.get("noted", ""), framework] = System(**values)
    return systems


def _train(row: Row) -> Quantity | None:
    value = row.number("step_time_s") or row.number("derived_step_time_s")
    return Quantity("step_time", value, "s") if value else None


def _collective(row: Row) -> Quantity | None:
    value = row.number("time_us")
    if value:
        return Quantity("time", value, "us")
    busbw = row.number("busbw_GBps")
    if busbw:
        return Quantity("busbw", busbw, "GB/s")
    algbw = row.number("algbw_GBps")
    return Quantity("algbw", algbw, "GB/s") if algbw else None


def _infer(row: Row) -> Iterator[Quantity]:
    for column, name in (("tpot_ms", "time_per_output_token"), ("ttft_ms", "time_to_first_token")):
        value = row.number(column)
        if value:
            yield Quantity(name, value, "ms")


def _gemm(row: Row) -> Quantity | None:
    value = row.number("tflops")
    return Quantity("rate", value, "TFLOP/s") if value else None


def _bandwidth(row: Row) -> Quantity | None:
    value = row.number("algbw_GBps")
    return Quantity("bandwidth", value, "GB/s") if value else None


_QUANTITIES = {
    "train": _train,
    "collective": _collective,
    "gemm": _gemm,
    "hbm": _bandwidth,
    "p2p": _bandwidth,
    "engine": lambda row: None,
}
