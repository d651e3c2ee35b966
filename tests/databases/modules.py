# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The modules of PyTorch's ModuleInfo database: results and gradients, training and evaluating."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_modules import module_db, modules
from torch.utils._pytree import tree_leaves, tree_map

from tests.databases.compare import Results, gradients, to_device
from tests.databases.harness import DEVICE_BASE, DTYPES, DatabaseTest

SAMPLES = 3
RANDOM = ("Dropout", "RReLU", "Fractional")


class Module:
    """One module with one dtype, training or evaluating."""

    def __init__(self, info: Any, dtype: torch.dtype, training: bool) -> None:
        self.info, self.dtype, self.training = info, dtype, training

    def references(self) -> list[tuple[Any, Results]]:
        """Modules of the CPU with the inputs of the first samples, and their results."""
        torch.manual_seed(0)
        inputs = self.info.module_inputs_func(
            self.info, device="cpu", dtype=self.dtype, requires_grad=True, training=self.training
        )
        found = []
        for given in itertools.islice(inputs, SAMPLES):
            if given.forward_input is None:
                continue
            made = given.constructor_input
            try:
                module = self.info.module_cls(*made.args, **made.kwargs)
                module = module.to(self.dtype).train(self.training)
                sample = (module, given.forward_input.args, given.forward_input.kwargs)
                found.append((sample, self.run(sample, "cpu")))
            except (RuntimeError, NotImplementedError):
                continue  # the CPU has no kernel for it
        return found

    def run(self, sample: Any, device: str) -> Results:
        """The module's results and gradients on a device."""
        module, args, kwargs = sample
        moved = tree_map(lambda value: to_device(value, device), (args, kwargs))
        return self._call(copy.deepcopy(module).to(device), *moved)

    def is_random(self, sample: Any) -> bool:
        """Do the values depend on a device's random numbers?"""
        return self.training and any(word in self.info.name for word in RANDOM)

    def _call(self, module: Any, args: Any, kwargs: Any) -> Results:
        torch.manual_seed(0)
        out = module(*args, **kwargs)
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        inputs = [
            leaf
            for leaf in [*tree_leaves((args, kwargs)), *module.parameters()]
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        return results, gradients(results, inputs)


class TestModules(DatabaseTest):
    """Every module with each of its dtypes; where the two differ, training and evaluating."""

    database = "modules"

    @modules(module_db, allowed_dtypes=DTYPES)
    def test(self, device: str, dtype: torch.dtype, module_info: Any, training: bool) -> None:
        """Results and gradients."""
        self.check(Module(module_info, dtype, training), device)


instantiate_device_type_tests(TestModules, globals(), only_for=DEVICE_BASE)
