# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A training step written down by hand: an embedding and some linear layers, forward, backward,
gradients reduced over the world where there is one, and an optimizer."""

from __future__ import annotations

import numpy as np

from trnsim._core import Workload

OP, CALL, WAIT, HOST_READ, MARKER = 0, 1, 2, 3, 6
ALL_REDUCE, SEND, RECV = 0, 8, 9
OPTIMIZER_BEGIN, OPTIMIZER_END, FORWARD_BEGIN = 0, 1, 2
FORWARD, BACKWARD, OPTIMIZER = 0, 2, 3
PARAMETER, TEMPORARY = 0, 7
RECORD = [
    "signature",
    "module",
    "sequence_nr",
    "uses_begin",
    "uses_count",
    "stream",
    "region",
    "payload",
    "value",
    "kind",
    "phase",
    "no_grad",
    "fallback_read",
]


class Script:
    """Records as a script on the device would leave them."""

    def __init__(self, world_size: int = 1) -> None:
        self.world_size = world_size
        self.records: list[dict[str, int]] = []
        self.uses: list[tuple[int, int]] = []
        self.versions: list[int] = []
        self.storages: list[list[int]] = []
        self.allocations: list[tuple[int, int, bool]] = []
        self.signatures: list[str] = []
        self.calls: list[tuple[int, int, int, int, int]] = []  # kind, group, bytes, peer, tag
        self.groups = {"": f"0..{world_size - 1}"}
        self.modules = [""]
        self.parameters = 0

    def storage(self, count_bytes: int, kind: int = TEMPORARY) -> int:
        self.storages.append([count_bytes, len(self.records), -1, kind])
        self.versions.append(0)
        self.allocations.append((len(self.records), len(self.storages) - 1, False))
        return len(self.storages) - 1

    def free(self, storage: int) -> None:
        self.storages[storage][2] = len(self.records)
        self.allocations.append((len(self.records), storage, True))

    def _record(self, **fields: int) -> None:
        record = dict.fromkeys(RECORD, 0) | {
            "signature": -1, "sequence_nr": -1, "uses_begin": len(self.uses), "region": -1,
            "payload": -1, "value": -1,
        }  # fmt: skip
        self.records.append(record | fields)

    def op(
        self, text: str, reads: list[int], writes: list[int], phase: int, module: str = "",
        no_grad: bool = False,
    ) -> None:  # fmt: skip
        if text not in self.signatures:
            self.signatures.append(text)
        self._record(
            signature=self.signatures.index(text),
            uses_count=len(reads) + len(writes),
            kind=OP,
            phase=phase,
            module=self._module(module),
            no_grad=int(no_grad),
        )
        self._use(reads, writes)

    def _use(self, reads: list[int], writes: list[int]) -> None:
        self.uses += [(storage, self.versions[storage]) for storage in reads]
        for storage in writes:
            self.versions[storage] += 1
            self.uses.append((storage, self.versions[storage]))

    def _module(self, path: str) -> int:
        if path not in self.modules:
            self.modules.append(path)
        return self.modules.index(path)

    def all_reduce(self, storage: int, group: str = "") -> None:
        self.call(ALL_REDUCE, storage, group)

    def call(self, kind: int, storage: int, group: str, peer: int = -1, tag: int = 0) -> None:
        """A call on the group of that name, one of `groups`: of the captured rank."""
        text = f"c10d::allreduce_(tensors#0!: float32[{self.storages[storage][0] // 4}]) -> ()"
        if text not in self.signatures:
            self.signatures.append(text)
        slot = list(self.groups).index(group)
        self.calls.append((kind, slot, self.storages[storage][0], peer, tag))
        self._record(
            signature=self.signatures.index(text), uses_count=2, kind=CALL, phase=BACKWARD,
            payload=len(self.calls) - 1,
        )  # fmt: skip
        self._use([storage], [storage])

    def wait(self, call: int) -> None:
        self._record(kind=WAIT, phase=BACKWARD, payload=call)

    def marker(self, kind: int, value: int) -> None:
        self._record(kind=MARKER, payload=kind, value=value)

    def workload(self) -> Workload:
        column = lambda rows, i, dtype=np.int64: np.array([row[i] for row in rows], dtype)
        return Workload.from_columns({
            "records": {name: column(self.records, name) for name in RECORD},
            "uses": {"storage": column(self.uses, 0), "version": column(self.uses, 1)},
            "calls": {
                **{
                    name: column(self.calls, i)
                    for i, name in enumerate(("kind", "group", "bytes", "peer", "tag"))
                },
                "async": np.ones(len(self.calls), bool),
                "dtype": np.full(len(self.calls), 8, np.int64),
                "splits_offsets": np.zeros(len(self.calls) + 1, np.int64),
                "splits_values": np.zeros(0, np.int64),
            },
            "storages": {
                name: column(self.storages, i)
                for i, name in enumerate(("bytes", "born", "died", "kind"))
            },
            "allocations": {
                "record": column(self.allocations, 0), "storage": column(self.allocations, 1),
                "stream": np.zeros(len(self.allocations), np.int64),
                "is_free": column(self.allocations, 2, bool),
            },
            "signatures": {"text": self.signatures},
            "modules": {"path": self.modules},
            "regions": {"description": []},
            "groups": {"name": list(self.groups), "ranks": list(self.groups.values())}
            if self.calls
            else {"name": [], "ranks": []},
            "facts": {
                "role": "rank0", "rank": 0, "world_size": self.world_size, "ranks_per_server": 16,
                "mode": "phantom", "seed": 7, "unknown_reads": 1,
                "parameter_count": self.parameters, "notes": ["a note of capture"],
            },
        })  # fmt: skip


def train(
    world_size: int = 1, layers: int = 2, width: int = 512, tokens: int = 1024, steps: int = 2,
    distributed: bool | None = None, evaluates: bool = False,
) -> Workload:  # fmt: skip
    """`steps` steps; gradients are reduced over the world, one call a layer, unless told not to.
    With `evaluates` a layer runs without gradients after each step."""
    script = Script(world_size)
    n, d = tokens, width
    weights = [script.storage(4 * d * d, PARAMETER) for _ in range(layers)]
    table = script.storage(4 * 1000 * d, PARAMETER)
    ids = script.storage(8 * n)
    script.parameters = layers * d * d + 1000 * d
    for _ in range(steps):
        script.marker(FORWARD_BEGIN, n)
        activations = [script.storage(4 * n * d)]
        script.op(
            f"aten::embedding(weight: float32[1000,{d}], indices: int64[{n},1]) -> "
            f"(out0: float32[{n},1,{d}])",
            [table, ids], activations[:], FORWARD, "embed",
        )  # fmt: skip
        for i in range(layers):
            activations.append(_layer(script, activations[-1], weights[i], i, n, d))
        reduces = world_size > 1 if distributed is None else distributed
        gradients, upstream = _backward(script, activations, weights, n, d, reduces)
        script.marker(OPTIMIZER_BEGIN, 1)
        for weight, gradient in zip(weights, gradients, strict=True):
            script.op(
                f"aten::add_.Tensor(self!: float32[{d},{d}], other: float32[{d},{d}], "
                f"alpha=-0.01f) -> (out0: float32[{d},{d}])",
                [weight, gradient], [weight], OPTIMIZER, "",
            )  # fmt: skip
            script.free(gradient)
        script.marker(OPTIMIZER_END, 1)
        script.free(upstream)
        script.free(activations.pop())
        if evaluates:
            entry = script.storage(4 * n * d)
            script.free(_layer(script, entry, weights[0], 0, n, d, no_grad=True))
            script.free(entry)
    return script.workload()


def _layer(
    script: Script, entry: int, weight: int, i: int, n: int, d: int, no_grad: bool = False
) -> int:
    out, hidden = script.storage(4 * n * d), script.storage(4 * n * d)
    script.op(
        f"aten::mm(self: float32[{n},{d}], mat2: float32[{d},{d}]) -> (out0: float32[{n},{d}])",
        [entry, weight], [hidden], FORWARD, f"layers.{i}.linear", no_grad,
    )  # fmt: skip
    script.op(
        f"aten::gelu(self: float32[{n},{d}]) -> (out0: float32[{n},{d}])",
        [hidden], [out], FORWARD, f"layers.{i}.act", no_grad,
    )  # fmt: skip
    script.free(hidden)
    return out


def _backward(
    script: Script, activations: list[int], weights: list[int], n: int, d: int, reduces: bool
) -> tuple[list[int], int]:
    gradients, calls = [], []
    upstream = script.storage(4 * n * d)
    script.op(
        f"aten::mul.Tensor(self: float32[{n},{d}], other: float32[{n},{d}]) -> "
        f"(out0: float32[{n},{d}])",
        [activations[-1], activations[-1]], [upstream], BACKWARD, "",
    )  # fmt: skip
    for i in reversed(range(len(weights))):
        gradient, below = script.storage(4 * d * d), script.storage(4 * n * d)
        script.op(
            f"aten::mm(self: float32[{d},{n}]{{1,{d}}}, mat2: float32[{n},{d}]) -> "
            f"(out0: float32[{d},{d}])",
            [activations[i], upstream], [gradient], BACKWARD, f"layers.{i}.linear",
        )  # fmt: skip
        script.op(
            f"aten::mm(self: float32[{n},{d}], mat2: float32[{d},{d}]{{1,{d}}}) -> "
            f"(out0: float32[{n},{d}])",
            [upstream, weights[i]], [below], BACKWARD, f"layers.{i}.linear",
        )  # fmt: skip
        if reduces:
            script.all_reduce(gradient)
            calls.append(len(script.calls) - 1)
        script.free(upstream)
        script.free(activations.pop())
        gradients.insert(0, gradient)
        upstream = below
    for call in calls:
        script.wait(call)
    return gradients, upstream


def step_of_calls(world, groups, calls):
    """A step of one op and then the calls (kind, bytes, group, peer, tag), one after the other."""
    script = Script(world)
    script.groups |= groups
    script.marker(FORWARD_BEGIN, 1)
    buffers = {size: script.storage(size) for size in {size for _, size, *_ in calls}}
    for kind, size, *where in calls:
        text = f"aten::gelu(self: float32[{size // 4}]) -> (out0: float32[{size // 4}])"
        script.op(text, [buffers[size]], [buffers[size]], FORWARD)
        script.call(kind, buffers[size], *where)
    for call in range(len(calls)):
        script.wait(call)
    script.marker(OPTIMIZER_BEGIN, 1)
    script.marker(OPTIMIZER_END, 1)
    return script.workload()
