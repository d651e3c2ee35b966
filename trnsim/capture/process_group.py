# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The device's c10d backend, as ``torch.distributed`` sees it.

``init_process_group()`` without a name, with the device's name, or with
``"cpu:gloo,trn:trn"`` gets a process group in which this process stands for all ranks. No other
rank exists, so nothing here ever waits for one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from trnsim import _torch
from trnsim.capture.world import current_world
from trnsim.errors import CaptureError


def device_name() -> str:
    """The device's name: "trn", unless the user chose another; "cuda" in the CUDA mode."""
    return _torch.device_name()


def backend_name() -> str:
    """The name of our backend: the device's, or that of CUDA's in the CUDA mode."""
    name = device_name()
    return "nccl" if name == "cuda" else name


def _what_to_write() -> str:
    name = device_name()
    return f"write init_process_group(), or init_process_group('cpu:gloo,{name}:{backend_name()}')"


def is_one_process() -> bool:
    """Is there a default process group, in which this process stands for all ranks?"""
    if not dist.is_initialized():
        return False
    store = distributed_c10d._world.pg_map[distributed_c10d._get_default_group()][1]
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return isinstance(store, _torch.distributed.Store)


def register_backend() -> None:
    """Makes the backend known under its name and the default of the device; once."""
    name = backend_name()
    if name == "nccl":  # torch's own would look for GPUs
        plugin = dist.Backend._BackendPlugin(functools.partial(_create, name, ""), True)
        dist.Backend._plugins["NCCL"] = plugin
        return
    if name.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(
        name, functools.partial(_create, name, ""), extended_api=True, devices=[name, "cpu"]
    )


def _create(name: str, refused_device_hint: str, options: Any, backend_options: Any) -> Any:
    """Called by torch for each group, and once for each kind of device that has its own backend."""
    if not options.global_ranks_in_group and not refused_device_hint:
        _note_world(options.group_rank, options.group_size)
    return _torch.distributed.create_backend(options, name, refused_device_hint)


_world_names: set[str] = set()


def call_world(name: str) -> None:
    """Names the default group, unless it is called by two names."""
    _world_names.add(name)
    _torch.distributed.name_group(0, name if len(_world_names) == 1 else "")


def _note_world(rank: int, size: int) -> None:
    _world_names.clear()
    _torch.distributed.name_group(0, "")
    world = current_world()
    per_server = torch.accelerator.device_count()
    if world is not None:
        world.formed_group = True
        if size != world.world_size:
            _torch.add_note(
                f"the script forms a group of {size} ranks, not of the {world.world_size} asked for"
            )
    _torch.set_world(rank, size, max(1, min(per_server, size)))


def _is_ours(backend: str | None, device_id: Any) -> bool:
    """Would init_process_group with these arguments drive our device?"""
    name = device_name()
    if backend is None or backend == "undefined":
        if isinstance(device_id, torch.device):
            return device_id.type == name
        accelerator = torch.accelerator.current_accelerator()
        return accelerator is not None and accelerator.type == name
    pairs = [pair.split(":") for pair in str(backend).lower().split(",")]
    return any(pair[-1] == backend_name() for pair in pairs)


def _rank_and_size(init_method: str | None, rank: int, size: int) -> tuple[int, int]:
    """As torch's rendezvous reads them: arguments, then the URL, then the environment."""
    query = parse_qs(urlparse(init_method or "env://").query)
    if rank < 0:
        world = current_world()
        alone = world is not None and world.world_size == 1  # its RANK hides: see world.py
        own = "0" if alone else os.environ.get("RANK", "-1")
        rank = int(query.get("rank", [own])[0])
    if size < 0:
        size = int(query.get("world_size", [os.environ.get("WORLD_SIZE", "-1")])[0])
    return rank, size


