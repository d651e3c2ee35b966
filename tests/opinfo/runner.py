# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""PyTorch's own OpInfo samples on the device, beside the CPU: one forked process per op.

    python -m tests.opinfo.runner [--jobs 2] [--ops add,sub] [--part 0/2] [--json FILE]

Float32, three samples an op, forward and backward. Compute mode compares values, phantom mode
shapes, strides and dtypes. The parent imports everything and never runs autograd, so that a fork
costs milliseconds; a crash or an endless loop ends one op and no more. A child runs both modes; the
mode after a crash gets a child of its own.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import pickle
import signal
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
    mode: str
    passed: bool
    samples: int
    message: str  # of the first failure


def full_name(op: Any) -> str:
    """The op's name with its variant, as "norm.nuc"."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


MODES = ("compute", "phantom")


def _to_device(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("trn").requires_grad_(value.requires_grad)
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
    names = (
        "dropout",
        "rand",
        "normal",
        "bernoulli",
        "uniform",
        "multinomial",
        "empty",
        "exponential",
        "geometric",
        "cauchy",
        "rrelu",
        "fractional",
    )
    return any(name in op.name for name in names)


def _significant_strides(tensor: torch.Tensor) -> list[int]:
    if tensor.numel() == 0:
        return []
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def _difference(mode: str, is_random: bool, got: torch.Tensor, want: torch.Tensor) -> str:
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
    if is_random:
        return ""
    try:
        torch.testing.assert_close(
            got.cpu(), want, rtol=1e-3, atol=1e-4, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        return str(error).replace("\n", " ")[:200]
    return ""


def _compare(op: Any, mode: str, sample: Any, want: Any) -> str:
    """Runs the sample on the device; empty when it agrees with the CPU."""
    moved = sample.transform(_to_device)
    if "device" in moved.kwargs:
        moved.kwargs["device"] = "trn"
    moved.args = tuple("trn" if str(arg) == "cpu" else arg for arg in moved.args)
    with torch.device("trn") if _makes_tensors(op, sample) else nullcontext():
        got = _call(op, moved)
    for part, ours, theirs in zip(("forward", "backward"), got, want, strict=True):
        if len(ours) != len(theirs):
            return f"{part}: {len(ours)} results for {len(theirs)}"
        for g, w in zip(ours, theirs, strict=True):
            is_random = _is_random(op) or sample.kwargs.get("dropout_p", 0.0) > 0
            difference = _difference(mode, is_random, g, w)
            if difference:
                return f"{part}: {difference}"
    return ""


def _references(op: Any) -> list[tuple[Any, Any]]:
    """The first samples that the CPU has, with its results."""
    torch.manual_seed(0)
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    found = []
    for sample in itertools.islice(samples, SAMPLES):
        try:
            found.append((sample, _call(op, sample)))
        except (RuntimeError, NotImplementedError, ValueError, TypeError, AssertionError):
            continue  # the CPU has no such kernel: nothing to compare with
    return found


def run_op(op: Any, mode: str, references: list[tuple[Any, Any]]) -> Outcome:
    """Runs the op's samples in this process."""
    for index, (sample, want) in enumerate(references):
        try:
            difference = _compare(op, mode, sample, want)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this op's result
            difference = f"{type(error).__name__}: {error}"
        if difference:
            text = f"sample {index}: {difference}".replace("\n", " ")[:300]
            return Outcome(full_name(op), mode, False, index, text)
    return Outcome(full_name(op), mode, True, len(references), "")


def _child(op: Any, modes: tuple[str, ...], pipe: int) -> None:
    from trnsim import _torch

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    torch.set_num_threads(1)
    signal.alarm(SECONDS_PER_OP)
    warnings.simplefilter("ignore")
    references = _references(op)
    if not references:
        os._exit(0)  # an op of other devices: it has no outcome
    for mode in modes:
        deadline = time.time() + 5
        while gc.collect() >= 0 and _torch.live_block_count() and time.time() < deadline:
            time.sleep(0.01)  # autograd's own thread lets go of its last tensors in its own time
        _torch.set_mode(mode)
        os.write(pipe, pickle.dumps(tuple(run_op(op, mode, references))))
    os._exit(0)


class _Job(NamedTuple):
    op: Any
    modes: tuple[str, ...]
    pipe: int


def _start(op: Any, modes: tuple[str, ...]) -> tuple[int, _Job]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(op, modes, writing)
    os.close(writing)
    return pid, _Job(op, modes, reading)


def _read(job: _Job, status: int) -> list[Outcome]:
    """What the child sent; a mode in which it ended counts as failed."""
    outcomes = []
    with os.fdopen(job.pipe, "rb") as stream:
        for _ in job.modes:
            try:
                outcomes.append(Outcome(*pickle.load(stream)))
            except EOFError:
                break
    code = os.waitstatus_to_exitcode(status)
    if len(outcomes) < len(job.modes) and code != 0:
        why = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        if code == -signal.SIGALRM:
            why = f"took more than {SECONDS_PER_OP} s"
        outcomes.append(Outcome(full_name(job.op), job.modes[len(outcomes)], False, 0, why))
    return outcomes


def database(names: set[str] | None = None) -> list[Any]:
    """The ops that have float32."""
    ops = [op for op in op_db if torch.float32 in op.dtypes]
    return [op for op in ops if names is None or {full_name(op), op.name} & names]


def run_all(ops: list[Any], jobs: int) -> list[Outcome]:
    """Every op in both modes, `jobs` ops at a time."""
    import trnsim.device  # noqa: F401

    warnings.simplefilter("ignore")
    warm_up()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    outcomes: list[Outcome] = []
    running: dict[int, _Job] = {}
    waiting = [(op, MODES) for op in reversed(ops)]
    while waiting or running:
        while waiting and len(running) < jobs:
            pid, job = _start(*waiting.pop())
            running[pid] = job
        pid, status = os.wait()
        job = running.pop(pid)
        done = _read(job, status)
        outcomes += done
        for outcome in done:
            if not outcome.passed:
                print(f"{outcome.mode} {outcome.name}: {outcome.message}", flush=True)
        if done and (rest := job.modes[len(done) :]):
            waiting.append((job.op, rest))
    return sorted(outcomes)


def warm_up() -> None:
    """Imports what the first op would otherwise import in every child."""
    x = torch.ones(300, 300, device="trn")  # past the size that phantom mode computes
    _ = (x + 1, x @ x, torch.nn.functional.layer_norm(x, (300,)), x.sum(), torch.linalg.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ops", type=lambda text: set(text.split(",")))
    parser.add_argument("--part", default="0/1", help="I/N: every N-th op from the I-th")
    parser.add_argument("--json", help="write the outcomes here")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    begin = time.time()
    outcomes = run_all(database(options.ops)[part::parts], options.jobs)
    for mode in MODES:
        of_mode = [outcome for outcome in outcomes if outcome.mode == mode]
        passed = sum(outcome.passed for outcome in of_mode)
        print(
            f"{mode}: {passed} of {len(of_mode)} ops pass "
            f"({100 * passed / max(1, len(of_mode)):.1f} %), "
            f"{sum(outcome.samples for outcome in of_mode)} samples"
        )
    print(f"{time.time() - begin:.0f} s")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump([outcome._asdict() for outcome in outcomes], stream, indent=1)


if __name__ == "__main__":
    main()
