# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.compile on the device: graphs are run op by op, inside a region that the record names.

Dynamo traces, AOTAutograd makes the forward and the backward graph, and torch's own min-cut
partitioner chooses what is kept and what is computed again. Nothing is compiled for a processor:
each graph is Python that calls aten ops, with marks that say where a region, a module and
recomputation begin and end. What lowering may fuse, it knows from the region.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trnsim import _torch
from trnsim.capture.cuda import graphs
from trnsim.device import properties

# The trnsim.capture.hooks.Hooks of the capture that runs.
capture: Any = None


def compiled_on_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces the call of torch's default backend; graphs without our device go on to it."""

    @functools.wraps(original)
    def __call__(wrapper: Any, model: Any, inputs: Sequence[Any], **kwargs: Any) -> Any:
        if not _is_on_device(model, inputs):
            return original(wrapper, model, inputs, **kwargs)
        return _backend(torch.is_grad_enabled())(model, inputs)

    return __call__


def _is_on_device(model: Any, inputs: Sequence[Any]) -> bool:
    name = _torch.device_name()
    if any(_device_type(value) == name for value in inputs):
        return True
    nodes = getattr(getattr(model, "graph", None), "nodes", ())
    return any(_device_type(value) == name for node in nodes for value in _values(node))


def _values(node: Any) -> list[Any]:
    known = [node.meta.get("example_value"), node.meta.get("val")]
    return [*known, *node.args, *node.kwargs.values()]


def _device_type(value: Any) -> str | None:
    if isinstance(value, torch.Tensor):
        return value.device.type
    return value.type if isinstance(value, torch.device) else None


@functools.cache
def _backend(keeps_gradients: bool) -> Callable[..., Any]:
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    # Without gradients, as in an optimizer's step, ops in place stay so: made functional, the graph
    # would keep what they overwrite, and copy it back at the end.
    known = inspect.signature(torch._functorch.aot_autograd.aot_module_simplified).parameters
    in_place = not keeps_gradients and "disable_functionalization" in known
    return aot_autograd(
        fw_compiler=functools.partial(_run_in_region, "forward"),
        bw_compiler=functools.partial(_run_in_region, "backward"),
        inference_compiler=functools.partial(_run_in_region, "inference"),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
        **({"disable_functionalization": True} if in_place else {}),
    )


def _run_in_region(kind: str, graph_module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A boxed function that runs the graph and lets go of its arguments as it uses them."""
    from torch.fx._lazy_graph_module import _LazyGraphModule
    from torch.fx.graph import _BoxedCodeGen

    ops = sum(node.op == "call_function" for node in graph_module.graph.nodes)
    _add_marks(graph_module.graph, kind == "backward")
    graph_module.graph.set_codegen(_BoxedCodeGen())
    graph_module.recompile()
    _LazyGraphModule.force_recompile(graph_module)  # else its first call is a module's call
    run, description = graph_module.forward, f"compiled {kind} of {ops} ops"
    changed = _changed_inputs(graph_module.graph) if kind == "inference" else []

    def region(arguments: list[Any]) -> Any:
        step = contextlib.nullcontext()
        if capture is not None and kind == "forward":
            capture.compiled_forward()
        elif capture is not None and changed:
            step = capture.compiled_step([arguments[index] for index in changed])
        with step:
            # Inside a CUDA graph it is launched with it, and nothing fuses there.
            what = graphs.DESCRIPTION if graphs.is_capturing() else description
            _torch.begin_region(what, kind == "forward")
            try:
                return run(arguments)
            finally:
                _torch.end_region()

    region._boxed_call = True
    return region


def _changed_inputs(graph: Any) -> list[int]:
    """Which of the graph's arguments it writes to."""
    inputs = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    changed = set()
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                values = value if isinstance(value, (list, tuple)) else [value]
                changed.update(inputs[each] for each in values if each in inputs)
    return sorted(changed)


# --- estimates -----------------------------------------------------------------------------------


def _has_real_gpu() -> bool:
    return _torch.device_name() != "cuda" and torch.cuda.is_available()


def estimated_bandwidth(original: Callable[[], float]) -> Callable[[], float]:
    """Replaces ``get_gpu_dram_gbps``, by which AOTAutograd lays out what streams wait for."""

    @functools.wraps(original)
    def get_gpu_dram_gbps() -> float:
        return (
            original() if _has_real_gpu() else properties.described_machine().hbm_bytes_per_s / 1e9
        )

    return get_gpu_dram_gbps


def estimated_tflops(original: Callable[[torch.dtype], float]) -> Callable[[torch.dtype], float]:
    """Replaces ``get_device_tflops``; 0 where the machine has no figure, as torch has it."""

    @functools.wraps(original)
    def get_device_tflops(dtype: torch.dtype) -> float:
        if _has_real_gpu():
            return original(dtype)
        peaks = properties.described_machine().published_flops
        return peaks.get(str(dtype).removeprefix("torch."), 0.0) / 1e12

    return get_device_tflops


# --- marks --------------------------------------------------------------------------------------


def belongs_to(path: str) -> None:
    """Called by graphs: what follows belongs to the module of this path below the region's."""
    _torch.set_region_module(path)


def begin_recomputation() -> None:
    """Called by graphs: what follows was computed in the forward pass, and not kept."""
    _torch.push_recomputation()


def end_recomputation() -> None:
    """Called by graphs: ends what `begin_recomputation` began."""
    _torch.pop_recomputation()


def _add_marks(graph: Any, is_backward: bool) -> None:
    """Puts calls between the nodes, where their module or recomputation changes."""
    module, again = "", False
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is operator.getitem or _is_view(node.target):
            continue
        own_module, own_again = _module_of(node), is_backward and not _is_of_backward(node)
        with graph.inserting_before(node):
            if own_module != module:
                graph.call_function(belongs_to, (own_module,))
            if own_again != again:
                graph.call_function(begin_recomputation if own_again else end_recomputation)
        module, again = own_module, own_again


def _is_view(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and getattr(target, "is_view", False)


def _is_of_backward(node: Any) -> bool:
    return node.meta.get("partitioner_tag") in ("is_backward", "must_be_in_backward")


_ROOT = re.compile(r"^[A-Z]\[['\"][^'\"]*['\"]\]\.?")
_KEY = re.compile(r"\.?(?:_modules)?\[['\"]?([^'\"\]]+)['\"]?\]")


def _module_of(node: Any) -> str:
    """The path of the node's module below the one that was compiled: "layers.0.mlp"."""
    stack = node.meta.get("fwd_nn_module_stack") or node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = _ROOT.sub("", str(next(reversed(stack.values()))[0]))
    return _KEY.sub(r".\1", path).replace("_orig_mod.", "").removesuffix("_orig_mod").strip(".")
