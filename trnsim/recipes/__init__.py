# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Reference programs: transformers in plain PyTorch, by model, layout and style, that train, and
generate.

    from trnsim.recipes import Layout, Model, capture
    layout = Layout(tp=4, pp=4, dp=2, micro_batch=1, global_batch=128, sequence=8192)
    workloads = capture(Model.preset("Llama3-70B"), layout, "megatron")
    print(trnsim.project(workloads, "h100"))

`Trainer` is the program itself; it trains on CPUs too. `Generator` has the same modules for
prefills and decoding steps, `capture_inference` records one. Names are resolved when they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "Generator": "generator",
    "Layout": "layout",
    "Model": "models",
    "STYLES": "style",
    "Serving": "serving",
    "Style": "style",
    "Trainer": "trainer",
    "capture": "roles",
    "capture_inference": "generator",
    "configure": "rows",
    "configure_serving": "serving_rows",
    "preset_names": "models",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'trnsim.recipes' has no attribute '{name}'")
    module = importlib.import_module(f"trnsim.recipes.{_LAZY[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
