# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What is asked for from Python has the types that its signature says, or is refused in a line.

Annotations are the one place where types stand: of a function's arguments (`checked`) and of a
dataclass's fields (`check_fields`). They are read as text, so that nothing has to be imported.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, ParamSpec, TypeVar

from trnsim.errors import TrnSimError

LONGEST = 80  # letters of a value in a message
_P, _R = ParamSpec("_P"), TypeVar("_R")


class _Wrong(Exception):
    """A value has none of the types."""


# What each type is called: one, several.
_WORDS = {
    "int": ("a whole number", "whole numbers"),
    "float": ("a number", "numbers"),
    "bool": ("True or False", "True or False"),
    "str": ("a text", "texts"),
    "os.PathLike[str]": ("a path", "paths"),
}
_LISTS = ("tuple", "list", "Iterable", "Sequence")


def checked(error: type[TrnSimError], **others: type[TrnSimError]) -> Callable[
    [Callable[_P, _R]], Callable[_P, _R]
]:  # fmt: skip
    """Checks the arguments of a function by their annotations before it runs; a decorator.

    Whole numbers of other libraries become Python's own, and lists that are annotated as tuples
    become tuples. A list that is annotated as an Iterable is left as it is, and its entries too.

    Args:
        error: what is raised for an argument of another type; others: for arguments by name.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as problem:  # Python's own, with the name that it has
                raise TypeError(f"{function.__name__}() {problem}") from None
            for name, value in bound.arguments.items():
                of = others.get(name, error)
                annotation = signature.parameters[name].annotation
                if annotation is not inspect.Parameter.empty:  # of a method: self
                    bound.arguments[name] = value_of(of, name, annotation, value)
            return function(*bound.args, **bound.kwargs)

        return call

    return decorate


def check_fields(error: type[TrnSimError], of: Any) -> None:
    """The same of the fields of a dataclass, which may be frozen; for its __post_init__."""
    for field in fields(of):
        value = value_of(error, field.name, str(field.type), getattr(of, field.name))
        object.__setattr__(of, field.name, value)


def value_of(error: type[TrnSimError], name: str, annotation: str, value: Any) -> Any:
    """The value as the annotation has it; raises `error` where it has another type."""
    try:
        return _of_union(annotation, value)
    except _Wrong:
        raise error(_refusal(name, annotation, value)) from None


def shown(value: Any) -> str:
    """A value in a message: one line, and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _split(text: str, at: str) -> list[str]:
    """Parts of an annotation, but not within its brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if not depth and text.startswith(at, i):
            parts.append(text[begin:i])
            begin = i + len(at)
    return [*parts, text[begin:]]


def _outer_and_inner(annotation: str) -> tuple[str, list[str]]:
    """ "tuple" and ["int", "..."] of "tuple[int, ...]"."""
    outer, has_inner, inner = annotation.partition("[")
    return outer, _split(inner[:-1], ", ") if has_inner else []


def _of_union(annotation: str, value: Any) -> Any:
    for each in _split(annotation, " | "):
        try:
            return _of_one(each, value)
        except _Wrong:
            continue
    raise _Wrong


def _of_one(annotation: str, value: Any) -> Any:
    outer, inner = _outer_and_inner(annotation)
    if annotation == "int":
        return _whole(value)
    if outer in _LISTS:
        return _listed(outer, inner, value)
    if outer == "Callable":
        fits = callable(value)
    elif outer == "Mapping":
        fits = isinstance(value, Mapping)
    elif annotation == "float":
        fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
        value = value if not fits or isinstance(value, (int, float)) else float(value)
    elif annotation in _PLAIN:
        fits = isinstance(value, _PLAIN[annotation])
    else:  # a class of our own, by its name
        name = annotation.rpartition(".")[2]
        fits = any(each.__name__ == name for each in type(value).__mro__)
    if not fits:
        raise _Wrong
    return value


_PLAIN: dict[str, Any] = {
    "None": type(None), "bool": bool, "str": str, "os.PathLike[str]": os.PathLike, "Any": object,
}  # fmt: skip


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise _Wrong
    try:
        return operator.index(value)
    except TypeError:
        raise _Wrong from None


def _listed(outer: str, inner: list[str], value: Any) -> Any:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise _Wrong
    if outer == "Iterable" and not isinstance(value, (list, tuple)):
        return value  # what can be read once is checked by who reads it
    entries = list(value)
    if outer == "tuple" and inner[-1] != "...":
        if len(entries) != len(inner):
            raise _Wrong
        return tuple(_of_union(*pair) for pair in zip(inner, entries, strict=True))
    found = [_of_union(inner[0], each) for each in entries]
    return tuple(found) if outer == "tuple" else found


def _refusal(name: str, annotation: str, value: Any) -> str:
    """What is wrong, which value, and what to write in its place."""
    parts = [part for part in _split(annotation, " | ") if part != "None"]
    words = _in_words(" | ".join(parts), several=False)
    lists = [part for part in parts if _outer_and_inner(part)[0] in _LISTS]
    if not lists:
        may_lack = "None" in _split(annotation, " | ")
        how = "use one, or leave it out" if may_lack else "use one"
        return f"{name} {shown(value)} is not {words}: {how}"
    outer, inner = _outer_and_inner(lists[0])
    is_list = isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))
    if is_list and len(set(inner) - {"..."}) == 1:
        for entry in value:
            try:
                _of_union(inner[0], entry)
            except _Wrong:
                of = _in_words(inner[0], several=False)
                how = "write it in quotes" if of == "a text" else "use one"
                return f"{name} has {shown(entry)}, which is not {of}: {how}"
    return f"{name} {shown(value)} is not {words}: write {name}={_BRACKETS.get(outer, '[...]')}"


_BRACKETS = {"tuple": "(...,)"}


def _in_words(annotation: str, several: bool) -> str:
    """ "a whole number", or "whole numbers"."""
    union = _split(annotation, " | ")
    if len(union) > 1:
        return " or ".join(dict.fromkeys(_in_words(part, several) for part in union))
    outer, inner = _outer_and_inner(annotation)
    if outer in _LISTS:
        entries = dict.fromkeys(_in_words(each, several=True) for each in inner if each != "...")
        count = "" if outer != "tuple" or inner[-1] == "..." else f"{len(inner)} "
        return f"{'lists' if several else 'a list'} of {count}{' or '.join(entries)}"
    if outer in ("Callable", "Mapping"):
        return "a function" if outer == "Callable" else "a mapping"
    if annotation in _WORDS:
        return _WORDS[annotation][several]
    return f"a {annotation.rpartition('.')[2]}"
