# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim calibrate`: one constant of the stack, so that a run takes as long as was measured."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from trnsim.cli import options, output
from trnsim.errors import ValidationError

_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(
        name="calibrate",
        epilog="Example: trnsim calibrate out/train.trnsim --measured 1.23s --out mine.toml, then "
        "trnsim project out/train.trnsim --stack mine.toml.",
    )(calibrate)


def calibrate(
    run: options.Run,
    measured: Annotated[
        str, typer.Option(metavar="TIME", help="The step that was measured (1.23s, 340ms).")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the stack sheet is written (.toml).")
    ],
    constant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="gemm_factor, float8_factor, attention_factor, grouped_factor, link_factor "
            "or network_factor (default: the one that moves the step most).",
        ),
    ] = None,
    machine: options.OtherMachine = None,
    stack: options.Stack = None,
    as_json: options.Json = False,
) -> None:
    """Scale one constant of the stack until a run's step takes as long as was measured.

    The new stack sheet extends the one that the run is projected under and holds for its chip.
    """
    options.let_threads_sleep()
    from trnsim.validation import calibrate as fit_to_measured

    if out.suffix != ".toml":
        raise ValidationError(f"--out {out} is no .toml file: a stack sheet's name ends in .toml")
    output.check_file(out, "--out")
    document = output.claim_json(as_json)
    done = fit_to_measured(
        run, _seconds(measured), constant=constant, stack=stack, machine=machine
    )  # fmt: skip
    done.write(out)
    if document is not None:
        found = asdict(done) | {"stack": done.stack or None, "sheet": str(out)}
        document.write(found)
        return
    typer.echo(
        f"{done.constant} of {done.stack or 'the machine'} on {done.chip}: {done.before:.4g} -> "
        f"{done.value:.4g}; the step takes {done.step_time_s:.6g} s, was "
        f"{done.step_time_before_s:.6g} s, measured {done.measured_s:.6g} s"
    )
    output.print_table(
        ["constant", "step when 5 % larger"],
        [[name, f"{-100 * effect:+.2f} %"] for name, effect in done.effects.items()],
        right=(1,),
    )
    typer.echo(f"written: {out}")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(?:e([+-]?\d+))?\s*(s|ms|us|)", text.strip())
    if found is None:
        raise ValidationError(f"--measured '{text}' is no time: write it as 1.23s, 340ms or 80us")
    return float(f"{found.group(1)}e{found.group(2) or 0}") * _SECONDS[found.group(3)]
