# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What torch.distributed does once for each rank of a group, done once for all ranks alike."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import pickle
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from trnsim import _torch
from trnsim.capture import pipelining, process_group
from trnsim.capture.world import current_world
from trnsim.errors import CaptureError

# Whether a script runs, whose rank has this process to itself.
runs_script = False


def only_own_group(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_new_group_with_tag``: a group without this rank is no group here.

    Every rank calls it for every group of a mesh, since real ranks meet; 8,192 of them take
    seconds.
    """

    @functools.wraps(original)
    def _new_group_with_tag(ranks: Sequence[int] | None = None, *args: Any, **kwargs: Any) -> Any:
        if ranks is not None and process_group.is_one_process() and _is_of_others(ranks):
            return dist.GroupMember.NON_GROUP_MEMBER
        group = original(ranks, *args, **kwargs)
        if kwargs.get("group_desc") and isinstance(group, dist.ProcessGroup):
            _name(group, kwargs["group_desc"])
        return group

    return _new_group_with_tag


def _name(group: dist.ProcessGroup, name: str) -> None:
    """Says what the group is called: its backend learns that at its first message only."""
    device = torch.device(process_group.device_name())
    if device in group._device_types:
        backend = group._get_backend(device)
        if isinstance(backend, _torch.distributed.Backend):
            _torch.distributed.name_group(backend.group, name)


def named_by_mesh(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``DeviceMesh.__init__``: a dimension over the whole world gets torch's default
    group, and its name is nowhere in it. Where meshes call the world differently, it has none."""

    @functools.wraps(original)
    def __init__(mesh: Any, *args: Any, **kwargs: Any) -> None:
        original(mesh, *args, **kwargs)
        names = getattr(mesh, "mesh_dim_names", None) or ()
        if not process_group.is_one_process() or mesh.size() != dist.get_world_size():
            return
        for dim, name in enumerate(names):
            if mesh.size(dim) == mesh.size() > 1:
                process_group.call_world(f"mesh_{name}")

    return __init__


def chooses_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``DeviceMesh._setup_world_group_and_device``, which makes LOCAL_RANK's device
    current where nobody has used one yet; ours is initialized from the start. For scripts: a
    program that captures several ranks has one device for all (autograd counts devices once)."""

    @functools.wraps(original)
    def _setup_world_group_and_device(mesh: Any) -> Any:
        group = original(mesh)
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        is_ours = runs_script and mesh.device_type == process_group.device_name()
        is_unused = _torch.current_device() == 0 and not _torch.live_block_count()
        if is_ours and is_unused and local_rank:
            torch.accelerator.set_device_index(local_rank)
        return group

    return _setup_world_group_and_device


def compared_by_hash(original: Callable[..., bool]) -> Callable[..., bool]:
    """Replaces ``DeviceMesh.__eq__``, which walks all ranks of both meshes where they are equal; a
    mesh keeps its hash, which is of the ranks too."""

    @functools.wraps(original)
    def __eq__(mesh: Any, other: object) -> bool:
        if mesh is other:
            return True
        if type(other) is not type(mesh):
            return original(mesh, other)
        if hash(mesh) != hash(other):
            return False
        pair = (id(mesh), id(other))
        found = _EQUAL_MESHES.get(pair)
        if found is None or found[0]() is not mesh or found[1]() is not other:
            if not original(mesh, other):
                return False
            _EQUAL_MESHES[pair] = (weakref.ref(mesh), weakref.ref(other))
        return True

    return __eq__


_EQUAL_MESHES: dict[tuple[int, int], tuple[Any, Any]] = {}  # pairs that were found to be equal


def _is_of_others(ranks: Sequence[int]) -> bool:
    """Is it a valid group that this rank is not in?"""
    try:
        members = set(ranks)
        return (
            0 < len(members) == len(ranks)
            and dist.get_rank() not in members
            and min(members) >= 0
            and max(members) < dist.get_world_size()
        )
    except TypeError:
        return False  # torch says what is wrong with them


def gathered_once(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``all_gather_object``, which reads a size and unpickles once for each rank."""

    @functools.wraps(original)
    def all_gather_object(
        object_list: list[Any], obj: Any, group: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        if not _serves(group) or args or kwargs.get("weights_only"):
            return original(object_list, obj, group, *args, **kwargs)
        object_list[: dist.get_world_size(group)] = _from_all(obj, group, _all_gather)
        return None

    return all_gather_object


def gathered_at_root_once(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``gather_object``, likewise."""

    @functools.wraps(original)
    def gather_object(
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        root = 0 if dst is None else dst
        is_plain = not args and not any(value for value in kwargs.values())
        if (
            object_gather_list is None
            or root != dist.get_rank()
            or not is_plain
            or not _serves(group)
        ):
            return original(obj, object_gather_list, dst, group, *args, **kwargs)
        send = functools.partial(_gather, root)
        object_gather_list[: dist.get_world_size(group)] = _from_all(obj, group, send)
        return None

    return gather_object


_keeps = True


@contextlib.contextmanager
def nothing_kept() -> Iterator[None]:
    """Inside, objects that are scattered are not kept for other ranks."""
    global _keeps
    before, _keeps = _keeps, False
    try:
        yield
    finally:
        _keeps = before


def is_captured(group: Any) -> bool:
    """In a capture, is this process all ranks of the group?"""
    return current_world() is not None and _serves(group)


def place_of(group: Any, root: int) -> str:
    """How the group lies from its first rank on, and which member the root is."""
    group = distributed_c10d._get_default_group() if group is None else group
    backend, member = group._get_backend(group._device_types[0]), dist.get_group_rank(group, root)
    if not isinstance(backend, _torch.distributed.Backend):  # torch's "fake"
        return f"{member} of {group.size()}"
    return backend.place_of(member)


def _root_of(given: dict[str, Any], group: Any) -> int:
    if given.get("group_src") is not None:
        return dist.get_global_rank(group or dist.group.WORLD, given["group_src"])
    return 0 if given.get("src") is None else given["src"]


def known_broadcast(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``broadcast_object_list``: on ranks other than the root, torch would read a size and
    bytes that nobody sent. What rank 0 sent is known; of other roots, each rank has its own."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def broadcast_object_list(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        objects, group = given["object_list"], given.get("group")
        if not is_captured(group):
            return original(*args, **kwargs)
        root, shapes = _root_of(given, group), pipelining.current()
        key = shapes.next_objects("broadcast", place_of(group, root))
        if dist.get_rank() == root:
            shapes.objects[key] = [pickle.dumps(each) for each in objects]
            return original(*args, **kwargs)
        if key in shapes.objects:
            objects[:] = [pickle.loads(each) for each in shapes.objects[key]]
        device = given.get("device") or distributed_c10d._get_object_coll_device(group)
        data = [pickle.dumps(each) for each in objects]
        for message in (  # as torch sends them
            torch.tensor([len(each) for each in data]),
            torch.frombuffer(bytearray(b"".join(data)), dtype=torch.uint8),
        ):
            dist.broadcast(message.to(device), src=root, group=group)
        return None

    return broadcast_object_list


def known_scatter(original: Callable[..., None]) -> Callable[..., None]:
    """Replaces ``scatter_object_list``, likewise. Of another root than rank 0, a rank has its part
    of the list that it gave itself, if it did."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def scatter_object_list(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        group = given.get("group")
        if not is_captured(group) or not _keeps:
            return original(*args, **kwargs)
        root, shapes = _root_of(given, group), pipelining.current()
        key = shapes.next_objects("scatter", place_of(group, root))
        lists = given.get("scatter_object_input_list")
        if dist.get_rank() == root:
            if lists is not None:
                same: dict[bytes, bytes] = {}  # most are alike
                data = [pickle.dumps(each) for each in lists]
                shapes.objects[key] = [same.setdefault(each, each) for each in data]
            return original(*args, **kwargs)
        data = shapes.objects.get(key) or [pickle.dumps(each) for each in lists or []]
        own = dist.get_rank(group)
        if own >= len(data) or pickle.loads(data[own]) is None:
            raise CaptureError(
                f"scatter_object_list: what rank {root} scatters is not known to rank "
                f"{dist.get_rank()}, which runs alone: scatter from rank 0, or give every rank the "
                "list"
            )
        given["scatter_object_output_list"][0] = pickle.loads(data[own])
        send_scattered(max(map(len, data)), root, group)
        return None

    return scatter_object_list


def send_scattered(size: int, root: int, group: Any) -> None:
    """The messages of scatter_object_list, on a rank that is not the root."""
    device = distributed_c10d._get_object_coll_device(group)
    dist.broadcast(torch.tensor([size], device=device), src=root, group=group)
    dist.scatter(torch.empty(size, dtype=torch.uint8, device=device), src=root, group=group)
    dist.scatter(torch.tensor([size], device=device), src=root, group=group)


def _gather(root: int, part: torch.Tensor, group: Any) -> None:
    whole = part.new_empty(dist.get_world_size(group), part.numel())
    dist.gather(part, list(whole.unbind()), dst=root, group=group)


def _serves(group: Any) -> bool:
    if not process_group.is_one_process() or distributed_c10d._rank_not_in_group(group):
        return False
    return group is None or isinstance(group, dist.ProcessGroup)


def _all_gather(part: torch.Tensor, group: Any) -> None:
    group = distributed_c10d._get_default_group() if group is None else group
    whole = part.new_empty(part.numel() * group.size())
    group._allgather_base(whole, part).wait()  # the name that every version has


def _from_all(obj: Any, group: Any, gather: Callable[[torch.Tensor, Any], None]) -> list[Any]:
    """The object of each rank. The same messages are sent: the sizes to all, then the bytes."""
    device = distributed_c10d._get_object_coll_device(group)
    data = pickle.dumps(obj)
    _all_gather(torch.tensor([len(data)]).to(device), group)
    if torch.device(device).type != "cpu":  # on the host nothing times them
        gather(torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device), group)
    ranks = dist.get_world_size(group)
    value = pickle.loads(data)
    if isinstance(value, (str, bytes, int, float, bool, type(None))):
        return [value] * ranks
    return [value, *(pickle.loads(data) for _ in range(ranks - 1))]
