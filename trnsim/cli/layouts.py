# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Options that say how a model that is named is divided: of search, scale and compare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnsim.cli.options import parse_share
from trnsim.errors import PlanError

if TYPE_CHECKING:
    from trnsim.plan import Space

Sequence = Annotated[
    int | None, typer.Option(metavar="S", help="Of a model: tokens of a sequence (default: 8192).")
]


def _degrees(what: str) -> Any:
    return typer.Option(metavar="N[,N...]", help=f"{what} (default: all that suit).")


Tp = Annotated[str | None, _degrees("Tensor parallel degrees to try")]
Pp = Annotated[str | None, _degrees("Pipeline stages")]
Vp = Annotated[str | None, _degrees("Pieces of each stage (interleaving)")]
Cp = Annotated[str | None, _degrees("Context parallel degrees")]
Ep = Annotated[str | None, _degrees("Expert parallel degrees")]
MicroBatch = Annotated[str | None, _degrees("Sequences of a micro-batch")]
Zero = Annotated[
    str | None,
    _degrees("What data parallel ranks divide: 0 nothing, 1 the optimizer, 3 all (FSDP)"),
]
Recompute = Annotated[
    str | None,
    typer.Option(metavar="none,selective,full", help="What is computed again (default: each)."),
]
Offload = Annotated[
    str | None,
    typer.Option(
        metavar="N[,N...]",
        help="First layers whose activations go to host memory until their backward (default: 0).",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(metavar="P", help="Of a model's products: bf16, fp8, ... (default: bf16)."),
]
ExpertSkew = Annotated[
    str | None,
    typer.Option(
        metavar="zipf:S",
        help="How uneven the router of a model of experts is: their popularity falls with their "
        "rank to the power S, as zipf:1.2 (default: all get the same).",
    ),
]
LeastUsed = Annotated[
    str | None,
    typer.Option(metavar="X%", help="Share of the chips that a layout has to use (default: 90%)."),
]
Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Processes of a search (default: one a core)."),
]

_DEGREES = ("tp", "pp", "vp", "cp", "ep", "micro_batch", "zero", "offload_layers")


def space_of(
    *, global_batch: int | None, sequence: int | None, recompute: str | None,
    precision: str | None, least_used: str | None, expert_skew: str | None,
    **degrees: str | None,
) -> Space | None:  # fmt: skip
    """What the options leave to try, each None where it was not given; None where none was.

    Raises:
        PlanError: text that is no number, or numbers that make no sense.
    """
    from trnsim.plan import Space

    if global_batch == 0:
        raise PlanError("--global-batch 0 is no step: use 1 or more")
    given: dict[str, Any] = {
        "global_batch": global_batch,
        "sequence": sequence,
        "recompute": None if recompute is None else tuple(recompute.split(",")),
        "precision": precision,
        "expert_skew": expert_skew,
        "least_used": None
        if least_used is None
        else float(parse_share(least_used, "--least-used")),
    }
    given |= {name: numbers_of(name, degrees[name]) for name in _DEGREES}
    given = {name: value for name, value in given.items() if value is not None}
    return Space(**given) if given else None


def numbers_of(name: str, text: str | None) -> tuple[int, ...] | None:
    """The whole numbers of an option's text, ascending, each once."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"\d{1,9}", word, re.ASCII) for word in words):
        option = "--" + name.replace("_", "-")
        raise PlanError(f"{option} '{text}' is no list of whole numbers: write 8 or 1,2,4")
    return tuple(sorted({int(word) for word in words}))
