# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The optimizers of PyTorch's OptimizerInfo database: parameters after three steps."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db

from tests.databases.compare import difference

STEPS = 3
SHAPES = ((10, 5), (5,), (3, 4, 2))


class Optimizer:
    """One optimizer in one of its implementations."""

    def __init__(self, info: Any, way: str, dtype: torch.dtype) -> None:
        self.info, self.way, self.dtype = info, way, dtype
        self.name = f"{info.optim_cls.__name__}.{way}"

    def references(self) -> list[tuple[Any, Any]]:
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
                found.append((kwargs, self._train("cpu", kwargs | self._on("cpu"))))
            except (RuntimeError, ValueError, AssertionError):
                continue  # settings that exclude each other, or need another device
        return found

    def compare(self, mode: str, sample: Any, want: Any) -> str:
        """Trains on the device; empty when it gets to where the CPU gets."""
        kwargs = {
            name: value.to("trn") if isinstance(value, torch.Tensor) else value
            for name, value in sample.items()
        }
        got = self._train("trn", kwargs | self._on("trn"))
        return difference(got, want, mode)

    def _on(self, device: str) -> dict[str, bool]:
        # The CPU's own way is the reference for all.
        return {"foreach": False} if device == "cpu" or self.way == "forloop" else {self.way: True}

    def _train(self, device: str, kwargs: dict[str, Any]) -> tuple[list, list]:
        generator = torch.Generator().manual_seed(0)

        def draw(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, generator=generator, dtype=self.dtype).to(device)

        shapes = [shape for shape in SHAPES if self.name.split(".")[0] != "Muon" or len(shape) == 2]
        parameters = [draw(shape).requires_grad_() for shape in shapes]
        settings = dict(kwargs)
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


def entries(dtypes: list[torch.dtype]) -> list[Optimizer]:
    """Every optimizer in each of its implementations; sparse ones are not for the device."""
    return [
        Optimizer(info, way, dtype)
        for dtype in dtypes
        if dtype.is_floating_point
        for info in optim_db
        if not info.only_supports_sparse_grads
        for way in ("forloop", *info.supported_impls)
        if way != "differentiable"
    ]
