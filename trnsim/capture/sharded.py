# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Parameters of which this rank holds a part: DTensor, FSDP1 and FSDP2.

What they count as a whole, which storages are behind them, and what FSDP gathers them into.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import math
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_map_only

from trnsim import _torch
from trnsim.capture import groups, process_group


def plain_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with a storage of their own behind a wrapper such as DTensor; else itself."""
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        inner = getattr(tensor, name)
        if isinstance(inner, torch.Tensor):  # a DTensor has its mesh there, too
            yield from plain_tensors(inner)


def set_storage_kind(tensor: torch.Tensor, kind: str) -> None:
    """Says what the storages behind the tensor are for."""
    for plain in plain_tensors(tensor):
        _torch.set_storage_kind(plain, kind)


_MOST_DEVICES = 128  # torch keeps a device's index in 8 bits


class _InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, work: Callable[[], None]) -> torch.Tensor:
        ctx.work = work
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.work()
        return gradients[0], None


def forget_meshes(device_index: int) -> None:
    """Lets DTensor forget what it found for meshes of groups that end with this job.

    It looks meshes up by their shapes, so the next job's would be taken for this one's, whose
    groups are gone or, worse, others of the same name. Each thread has a memory of its own: this
    one's and that of the device's backward are cleared.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()
    for index in {device_index, torch.accelerator.current_device_index()}:
        if index >= min(_MOST_DEVICES, _torch.device_count()):
            continue  # such a rank has computed on the current device
        device = f"{process_group.device_name()}:{index}"
        with torch.enable_grad():
            start = torch.empty(0, device=device, requires_grad=True)
            end = _InBackward.apply(start, _clear_sharding_prop_cache).sum()
        with contextlib.suppress(RuntimeError):  # no backward ever ran on a device with this index
            end.backward()


