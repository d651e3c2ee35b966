# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Reading and writing machine files. What the keys mean, and their checks, are in csrc/machine."""

from __future__ import annotations

import difflib
import functools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import MachineError
from ..job import texts_of

_DATA = Path(__file__).parent / "data"
_STACKS = Path(__file__).parent / "stacks"
_TRANSPORTS = Path(__file__).parent / "transports"
_TRANSPORT = "fabric.transport.kind"
_CONSTANTS = Path(__file__).parent / "constants.toml"  # written by trnsim validate --fit
_INFERENCE = Path(__file__).parent / "inference.toml"  # by trnsim validate --kind infer --fit
_FIGURE_KEYS = ("value", "unit", "source", "confidence")
_CONFIDENCES = ("measured", "published", "inferred", "guessed", "given")
_TOML_NUMBER = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Decimal(str):
    """A TOML float, as its own digits."""


def presets() -> list[str]:
    """Names of the machines that come with trnsim, in alphabetical order."""
    return sorted(path.stem for path in _DATA.glob("*.toml"))


def stacks() -> list[str]:
    """Names of the stack sheets that come with trnsim, in alphabetical order."""
    return sorted(path.stem for path in _STACKS.glob("*.toml"))


def transports() -> list[str]:
    """Names of the transports of ``fabric.transport.kind``, in alphabetical order."""
    return sorted(path.stem for path in _TRANSPORTS.glob("*.toml"))


def load(
    name_or_path: str | Path,
    overrides: Iterable[str] = (),
    stack: str | Path | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
) -> _core.Machine:
    """A machine by its preset's name, or from a file whose path ends in ``.toml``.

    ``stack`` is a stack sheet, by its name or path: the software that the job runs under. Its
    figures are laid over the machine's, those under ``on.<chip's name>`` on that chip only, and
    so are the constants that were fitted for the chip, its attention kernel and the stack: those of
    constants.toml, or ``constants``, in its form.

    ``overrides`` are assignments such as ``"chip.hbm.bandwidth=3.2TB/s"``, with a
    unit where the figure has one. What they set is taken as exact, unless a confidence follows:
    ``"chip.hbm.bandwidth=3.2TB/s,guessed"``. ``"fabric.transport.kind=srd"`` lays the figures of
    that transport (:func:`transports`) over the machine's fabric; other overrides change them.

    Raises MachineError for an unknown name (with the nearest), a broken file (with its line), an
    unknown, missing, wrong or repeated figure, or an override that is no legal figure.
    """
    name = str(name_or_path)
    _refuse_several_kinds(name)
    description, table = _read(_locate(name, Path()), [])
    if stack is not None:
        fitted = fitted_constants() if constants is None else constants
        own = _stack_figures(str(stack), table)
        table |= own
        table |= _fitted_figures(str(stack), table, fitted)
        served = _figures_of_inference(str(stack), table, fitted)
        table |= {key: figure for key, figure in served.items() if key not in own}
        table = _by_table(table)
    return apply(_core.make_machine(name, description, list(table.values())), overrides)


def _stack_figures(name: str, machine: Mapping[str, _core.Figure]) -> dict[str, _core.Figure]:
    """What a sheet says for the machine, after the sheet that it extends."""
    path = _locate(name, Path(), _STACKS, "stack")
    document = _parse(path)
    document.pop("description", None)
    base = document.pop("extends", None)
    figures = _stack_figures(str(base), machine) if base is not None else {}
    chips = document.pop("on", {})
    _flatten(document, "", path, figures)
    chip = _value(machine, "chip.name")
    if chip in chips:
        _flatten(chips[chip], "", path, figures)
    found = str(path.resolve()) if name.endswith(".toml") else name
    figures["stack.name"] = _core.Figure("stack.name", found, "word", "the sheet's name", "given")
    return figures


def _sheets(name: str) -> Iterator[str]:
    """The names of a stack sheet and of those that it extends, the nearest first."""
    base: Any = name
    while base is not None:
        yield str(base)
        base = _base_of(_locate(str(base), Path(), _STACKS, "stack"))


