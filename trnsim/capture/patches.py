# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Every library function that is replaced at run time, with the reason; nothing else is.

Each replacement keeps the function's signature and calls the original. ``always`` ones are made
when the device is loaded and stay, ``LATE`` ones when torch loads what they replace; all others are
in force during a capture and are undone after.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trnsim.capture import launch, pipelining, process_group
from trnsim.capture.after_import import after_import
from trnsim.capture.hooks import Hooks, recorded_frame, recorded_reentrant, uncompiled


class Patch(NamedTuple):
    """One replaced function.

    Attributes:
        module: where its name is looked up.
        name: the function, or "Class.method".
        make: from the original to its replacement.
        reason: why there is no other way.
        versions: of torch, for which it was checked.
    """

    module: str
    name: str
    make: Callable[[Any], Any]
    reason: str
    versions: str = "torch 2.11 to 2.15"


_INIT = "no hook exists before the rendezvous, which would wait for ranks that never start"

_LAUNCH = "processes that a script starts are other ranks; only the captured one runs, in process"

ALWAYS = (
    Patch(
        "torch.distributed.distributed_c10d",
        "init_process_group",
        process_group.init_process_group_in_one_process,
        _INIT,
    ),
    Patch(
        "torch.distributed",
        "init_process_group",
        process_group.init_process_group_in_one_process,
        _INIT,
    ),
    Patch(
        "torch.distributed",
        "_verify_params_across_processes",
        process_group.verify_params_of_identical_ranks,
        "DDP gathers a tensor a rank and reads each: seconds for 65,536 ranks that are alike",
    ),
)

_PIPELINE = "a stage asks its neighbours for shapes, and they run later, in processes of their own"

# Where a version of torch has no such name, it is left as it is.
LATE = (
    Patch(
        "torch.distributed.pipelining.stage",
        "PipelineStage._warmup_backward_result",
        pipelining.inferred_shapes,
        _PIPELINE,
        "torch 2.14",
    ),
    Patch(
        "torch.distributed.pipelining.stage",
        "PipelineStage._send_meta",
        pipelining.kept_shapes,
        _PIPELINE,
        "torch 2.14",
    ),
    Patch(
        "torch.distributed.pipelining.stage",
        "PipelineStage._recv_meta",
        pipelining.known_shapes,
        _PIPELINE,
        "torch 2.14",
    ),
)

_OBJECTS_OF = "it would unpickle bytes that nobody knows"


def during_capture(hooks: Hooks) -> tuple[Patch, ...]:
    """The replacements that tell ``hooks`` what happens, and keep a script in one process."""
    return (
        Patch(
            "torch.nn.modules.module",
            "Module.__call__",
            hooks.recorded_call,
            "global forward hooks get no keyword arguments, and cost eight times as much",
        ),
        Patch(
            "torch.amp.grad_scaler",
            "GradScaler._maybe_opt_step",
            hooks.recorded_skip,
            "a step that is left out after an overflow runs no optimizer hook",
        ),
        Patch(
            "torch.distributed",
            "Reducer._rebuild_buckets",
            hooks.recorded_rebuild,
            "DDP tells nobody in which step it lays its buckets anew",
        ),
        Patch(
            "torch.utils.checkpoint",
            "CheckpointFunction.forward",
            recorded_reentrant,
            "no hook says that a checkpointed function runs again",
        ),
        Patch(
            "torch.utils.checkpoint",
            "_CheckpointFrame.__init__",
            recorded_frame,
            "no hook says that a checkpointed function runs again",
        ),
        Patch(
            "torch",
            "compile",
            uncompiled,
            "torch's compilers write code for devices that they know",
        ),
        Patch("torch.distributed", "recv_object_list", process_group.refused_objects, _OBJECTS_OF),
        Patch(
            "torch.distributed.distributed_c10d",
            "recv_object_list",
            process_group.refused_objects,
            _OBJECTS_OF,
        ),
        Patch("torch.multiprocessing", "spawn", launch.start_in_process, _LAUNCH),
        Patch("torch.multiprocessing.spawn", "spawn", launch.start_in_process, _LAUNCH),
        Patch("torch.multiprocessing", "start_processes", launch.start_in_process, _LAUNCH),
        Patch("torch.multiprocessing.spawn", "start_processes", launch.start_in_process, _LAUNCH),
        Patch(
            "torch.distributed.launcher.api",
            "elastic_launch.__call__",
            launch.launch_in_process,
            _LAUNCH,
        ),
    )


def _owner(patch: Patch) -> tuple[Any, str]:
    # import_module, since torch.multiprocessing.spawn is also the name of a function.
    owner = importlib.import_module(patch.module)
    *path, name = patch.name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, name


def install(patch: Patch) -> Callable[[], None]:
    """Puts the replacement in place; the result undoes it."""
    owner, name = _owner(patch)
    original = vars(owner)[name]
    if isinstance(original, staticmethod):
        setattr(owner, name, staticmethod(patch.make(original.__func__)))
    else:
        setattr(owner, name, patch.make(original))
    return lambda: setattr(owner, name, original)


def install_always() -> None:
    """Makes the replacements that stay; once, when the device is loaded."""
    for patch in ALWAYS:
        owner, name = _owner(patch)
        if not hasattr(vars(owner)[name], "_trnsim_original"):
            original = vars(owner)[name]
            install(patch)
            vars(owner)[name]._trnsim_original = original
    for patch in LATE:
        after_import(patch.module, functools.partial(_install_where_it_is, patch))


def _install_where_it_is(patch: Patch) -> None:
    with contextlib.suppress(AttributeError, KeyError):
        install(patch)


@contextlib.contextmanager
def applied(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Inside, the replacements are in force."""
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.callback(install(patch))
        yield
