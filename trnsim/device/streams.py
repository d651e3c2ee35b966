# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Streams and events of the simulated device.

Work on a stream is finished as soon as the host asks, since nothing runs behind it: `query` is
True, and `synchronize` only records that the host waits there. What a stream means for the step
time is decided when the recording is simulated.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import torch

from . import _C
from ._utils import Device, _get_device_index


def _device(device: Device) -> torch.device:
    name = _C.device_name()
    return torch.device(name, _get_device_index(device, optional=True))


class Stream(torch.Stream):
    """A stream of the device.

    Args:
        device: where it is; the current device when None.
        priority: lower is more urgent; clamped to the range of `priority_range()`.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Self:
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, _device(device), priority=priority, **kwargs)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(least, greatest) priority; the greatest is the lower number."""
        return _C.stream_priority_range()

    @property
    def priority(self) -> int:
        return _C.stream_priority(self.stream_id)

    def wait_event(self, event: torch.Event) -> None:
        """Work issued on this stream from here on waits for the event."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Work issued on this stream from here on waits for what `stream` holds now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Marks the stream's present end with `event`, or with a new one; returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"torch.{self.device.type}.Stream(device={self.device}, stream_id={self.stream_id})"


class _EventType(type):
    """Calls make plain torch.Events: torch compares times of events of exactly that type."""

    def __call__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> torch.Event:
        if interprocess:
            raise ValueError("events of the simulated device cannot be shared between processes")
        return torch.Event(_device(None), enable_timing=enable_timing, blocking=blocking)

    def __instancecheck__(cls, instance: object) -> bool:
        name = _C.device_name()
        return isinstance(instance, torch.Event) and instance.device.type == name


class Event(metaclass=_EventType):
    """A mark on a stream; `Event(enable_timing=True)` makes a torch.Event of the device.

    `elapsed_time` is in milliseconds of simulated time: this rank's own timeline so far, without
    traffic of other ranks on shared links. While no machine is chosen, or for marks made while
    nothing is recorded, it is the host's clock, and a warning says so once.
    """


def _as_stream(stream_id: int, device_index: int, device_type: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_stream(device: Device = None) -> Stream:
    """The stream that ops on `device` go to in this thread."""
    stream = torch.accelerator.current_stream(_get_device_index(device, optional=True))
    return _as_stream(stream.stream_id, stream.device_index, stream.device_type)


def default_stream(device: Device = None) -> Stream:
    """The stream of `device` that every script begins on."""
    return _as_stream(*_C.default_stream(_get_device_index(device, optional=True)))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` current on its device, and that device current. None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Ops inside go to `stream`; the stream and device before are restored. None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self.before: torch.Stream | None = None
        self.device_before = 0

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self.device_before = torch._C._accelerator_getDeviceIndex()
        self.before = torch.accelerator.current_stream(self.stream.device_index)
        torch.accelerator.set_stream(self.stream)

    def __exit__(self, *unused: object) -> None:
        if self.before is not None:
            torch.accelerator.set_stream(self.before)
            torch._C._accelerator_setDeviceIndex(self.device_before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: ops inside go to `stream`."""
    return StreamContext(stream)


def _warn_host_clock() -> None:
    warnings.warn(
        "trnsim: elapsed_time is the host's clock, not simulated time: no machine is chosen, or an "
        "event was recorded while nothing was captured",
        stacklevel=2,
    )


def is_current_stream_capturing() -> bool:
    """False: the device has no graph capture."""
    return False
