# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""PyTorch's own OpInfo samples on the device, beside the CPU: one forked process per op.

    python -m tests.opinfo.runner --mode compute [--jobs 2] [--ops add,sub] [--json FILE]

Float32, three samples an op, forward and backward. Compute mode compares values, phantom mode
shapes, strides and dtypes. The parent imports everything and never runs autograd, so that a fork
costs milliseconds; a crash or an endless loop ends one op and no more.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import sys
import time
import warnings
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

SAMPLES = 3
SECONDS_PER_OP = 60


class Outcome(NamedTuple):
    """What became of one op in one mode."""

    name: str
    passed: bool
    samples: int
    message: str  # of the first failure


def full_name(op: Any) -> str:
    """The op's name with its variant, as "norm.nuc"."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def load_device(mode: str) -> None:
    """Makes `trn` there, in the given mode."""
    import trnsim.device  # noqa: F401
    from trnsim import _torch

    _torch.set_mode(mode)


def _to_device(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("trn").requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device("trn") if str(value) == "cpu" else value
    return value


def _call(op: Any, sample: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The op's tensors and, where it can be differentiated, its gradients."""
    torch.manual_seed(0)
    out = op(sample.input, *sample.args, **sample.kwargs)
    out = sample.output_process_fn_grad(out)
    results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
    inputs = [
        leaf
        for leaf in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf
    ]
    roots = [result for result in results if result.requires_grad]
    if not (op.supports_autograd and inputs and roots):
        return results, []
    # Different weights, so that a gradient at the wrong place shows.
    weights = [torch.linspace(0.5, 1.5, root.numel()).reshape(root.shape) for root in roots]
    weights = [w.to(r.dtype).to(r.device) for w, r in zip(weights, roots, strict=True)]
    gradients = torch.autograd.grad(roots, inputs, weights, allow_unused=True)
    return results, [g for g in gradients if g is not None]


def _makes_tensors(op: Any, sample: Any) -> bool:
    """Without a tensor to follow, the default device decides where the result is."""
    if op.name in ("linspace", "logspace"):
        return True
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return not any(isinstance(leaf, torch.Tensor) for leaf in leaves)


def _is_random(op: Any) -> bool:
    names = ("dropout", "rand", "normal", "bernoulli", "uniform", "multinomial", "empty",
             "exponential", "geometric", "cauchy", "rrelu", "fractional")
    return any(name in op.name for name in names)


def _significant_strides(tensor: torch.Tensor) -> list[int]:
    if tensor.numel() == 0:
        return []
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def _difference(mode: str, op: Any, got: torch.Tensor, want: torch.Tensor) -> str:
    """Empty when they agree."""
    if got.layout != torch.strided or want.layout != torch.strided:
        return "" if got.layout == want.layout else f"layout {got.layout} for {want.layout}"
    if got.device.type != "trn" and want.numel():
        return f"the result is on {got.device}"
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)} for {tuple(want.shape)}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype} for {want.dtype}"
    if mode == "phantom":
        if _significant_strides(got) != _significant_strides(want):
            return f"strides {got.stride()} for {want.stride()} of shape {tuple(want.shape)}"
        return ""
    if _is_random(op):
        return ""
    try:
        torch.testing.assert_close(
            got.cpu(), want, rtol=1e-3, atol=1e-4, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        return str(error).replace("\n", " ")[:200]
    return ""


def run_op(op: Any, mode: str) -> Outcome:
    """Runs the op's samples in this process."""
    name = full_name(op)
    done = 0
    torch.manual_seed(0)
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    for index, sample in enumerate(samples):
        if index == SAMPLES:
            break
        try:
            want = _call(op, sample)
        except Exception:  # the CPU does not have it: nothing to compare with
            continue
        moved = sample.transform(_to_device)
        try:
            with torch.device("trn") if _makes_tensors(op, sample) else nullcontext():
                got = _call(op, moved)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".replace("\n", " ")
            return Outcome(name, False, done, f"sample {index}: {text[:300]}")
        for part, ours, theirs in zip(("forward", "backward"), got, want, strict=True):
            if len(ours) != len(theirs):
                return Outcome(name, False, done, f"{part}: {len(ours)} results for {len(theirs)}")
            for g, w in zip(ours, theirs, strict=True):
                difference = _difference(mode, op, g, w)
                if difference:
                    return Outcome(name, False, done, f"sample {index} {part}: {difference}")
        done += 1
    return Outcome(name, True, done, "")


def _child(op: Any, mode: str, pipe: int) -> None:
    sys.stderr = open(os.devnull, "w")
    torch.set_num_threads(1)
    signal.alarm(SECONDS_PER_OP)
    warnings.simplefilter("ignore")
    try:
        outcome = run_op(op, mode)
    except BaseException as error:
        outcome = Outcome(full_name(op), False, 0, f"{type(error).__name__}: {error}"[:300])
    os.write(pipe, pickle.dumps(tuple(outcome)))
    os._exit(0)


def _finish(name: str, pipe: int, status: int) -> Outcome:
    with os.fdopen(pipe, "rb") as stream:
        data = stream.read()
    if data:
        return Outcome(*pickle.loads(data))
    code = os.waitstatus_to_exitcode(status)
    why = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    if code == -signal.SIGALRM:
        why = f"took more than {SECONDS_PER_OP} s"
    return Outcome(name, False, 0, why)


def run_all(mode: str, jobs: int, names: set[str] | None = None) -> list[Outcome]:
    """Every op of the database that has float32, `jobs` at a time."""
    ops = [op for op in op_db if torch.float32 in op.dtypes]
    if names is not None:
        ops = [op for op in ops if full_name(op) in names or op.name in names]
    warnings.simplefilter("ignore")
    outcomes: list[Outcome] = []
    running: dict[int, tuple[str, int]] = {}

    def wait_for_one() -> None:
        pid, status = os.wait()
        name, pipe = running.pop(pid)
        outcomes.append(_finish(name, pipe, status))
        if not outcomes[-1].passed:
            print(f"{name}: {outcomes[-1].message}", flush=True)

    for op in ops:
        while len(running) >= jobs:
            wait_for_one()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _child(op, mode, writing)
        os.close(writing)
        running[pid] = (full_name(op), reading)
    while running:
        wait_for_one()
    return sorted(outcomes)


def warm_up() -> None:
    """Imports what the first op would otherwise import in every child."""
    x = torch.ones(300, 300, device="trn")  # past the size that phantom mode computes
    _ = (x + 1, x @ x, torch.nn.functional.layer_norm(x, (300,)), x.sum(), torch.linalg.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=("compute", "phantom"), required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ops", type=lambda text: set(text.split(",")))
    parser.add_argument("--json", help="write the outcomes here")
    options = parser.parse_args()
    load_device(options.mode)
    warm_up()
    begin = time.time()
    outcomes = run_all(options.mode, options.jobs, options.ops)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    share = 100 * (1 - len(failed) / max(1, len(outcomes)))
    print(f"{options.mode}: {len(outcomes) - len(failed)} of {len(outcomes)} ops pass "
          f"({share:.1f} %), {sum(o.samples for o in outcomes)} samples, "
          f"{time.time() - begin:.0f} s")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump([outcome._asdict() for outcome in outcomes], stream, indent=1)


if __name__ == "__main__":
    main()
