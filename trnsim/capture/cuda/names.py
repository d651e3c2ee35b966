# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""``torch.cuda`` of the CUDA mode: torch's own Python over functions of the simulated device.

``torch.cuda`` keeps its Python; what it calls, the functions ``torch._C._cuda_*``, is ours. Those
that touch no device stay torch's (`_NATIVE`), and every other one refuses by its name, so that
nothing reaches the driver that is not there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch

from trnsim import _torch
from trnsim.capture import imports
from trnsim.capture.cuda import graphs, libraries, limits, nvtx, storages
from trnsim.device import memory, properties, streams

# What scripts that know only GPUs take for a current one: without 8.0 or more they leave bfloat16
# and fused kernels out, whatever the device could do.
COMPUTE_CAPABILITY = (9, 0)

_C = torch._C

# Settings and facts of torch itself.
_NATIVE = {
    "_cuda_getCompiledVersion",
    "_cuda_getHipblasltVersion",
    "_cuda_get_conv_benchmark_empty_cache",
    "_cuda_get_cudnn_benchmark_limit",
    "_cuda_isInBadFork",
    "_cuda_set_cudnn_benchmark_limit",
    "_cuda_tunableop_is_enabled",
    "_cuda_tunableop_tuning_is_enabled",
    "_cuda_record_untuned_is_enabled",
}


def _exchange(device: int) -> int:
    return -1 if device < 0 else _C._accelerator_exchangeDevice(device)


def _maybe_exchange(device: int) -> int:  # another function: dynamo has a handler for each
    return _exchange(device)


def _stream_parts(stream: torch.Stream) -> tuple[int, int, int]:
    return stream.stream_id, stream.device_index, stream.device_type


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    torch.accelerator.set_stream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )


class _SyncDebug:
    mode = 0


def _set_sync_debug_mode(mode: int) -> None:
    _SyncDebug.mode = mode


def _set_memory_fraction(fraction: float, device: int) -> None:
    _torch.set_capacity_bytes(int(fraction * properties.get_device_properties(device).total_memory))


def _scatter(tensor: Any, devices: list[int], *unused: Any) -> tuple[torch.Tensor, ...]:
    """What DataParallel asks for; of one device alone it is a copy."""
    if len(devices) > 1:
        limits.refuse("DataParallel", limits.SEVERAL)
    return (tensor.to(torch.device("cuda", devices[0])),)


def _c_functions() -> dict[str, Callable[..., Any]]:
    """By their names in ``torch._C``."""
    return {
        "_cuda_init": lambda: None,
        "_cuda_getDeviceCount": _torch.device_count,
        "_cuda_getDevice": _C._accelerator_getDeviceIndex,
        "_cuda_setDevice": lambda index: _C._accelerator_setDeviceIndex(
            properties.check_index(index)
        ),
        "_cuda_exchangeDevice": _exchange,
        "_cuda_maybeExchangeDevice": _maybe_exchange,
        "_cuda_hasPrimaryContext": lambda index: True,
        "_cuda_canDeviceAccessPeer": lambda index, peer: True,
        "_cuda_synchronize": lambda: _C._accelerator_synchronizeDevice(
            _C._accelerator_getDeviceIndex()
        ),
        "_cuda_ipc_collect": lambda: None,
        "_cuda_getArchFlags": lambda: None,
        "_cuda_getCurrentBlasHandle": lambda: 0,  # asked for to warm cuBLAS up
        "_cuda_clearCublasWorkspaces": lambda: None,
        "_cuda_getCurrentStream": lambda device: _stream_parts(
            torch.accelerator.current_stream(device)
        ),
        "_cuda_getDefaultStream": _torch.default_stream,
        "_cuda_setStream": _set_stream,
        "_cuda_getCurrentRawStream": lambda device: (
            torch.accelerator.current_stream(device).stream_id
        ),
        "_cuda_isCurrentStreamCapturing": graphs.is_capturing,
        "_cuda_get_sync_debug_mode": lambda: _SyncDebug.mode,
        "_cuda_set_sync_debug_mode": _set_sync_debug_mode,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_emptyCache": _C._accelerator_emptyCache,
        "_cuda_memoryStats": _C._accelerator_getDeviceStats,
        "_cuda_resetAccumulatedMemoryStats": _C._accelerator_resetAccumulatedStats,
        "_cuda_resetPeakMemoryStats": _C._accelerator_resetPeakStats,
        "_cuda_setMemoryFraction": _set_memory_fraction,
        "_cuda_memorySnapshot": lambda *unused: memory._snapshot(),
        "_cuda_memoryMetadataSupported": lambda: False,
        "_cuda_isHistoryEnabled": lambda: False,
        "_scatter": _scatter,
        "_host_emptyCache": lambda: None,
    }


