# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""One step of a model of Llama-405B's shape on `rainier`, simulated in one way.

126 layers of 16,384 wide, 128 heads, 53,248 in the feed-forward, 8,192 tokens a sequence, bfloat16.
A pod of 64 chips is a tensor-parallel group (two all-reduces a layer each way), a pipeline goes
from pod to pod (four micro-batches of one sequence, all forward and then all backward), and
replicas of it are data parallel: gradients are reduced layer by layer while the last micro-batch is
still in its backward pass. A stage is a role with a Workload of its own.

    python step.py PODS STAGES ODD WAY      prints one JSON object

ODD is "none" or names what is odd: a slow "chip", a slow "nic", a dead "link", several of them, or
"jitter" of all. WAY: "classes" never makes all ranks, "ranks" simulates each, and "both" compares
the end of every task of every rank.
"""

import json
import resource
import sys
import time

import numpy as np

from trnsim import _core, fold, lower
from trnsim import machine as machines
from trnsim.simulate import simulate_system

LAYERS, WIDTH, TOKENS, MICRO_BATCHES, POD = 126, 16384, 8192, 4, 64
HEADS, HEAD, QKV, FEED = 2, 128, 512, 832  # of one of the 64 tensor-parallel ranks
OP, CALL, WAIT, MARKER = 0, 1, 2, 6
FORWARD, BACKWARD, OPTIMIZER = 0, 2, 3
ALL_REDUCE, SEND, RECV = 0, 8, 9
OPTIMIZER_BEGIN, OPTIMIZER_END, FORWARD_BEGIN = 0, 1, 2


def matrix(rows: int, columns: int) -> str:
    """The text of a tensor."""
    return f"bfloat16[{rows},{columns}]"


class Stage:
    """What the first rank of a stage asks of its device."""

    def __init__(self, stage: int, stages: int, pods: int) -> None:
        self.rank = stage * POD
        self.stage, self.stages, self.pods = stage, stages, pods
        self.records, self.uses, self.calls, self.signatures = [], [], [], []
        self.storages, self.versions = [], []
        self.scale = self.storage(2 * WIDTH)  # of every norm
        self.layers = LAYERS * (stage + 1) // stages - LAYERS * stage // stages
        replicas = pods // stages
        self.groups = {
            "": f"0..{pods * POD - 1}",
            "tp": f"{self.rank}..{self.rank + POD - 1}",
            "dp": f"start {self.rank} axes {stages * POD}x{replicas}" if replicas > 1 else "0",
            "pp": f"start 0 axes {POD}x{stages}" if stages > 1 else "0",
        }

    def storage(self, size: int) -> int:
        self.storages.append(size)
        self.versions.append(0)
        return len(self.storages) - 1

    def _record(self, kind: int, phase: int = 0, payload: int = -1, **more: int) -> None:
        row = {"signature": -1, "uses_count": 0, "value": -1, "uses_begin": len(self.uses)}
        self.records.append(row | {"kind": kind, "phase": phase, "payload": payload} | more)

    def _signature(self, text: str) -> int:
        if text not in self.signatures:
            self.signatures.append(text)
        return self.signatures.index(text)

    def _use(self, reads: list[int], writes: list[int]) -> None:
        self.uses += [(storage, self.versions[storage]) for storage in reads]
        for storage in writes:
            self.versions[storage] += 1
            self.uses.append((storage, self.versions[storage]))

    def op(self, text: str, reads: list[int], size: int, phase: int, outs: int = 1) -> int:
        """Records it; the storage of its first result."""
        made = [self.storage(size) for _ in range(outs)]
        count = len(reads) + outs
        self._record(OP, phase, signature=self._signature("aten::" + text), uses_count=count)
        self._use(reads, made)
        return made[0]

    def mm(self, a: int, b: int, shape: tuple[int, int, int], phase: int) -> int:
        m, k, n = shape
        text = f"mm(self: {matrix(m, k)}, mat2: {matrix(k, n)}) -> (out0: {matrix(m, n)})"
        return self.op(text, [a, b], 2 * m * n, phase)

    def call(
        self, kind: int, storage: int, group: str, phase: int, peer: int = -1, tag: int = 0
    ) -> int:
        size = self.storages[storage]
        text = f"c10d::allreduce_(tensors#0!: bfloat16[{size // 2}]) -> ()"
        self.calls.append((kind, list(self.groups).index(group), size, peer, tag))
        index = len(self.calls) - 1
        signature = self._signature(text)
        self._record(CALL, phase, index, signature=signature, uses_count=2)
        self._use([storage], [storage])
        return index

    def done(self, call: int, phase: int) -> None:
        self._record(WAIT, phase, call)

    def reduce(self, storage: int, group: str, phase: int) -> int:
        self.done(self.call(ALL_REDUCE, storage, group, phase), phase)
        return storage

    def message(self, kind: int, storage: int, phase: int, distance: int) -> None:
        peer = self.rank + distance * POD
        self.done(self.call(kind, storage, "pp", phase, peer, phase), phase)

    def norm(self, x: int, phase: int) -> int:
        text = (
            f"_fused_rms_norm(input: {matrix(TOKENS, WIDTH)}, weight: bfloat16[{WIDTH}], "
            f"normalized_shape=[{WIDTH}]) -> (out0: {matrix(TOKENS, WIDTH)})"
        )
        return self.op(text, [x, self.scale], 2 * TOKENS * WIDTH, phase)

    def pointwise(self, name: str, inputs: list[int], columns: int, phase: int) -> int:
        t = matrix(TOKENS, columns)
        arguments = ", ".join(f"{word}: {t}" for word in ("self", "other")[: len(inputs)])
        return self.op(f"{name}({arguments}) -> (out0: {t})", inputs, 2 * TOKENS * columns, phase)

    def attention(self, inputs: list[int], is_backward: bool, phase: int) -> int:
        t = f"bfloat16[1,{HEADS},{TOKENS},{HEAD}]"
        name = "_scaled_dot_product_fused_attention_overrideable"
        names, outs = ["query", "key", "value"], ["out0"]
        if is_backward:
            name += "_backward"
            names, outs = ["grad_out", *names, "out"], ["out0", "out1", "out2"]
        arguments = ", ".join(f"{word}: {t}" for word in names)
        results = ", ".join(f"{word}: {t}" for word in outs)
        text = f"{name}({arguments}, is_causal=true) -> ({results})"
        return self.op(text, inputs, 2 * TOKENS * QKV, phase, len(outs))

    def forward(self, x: int, weights: list[int]) -> int:
        t, d, phase = TOKENS, WIDTH, FORWARD
        qkv = self.mm(self.norm(x, phase), weights[0], (t, d, QKV), phase)
        mixed = self.attention([qkv, qkv, qkv], False, phase)
        out = self.mm(mixed, weights[1], (t, HEADS * HEAD, d), phase)
        x = self.pointwise("add.Tensor", [x, self.reduce(out, "tp", phase)], d, phase)
        wide = self.mm(self.norm(x, phase), weights[2], (t, d, 2 * FEED), phase)
        gate = self.pointwise("silu", [wide], FEED, phase)
        gate = self.pointwise("mul.Tensor", [gate, wide], FEED, phase)
        out = self.mm(gate, weights[3], (t, FEED, d), phase)
        return self.pointwise("add.Tensor", [x, self.reduce(out, "tp", phase)], d, phase)

    def backward(self, grad: int, x: int, weights: list[int], gradient: int) -> int:
        t, d, phase = TOKENS, WIDTH, BACKWARD
        for mixes, down, up, one in ((False, 3, 2, FEED), (True, 1, 0, HEADS * HEAD)):
            two = QKV if mixes else 2 * FEED
            inner = self.mm(grad, weights[down], (t, d, one), phase)
            self.mm(x, grad, (one, t, d), phase)
            if mixes:
                inner = self.attention([inner, x, x, x, x], True, phase)
            else:
                inner = self.pointwise("mul.Tensor", [inner, x], FEED, phase)
            self.mm(x, inner, (d, t, two), phase)
            out = self.mm(inner, weights[up], (t, two, d), phase)
            out = self.norm(self.reduce(out, "tp", phase), phase)
            grad = self.pointwise("add.Tensor", [grad, out], d, phase)
        size = self.storages[gradient] // 2
        text = f"add_.Tensor(self!: bfloat16[{size}], other: bfloat16[{size}])"
        signature = self._signature(f"aten::{text} -> (out0: bfloat16[{size}])")
        self._record(OP, phase, signature=signature, uses_count=3)
        self._use([gradient, grad], [gradient])
        return grad

    def write(self) -> None:
        """The step."""
        sizes = [WIDTH * QKV, HEADS * HEAD * WIDTH, WIDTH * 2 * FEED, FEED * WIDTH]
        weights = [[self.storage(2 * n) for n in sizes] for _ in range(self.layers)]
        gradients = [self.storage(2 * sum(sizes)) for _ in range(self.layers)]
        is_first, is_last = self.stage == 0, self.stage + 1 == self.stages
        self._record(MARKER, payload=FORWARD_BEGIN, value=TOKENS)
        ends = []
        for _ in range(MICRO_BATCHES):
            x = self.storage(2 * TOKENS * WIDTH)
            if not is_first:
                self.message(RECV, x, FORWARD, -1)
            for of_layer in weights:
                x = self.forward(x, of_layer)
            if not is_last:
                self.message(SEND, x, FORWARD, 1)
            ends.append(x)
        pending = []
        for batch, x in enumerate(reversed(ends)):
            grad = self.storage(2 * TOKENS * WIDTH) if not is_last else x
            if not is_last:
                self.message(RECV, grad, BACKWARD, 1)
            for i in reversed(range(self.layers)):
                grad = self.backward(grad, x, weights[i], gradients[i])
                if batch + 1 == MICRO_BATCHES and self.pods > self.stages:
                    pending.append(self.call(ALL_REDUCE, gradients[i], "dp", BACKWARD))
            if not is_first:
                self.message(SEND, grad, BACKWARD, -1)
        for call in pending:
            self.done(call, BACKWARD)
        self._record(MARKER, payload=OPTIMIZER_BEGIN, value=1)
        n = f"float32[{sum(sizes)}]"
        moments = f"exp_avgs#0!: {n}, exp_avg_sqs#0!: {n}"
        adamw = self._signature(
            f"aten::_fused_adamw_(self#0!: {n}, grads#0!: {n}, {moments}) -> ()"
        )
        for gradient in gradients:
            state = [self.storage(4 * sum(sizes)), gradient]
            state += [self.storage(4 * sum(sizes)) for _ in range(2)]
            self._record(OP, OPTIMIZER, signature=adamw, uses_count=8)
            self._use(state, state)
        self._record(MARKER, payload=OPTIMIZER_END, value=1)

    def workload(self) -> "_core.Workload":
        self.write()
        names = [
            "signature", "module", "sequence_nr", "uses_begin", "uses_count", "stream", "region",
            "payload", "value", "kind", "phase", "no_grad", "fallback_read",
        ]  # fmt: skip
        rows = [{"sequence_nr": -1, "region": -1, "module": 0} | row for row in self.records]
        records = {name: np.array([row.get(name, 0) for row in rows], np.int64) for name in names}
        columns = list(zip(*self.calls, strict=True))
        calls = dict(
            zip(
                ("kind", "group", "bytes", "peer", "tag"),
                (np.array(column, np.int64) for column in columns),
                strict=True,
            )
        )
        count, stored = len(self.calls), len(self.storages)
        uses = np.array(self.uses, np.int64)
        return _core.Workload.from_columns({
            "records": records,
            "uses": {"storage": uses[:, 0].copy(), "version": uses[:, 1].copy()},
            "calls": calls | {
                "async": np.ones(count, bool), "dtype": np.full(count, 8, np.int64),
                "splits_offsets": np.zeros(count + 1, np.int64),
                "splits_values": np.zeros(0, np.int64),
            },
            "storages": {
                "bytes": np.array(self.storages, np.int64), "born": np.zeros(stored, np.int64),
                "died": np.full(stored, -1, np.int64), "kind": np.full(stored, 7, np.int64),
            },
            "allocations": {
                "record": np.zeros(0, np.int64), "storage": np.zeros(0, np.int64),
                "stream": np.zeros(0, np.int64), "is_free": np.zeros(0, bool),
            },
            "signatures": {"text": self.signatures},
            "modules": {"path": [""]},
            "regions": {"description": []},
            "groups": {"name": list(self.groups), "ranks": list(self.groups.values())},
            "facts": {
                "role": f"stage {self.stage}", "rank": self.rank, "world_size": self.pods * POD,
                "ranks_per_server": 16, "mode": "phantom", "seed": 0, "unknown_reads": 0,
                "parameter_count": 0, "notes": [],
            },
        })  # fmt: skip


def different_ends(every: "_core.Timeline", folded: "_core.Timeline", classes: list[int]) -> int:
    """Tasks of all ranks whose times differ from those of the rank that stands for theirs."""
    return sum(
        int((every.rank_ends_ps(rank) != folded.rank_ends_ps(c)).sum())
        for rank, c in enumerate(classes)
    )


def solve_ms(system: "_core.System") -> float:
    """CPU time of sharing the links among all transfers of the System at once, more than ever are
    active together: the median of five."""
    capacities = [min(link.rate << 16, 2**63 - 1) for link in system.links]
    flows = [[(use.link, use.weight) for use in each.uses] for each in system.variables]
    flows = [uses for uses in flows if uses]
    times = []
    for _ in range(5):
        began = time.process_time()
        _core.solve_max_min(capacities, flows, "heap")
        times.append(time.process_time() - began)
    return 1e3 * sorted(times)[2]


def main() -> None:
    pods, stages, odd, way = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    machine = machines.load("rainier")
    placement = machines.placement(machine, pods * POD, None, None)
    chip = pods * POD // 2 + 8
    faults = {f"nic up {chip}": 0.5} if "nic" in odd else {}
    if "link" in odd:
        faults[f"x+ {chip}>{chip + 1}"] = 0.0
    odd_ranks = [(5, 70000, 0)] if "chip" in odd else []
    roles = []
    for stage in range(stages):
        workload = Stage(stage, stages, pods).workload()
        step = workload.find_steps()[0]
        program = lower.lower_step(workload, step, machine, placement)
        axes = f"1x{POD}" + (f" {stages * POD}x{pods // stages}" if pods > stages else "")
        roles.append((program, f"start {stage * POD} axes {axes}"))
    row = {"chips": pods * POD, "stages": stages, "odd": odd, "way": way}
    timelines = []
    for each in ("classes", "ranks") if way == "both" else (way,):
        began = time.process_time()
        topology = machines.topology(machine, placement.chips, faults)
        if each == "classes":
            cohorts = fold.cohorts(roles, machine, topology, placement, odd_ranks=odd_ranks)
            system = cohorts.system
        else:
            system = fold.place_roles(roles, machine, topology, placement, odd_ranks=odd_ranks)
        if odd == "jitter":  # up to a sixteenth slower, each chip its own
            system = _core.with_jitter(system, seed=1, spread=1 << 12)
        made = time.process_time()
        timelines.append(simulate_system(system, keep_times=way == "both"))
        ended = time.process_time()
        if each == way or each == "classes":
            row["ranks_simulated"] = len(system.ranks)
            row["fold_cpu_s"] = round(made - began, 3)
            row["simulate_cpu_s"] = round(ended - made, 3)
            row["solve_ms"] = round(solve_ms(system), 2) if each == "classes" else ""
            row["step_ms"] = round(timelines[-1].makespan_ps / 1e9, 3)
    row["timeline_hash"] = timelines[0].hash
    if way == "both":
        if timelines[0].hash != timelines[1].hash:
            raise SystemExit(f"trnsim: the two ways differ: {row}")
        different = different_ends(timelines[1], timelines[0], cohorts.class_of_rank)
        row["tasks_compared"] = len(timelines[1].ends_ps)
        row["tasks_different"] = different
    row["peak_MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(row))


if __name__ == "__main__":
    main()
