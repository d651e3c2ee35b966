# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The optimizers of PyTorch's OptimizerInfo database: parameters after three steps.

Each in its implementations; SparseAdam, whose gradients are sparse, is not for the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import optim_db, optims

from tests.databases.compare import Results
from tests.databases.harness import DEVICE_BASE, FLOATS, DatabaseTest

STEPS = 3
SHAPES = ((10, 5), (5,), (3, 4, 2))
DENSE = [info for info in optim_db if not info.only_supports_sparse_grads]


def having(implementation: str) -> list[Any]:
    """The optimizers that have an implementation."""
    return [info for info in DENSE if implementation in info.supported_impls]


class Optimizer:
    """One optimizer in one of its implementations."""

    def __init__(self, info: Any, way: str, dtype: torch.dtype) -> None:
        self.info, self.way, self.dtype = info, way, dtype

    def references(self) -> list[tuple[Any, Results]]:
        """The settings of each sample, and where they lead on the CPU."""
        found = []
        for given in self.info.optim_inputs_func("cpu"):
            kwargs = {
                name: value.clone() if isinstance(value, torch.Tensor) else value
                for name, value in given.kwargs.items()
            }
            if any(name in kwargs for name in ("foreach", "fused", "differentiable")):
                continue
            try:
                found.append((kwargs, self.run(kwargs, "cpu")))
            except (RuntimeError, ValueError, AssertionError):
                continue  # settings that exclude each other, or need another device
        return found

    def run(self, sample: Any, device: str) -> Results:
        """The parameters after training on a device."""
        moved = {
            name: value.to(device) if isinstance(value, torch.Tensor) else value
            for name, value in sample.items()
        }
        return self._train(device, moved | self._on(device))

    def is_random(self, sample: Any) -> bool:
        """Parameters and gradients are drawn on the CPU."""
        return False

    def _on(self, device: str) -> dict[str, bool]:
        # The CPU's own way is the reference for all.
        return {"foreach": False} if device == "cpu" or self.way == "forloop" else {self.way: True}

    def _train(self, device: str, settings: dict[str, Any]) -> Results:
        generator = torch.Generator().manual_seed(0)

        def draw(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, generator=generator, dtype=self.dtype).to(device)

        shapes = [shape for shape in SHAPES if self.info.name != "Muon" or len(shape) == 2]
        parameters = [draw(shape).requires_grad_() for shape in shapes]
        if "foreach" in settings and "foreach" not in self.info.supported_impls:
            del settings["foreach"]
        optimizer = self.info.optim_cls(parameters, **settings)
        for _ in range(STEPS):
            for parameter in parameters:
                parameter.grad = draw(tuple(parameter.shape))
            if self.info.step_requires_closure:
                optimizer.step(lambda: sum(p.square().sum() for p in parameters))
            else:
                optimizer.step()
        return [parameter.detach() for parameter in parameters], []


class TestOptimizers(DatabaseTest):
    """Every optimizer in each of its implementations."""

    database = "optimizers"

    @optims(DENSE, dtypes=FLOATS)
    def test_forloop(self, device: str, dtype: torch.dtype, optim_info: Any) -> None:
        """One parameter after the other."""
        self.check(Optimizer(optim_info, "forloop", dtype), device)

    @optims(having("foreach"), dtypes=FLOATS)
    def test_foreach(self, device: str, dtype: torch.dtype, optim_info: Any) -> None:
        """All parameters in each op."""
        self.check(Optimizer(optim_info, "foreach", dtype), device)

    @optims(having("fused"), dtypes=FLOATS)
    def test_fused(self, device: str, dtype: torch.dtype, optim_info: Any) -> None:
        """A step is one op."""
        self.check(Optimizer(optim_info, "fused", dtype), device)


instantiate_device_type_tests(TestOptimizers, globals(), only_for=DEVICE_BASE)
