# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The modules of PyTorch's ModuleInfo database: results and gradients, training and evaluating."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

from tests.databases.compare import difference, gradients, to_device

SAMPLES = 3  # for training, and as many for evaluation
RANDOM = ("Dropout", "RReLU", "Fractional")


class Module:
    """One module with one dtype."""

    def __init__(self, info: Any, dtype: torch.dtype) -> None:
        self.info, self.dtype, self.name = info, dtype, info.name

    def references(self) -> list[tuple[Any, Any]]:
        """Modules of the CPU with the inputs of the first samples, and their results."""
        found = []
        for training in (True, False):
            torch.manual_seed(0)
            inputs = self.info.module_inputs_func(
                self.info, device="cpu", dtype=self.dtype, requires_grad=True, training=training
            )
            for given in itertools.islice(inputs, SAMPLES):
                if given.forward_input is None:
                    continue
                made = given.constructor_input
                try:
                    module = self.info.module_cls(*made.args, **made.kwargs)
                    module = module.to(self.dtype).train(training)
                    sample = (module, given.forward_input.args, given.forward_input.kwargs)
                    found.append((sample, self._call(*copy.deepcopy(sample))))
                except (RuntimeError, NotImplementedError):
                    continue  # the CPU has no kernel for it
        return found

    def compare(self, mode: str, sample: Any, want: Any) -> str:
        """Runs the module on the device; empty when it agrees with the CPU."""
        module, args, kwargs = copy.deepcopy(sample)
        got = self._call(module.to("trn"), *tree_map(to_device, (args, kwargs)))
        is_random = any(word in self.name for word in RANDOM) and module.training
        return difference(got, want, mode, is_random)

    def _call(self, module: Any, args: Any, kwargs: Any) -> tuple[list, list]:
        torch.manual_seed(0)
        out = module(*args, **kwargs)
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        inputs = [
            leaf
            for leaf in [*tree_leaves((args, kwargs)), *module.parameters()]
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        return results, gradients(results, inputs)


def entries(dtypes: list[torch.dtype]) -> list[Module]:
    """Every module with each of the dtypes that it is made for."""
    return [Module(info, dtype) for dtype in dtypes for info in module_db if dtype in info.dtypes]
