"""
The trn device: what PyTorch runs on it, and the record of it.
"""
from __future__ import annotations
import collections.abc
import torch
import typing
import typing_extensions
from . import distributed
__all__: list[str] = ['Quiet', 'add_note', 'begin_graph', 'begin_region', 'can_be_known', 'capacity_bytes', 'current_device', 'default_generator', 'default_stream', 'device_count', 'device_name', 'distributed', 'end_graph', 'end_region', 'forget_values', 'install_fault_handler', 'is_known', 'is_pinned_address', 'is_recording', 'live_block_count', 'mark_below_diagonal', 'mark_step', 'memory_snapshot', 'mode', 'module_depth', 'module_path', 'out_of_memory_count', 'peak_bytes', 'pop_module', 'pop_optimizer', 'pop_recomputation', 'position', 'push_module', 'push_optimizer', 'push_recomputation', 'record_count', 'record_marker', 'record_op', 'refuse_allocations', 'release_cached_memory', 'replay_graph', 'reset_groups', 'resize_storage', 'serve_op', 'set_capacity_bytes', 'set_device_count', 'set_event_clock', 'set_host_clock_warning', 'set_mode', 'set_only_report_out_of_memory', 'set_parameter_count', 'set_region_module', 'set_storage_kind', 'set_world', 'snapshot_recording', 'start_memory_history', 'start_recording', 'stop_memory_history', 'stop_recording', 'stream_priority', 'stream_priority_range', 'values_of', 'work_count']
class Quiet:
    def __enter__(self) -> None:
        ...
    def __exit__(self, *args) -> None:
        ...
    def __init__(self) -> None:
        ...
def add_note(arg0: str) -> None:
    ...
def begin_graph() -> tuple[int, int, int]:
    ...
def begin_region(arg0: str, arg1: bool) -> None:
    ...
def can_be_known(tensor: torch.Tensor) -> bool:
    """
    May the device tensor keep values in this mode?
    """
def capacity_bytes() -> int:
    ...
def current_device() -> int:
    ...
def default_generator(device: typing.SupportsInt | typing.SupportsIndex) -> torch.Generator:
    ...
def default_stream(device: typing.SupportsInt | typing.SupportsIndex) -> tuple[int, int, int]:
    """
    (stream id, device index, device type)
    """
def device_count() -> int:
    ...
def device_name() -> str:
    """
    The type of torch.device that we serve.
    """
def end_graph() -> tuple[int, int, int]:
    ...
def end_region() -> None:
    ...
def forget_values(tensor: torch.Tensor) -> None:
    """
    The device tensor's values are not known: phantom mode.
    """
def install_fault_handler() -> None:
    ...
def is_known(arg0: torch.Tensor) -> bool:
    """
    Does the device tensor have values?
    """
def is_pinned_address(address: typing.SupportsInt | typing.SupportsIndex) -> bool:
    ...
def is_recording() -> bool:
    ...
def live_block_count() -> int:
    ...
def mark_below_diagonal(arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
    ...
def mark_step(tokens: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    The end of a step; -1 tokens = not known.
    """
def memory_snapshot(device: typing.SupportsInt | typing.SupportsIndex) -> tuple:
    """
    (segments, trace) of a device
    """
def mode() -> str:
    ...
def module_depth() -> int:
    ...
def module_path() -> str:
    ...
def out_of_memory_count() -> int:
    ...
def peak_bytes(arg0: typing.SupportsInt | typing.SupportsIndex) -> int:
    """
    The most that tensors had on the device, in bytes.
    """
def pop_module() -> None:
    ...
def pop_optimizer() -> None:
    ...
def pop_recomputation() -> None:
    ...
def position() -> tuple[int, int]:
    """
    Records and allocation events so far.
    """
def push_module(arg0: str) -> None:
    ...
def push_optimizer() -> None:
    ...
def push_recomputation() -> None:
    ...
def record_count() -> int:
    ...
def record_marker(arg0: str, arg1: typing.SupportsInt | typing.SupportsIndex) -> None:
    ...
def record_op(op: str, inputs: collections.abc.Sequence[tuple[str, torch.Tensor]], outputs: collections.abc.Sequence[torch.Tensor], scalars: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex | typing.SupportsFloat | typing.SupportsIndex | bool | str | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex]]], mutated: collections.abc.Sequence[torch.Tensor] = []) -> None:
    """
    Records one op of device tensors; `mutated` are inputs that it writes in place.
    """
def refuse_allocations(reason: str) -> None:
    """
    This process may make no tensor of the device any more: RuntimeError with the reason.
    """
def release_cached_memory() -> None:
    ...
def replay_graph(arg0: tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex], arg1: tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]) -> None:
    ...
def reset_groups() -> None:
    """
    Forgets every group but the world.
    """
def resize_storage(arg0: torch.Tensor, arg1: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Makes the device tensor's storage hold so many bytes.
    """
def serve_op(name: str, replace: bool) -> bool:
    """
    Makes an op of another library one record; False when it keeps a kernel of its own.
    """
def set_capacity_bytes(arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
    ...
def set_device_count(arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
    ...
def set_event_clock(clock: collections.abc.Callable | None) -> None:
    """
    Installs clock(event_id) -> picoseconds, or with None the host's own clock.
    """
def set_host_clock_warning(warn: collections.abc.Callable) -> None:
    ...
def set_mode(arg0: str) -> None:
    ...
def set_only_report_out_of_memory(arg0: bool) -> None:
    ...
def set_parameter_count(count: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Elements of the parameters that optimizers hold.
    """
def set_region_module(arg0: str) -> None:
    ...
def set_storage_kind(arg0: torch.Tensor, arg1: str) -> None:
    ...
def set_world(arg0: typing.SupportsInt | typing.SupportsIndex, arg1: typing.SupportsInt | typing.SupportsIndex, arg2: typing.SupportsInt | typing.SupportsIndex) -> None:
    ...
def snapshot_recording() -> typing_extensions.CapsuleType:
    ...
def start_memory_history(max_entries: typing.SupportsInt | typing.SupportsIndex, with_stacks: bool) -> None:
    ...
def start_recording() -> None:
    ...
def stop_memory_history() -> None:
    ...
def stop_recording() -> typing_extensions.CapsuleType:
    ...
def stream_priority(stream_id: typing.SupportsInt | typing.SupportsIndex) -> int:
    ...
def stream_priority_range() -> tuple[int, int]:
    """
    (least, greatest): lower is more urgent
    """
def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """
    A CPU tensor that shares the values of a device tensor, which are known from now on.
    """
def work_count() -> int:
    """
    Ops and collectives recorded so far.
    """
