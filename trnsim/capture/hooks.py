# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a recording learns from Python: modules, optimizers, recomputation, and where steps end.

The recorder sees ops. Which module they belong to, that an optimizer runs, or that a checkpointed
function runs again is known to Python alone; here it is told to the recorder. All of it is in force
only while a recording runs. Each module call costs about a microsecond.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.nn import Module
from torch.utils.weak import WeakIdKeyDictionary

from trnsim import _torch
from trnsim.capture import compile, sharded

_graph_task = torch._C._current_graph_task_id


class StopCapture(BaseException):
    """Ends a script once enough steps are recorded; not an Exception, so that scripts pass it."""


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.paths: list[str] = []  # of the module calls that this thread is in
        self.optimizers: list[Any] = []  # whose step() this thread is in
        # The input of a forward whose samples the first submodule that gets it will tell.
        self.waiting: torch.Tensor | None = None


# Parts of a path that FSDP1 and activation checkpointing put into it.
_WRAPPERS = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"}


class ModulePaths:
    """Names modules by their path from the root that was called: "layers.0.attn".

    The first root's paths stand alone; those of any other root begin with its class name, numbered
    when several roots share it. A module that belongs to no root (made during a forward) is named
    by its class below its caller.
    """

    def __init__(self) -> None:
        self._paths: dict[int, tuple[weakref.ref[Module], str]] = {}
        self._roots: dict[str, int] = {}
        self._has_root = False

    def of(self, module: Module, callers: list[str]) -> str:
        entry = self._paths.get(id(module))
        if entry is not None and entry[0]() is module:
            return entry[1]
        if callers and isinstance(module, torch.fx.GraphModule):
            return callers[-1]  # a piece of a compiled graph
        if callers:
            name = type(module).__name__
            path = f"{callers[-1]}.{name}" if callers[-1] else name
            self._paths[id(module)] = (weakref.ref(module), path)
            return path
        return self._add_root(module)

    def _add_root(self, root: Module) -> str:
        prefix = self._prefix(root) if self._has_root or not _has_parameters(root) else ""
        self._has_root = self._has_root or not prefix
        for name, module in root.named_modules():
            if isinstance(root, torch.nn.parallel.DistributedDataParallel):
                name = name.removeprefix("module").removeprefix(".")
            name = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
            path = f"{prefix}.{name}" if prefix and name else prefix or name
            entry = self._paths.get(id(module))
            if entry is None or entry[0]() is not module or module is root:
                self._paths[id(module)] = (weakref.ref(module), path)
        return self._paths[id(root)][1]

    def _prefix(self, root: Module) -> str:
        name = type(root).__name__
        count = self._roots[name] = self._roots.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def _has_parameters(module: Module) -> bool:
    return next(module.parameters(), None) is not None


def _has_shapes_only(module: Module, tensors: list[torch.Tensor]) -> bool:
    """Whether its parameters and what it takes are on the meta device."""
    first = next(module.parameters(), None)
    held = tensors if first is None else [first, *tensors]
    return bool(held) and all(each.device.type == "meta" for each in held)


def _tensors(value: Any, depth: int = 0) -> Iterable[torch.Tensor]:
    """Tensors in arguments, also in lists, tuples and dictionaries up to two levels down."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 3 and isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part, depth + 1)
    elif depth < 3 and isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part, depth + 1)


def _first_input(tensors: list[torch.Tensor]) -> torch.Tensor | None:
    """The tensor that counts samples: no mask, and none that is broadcast over them."""
    inputs = [each for each in tensors if each.dim() > 0 and each.dtype != torch.bool]
    if not inputs:
        return None
    if all(each.dim() == 1 for each in inputs):
        return None  # samples of one number, one's features, packed tokens: which cannot be told
    whole = (each for each in inputs[1:] if each.dim() > 1 and each.size(0) > 1)
    return inputs[0] if inputs[0].size(0) != 1 else next(whole, inputs[0])


def _count_of_images(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Of a first argument that lists images of their own sizes, (channels, height, width) each, as
    torchvision's detectors take them; None for any other."""
    first = next(iter((*args, *kwargs.values())), None)
    if not isinstance(first, (list, tuple)) or not first:
        return None
    is_image = (isinstance(each, torch.Tensor) and each.dim() == 3 for each in first)
    if not all(is_image) or any(each.size(0) not in (1, 3, 4) for each in first):
        return None
    return len(first)