def _fitted_figures(
    stack: str, table: Mapping[str, _core.Figure], constants: Mapping[str, Any]
) -> dict[str, _core.Figure]:
    """Of the constants, those of a machine's chip and of its attention kernel, or, where the chip
    has none, the medians of those that have; those of its stack; and our error on its steps."""
    chip = _value(table, "chip.name")
    found = dict(constants.get(chip) or constants.get("unseen", {}))
    of_kernels = found.pop("attention_factor", {})
    factor = of_kernels.get(_attention_kernel(table), of_kernels.get("any"))
    if factor is not None:
        found["attention_factor"] = factor
    of_stack = _nearest(stack, constants.get("stack", {})) or {}
    found |= of_stack if chip in constants else _at_line_rate(of_stack)
    errors = constants.get("stack_error", {})
    error = _nearest(stack, errors) if chip in constants else None
    if error is not None:
        found["error"] = error
    elif "unseen" in errors:
        found["error_of_other_machines"] = errors["unseen"]
    figures: dict[str, _core.Figure] = {}
    _flatten({"stack": found}, "", _CONSTANTS, figures)
    return {key: figure for key, figure in figures.items() if key not in table}


def _at_line_rate(of_stack: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of a stack on a chip without steps: a factor of links above 1 stands for what the
    stack hid in the steps of others, and nobody knows whether it hides as much here."""
    why = "line rate: no published step of this chip says that the stack hides messages ({})"
    return {
        name: each | {"value": 1, "source": why.format(f"on others {each['value']}")}
        if name in ("link_factor", "network_factor") and float(each["value"]) > 1
        else each
        for name, each in of_stack.items()
    }


def _figures_of_inference(
    stack: str, table: Mapping[str, _core.Figure], constants: Mapping[str, Any]
) -> dict[str, _core.Figure]:
    """Figures that were fitted to rows of inference, for the sheet and those that it extends: of
    the stack, and those of the machine that it has."""
    of_sheets = constants.get("inference", {}).get("sheet", {})
    figures: dict[str, _core.Figure] = {}
    for name in reversed(sheets_of(stack)):
        _flatten(dict(of_sheets.get(name, {})), "", _INFERENCE, figures)
    return {key: each for key, each in figures.items() if key in table or key[:6] == "stack."}


def _base_of(path: Path) -> Any:
    """What a file extends; None for nothing. Files of one's own may change while a process runs."""
    is_ours = path.parent in (_DATA, _STACKS)
    return _base_of_ours(path) if is_ours else _parse(path).get("extends")


@functools.cache  # a parse takes milliseconds, and every JSON asks
def _base_of_ours(path: Path) -> Any:
    return _parse(path).get("extends")


def sheets_of(stack: str) -> tuple[str, ...]:
    """The names of a stack sheet and of those that it extends, the nearest first."""
    return tuple(_sheets(stack))


def sheets_of_machine(name: str) -> tuple[str, ...]:
    """The names of a machine's file and of those that it extends, the nearest first; of a file of
    one's own its path."""
    found: list[str] = []
    path = _locate(name, Path())
    while True:
        found.append(path.stem if path.parent == _DATA else str(path))
        base = _base_of(path)
        if not isinstance(base, str) or len(found) > len(presets()) + 1:
            return tuple(found)
        path = _locate(base, path.parent)


def _nearest(stack: str, of_stacks: Mapping[str, Any]) -> Any:
    """What is known of a sheet, or else of the nearest one that it extends; None for nothing."""
    return next((of_stacks[name] for name in _sheets(stack) if name in of_stacks), None)


def fitted_constants() -> dict[str, Any]:
    """What was fitted to published training steps: constants of chips, by their names, under
    "unseen" those of all other chips, under "stack" those of stack sheets, and under "stack_error"
    our error on steps that the fit had not seen. Under "inference", what was fitted to published
    inference: figures of stack sheets, and our errors."""
    return _parse(_CONSTANTS) | {"inference": _parse(_INFERENCE)}


def attention_kernel_of(machine: _core.Machine) -> str:
    """The attention kernel that the machine's figures choose; "" where its chip has no choice."""
    return _attention_kernel({figure.key: figure for figure in machine.figures})


def _attention_kernel(table: Mapping[str, _core.Figure]) -> str:
    return "".join(_value(table, f"chip.{part}.attention_kernel") for part in ("gpu", "tpu"))


def _value(table: Mapping[str, _core.Figure], key: str) -> str:
    return table[key].value if key in table else ""


def stack_of(machine: _core.Machine) -> str | None:
    """The stack sheet that was laid over the machine: its name, or its file's path."""
    named = [figure.value for figure in machine.figures if figure.key == "stack.name"]
    return named[0] if named else None


def apply(machine: _core.Machine, overrides: Iterable[str]) -> _core.Machine:
    """The machine with figures changed as :func:`load` says; MachineError for one set twice."""
    first: dict[str, str] = {}
    overrides = sorted(
        texts_of(MachineError, "overrides", overrides),
        key=lambda text: text.partition("=")[0].strip() != _TRANSPORT,  # its sheet before its parts
    )
    for assignment in overrides:
        key = assignment.partition("=")[0].strip()
        if key in first:
            raise MachineError(
                f"'{key}' is set twice ('{first[key]}' and '{assignment}'): keep one of them"
            )
        first[key] = assignment
        if key == _TRANSPORT:
            machine = _with_transport(machine, assignment)
        else:
            machine = machine.with_override(assignment)
    return machine


def _with_transport(machine: _core.Machine, assignment: str) -> _core.Machine:
    """The machine with the figures of a transport's sheet laid over its own."""
    name = assignment.partition("=")[2].strip()
    table = {figure.key: figure for figure in machine.figures}
    if "fabric.kind" not in table:
        raise MachineError(
            f"--set {assignment}: {machine.name} has no fabric between pods: take a machine that "
            "has one, such as rainier or h100"
        )
    if name not in transports():
        near = difflib.get_close_matches(name.lower(), transports(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(transports())}"
        raise MachineError(f"--set {assignment}: no transport is called '{name}': {hint}")
    path = _TRANSPORTS / f"{name}.toml"
    own: dict[str, _core.Figure] = {}
    _flatten(_parse(path), "", path, own)
    own[_TRANSPORT] = _core.Figure(_TRANSPORT, name, "word", "set by hand", "given")
    figures = _by_table(table | own)
    return _core.make_machine(machine.name, machine.description, list(figures.values()))


def _refuse_several_kinds(name: str) -> None:
    """One line for whoever asks for a fleet of two kinds of chip."""
    parts = [part.strip() for part in name.split("+")]
    if len(parts) > 1 and all(part in presets() for part in parts):
        raise _several_kinds(name, parts)


def _several_kinds(where: str, names: Sequence[str]) -> MachineError:
    chips = [_value(_read(_locate(name, Path()), [])[1], "chip.name") for name in names]
    return MachineError(
        f"{where}: a fleet of {' and '.join(chips)}: a job runs on chips of one kind here, since "
        "which rank sits on which kind, and how libraries join them, is nobody's published figure: "
        f"simulate each alone, or trnsim compare --machines {','.join(names)}"
    )


def at_bounds(machine: _core.Machine) -> dict[str, tuple[_core.Machine, _core.Machine]]:
    """The machine with the figures of one kind at a time moved to their bounds, by kind ("tensor",
    "hbm", "links", ...): each figure by its confidence, once all of them faster and once slower.

    These are the machines that make the interval of a projection. What is common to two variants
    of a machine cancels where both are moved alike: the bounds of their ratio.
    """
    return _core.input_groups(machine)


def topology(
    machine: _core.Machine,
    chips: int,
    faults: Mapping[str, float | str] | None = None,
    seed: int = 0,
) -> _core.Topology:
    """The links between the first ``chips`` chips, and routes over them.

    ``faults`` are links that are slow or dead from the start: what is left of their bandwidth (0 is
    dead), by a link (``"x+ 0>1"``, ``"nic up 5"``), by two neighbours (``"0>1"``, ``"tor 3>leaf
    7"``, one direction) or by a node (``"chip 5"``, ``"spine 0"``: all its links). ``seed`` is that
    of hashed ECMP.

    Raises MachineError, with the nearest legal counts, if the machine cannot be cut so, and for a
    fault that names no link; ``route`` raises it for chips that dead links cut off.
    """
    listed = [(where, str(factor)) for where, factor in (faults or {}).items()]
    return _core.make_topology(machine, chips, listed, seed)


def placement(
    machine: _core.Machine,
    chips: int | None = None,
    ranks: int | None = None,
    ranks_per_chip: int | None = None,
) -> _core.Placement:
    """Where ranks sit: rank r on chip r // ranks_per_chip.

    What is not given follows from the rest; with nothing given it is one chip and the machine's own
    ranks per chip. Raises MachineError on counts that contradict each other or the machine.
    """
    for what, count in (("chips", chips), ("ranks", ranks), ("ranks per chip", ranks_per_chip)):
        if count is not None and count < 1:
            raise MachineError(f"{count} {what} cannot hold a job: use at least 1")
    if chips is None and ranks is None:
        chips = 1
    return _core.make_placement(machine, chips or 0, ranks or 0, ranks_per_chip or 0)


def figures(machine: _core.Machine) -> list[dict[str, str]]:
    """Every figure as a row: figure (its key), value, unit, source and confidence, all text."""
    return [
        {
            "figure": figure.key,
            "value": figure.value,
            "unit": figure.unit,
            "source": figure.source,
            "confidence": figure.confidence,
        }
        for figure in machine.figures
    ]


def to_toml(machine: _core.Machine) -> str:
    """The machine as a file that :func:`load` reads back to an equal one."""
    tables: dict[str, list[_core.Figure]] = {}
    for figure in machine.figures:
        tables.setdefault(figure.key.rpartition(".")[0], []).append(figure)
    lines = [f"description = {_quoted(machine.description)}"]
    for table, members in tables.items():
        lines += ["", f"[{table}]"]
        for figure in members:
            parts = {
                "value": _toml_value(figure),
                "unit": _quoted(figure.unit),
                "source": _quoted(figure.source),
                "confidence": _quoted(figure.confidence),
            }
            inner = ", ".join(f"{key} = {text}" for key, text in parts.items())
            lines.append(f"{figure.key.rpartition('.')[2]} = {{ {inner} }}")
    return "\n".join(lines) + "\n"


def _toml_value(figure: _core.Figure) -> str:
    if figure.unit == "list":
        return f"[{figure.value}]"
    if figure.unit != "word" and _TOML_NUMBER.fullmatch(figure.value):
        return figure.value
    return _quoted(figure.value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _locate(name: str, relative_to: Path, data: Path = _DATA, what: str = "machine") -> Path:
    if name.endswith(".toml"):
        path = relative_to / Path(name).expanduser()
        if not path.is_file():
            why = "is a folder" if path.is_dir() else "does not exist"
            raise MachineError(f"{what} file {path} {why}: give the path of a file")
        return path
    known = sorted(path.stem for path in data.glob("*.toml"))
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
        raise MachineError(f"no {what} is called '{name}': {hint} (or a path ending in .toml)")
    return data / f"{name}.toml"


def _read(path: Path, readers: Sequence[Path]) -> tuple[str, dict[str, _core.Figure]]:
    """Description and figures by key of a file, with those of the files that it extends."""
    if path.resolve() in readers:
        raise MachineError(f"{path}: extends itself: remove one 'extends'")
    document = _parse(path)
    description, table = "", {}
    if "extends" in document:
        base = document.pop("extends")
        if isinstance(base, list) and len(base) > 1 and all(each in presets() for each in base):
            raise _several_kinds(str(path), base)
        if not isinstance(base, str) or isinstance(base, Decimal):
            raise MachineError(f"{path}: extends is no name: write a preset's name or a path")
        located = _locate(base, path.parent)
        description, table = _read(located, [*readers, path.resolve()])
    if "description" in document:
        description = document.pop("description")
        if not isinstance(description, str):
            raise MachineError(f"{path}: description is no text: put it in quotes")
    own: dict[str, _core.Figure] = {}
    _flatten(document, "", path, own)
    if _value(table, "scale_up.kind") != _value(table | own, "scale_up.kind"):
        table = {key: found for key, found in table.items() if not key.startswith("scale_up.")}
    return description, _by_table(table | own)


def _by_table(table: dict[str, _core.Figure]) -> dict[str, _core.Figure]:
    """The figures with those of one TOML table together, otherwise in their order."""
    rank: dict[str, int] = {}
    for key in table:
        rank.setdefault(key.rpartition(".")[0], len(rank))
    return {key: table[key] for key in sorted(table, key=lambda key: rank[key.rpartition(".")[0]])}


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise MachineError(f"{path}: not UTF-8 at byte {error.start}: save it as UTF-8") from None
    except OSError as error:
        raise MachineError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:  # also numbers and nesting beyond Python's limits
        last = f"at line {len(text.splitlines())}, the end"
        problem = " ".join(str(error).split()).replace("at end of document", last)
        raise MachineError(f"{path}: not TOML: {problem}") from None


def _flatten(node: dict[str, Any], prefix: str, path: Path, table: dict[str, _core.Figure]) -> None:
    for key, child in node.items():
        dotted = f"{prefix}{key}"
        if not isinstance(child, dict):
            raise MachineError(
                f"{path}: {dotted} = {child} is no figure: "
                "write it as { value = ..., unit = ..., source = ..., confidence = ... }"
            )
        leaf = any(name in child and not isinstance(child[name], dict) for name in _FIGURE_KEYS)
        if leaf:
            table[dotted] = _figure(dotted, child, path)
        elif child:
            _flatten(child, f"{dotted}.", path, table)


def _figure(key: str, leaf: dict[str, Any], path: Path) -> _core.Figure:
    for name in leaf:
        if name not in _FIGURE_KEYS:
            near = difflib.get_close_matches(name, _FIGURE_KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(_FIGURE_KEYS)}"
            raise MachineError(f"{path}: {key} has an unknown part '{name}': {hint}")
    for name in _FIGURE_KEYS:
        if name not in leaf:
            raise MachineError(f"{path}: {key} has no {name}: add {name} = ...")
    value = _value_text(key, leaf["value"], path)
    is_text = isinstance(leaf["value"], str) and not isinstance(leaf["value"], Decimal)
    if is_text and _TOML_NUMBER.fullmatch(value) and leaf["unit"] != "word":
        raise MachineError(
            f'{path}: {key}.value = "{value}" is text: write the number without quotes'
        )
    for name in _FIGURE_KEYS[1:]:
        if not isinstance(leaf[name], str) or isinstance(leaf[name], Decimal):
            raise MachineError(f"{path}: {key}.{name} = {leaf[name]} is no text: put it in quotes")
    confidence = leaf["confidence"]
    if confidence not in _CONFIDENCES:
        near = difflib.get_close_matches(confidence, _CONFIDENCES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(_CONFIDENCES)}"
        raise MachineError(f"{path}: {key}.confidence = '{confidence}' is unknown: {hint}")
    return _core.Figure(key, value, leaf["unit"], leaf["source"], confidence)


def _value_text(key: str, value: Any, path: Path) -> str:
    if isinstance(value, list) and all(type(part) is int for part in value):
        return ", ".join(str(part) for part in value)
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise MachineError(
        f"{path}: {key}.value = {value} is no number, word or list of whole numbers: write one"
    )
