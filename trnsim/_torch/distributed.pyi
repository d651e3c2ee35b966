from __future__ import annotations
import collections.abc
import torch._C._distributed_c10d
import torch.distributed.distributed_c10d
import typing
__all__: list[str] = ['Backend', 'Store', 'begin_host_broadcasts', 'create_backend', 'name_group', 'take_counts', 'take_host_broadcasts']
class Backend(torch._C._distributed_c10d.Backend):
    """
    The c10d backend that stands for every rank of a group in one process.
    """
    def perform_nocolor_split(self, arg0: typing.Any) -> None:
        ...
    def place_of(self, root: typing.SupportsInt | typing.SupportsIndex) -> str:
        """
        How the group lies from its first rank on, and which member roots.
        """
    @property
    def group(self) -> int:
        ...
    @property
    def ranks(self) -> str:
        ...
class Store(torch.distributed.distributed_c10d.Store):
    """
    The store of a job whose other ranks do not run.
    """
    def __init__(self, world_size: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
def begin_host_broadcasts(known: collections.abc.Mapping[str, collections.abc.Sequence[bytes | None]]) -> None:
    """
    Before a capture: what rank 0 broadcast in CPU tensors, by place.
    """
def create_backend(options: torch._C._distributed_c10d._DistributedBackendOptions, name: str, refused_device_hint: str = '') -> Backend:
    ...
def name_group(group: typing.SupportsInt | typing.SupportsIndex, name: str) -> None:
    """
    Names a group of the Workload; 0 is the world, which has no name at first.
    """
def take_counts() -> tuple[int, int]:
    ...
def take_host_broadcasts() -> dict[str, list[bytes | None]]:
    """
    What this rank broadcast in CPU tensors since the capture began.
    """
