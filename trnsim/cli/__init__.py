# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The command line: one file a verb. Nothing heavy is imported before a verb needs it.

Exit codes: 0 ok, 1 a wrong result (`diff` found a difference, `doctor` a problem,
`compare` a slower run), 2 a wrong
request, in one line that begins `trnsim: `; `run` exits with the script's own code.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

import typer

from trnsim.cli import (
    calibrate,
    collective,
    compare,
    diff,
    disturb,
    doctor,
    goodput,
    info,
    project,
    report,
    run,
    scale,
    search,
    validate,
)
from trnsim.errors import TrnSimError
from trnsim.leave import leave

app = typer.Typer(
    name="trnsim",
    help="Run a PyTorch training script on a simulated machine: how long a step takes there, what "
    "it costs and what limits it.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
run.add_to(app)
project.add_to(app)
report.add_to(app)
compare.add_to(app)
scale.add_to(app)
goodput.add_to(app)
search.add_to(app)
disturb.add_to(app)
collective.add_to(app)
info.add_to(app)
diff.add_to(app)
doctor.add_to(app)
validate.add_to(app)
calibrate.add_to(app)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    if version:
        import trnsim

        typer.echo(f"trnsim {trnsim.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> NoReturn:
    """Entry point of the command `trnsim`."""
    # UsageError and its parents; typer carries its own copy of click.
    usage_error = typer.BadParameter.__mro__[2]
    try:
        code = typer.main.get_command(app).main(prog_name="trnsim", standalone_mode=False)
    except TrnSimError as error:
        code = fail(str(error))
    except usage_error as error:
        code = fail(" ".join(error.format_message().split()), hint=_where(error))
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:  # the reader of our output has gone: nothing more to say to it
        _discard_output()
        code = 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        code = fail(f"the output cannot be written ({error.strerror}): write it to another place")
        _discard_output()
    if code == 130:  # typer makes it of a KeyboardInterrupt, too
        fail("interrupted")
    leave(code or 0)


def _discard_output() -> None:
    """What is still in the buffer of stdout goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str, hint: str = "") -> int:
    """Prints one line on stderr and returns the exit code of a wrong request."""
    print(f"trnsim: {message}{hint}", file=sys.stderr)
    return 2


def _where(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    if not context:
        return ""
    is_unknown = type(error).__name__ == "NoSuchOption"
    if is_unknown and context.info_name in ("compare", "scale"):
        return f" (the script's own follow after --; see {context.command_path} --help)"
    return f" (see {context.command_path} --help)"
