# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The operators of PyTorch's OpInfo database: results and gradients of their samples."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

from tests.databases.compare import Results, gradients, to_device
from tests.databases.harness import DEVICE_BASE, DTYPES, DatabaseTest

SAMPLES = 3
RANDOM = (
    "dropout", "rand", "normal", "bernoulli", "uniform", "multinomial", "empty", "exponential",
    "geometric", "cauchy", "rrelu", "fractional",
)  # fmt: skip


class Op:
    """One operator with one dtype."""

    def __init__(self, info: Any, dtype: torch.dtype) -> None:
        self.info, self.dtype = info, dtype
        self.learns = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")

    def references(self) -> list[tuple[Any, Results]]:
        """The first samples that the CPU has, with its results."""
        torch.manual_seed(0)
        samples = self.info.sample_inputs("cpu", self.dtype, requires_grad=self.learns)
        found = []
        for sample in itertools.islice(samples, SAMPLES):
            try:
                found.append((sample, self._call(sample)))
            except (RuntimeError, NotImplementedError, ValueError, TypeError, AssertionError):
                continue  # the CPU has no such kernel: nothing to compare with
        return found

    def run(self, sample: Any, device: str) -> Results:
        """The sample's results and gradients on a device."""
        moved = sample.transform(lambda value: to_device(value, device))
        if self.info.name == "tensor_split":  # PyTorch wants the indices on the CPU
            moved.args, moved.kwargs = sample.args, dict(sample.kwargs)
        if "device" in moved.kwargs:
            moved.kwargs["device"] = device
        moved.args = tuple(device if str(arg) == "cpu" else arg for arg in moved.args)
        with torch.device(device) if self._makes_tensors(sample) else nullcontext():
            return self._call(moved)

    def is_random(self, sample: Any) -> bool:
        """Do the values depend on a device's random numbers?"""
        named = any(name in self.info.name for name in RANDOM)
        return named or sample.kwargs.get("dropout_p", 0.0) > 0

    def _call(self, sample: Any) -> Results:
        """The op's tensors and, where it can be differentiated, its gradients."""
        torch.manual_seed(0)
        out = self.info(sample.input, *sample.args, **sample.kwargs)
        out = sample.output_process_fn_grad(out)
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        inputs = [
            leaf
            for leaf in tree_leaves((sample.input, sample.args, sample.kwargs))
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf
        ]
        return results, gradients(results, inputs) if self.learns else []

    def _makes_tensors(self, sample: Any) -> bool:
        """Without a tensor to follow, the default device decides where the result is."""
        if self.info.name in ("linspace", "logspace"):
            return True
        leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
        return not any(isinstance(leaf, torch.Tensor) for leaf in leaves)


class TestOps(DatabaseTest):
    """Every operator with each of the dtypes that the harness knows for the device: the CPU's."""

    database = "ops"

    @ops(op_db, allowed_dtypes=DTYPES)
    def test(self, device: str, dtype: torch.dtype, op: Any) -> None:
        """Results and gradients."""
        self.check(Op(op, dtype), device)


instantiate_device_type_tests(TestOps, globals(), only_for=DEVICE_BASE)
