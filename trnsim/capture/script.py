# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Runs a training script unchanged and hands out what it asked of the device.

``run_script`` is ``trnsim run``; ``start_capture`` and ``stop_capture`` are the two halves that
``trnsim.simulate`` puts around a block of code.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.machinery
import itertools
import os
import runpy
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

import trnsim.device  # noqa: F401  the device, also where torch does not load it by itself
from trnsim import _torch
from trnsim.capture import frameworks, groups, patches, pipelining, process_group, sharded
from trnsim.capture.hooks import Hooks, StopCapture
from trnsim.capture.world import World
from trnsim.errors import CaptureError
from trnsim.lower.custom import with_given_costs
from trnsim.workload import Workload


@dataclass
class CaptureResult:
    """What a script left.

    Attributes:
        workload: everything that was recorded.
        exit_code: the script's own; 1 after an exception, as Python has it.
        exception: what ended the script, its traceback already printed, or None.
        shapes: what stages of a pipeline said to each other.
    """

    workload: Workload
    exit_code: int = 0
    exception: BaseException | None = None
    shapes: pipelining.Shapes = field(default_factory=pipelining.Shapes)


@dataclass
class _Capture:
    world: World
    hooks: Hooks
    stack: contextlib.ExitStack
    had_group: bool
    peaks: list[int]  # bytes of each device, at the start


_running: _Capture | None = None


def start_capture(
    world: World,
    mode: str | None = None,
    capacity_bytes: int | None = None,
    no_oom: bool = False,
    stop_after_step: int | None = None,
) -> None:
    """Begins to record what this process asks of the device.

    Args:
        world: the job that this process is a rank of.
        mode: "phantom" or "compute"; None keeps the present one. It can change only while no
            tensor is on the device.
        capacity_bytes: memory of one device; None keeps the present capacity.
        no_oom: over capacity is counted instead of raised as ``torch.OutOfMemoryError``.
        stop_after_step: raise ``StopCapture`` when so many whole steps are recorded; 0: when the
            one that is measured by default is.

    Raises:
        CaptureError: when a capture is running, or the mode cannot change.
    """
    global _running
    if _running is not None:
        raise CaptureError("a capture is already running: end it before starting another")
    if mode is not None:
        _torch.set_mode(mode)
    hooks = Hooks(stop_after_step)
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, sys, "excepthook", sys.excepthook)  # a process group changes it
        stack.callback(_torch.set_device_count, _torch.device_count())
        _torch.set_device_count(world.local_world_size)
        stack.callback(sharded.forget_meshes, world.local_rank)
        stack.callback(_torch.set_capacity_bytes, _torch.capacity_bytes())
        if capacity_bytes is not None:
            _torch.set_capacity_bytes(capacity_bytes)
        stack.callback(_torch.set_only_report_out_of_memory, False)
        _torch.set_only_report_out_of_memory(no_oom)
        stack.enter_context(world.entered())
        stack.enter_context(frameworks.device_in_environment())
        stack.enter_context(patches.applied(patches.during_capture(hooks)))
        stack.enter_context(process_group.gloo_in_one_process())
        stack.enter_context(process_group.rendezvous_in_one_process())
        had_group = dist.is_initialized()
        if not had_group:
            _torch.reset_groups()
            _torch.set_world(world.rank, world.world_size, world.local_world_size)
        _torch.distributed.take_counts()
        _torch.start_recording()
        hooks.install()
        stack.callback(hooks.remove)
        _running = _Capture(world, hooks, stack.pop_all(), had_group, _peaks())


def _peaks() -> list[int]:
    return [_torch.peak_bytes(device) for device in range(_torch.device_count())]


def stop_capture(others_follow: bool = False) -> Workload:
    """Ends the capture that is running and hands out its Workload.

    Args:
        others_follow: the ranks that it has messages with are captured too.

    Raises:
        CaptureError: when no capture is running.
    """
    global _running
    if _running is None:
        raise CaptureError("no capture is running: call start_capture first")
    capture, _running = _running, None
    with capture.stack:
        _note_what_was_left_out(capture, others_follow)
        _torch.set_parameter_count(capture.hooks.parameter_count)
        workload = Workload.from_capsule(_torch.stop_recording())
    return with_given_costs(workload)