class _Runtime:
    """What ``torch.cuda.cudart()`` gives: those calls of the runtime that mean something here."""

    class cudaError(int):
        success = 0

    def __init__(self) -> None:
        self.cudaProfilerStart = self.cudaProfilerStop = lambda: 0
        self.cudaMemGetInfo = memory.mem_get_info

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return limits.refusing(f"torch.cuda.cudart().{name}", limits.RUNTIME)


def _device_properties(index: int) -> properties.DeviceProperties:
    major, minor = COMPUTE_CAPABILITY
    return dataclasses.replace(
        properties.get_device_properties(index),
        name=properties.get_device_name(index),
        major=major,
        minor=minor,
    )


class Stream(streams.Stream):
    """``torch.cuda.Stream``: a stream of the simulated device."""

    @property
    def cuda_stream(self) -> int:
        """A number, in place of CUDA's handle."""
        return self.stream_id

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class MemPool:
    """``torch.cuda.MemPool``: a type, since dynamo asks of values whether they are one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        limits.refuse("torch.cuda.MemPool", limits.RUNTIME)


class _Generators:
    """``torch.cuda.default_generators``: one a device, as many as there are when it is asked."""

    def __len__(self) -> int:
        return _torch.device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        if not -len(self) <= index < len(self):
            raise IndexError(f"device {index} of {len(self)}")
        return _torch.default_generator(index % len(self))


def _python_names() -> dict[str, dict[str, Any]]:
    """By module: what torch.cuda defines itself, and cannot keep."""
    capturing = {
        "CUDAGraph": graphs.CUDAGraph,
        "graph": graphs.graph,
        "graph_pool_handle": graphs.graph_pool_handle,
        "is_current_stream_capturing": graphs.is_capturing,
    }
    classes = {"Stream": Stream, "Event": streams.Event}
    return {
        "torch.cuda": {
            "_initialized": True,
            "_exchange_device": _exchange,
            "_maybe_exchange_device": _maybe_exchange,
            "_cudart": _Runtime(),
            "_get_device_properties": _device_properties,
            "_device_count_nvml": _torch.device_count,
            "_nvml_based_avail": lambda: False,
            "is_available": lambda: True,
            "device_count": _torch.device_count,
            "default_generators": _Generators(),
            "check_error": lambda result: None,
            "_get_pynvml_handler": limits.refusing("what NVML measures", limits.RUNTIME),
            "MemPool": MemPool,
            **classes,
            **capturing,
        },
        "torch.cuda.streams": classes,
        "torch.cuda.graphs": capturing,
        "torch.cuda.memory": {
            "_record_memory_history": memory._record_memory_history,
            "_snapshot": memory._snapshot,
            "_dump_snapshot": memory._dump_snapshot,
            "MemPool": MemPool,
        },
        "torch.cuda.nvtx": {"_nvtx": nvtx.Ranges()},
        "torch.backends.cudnn": {"is_acceptable": lambda tensor: False, "_init": lambda: False},
    }


def _leave_to_python(functions: list[Callable[..., Any]], eval_frame: Any) -> None:
    """Where a graph breaks, dynamo compiles the functions called next. Torch's own are no Python,
    which it lets run; so it shall these, and what they call."""
    skip = eval_frame.FrameAction.SKIP
    for function in functions:
        code = getattr(function, "__code__", None)
        if code is not None:
            eval_frame.set_code_exec_strategy(code, eval_frame.FrameExecStrategy(skip, skip))


def install() -> None:
    """Puts all of it in place; once, right after torch is imported."""
    import importlib

    served = _c_functions()
    for name in dir(_C):
        if name.startswith("_cuda_") and name not in served and name not in _NATIVE:
            served[name] = limits.refusing(f"torch._C.{name}", limits.RUNTIME)
    for name, why in limits.C_FUNCTIONS.items():
        served[name] = limits.refusing(f"torch._C.{name}", why)
    for name, function in served.items():
        setattr(_C, name, function)
    imports.after_import(
        "torch._dynamo.eval_frame", functools.partial(_leave_to_python, list(served.values()))
    )
    for module_name, names in _python_names().items():
        module = importlib.import_module(module_name)
        for name, value in names.items():
            # A torch.backends module is an object around the real one, which is its `m`.
            setattr(getattr(module, "m", module), name, value)
    for name, method in storages.METHODS.items():
        setattr(torch.UntypedStorage, name, method)
    operators = torch._ops._Ops
    operators.load_library = libraries.served_after_load(operators.load_library)
    _wrap_documented()


def _wrap_documented() -> None:
    """Replaced functions keep torch's names and words, for help() and tracebacks."""
    for name in ("is_available", "device_count"):
        function = getattr(torch.cuda, name)

        @functools.wraps(function)
        def documented(function: Callable[..., Any] = function) -> Any:
            return function()

        documented.__name__ = documented.__qualname__ = name
        documented.__module__ = "torch.cuda"
        setattr(torch.cuda, name, documented)
