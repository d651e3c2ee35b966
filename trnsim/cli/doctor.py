# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""`trnsim doctor`: what stands between this installation and a run, and the way out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import typer

from trnsim.cli import options, output
from trnsim.errors import TrnSimError
from trnsim.plugin import other_plugins


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `way_out` says what to do when it is not ok."""

    name: str
    ok: bool
    found: str
    way_out: str = ""


def add_to(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(name="doctor", epilog="Example: trnsim doctor")(doctor)


def doctor(as_json: options.Json = False) -> None:
    """Look at torch, other device plugins, CUDA and autoload; exit 1 if something is in the way."""
    document = output.JsonOutput()
    if as_json:
        document.claim()
    checks = [check() for check in _CHECKS]
    if as_json:
        document.write(
            {"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]}
        )
    else:
        for check in checks:
            typer.echo(f"{'ok     ' if check.ok else 'PROBLEM'}  {check.name}: {check.found}")
            if not check.ok:
                typer.echo(f"         way out: {check.way_out}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _installation() -> Check:
    import trnsim

    try:
        import trnsim._core
    except ImportError as error:
        return Check(
            "trnsim",
            False,
            f"trnsim._core cannot be imported: {error}",
            "install again: pip install --no-build-isolation .",
        )
    place = Path(trnsim.__file__).parent
    return Check(
        "trnsim",
        True,
        f"{trnsim.__version__} in {place}, Python {'.'.join(map(str, sys.version_info[:3]))}",
    )


def _torch() -> Check:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Check(
            "torch",
            False,
            "not installed",
            "pip install torch==2.14.1, then install trnsim with --no-build-isolation",
        )
    major, minor = (int(part) for part in version.split("+")[0].split(".")[:2])
    if not (2, 11) <= (major, minor) < (2, 16):
        return Check(
            "torch",
            False,
            f"{version}, and trnsim works with 2.11 to 2.15",
            "pip install 'torch>=2.11,<2.16', then install trnsim again",
        )
    return Check("torch", True, version)


def _extension() -> Check:
    """Whether _torch was built for the torch that is here; in a child, since it may not load."""
    from trnsim import torch_version

    try:
        torch_version.check_torch()
    except (TrnSimError, metadata.PackageNotFoundError) as error:
        found, _, way_out = str(error).partition(": ")
        return Check("trnsim._torch", False, found, way_out or "pip install torch==2.14.1")
    child = _python("import torch, trnsim._torch")
    if child.returncode == 0:
        return Check("trnsim._torch", True, f"built for torch {torch_version.built_for()}")
    last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return Check("trnsim._torch", False, last, "install again: pip install --no-build-isolation .")


def _plugins() -> Check:
    others = other_plugins()
    if not others:
        return Check("other device plugins", True, "none")
    named = f"{', '.join(others)} may want the one free device slot of torch too"
    if os.environ.get("TRNSIM_AUTOLOAD") == "1":
        return Check("other device plugins", True, f"{named}: trnsim has it (TRNSIM_AUTOLOAD=1)")
    return Check(
        "other device plugins",
        False,
        named,
        "TRNSIM_AUTOLOAD=1 gives it to trnsim; trnsim run does so by itself",
    )


def _autoload() -> Check:
    entries = [
        entry
        for entry in metadata.entry_points(group="torch.backends")
        if entry.value == "trnsim:_autoload"
    ]
    name = "autoload"
    if not entries:
        return Check(
            name,
            False,
            "torch does not know of trnsim: it is not installed as a package",
            "pip install --no-build-isolation .",
        )
    for variable, value in (("TORCH_DEVICE_BACKEND_AUTOLOAD", "0"), ("TRNSIM_AUTOLOAD", "0")):
        if os.environ.get(variable) == value:
            return Check(name, True, f"off ({variable}={value}): import trnsim.device by hand")
    child = _python(
        "import torch; print(torch.accelerator.current_accelerator(), "
        "torch._C._get_privateuse1_backend_name())"
    )
    if child.returncode == 0 and child.stdout.split():
        device, slot = child.stdout.split()
        wanted = os.environ.get("TRNSIM_DEVICE_NAME", "trn")
        if slot == wanted:
            return Check(
                name,
                True,
                f"on: import torch brings the device '{slot}'"
                + ("" if device == slot else f", and torch.accelerator is '{device}'"),
            )
        return Check(
            name,
            False,
            f"import torch brings '{slot}' and not '{wanted}'",
            "look at the warning of: python -c 'import torch'",
        )
    last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return Check(
        name,
        False,
        f"import torch fails: {last}",
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0 shows whether a device plugin is the reason",
    )


def _cuda() -> Check:
    """A GPU is never needed: with one, bulk runs are faster and no digit changes."""
    nvcc = shutil.which("nvcc") or next(
        (str(path) for path in [Path("/usr/local/cuda/bin/nvcc")] if path.exists()), None
    )
    driver = "no driver"
    if smi := shutil.which("nvidia-smi"):
        asked = subprocess.run(
            [smi, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = asked.stdout.strip().splitlines()
        driver = "; ".join(lines) if asked.returncode == 0 and lines else "a driver without a GPU"
    return Check(
        "CUDA",
        True,
        f"{'toolkit ' + nvcc if nvcc else 'no toolkit'}, {driver} "
        "(optional: bulk runs are faster on a GPU)",
    )


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


_CHECKS: list[Callable[[], Check]] = [_installation, _torch, _extension, _plugins, _autoload, _cuda]