def _mapped_count(tensor: torch.Tensor) -> int | None:
    """Over how many slices vmap maps the tensor; None where it does not."""
    count, functorch = None, torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        inner = functorch.get_unwrapped(tensor)
        if functorch.is_batchedtensor(tensor):
            count = (1 if count is None else count) * inner.size(functorch.maybe_get_bdim(tensor))
        tensor = inner
    return count


def _is_sequence_first(module: Module) -> bool:
    """Whether it is one of torch's own modules that take (time, batch, ...)."""
    if isinstance(module, (nn.TransformerEncoder, nn.TransformerDecoder)):
        module = next(iter(module.layers), module)
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        module = module.self_attn
    batched = (nn.RNNBase, nn.MultiheadAttention, nn.Transformer)
    return isinstance(module, batched) and not module.batch_first


_OPTIMIZER_FILE = sys.modules[torch.optim.Optimizer.__module__].__file__


def _enclosing_steps() -> int:
    """How many hooked ``Optimizer.step`` calls the present one is inside of."""
    count, frame = -1, sys._getframe()
    while frame is not None:
        code = frame.f_code
        count += code.co_name == "wrapper" and code.co_filename == _OPTIMIZER_FILE
        frame = frame.f_back
    return count


class Hooks:
    """The state of one recording.

    ``stop_after_step``: end the script after so many whole steps; 0: after the one that is measured
    by default, which is the second, or the next in which DDP does not lay its buckets anew.
    """

    def __init__(self, stop_after_step: int | None = None) -> None:
        self._stops_after_measured = stop_after_step == 0
        self.stop_after_step = 2 if self._stops_after_measured else stop_after_step
        self.devices: dict[str, None] = {}  # kinds of device seen, in the order of their sight
        self.parameter_count = 0  # of the modules that were called and the optimizers that stepped
        self.steps_on_host = False  # whether an optimizer holds parameters on the CPU
        self._known_parameters = WeakIdKeyDictionary()
        self._whole_counts: dict[int, int] = {}  # of parameters that show a part, by id
        self._modules = ModulePaths()
        self._seen_roots: weakref.WeakSet[Module] = weakref.WeakSet()
        # Those that had parameters when they were first called: tensor parallelism under DDP puts
        # tensors in their place.
        self._with_parameters: weakref.WeakSet[Module] = weakref.WeakSet()
        self._has_sequences: weakref.WeakKeyDictionary[Module, bool] = weakref.WeakKeyDictionary()
        self._thread = _PerThread()
        self._optimizer_ids: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._optimizer_of = WeakIdKeyDictionary()  # of parameters
        self._optimizer_count = 0
        self._with_state: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stepped = False
        self._steps = 0
        self._inferred = False  # whether a module ran under no_grad since an optimizer stepped
        self._in_next: weakref.WeakSet[Module] | None = None  # modules that the next step called
        self._handles: list[Any] = []

    # --- modules --------------------------------------------------------------------------------

    def recorded_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces ``torch.nn.Module.__call__``."""
        hooks, thread, path_of = self, self._thread, self._modules.of
        push, pop = _torch.push_module, _torch.pop_module

        # torch.profiler finds the module of this frame (with_stack) as its local variable `self`.
        @functools.wraps(original)
        def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling():  # its graph knows the modules of its nodes by itself
                return original(self, *args, **kwargs)
            paths = thread.paths
            is_outermost = not paths
            path = path_of(self, paths)
            paths.append(path)
            push(path)
            try:
                if is_outermost:
                    hooks._begin_outermost(self, args, kwargs)
                elif thread.waiting is not None:
                    hooks._ask_submodule(self, args, kwargs)
                return original(self, *args, **kwargs)
            finally:
                if is_outermost and thread.waiting is not None:
                    hooks._tell_samples(thread.waiting)
                pop()
                paths.pop()

        return __call__

    def _begin_outermost(self, module: Module, args: tuple[Any, ...], kwargs: Any) -> None:
        if _graph_task() != -1:
            return  # a checkpointed function that runs again
        tensors = list(_tensors((args, kwargs)))
        if _has_shapes_only(module, tensors):
            return  # a script that counts FLOPs on a copy of its model
        if module not in self._seen_roots:
            self._seen_roots.add(module)
            if _has_parameters(module):
                self._with_parameters.add(module)
            self._whole_counts |= sharded.whole_counts(module.modules())
            for parameter in sharded.kept_parameters(module):
                self._add_parameter(parameter)
            for buffer in module.buffers():
                sharded.set_storage_kind(buffer, "buffer")
        for tensor in tensors:
            self.devices[tensor.device.type] = None
            if not tensor.requires_grad and not isinstance(tensor, torch.nn.Parameter):
                sharded.set_storage_kind(tensor, "input")
        self._inferred |= self._stepped and not torch.is_grad_enabled()
        has_parameters = module in self._with_parameters or _has_parameters(module)
        if torch.is_grad_enabled() and module.training and has_parameters:
            is_traced = torch._C._get_tracing_state() is not None  # sizes are then tensors
            first = None if is_traced else _first_input(tensors)
            self._begin_forward(module, first, _count_of_images(args, kwargs))

    def _begin_forward(
        self, module: Module | None, first: torch.Tensor | None, images: int | None = None
    ) -> None:
        if self._stepped:
            self._stepped = False
            self._steps += 1
        if self.stop_after_step is not None and self._steps >= self.stop_after_step:
            self._end_of_last(module)
        if first is None:
            _torch.record_marker("forward_begin", -1)
        elif images is not None:
            _torch.record_marker("forward_begin", images)
        elif _is_sequence_first(module) or not self._holds_sequences(module):
            self._tell_samples(first, module)
        else:
            _torch.record_marker("forward_begin", -1)
            self._thread.waiting = first

    def _end_of_last(self, module: Module | None) -> None:
        """The last step has ended. What ran under no_grad after its optimizer (a frozen encoder?)
        is in it if the next forward or loss reads it: then that much of the next step runs too."""
        if self._inferred and self._in_next is None:
            self._in_next = weakref.WeakSet()
        if module is not None and self._in_next is not None and module not in self._in_next:
            self._in_next.add(module)
            return
        # What the script still does on its way out is no part of the step.
        _torch.record_marker("forward_begin", -1)
        self._stop()

    def _stop(self) -> None:
        self._inferred, self._in_next = False, None
        raise StopCapture  # again at each forward, where a script catches all exceptions

    def _holds_sequences(self, module: Module) -> bool:
        """Whether it has parts that take (time, batch, ...)."""
        if module not in self._has_sequences:
            self._has_sequences[module] = any(map(_is_sequence_first, module.modules()))
        return self._has_sequences[module]

    def _ask_submodule(self, module: Module, args: tuple[Any, ...], kwargs: Any) -> None:
        first = self._thread.waiting
        if not any(tensor is first for tensor in _tensors((args, kwargs))):
            return
        if _is_sequence_first(module) or not self._holds_sequences(module):
            self._tell_samples(first, module)

    def _tell_samples(self, first: torch.Tensor, module: Module | None = None) -> None:
        samples = first.size(0)
        if module is not None and _is_sequence_first(module):
            samples = first.size(1) if first.dim() > 2 else 1
        mapped = _mapped_count(first)
        if mapped is not None:  # of more rows, who can tell whether they are samples or features?
            samples = mapped if samples == 1 else -1
        self._thread.waiting = None
        _torch.record_marker("forward_begin", samples)

    def _add_parameter(self, parameter: torch.Tensor) -> None:
        if torch.nn.parameter.is_lazy(parameter):
            return
        sharded.set_storage_kind(parameter, "parameter")  # of its storage now: it may have moved
        if parameter not in self._known_parameters:
            self._known_parameters[parameter] = None
            self.parameter_count += self._whole_counts.get(id(parameter), parameter.numel())

    def compiled_forward(self) -> None:
        """A compiled region begins that autograd will walk back: perhaps outside of any module."""
        if not self._thread.paths:
            self._begin_forward(None, None)

    # --- optimizers -----------------------------------------------------------------------------

    def install(self) -> None:
        """Registers torch's own hooks around every optimizer's step."""
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        compile.capture = self
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def remove(self) -> None:
        compile.capture = None
        for handle in self._handles:
            handle.remove()
        self._handles = []
        while self._thread.optimizers:
            self._leave_optimizer()

    def _id_of(self, optimizer: Any) -> int:
        if optimizer not in self._optimizer_ids:
            self._optimizer_ids[optimizer] = self._optimizer_count
            self._optimizer_count += 1
            self._add_parameters(optimizer)
        return self._optimizer_ids[optimizer]

    def recorded_group(self, original: Callable[..., None]) -> Callable[..., None]:
        """Replaces ``Optimizer.add_param_group``: whose parameters a compiled step changes."""

        @functools.wraps(original)
        def add_param_group(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            for parameter in optimizer.param_groups[-1]["params"]:
                self._optimizer_of[parameter] = weakref.ref(optimizer)

        return add_param_group

    @contextlib.contextmanager
    def compiled_step(self, changed: Iterable[Any]) -> Iterator[None]:
        """Around a compiled region that changes these tensors: is it a step of an optimizer?"""
        optimizer = None
        if not self._thread.optimizers and not torch.is_grad_enabled():
            found = (self._optimizer_of.get(tensor) for tensor in changed)
            optimizer = next((each() for each in found if each is not None), None)
        if optimizer is None:
            yield
            return
        self._before_step(optimizer, (), {})
        try:
            yield
        finally:
            self._after_step(optimizer, (), {})

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """What torch then calls the step with, where that is something else."""
        if is_dynamo_compiling():
            return None  # its graph calls compiled_step
        if self._in_next is not None:
            self._stop()
        identity = self._id_of(optimizer)
        running = self._thread.optimizers
        if running and len(running) != _enclosing_steps():  # an earlier step raised an exception
            while running:
                self._leave_optimizer()
        if not running:
            _torch.record_marker("optimizer_begin", identity)
            self._follow_parameters(optimizer)
        running.append(optimizer)
        _torch.push_optimizer()
        if len(running) > 1:
            return None  # it is the enclosing step's closure, if there is one
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside_optimizer(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._outside_optimizer(kwargs["closure"])}
        return None

    def _follow_parameters(self, optimizer: Any) -> None:
        """They may have moved, as to what they were averaged into (local SGD)."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if type(parameter) is torch.nn.Parameter and parameter.numel() > 0:
                    _torch.set_storage_kind(parameter, "parameter")

    def _outside_optimizer(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """The closure, which an optimizer's step calls to run forward and backward."""

        @functools.wraps(closure)
        def evaluated(*args: Any, **kwargs: Any) -> Any:
            depth = len(self._thread.optimizers)
            for _ in range(depth):
                _torch.pop_optimizer()
            try:
                return closure(*args, **kwargs)
            finally:
                for _ in range(depth):
                    _torch.push_optimizer()

        return evaluated

    def _add_parameters(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.devices[parameter.device.type] = None
                self._add_parameter(parameter)
                self.steps_on_host = self.steps_on_host or parameter.device.type == "cpu"

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_dynamo_compiling():
            return
        self._leave_optimizer()
        if not self._thread.optimizers:
            _torch.record_marker("optimizer_end", self._id_of(optimizer))
            self._stepped, self._inferred = True, False
        if optimizer not in self._with_state:
            self._with_state.add(optimizer)
            for tensor in _tensors(list(optimizer.state.values())):
                sharded.set_storage_kind(tensor, "optimizer_state")

    def _leave_optimizer(self) -> None:
        self._thread.optimizers.pop()
        _torch.pop_optimizer()

    def recorded_skip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces ``GradScaler._maybe_opt_step``, which leaves the step out after an overflow."""

        @functools.wraps(original)
        def _maybe_opt_step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._stepped = False
            result = original(scaler, optimizer, *args, **kwargs)
            if not self._stepped:
                _torch.record_marker("optimizer_skipped", self._id_of(optimizer))
            self._stepped = True
            return result

        return _maybe_opt_step

    def recorded_rebuild(self, original: Callable[..., bool]) -> Callable[..., bool]:
        """Replaces ``Reducer._rebuild_buckets``, by which DDP lays its buckets in the second step
        in the order in which the first made gradients: the ranks agree on it by a broadcast."""

        def _rebuild_buckets(reducer: Any) -> bool:
            rebuilt = original(reducer)
            if rebuilt:
                _torch.record_marker("setup", 0)
                if self._stops_after_measured and self._steps > 0:
                    self.stop_after_step = self._steps + 2
            return rebuilt

        return _rebuild_buckets


# --- recomputation ------------------------------------------------------------------------------


class _Again:
    """A checkpointed function: its first run is the forward, every later one is recomputation."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._has_run = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._has_run:
            self._has_run = True
            return self._function(*args, **kwargs)
        return recomputed(self._function, *args, **kwargs)


def recomputed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the function with its ops recorded as recomputation."""
    _torch.push_recomputation()
    try:
        return function(*args, **kwargs)
    finally:
        _torch.pop_recomputation()


def recorded_reentrant(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``CheckpointFunction.forward``."""

    @functools.wraps(original)
    def forward(ctx: Any, run_function: Callable[..., Any], *args: Any) -> Any:
        return original(ctx, _Again(run_function), *args)

    return forward


def recorded_frame(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``_CheckpointFrame.__init__`` of the non-reentrant checkpoint."""

    @functools.wraps(original)
    def __init__(frame: Any, recompute_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        original(frame, functools.partial(recomputed, recompute_fn), *args, **kwargs)

    return __init__