def init_process_group_in_one_process(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``init_process_group``: gives our backend a store that never waits."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        backend = given.get("backend")
        ours = _is_ours(backend, given.get("device_id"))
        if current_world() is not None:
            _refuse_unservable(backend)
        elif not ours:
            return original(*args, **kwargs)
        if given.get("store") is None:
            rank, size = _rank_and_size(
                given.get("init_method"), given.get("rank", -1), given.get("world_size", -1)
            )
            if rank >= 0 and size > 0:
                given.pop("init_method", None)
                given.update(store=_torch.distributed.Store(size), rank=rank, world_size=size)
        return original(*bound.args, **bound.kwargs)

    return init_process_group


def _refuse_unservable(backend: str | None) -> None:
    name = device_name()
    known = {backend_name(), "gloo", "undefined", "fake"}
    for part in str(backend or "undefined").lower().split(","):
        if part.split(":")[-1] not in known:
            raise CaptureError(f"backend '{backend}' cannot drive {name}: {_what_to_write()}")


@contextlib.contextmanager
def gloo_in_one_process() -> Iterator[None]:
    """Inside, gloo groups are ours too: for CPU tensors, since gloo does not serve the device."""
    plugins, capability = dist.Backend._plugins, dist.Backend.backend_capability
    plugin, devices = plugins.get("GLOO"), capability["gloo"]
    name = device_name()
    hint = f"gloo serves CPU tensors only; {_what_to_write()}"
    plugins["GLOO"] = dist.Backend._BackendPlugin(functools.partial(_create, "gloo", hint), True)
    capability["gloo"] = [*devices, name]
    try:
        yield
    finally:
        capability["gloo"] = devices
        if plugin is None:
            del plugins["GLOO"]
        else:
            plugins["GLOO"] = plugin


@contextlib.contextmanager
def rendezvous_in_one_process() -> Iterator[None]:
    """Inside, every rendezvous URL leads to a store of our own."""

    def meet(url: str, **_: Any) -> Iterator[tuple[Any, int, int]]:
        rank, size = _rank_and_size(url, -1, -1)
        yield _torch.distributed.Store(size), rank, size
        raise RuntimeError("a simulated job cannot meet again: it has one process")

    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    before = dict(handlers)
    handlers.update({scheme: meet for scheme in ("env", "tcp", "file")})
    try:
        yield
    finally:
        handlers.clear()
        handlers.update(before)


def verify_params_of_identical_ranks(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_verify_params_across_processes``, whose cost grows with the world.

    torch gathers one tensor a rank and reads each on the host; here all ranks are this one, so the
    comparison holds. The two messages are still sent: the gathered counts, and rank 0's shapes.
    """

    def _verify_params_across_processes(
        process_group: Any, params: list[torch.Tensor], logger: Any = None
    ) -> None:
        name = device_name()
        if not params or params[0].device.type != name:
            return original(process_group, params, logger)
        shape_count = sum(2 * parameter.dim() for parameter in params)
        counts = torch.zeros(1, dtype=torch.int64, device=params[0].device)
        gathered = torch.empty(process_group.size(), dtype=torch.int64, device=params[0].device)
        process_group._allgather_base(gathered, counts).wait()  # the name that every version has
        shapes = torch.zeros(max(1, shape_count), dtype=torch.int64, device=params[0].device)
        root = distributed_c10d.get_global_rank(process_group, 0)
        dist.broadcast(shapes, src=root, group=process_group)
        return None

    return _verify_params_across_processes


def refused_objects(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``recv_object_list``: the rank that sends the objects runs in another process."""

    @functools.wraps(original)
    def recv_object_list(*args: Any, **kwargs: Any) -> Any:
        if current_world() is None or dist.get_world_size() == 1:
            return original(*args, **kwargs)
        raise CaptureError(
            "recv_object_list: the objects that another rank sends are not known; make them on "
            "every rank, or use broadcast_object_list"
        )

    return recv_object_list


def refused_rpc(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``torch.distributed.rpc.init_rpc``: its workers call each other, and one runs."""

    @functools.wraps(original)
    def init_rpc(*args: Any, **kwargs: Any) -> Any:
        if current_world() is None:
            return original(*args, **kwargs)
        raise CaptureError(
            "torch.distributed.rpc is not simulated: its workers run what others send them, and "
            "only one process of the script runs; use collectives, DistributedDataParallel or "
            "torch.distributed.pipelining"
        )

    return init_rpc
