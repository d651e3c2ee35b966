# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Activations of the first layers in host memory between their forward and their backward.

As Megatron-LM's --cpu-offloading-num-layers (TransformerEngine, cpu_offload.py): what autograd
saves in a layer goes out on a copy stream once its forward has been issued. The compute stream
waits for it at the end of the next layer, and then drops the device's memory, so that one layer is
under way at a time. It comes back on another copy stream when the backward of the layer behind it
begins, one layer ahead. Parameters, tables of positions and what is small stay.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LEAST_BYTES = 1024  # smaller tensors stay, as in torchtune


class _Stored:
    """A storage that a layer keeps: on the device, on its way, or on the host."""

    __slots__ = ("bytes", "flat", "host")

    def __init__(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        count = storage.nbytes() // tensor.element_size()
        self.flat: Tensor | None = _view(tensor.dtype, storage, 0, (count,), (1,))
        self.host: Tensor | None = None
        self.bytes = storage.nbytes()


class _Saved:
    """What autograd holds in place of a tensor: where it lies in its storage."""

    __slots__ = ("layer", "place", "stored")

    def __init__(self, layer: _Layer, stored: _Stored, tensor: Tensor) -> None:
        self.layer, self.stored = layer, stored
        self.place = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def tensor(self) -> Tensor:
        """The tensor on the device, for which the compute stream waits."""
        self.layer.arrive()
        dtype, offset, shape, stride = self.place
        return _view(dtype, self.stored.flat.untyped_storage(), offset, shape, stride)


class _Layer:
    """What one layer keeps of one forward."""

    def __init__(self, streams: Streams, stays: set[int]) -> None:
        self.streams, self.stays = streams, stays
        self.stored: dict[int, _Stored] = {}
        self.out: Any = None  # events: the ends of the copies out and in
        self.back: Any = None
        self.has_arrived = False

    def pack(self, tensor: Tensor) -> Tensor | _Saved:
        """Keeps a tensor that autograd saves; views of one storage leave together."""
        address = tensor.untyped_storage().data_ptr()
        is_small = tensor.untyped_storage().nbytes() < LEAST_BYTES
        if tensor.device.type == "cpu" or address in self.stays or is_small:
            return tensor
        if address not in self.stored:
            self.stored[address] = _Stored(tensor)
        return _Saved(self, self.stored[address], tensor)

    def leave(self) -> None:
        """Starts the copies to the host, behind what the compute stream holds."""
        stream = self.streams.out
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            for each in self.stored.values():
                each.host = torch.empty(each.flat.shape, dtype=each.flat.dtype, pin_memory=True)
                each.host.copy_(each.flat, non_blocking=True)
            self.out = stream.record_event()

    def drop(self) -> None:
        """Frees the device's memory, once the copies are over."""
        torch.accelerator.current_stream().wait_event(self.out)
        for each in self.stored.values():
            each.flat = None

    def come(self) -> None:
        """Starts the copies back."""
        if self.back is not None:
            return
        stream, compute = self.streams.back, torch.accelerator.current_stream()
        device = self.streams.device
        for each in self.stored.values():
            each.flat = torch.empty(each.host.shape, dtype=each.host.dtype, device=device)
        stream.wait_stream(compute)
        with stream:
            for each in self.stored.values():
                each.flat.copy_(each.host, non_blocking=True)
                each.host = None
            self.back = stream.record_event()
        self.stored.clear()  # what autograd holds keeps each as long as it is needed

    def arrive(self) -> None:
        """Makes the compute stream wait for the copies back."""
        if self.has_arrived:
            return
        self.come()
        torch.accelerator.current_stream().wait_event(self.back)
        self.has_arrived = True


@functools.cache
def streams_of(device: torch.device) -> Streams:
    """The same in every capture of a process: a recording names streams by their numbers."""
    return Streams(device)


class Streams:
    """The two copy streams of a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.out, self.back = torch.Stream(device), torch.Stream(device)


class Offload:
    """One forward of a piece of the model, whose first layers go to the host.

    Args:
        count: of these layers.
        streams: on which.
        tables: tensors that all layers share, which stay.
    """

    def __init__(self, count: int, streams: Streams, tables: tuple[Tensor | None, ...]) -> None:
        self.count, self.streams = count, streams
        self.tables = {t.untyped_storage().data_ptr() for t in tables if t is not None}
        self.layers: list[_Layer] = []
        self.leaving: _Layer | None = None

    def run(self, block: nn.Module, x: Tensor, *tables: Tensor | None) -> Tensor:
        """The next layer's forward."""
        number = len(self.layers)
        layer = _Layer(self.streams, set(self.tables)) if number < self.count else None
        if layer is None:
            x = block(x, *tables)
        else:
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t: self._pack(layer, block, t), _unpack
            ):
                x = block(x, *tables)
        self.end()
        if layer is not None:
            layer.leave()
            self.leaving = layer
        self.ahead(x)
        self.layers.append(layer)
        return x

    def ahead(self, x: Tensor) -> None:
        """The last layer that ran comes back when the gradient of `x` is there: when the backward
        of what made it begins."""
        before = self.layers[-1] if self.layers else None
        if before is not None and x.requires_grad:
            x.register_hook(lambda _: before.come())

    def end(self) -> None:
        """Of a layer behind one that leaves: waits until it is on the host."""
        if self.leaving is not None:
            self.leaving.drop()
            self.leaving = None

    @staticmethod
    def _pack(layer: _Layer, block: nn.Module, tensor: Tensor) -> Tensor | _Saved:
        if not layer.stored:  # FSDP has made the parameters whole by now
            layer.stays |= {p.untyped_storage().data_ptr() for p in block.parameters()}
            layer.stays |= {b.untyped_storage().data_ptr() for b in block.buffers()}
        return layer.pack(tensor)


def _unpack(saved: Tensor | _Saved) -> Tensor:
    return saved.tensor() if isinstance(saved, _Saved) else saved


def _view(
    dtype: torch.dtype, storage: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:  # fmt: skip
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, stride)


def most_host_bytes(workload: Any) -> int:
    """The most that a rank has in host memory at once: copies there less copies back."""
    tables = workload.to_columns()
    texts = tables["signatures"]["text"]
    ways = {"trnsim::copy_d2h": 1, "trnsim::copy_h2d": -1}
    way_of = np.array([ways.get(text.partition("(")[0], 0) for text in texts], dtype=np.int64)
    records = tables["records"]
    is_used = (records["signature"] >= 0) & (records["uses_count"] > 0)
    way = np.where(is_used, way_of[records["signature"]], 0)
    copies = np.flatnonzero(way)
    if not copies.size:
        return 0
    storages = tables["uses"]["storage"][records["uses_begin"][copies]]
    held = np.cumsum(way[copies] * tables["storages"]["bytes"][storages])
    before = np.minimum.accumulate(np.minimum(held, 0))  # of what the host had itself
    return int((held - before).max())
