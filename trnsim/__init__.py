# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""trnsim: runs an unchanged PyTorch training script on a simulated machine.

    with trnsim.simulate("trn2-ultra", chips=64) as sim:
        loss = model(batch); loss.backward(); optimizer.step()   # on torch.device("trn")
    print(sim.projection)

`trnsim.project(workload, machine)` projects a recorded Workload again, `trnsim.load(path)` reads
one from a run file, `trnsim.collective("all_reduce", "trn2", ranks=16)` simulates one collective,
`trnsim.compare("train.py", machines=["trn2", "h100"], chips=8)` and
`trnsim.scale("train.py", chips="1..16")` run a script, or train a model by its name, on several
machines or at several sizes,
`trnsim.search("llama3-405b", machine="rainier", chips=16384)` tries every layout of a model,
`trnsim.goodput("run.trnsim", tokens=10**12)` says what failures and checkpoints cost a long run,
`trnsim.cost("mylib::op")` registers what an op of your own costs.
`import trnsim` alone imports nothing heavy: each name is resolved when used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# name -> (module, attribute), or the module itself
_LAZY = {
    "Machine": ("trnsim._core", "Machine"),
    "Simulation": ("trnsim.simulate", "Simulation"),
    "TrnSimError": ("trnsim.errors", "TrnSimError"),
    "Workload": ("trnsim.workload", "Workload"),
    "collective": ("trnsim.project.collective", "collective"),
    "capture": ("trnsim.capture", None),
    "compare": ("trnsim.plan", "compare"),
    "cost": ("trnsim.lower.custom", "cost"),
    "disturb": ("trnsim.plan", "disturb"),
    "errors": ("trnsim.errors", None),
    "goodput": ("trnsim.plan", "goodput"),
    "load": ("trnsim.workload", "load"),
    "machine": ("trnsim.machine", None),
    "project": ("trnsim.project", None),
    "plan": ("trnsim.plan", None),
    "report": ("trnsim.report", None),
    "scale": ("trnsim.plan", "scale"),
    "search": ("trnsim.plan", "search"),
    "simulate": ("trnsim.simulate", None),
    "workload": ("trnsim.workload", None),
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'trnsim' has no attribute '{name}'")
    module, attribute = _LAZY[name]
    found = importlib.import_module(module)
    return found if attribute is None else getattr(found, attribute)


def _autoload() -> None:
    """What `import torch` calls, by the entry point in `torch.backends`; see `trnsim.plugin`."""
    from trnsim.plugin import autoload

    autoload()


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
