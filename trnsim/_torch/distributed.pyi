from __future__ import annotations
import torch._C._distributed_c10d
import torch.distributed.distributed_c10d
import typing
__all__: list[str] = ['Backend', 'Store', 'create_backend', 'name_group', 'take_counts']
class Backend(torch._C._distributed_c10d.Backend):
    """
    The c10d backend that stands for every rank of a group in one process.
    """
    def perform_nocolor_split(self, arg0: typing.Any) -> None:
        ...
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
def create_backend(options: torch._C._distributed_c10d._DistributedBackendOptions, name: str, refused_device_hint: str = '') -> Backend:
    ...
def name_group(group: typing.SupportsInt | typing.SupportsIndex, name: str) -> None:
    """
    Names a group of the Workload; 0 is the world, which has no name at first.
    """
def take_counts() -> tuple[int, int]:
    ...