def kept_parameters(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """The parameters of a module: where FSDP2 has gathered one, the part that it keeps."""
    kept = {}
    for each in module.modules():
        state = each._get_fsdp_state() if hasattr(each, "_get_fsdp_state") else None
        for group in getattr(state, "_fsdp_param_groups", ()):
            for parameter in group.fsdp_params:
                if hasattr(parameter, "_unsharded_param"):
                    kept[id(parameter._unsharded_param)] = parameter.sharded_param
    for parameter in module.parameters():
        yield kept.get(id(parameter), parameter)


def whole_counts(modules: Iterable[torch.nn.Module]) -> dict[int, int]:
    """Elements on all ranks of the parameters that FSDP1 flattened and cut, and of those that
    tensor parallelism cut under DDP, by id.

    They show this rank's part only; a DTensor counts as a whole by itself.
    """
    counts: dict[int, int] = {}
    for module in modules:
        for parameter in module.parameters(recurse=False):
            spec = getattr(parameter, "_st_info", None)
            if spec is not None:
                counts[id(parameter)] = math.prod(spec.shape)
        flat = getattr(getattr(module, "_handle", None), "flat_param", None)
        if flat is None or not hasattr(flat, "_shapes"):
            continue
        sizes = [math.prod(shape) for shape in flat._shapes]
        originals = getattr(flat, "_params", None)
        if originals is None:
            counts[id(flat)] = sum(sizes)
        else:
            counts.update(zip(map(id, originals), sizes, strict=True))
    return counts


class Chunks(Sequence[torch.Tensor]):
    """What torch.chunk gives, filled up with empty tensors that are made when they are asked for.

    A tensor of 512 rows over 65,536 ranks has 512 chunks of one row and 65,024 empty ones.
    """

    def __init__(self, tensor: torch.Tensor, count: int, dim: int) -> None:
        self._real = torch.chunk(tensor, count, dim=dim)
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> torch.Tensor: ...

    @overload
    def __getitem__(self, index: slice) -> list[torch.Tensor]: ...

    def __getitem__(self, index: int | slice) -> torch.Tensor | list[torch.Tensor]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        at = index + self._count if index < 0 else index
        if not 0 <= at < self._count:
            raise IndexError(f"chunk {index} of {self._count}")
        return self._real[at] if at < len(self._real) else self._real[0].new_empty(0)


def chunked_on_demand(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces FSDP2's ``_chunk_with_empty``, which makes a tensor a rank for each parameter."""

    @functools.wraps(original)
    def _chunk_with_empty(tensor: torch.Tensor, num_chunks: int, dim: int) -> Any:
        if process_group.is_one_process():
            return Chunks(tensor, num_chunks, dim)
        return original(tensor, num_chunks, dim)

    return _chunk_with_empty


def told_gathered(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``FSDPParam.alloc_all_gather_outputs``: says that they hold what was gathered."""

    @functools.wraps(original)
    def alloc_all_gather_outputs(parameter: Any) -> None:
        original(parameter)
        for tensor in parameter.all_gather_outputs:
            set_storage_kind(tensor, "communication")

    return alloc_all_gather_outputs


def told_resharded(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``FSDPParam.to_sharded_post_forward``: says that the part which is kept from forward
    to backward, of fewer ranks than there are, is what was gathered."""

    @functools.wraps(original)
    def to_sharded_post_forward(parameter: Any) -> None:
        original(parameter)
        kept = getattr(parameter, "_sharded_post_forward_param_data", None)
        if isinstance(kept, torch.Tensor):
            set_storage_kind(kept, "communication")

    return to_sharded_post_forward


def told_accumulated(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``FSDPParam.to_accumulated_grad_if_needed``, which FSDP2 calls where a backward pass
    does not reduce: says that what is kept for later ones is a gradient, whole as it is."""

    @functools.wraps(original)
    def to_accumulated_grad_if_needed(parameter: Any) -> None:
        original(parameter)
        kept = parameter.unsharded_accumulated_grad
        kept = parameter._unsharded_param.grad if kept is None else kept
        if kept is not None:
            set_storage_kind(kept, "gradient")

    return to_accumulated_grad_if_needed


def _tell_kept(state: Any) -> None:
    slots = [getattr(state, name, None) for name in getattr(type(state), "__slots__", ())]
    for value in [*slots, *getattr(state, "__dict__", {}).values()]:
        for kept in value.values() if isinstance(value, dict) else [value]:
            if isinstance(kept, torch.Tensor):
                set_storage_kind(kept, "communication")


def told_buckets(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces DDP's ``_register_comm_hook``: says that the bucket and what the hook
    keeps from step to step (the errors and factors of PowerSGD) are for messages."""

    @functools.wraps(original)
    def _register_comm_hook(reducer: Any, state: Any, hook: Callable[..., Any]) -> None:
        @functools.wraps(hook)
        def told(state: Any, bucket: Any) -> Any:
            set_storage_kind(bucket.buffer(), "communication")
            _tell_kept(state)  # what was made when the last message had come
            future = hook(state, bucket)
            _tell_kept(state)
            return future

        original(reducer, state, told)

    return _register_comm_hook


def told_unsharded(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Replaces ``FlatParamHandle._alloc_padded_unsharded_flat_param`` of FSDP1, likewise."""

    @functools.wraps(original)
    def _alloc_padded_unsharded_flat_param(handle: Any) -> torch.Tensor:
        gathered = original(handle)
        set_storage_kind(gathered, "communication")
        return gathered

    return _alloc_padded_unsharded_flat_param


def complete_with_one_part(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_validate_global_plan`` of distributed checkpoints, which misses the parts of the
    ranks that do not run: the checkpoint has this rank's, which this rank can load again."""

    @functools.wraps(original)
    def _validate_global_plan(global_plan: Any, metadata: Any) -> Any:
        if not process_group.is_one_process():
            return original(global_plan, metadata)
        _torch.add_note(
            "a distributed checkpoint is written with the captured rank's parts alone: only a run "
            "on as many chips can load it"
        )
        return original([], dataclasses.replace(metadata, state_dict_metadata={}))

    return _validate_global_plan


def reduced_by_this_rank(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_DistWrapper.reduce_scatter`` of distributed checkpoints.

    Rank 0 plans for all and sends each rank its part of the plan. Rank 0's own plan is of rank 0's
    parts of the tensors; another captured rank plans its own, as if all ranks had it.
    """

    @functools.wraps(original)
    def reduce_scatter(
        wrapper: Any,
        step: str,
        map_fun: Callable[[], Any],
        reduce_fun: Callable[[list[Any]], list[Any]],
    ) -> Any:
        is_other = wrapper.use_dist and not wrapper.is_coordinator
        if not is_other or not groups.is_captured(wrapper.group):
            with groups.nothing_kept():
                return original(wrapper, step, map_fun, reduce_fun)
        own = map_fun()
        wrapper.gather_object(own)
        with _planning_as(wrapper.rank):
            part = reduce_fun([own] * wrapper.get_world_size())[wrapper.rank]
        size = len(pickle.dumps(part))
        groups.send_scattered(size, wrapper.global_coordinator_rank, wrapper.group)
        return part

    return reduce_scatter


_planning_rank = 0  # in the group of the checkpoint


@contextlib.contextmanager
def _planning_as(rank: int) -> Iterator[None]:
    global _planning_rank
    before, _planning_rank = _planning_rank, rank
    try:
        yield
    finally:
        _planning_rank = before


def kept_by_this_rank(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``dedup_save_plans`` of distributed checkpoints: what several ranks have is shared
    out between them, and only this one writes."""

    @functools.wraps(original)
    def dedup_save_plans(all_plans: Any, save_to_lowest_rank: bool = False) -> Any:
        if not process_group.is_one_process():
            return original(all_plans, save_to_lowest_rank)
        return [
            plan if rank == _planning_rank else dataclasses.replace(plan, items=[])
            for rank, plan in enumerate(all_plans)
        ]

    return dedup_save_plans


def saved_by_a_thread(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``execute_save`` of the process that writes a checkpoint beside the training: it
    would wait half an hour for those of the other ranks, and a thread writes the same files."""

    @functools.wraps(original)
    def execute_save(executor: Any, *arguments: Any, **named: Any) -> Any:
        if not process_group.is_one_process():
            return original(executor, *arguments, **named)
        from torch.distributed.checkpoint import _async_thread_executor

        thread = _async_thread_executor._ThreadBasedAsyncCheckpointExecutor()
        return thread.execute_save(*arguments, **named)

    return execute_save


def consolidated_of_this_rank(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``ZeroRedundancyOptimizer.consolidate_state_dict``: the states of other ranks, whose
    bytes it would unpickle, are left out."""

    @functools.wraps(original)
    def consolidate_state_dict(optimizer: Any, to: int = 0) -> None:
        if not groups.is_captured(optimizer.process_group):
            return original(optimizer, to)
        optimizer._check_overlap_initialized()
        optimizer._sync_param_groups(optimizer.param_groups, optimizer.optim.param_groups)
        parts = optimizer._partition_parameters() if optimizer.rank == to else []
        optimizer._all_state_dicts = [
            _on_host(optimizer.optim.state_dict()) if rank == to else _without_state(part)
            for rank, part in enumerate(parts)
        ]
        return None

    return consolidate_state_dict


def _on_host(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), value)


def _without_state(part: list[dict[str, Any]]) -> dict[str, Any]:
    """What an optimizer of these groups says that has not stepped."""
    count = itertools.count()
    numbered = [{**group, "params": [next(count) for _ in group["params"]]} for group in part]
    return {"state": {}, "param_groups": numbered}


def keys_of_all_ranks(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces FSDP1's ``_map_param_key_to_optim_keys``, which gathers from all ranks which
    parameters they have a part of: together, they have all."""

    @functools.wraps(original)
    def _map_param_key_to_optim_keys(*args: Any, **kwargs: Any) -> Any:
        keys, own = original(*args, **kwargs)
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        if not (keys and given.get("merge_keys") and groups.is_captured(given["group"])):
            return keys, own
        make = type(keys[0])
        trained = {
            make(unflat_param_names=(name,), is_fsdp_managed=True)
            for name, info in given["fqn_to_fsdp_param_info"].items()
            if info.param_requires_grad[info.param_indices[name]]
        }
        return sorted(trained.union(keys)), own

    return _map_param_key_to_optim_keys
