# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The operators of PyTorch's OpInfo database: results and gradients of their samples."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

from tests.databases.compare import difference, gradients, to_device

SAMPLES = 3
RANDOM = (
    "dropout", "rand", "normal", "bernoulli", "uniform", "multinomial", "empty", "exponential",
    "geometric", "cauchy", "rrelu", "fractional",
)  # fmt: skip


class Op:
    """One operator with one dtype."""

    def __init__(self, info: Any, dtype: torch.dtype) -> None:
        self.info, self.dtype = info, dtype
        variant = f".{info.variant_test_name}" if info.variant_test_name else ""
        self.name = info.name + variant
        self.learns = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")

    def references(self) -> list[tuple[Any, Any]]:
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

    def compare(self, mode: str, sample: Any, want: Any) -> str:
        """Runs the sample on the device; empty when it agrees with the CPU."""
        moved = sample.transform(to_device)
        if self.info.name == "tensor_split":  # PyTorch wants the indices on the CPU
            moved.args, moved.kwargs = sample.args, dict(sample.kwargs)
        if "device" in moved.kwargs:
            moved.kwargs["device"] = "trn"
        moved.args = tuple("trn" if str(arg) == "cpu" else arg for arg in moved.args)
        with torch.device("trn") if self._makes_tensors(sample) else nullcontext():
            got = self._call(moved)
        return difference(got, want, mode, self._is_random(sample))

    def _call(self, sample: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
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

    def _is_random(self, sample: Any) -> bool:
        named = any(name in self.info.name for name in RANDOM)
        return named or sample.kwargs.get("dropout_p", 0.0) > 0


def entries(dtypes: list[torch.dtype]) -> list[Op]:
    """Every operator with each of the dtypes that the CPU has it for."""
    return [Op(info, dtype) for dtype in dtypes for info in op_db if dtype in info.dtypes]