def _note_what_was_left_out(capture: _Capture, others_follow: bool) -> None:
    world, note = capture.world, _torch.add_note
    point_to_point, on_host = _torch.distributed.take_counts()
    if not world.formed_group and not capture.had_group:
        if world.chips > 1:
            note(f"1 of {world.chips} chips used: the script is not distributed")
        _torch.set_world(0, 1, 1)
    if point_to_point and _torch.mode() == "compute":
        note("compute mode: what other ranks send reads as zeros, so values after it are not real")
    if point_to_point and not others_follow:
        note(
            f"{point_to_point} point-to-point messages with other ranks: only rank {world.rank} "
            "was captured, and what the others do is not known; trnsim run captures them too"
        )
    now = _peaks()
    used = [index for index, peak in enumerate(capture.peaks) if now[index] > peak]
    if len(used) > 1:
        names = " and ".join(f"{process_group.device_name()}:{index}" for index in used)
        note(
            f"tensors were on {names}: one process with several devices is not simulated, and the "
            "work of all of them is counted as one device's"
        )
    if on_host:
        note(f"{on_host} collectives of CPU tensors have no time")
    if capture.hooks.steps_on_host and len(capture.hooks.devices) > 1:
        note("an optimizer steps parameters on the CPU (offloaded?): that work has no time here")


def run_script(
    path_or_module: str,
    args: Sequence[str] = (),
    *,
    is_module: bool = False,
    world: World | None = None,
    mode: str = "phantom",
    capacity_bytes: int | None = None,
    no_oom: bool = False,
    stop_after_step: int | None = None,
    notes: Sequence[str] = (),
    shapes: pipelining.Shapes | None = None,
    others_follow: bool = False,
) -> CaptureResult:
    """Runs a script as ``python`` would, as ``__main__``, on the simulated device.

    Args:
        path_or_module: the script's path, or a module's name with ``is_module``.
        args: its arguments.
        world: the job that it is a rank of; one rank when None.
        mode: "phantom" (shapes only) or "compute" (values too).
        capacity_bytes: memory of one device; None keeps the present capacity.
        no_oom: over capacity is counted instead of raised.
        stop_after_step: end the script after so many whole steps, or with 0 after the one that is
            measured by default; its ``finally`` blocks run.
        notes: what the Workload says beside what capture itself had to guess.
        shapes: what stages of a pipeline have said to each other; it takes what they say.
        others_follow: the ranks that it exchanges messages with are captured too.

    Raises:
        CaptureError: when there is no such script, or it ran to its end and no op ran on the
            device.
        KeyboardInterrupt: passes.
    """
    if not is_module and not os.path.exists(path_or_module):
        raise CaptureError(f"no such script: '{path_or_module}'")
    world = world or World()
    shapes = pipelining.begin(shapes)
    _torch.distributed.begin_host_broadcasts(shapes.tensors)
    start_capture(world, mode, capacity_bytes, no_oom, stop_after_step)
    hooks = _running.hooks
    for note in notes:
        _torch.add_note(note)
    run = _Run(path_or_module, [str(argument) for argument in args], is_module)
    gc.freeze()  # what is there already outlives the script: no collection need look at it
    groups.runs_script = True
    try:
        run.execute()
    finally:
        groups.runs_script = False
        gc.unfreeze()
        work = _torch.work_count()
        seen = [] if work else _devices_of_tensors(hooks)
        workload = stop_capture(others_follow)
        shapes.tensors = _torch.distributed.take_host_broadcasts()
        if dist.is_initialized():
            dist.destroy_process_group()
        run.restore()
    if run.exit_code == 0 and not work:
        raise CaptureError(_no_op_ran(path_or_module, seen))
    return CaptureResult(workload, run.exit_code, run.exception, shapes)


def _devices_of_tensors(hooks: Hooks) -> list[str]:
    """Kinds of device that the script's tensors are on: those of its modules, else all alive."""
    if hooks.devices:
        return list(hooks.devices)
    kinds: dict[str, None] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):  # isinstance would run code of the objects
            kinds[thing.device.type] = None
    return list(kinds)


def _no_op_ran(script: str, devices: list[str]) -> str:
    name = process_group.device_name()
    where = f"its tensors were on {' and '.join(devices)}" if devices else "it made no tensors"
    return (
        f"no op of '{script}' ran on {name}: {where}; choose the device by "
        f"torch.accelerator.current_accelerator() or the script's own option"
    )


# Libraries that the command has loaded, and torch has not.
_LIBRARIES = (
    "typer",
    "click",
    "shellingham",
    "rich",
    "pygments",
    "markdown_it",
    "mdurl",
    "pyarrow",
)


class _Names:
    """Files beside a script that are called like libraries: as under Python, `import rich` in the
    script means its own rich.py; and before and after the script it means the library."""

    def __init__(self, folder: str) -> None:
        self._folder, self._path = folder, list(sys.path)
        self._before = set(sys.modules)
        self._hidden: dict[str, types.ModuleType] = {}
        for name in _LIBRARIES:
            if importlib.machinery.PathFinder.find_spec(name, [folder]) is not None:
                self._hidden |= _taken_out(name)

    def restore(self) -> None:
        for name in {name.partition(".")[0] for name in set(sys.modules) - self._before}:
            spec = getattr(sys.modules.get(name), "__spec__", None)
            own = importlib.machinery.PathFinder.find_spec(name, [self._folder])
            if spec is None or own is None or spec.origin != own.origin:
                continue
            if importlib.machinery.PathFinder.find_spec(name, self._path) is not None:
                _taken_out(name)
        for name in self._hidden:
            _taken_out(name)
        sys.modules.update(self._hidden)


def _taken_out(name: str) -> dict[str, types.ModuleType]:
    """A module and those below it, removed from sys.modules."""
    names = [each for each in sys.modules if each == name or each.startswith(f"{name}.")]
    return {each: sys.modules.pop(each) for each in names}


class _Run:
    """One run of a script in this interpreter, which gets everything back afterwards."""

    def __init__(self, target: str, args: list[str], is_module: bool) -> None:
        self._target, self._args, self._is_module = target, args, is_module
        self._argv, self._path = sys.argv, list(sys.path)
        self._excepthook, self._folder = sys.excepthook, os.getcwd()
        self.exit_code = 0
        self.exception: BaseException | None = None
        self._globals: dict[str, Any] = {}  # alive until the recording has ended
        self._names: _Names | None = None

    def execute(self) -> None:
        sys.argv = [self._target, *self._args]
        first = os.getcwd() if self._is_module else os.path.dirname(os.path.abspath(self._target))
        self._names = _Names(first)
        sys.path.insert(0, first)
        try:
            if self._is_module:
                self._globals = runpy.run_module(self._target, run_name="__main__", alter_sys=True)
            else:
                self._globals = runpy.run_path(self._target, run_name="__main__")
        except StopCapture:
            pass
        except SystemExit as exit_:
            self.exit_code = _code_of(exit_)
        except Exception as exception:  # noqa: BLE001 - the script's own, whatever it is
            self.exit_code, self.exception = 1, exception
            _strip(exception, set())
            sys.excepthook(type(exception), exception, exception.__traceback__)
        finally:
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed or replaced
                sys.stdout.flush()

    def restore(self) -> None:
        sys.argv, sys.path[:] = self._argv, self._path
        sys.excepthook = self._excepthook
        os.chdir(self._folder)
        self._globals = {}
        if self._names is not None:
            self._names.restore()


def _code_of(exit_: SystemExit) -> int:
    if exit_.code is None:
        return 0
    if isinstance(exit_.code, int):
        return int(exit_.code) & 0xFF  # what a process can give
    print(exit_.code, file=sys.stderr)
    return 1


_OUR_FILES = (os.path.dirname(os.path.abspath(__file__)) + os.sep, runpy.__file__)


def _is_ours(traceback: types.TracebackType) -> bool:
    name = traceback.tb_frame.f_code.co_filename
    return name.startswith(_OUR_FILES) or name == "<frozen runpy>"


def _strip(exception: BaseException | None, done: set[int]) -> None:
    """Takes our frames and runpy's out of the exception's traceback, and of its causes'."""
    if exception is None or id(exception) in done:
        return
    done.add(id(exception))
    kept = []
    traceback = exception.__traceback__
    while traceback is not None:
        if not _is_ours(traceback):
            kept.append(traceback)
        traceback = traceback.tb_next
    for before, after in itertools.pairwise([*kept, None]):
        before.tb_next = after
    exception.__traceback__ = kept[0] if kept else None
    _strip(exception.__cause__, done)
    _strip(exception.__context__, done)
