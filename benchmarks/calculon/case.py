# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""A layout search beside Calculon's (Isaev et al., SC 2023): GPT-3 175B on 64 H100, 64 sequences.

TRNSIM_CALCULON names a checkout of github.com/calculon-ai/calculon, whose Python needs psutil;
without one the benchmark is skipped. Both get the same layouts: tensor, pipeline and interleaving
degrees, micro-batch, recomputation; data parallelism takes the rest, and divides the optimizer.

Ours searches as `trnsim search` does: all are bounded, those that can matter are captured and
simulated. Calculon works every layout out, on its own h100_80g_nvl8 and gpt3-175B, with sequence
parallelism and neither offload nor overlap of tensor parallel messages, and the best of both ways
with data parallel ones and of each choice of networks. CPU seconds of all processes.

The two take different things for a step. Calculon's layers are a GEMM and vector efficiency by
size, without embedding, head and loss, every message is priced alone, and its H100 has 1,000
TFLOP/s and its attention keeps all scores (our best layout, which computes nothing again, needs
121 GiB there); ours are the ops that Megatron-LM's program asks for, on the kernels of the stack
sheet. A best layout that the other did not time has no step of the other's.
"""

import itertools
import logging
import os
import resource
import sys
import time
from pathlib import Path

CHIPS, BATCH, TOKENS = 64, 64, 2048
TP, PP, VP, MICRO_BATCH = (2, 4, 8), (2, 4, 8, 16), (1, 2, 3, 6), (1, 2, 4)
RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}  # Calculon's words
MACHINE = "h100:megatron"


def skip(reason: str):
    """Says why there is no result."""
    print(f"trnsim: benchmark 'calculon' is skipped: {reason}", file=sys.stderr)
    sys.exit(0)


def name_of(layout) -> str:
    """The layout's degrees."""
    return (
        f"tp {layout.tp} pp {layout.pp} vp {layout.vp} dp {layout.dp} "
        f"micro-batch {layout.micro_batch} recompute {layout.recompute}"
    )


def cpu_s() -> float:
    """Of this process and those that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def search_ours():
    """Our search, its layouts, and what it takes."""
    from trnsim import machine as machines
    from trnsim.plan.layout_search import model_of, search
    from trnsim.plan.layouts import Refused, Space, candidates, styles_of

    stack = MACHINE.partition(":")[2]
    space = Space(
        TOKENS, BATCH, tp=TP, pp=PP, vp=VP, cp=(1,), micro_batch=MICRO_BATCH,
        recompute=tuple(RECOMPUTE), zero=(1,), least_used=1.0, styles=styles_of(stack),
    )  # fmt: skip
    began, wall = cpu_s(), time.monotonic()
    found = search("GPT3-175B", machine=MACHINE, chips=CHIPS, space=space, intervals=0)
    took = {"cpu_s": cpu_s() - began, "wall_s": time.monotonic() - wall}
    machine = machines.load(MACHINE.partition(":")[0], (), stack)
    layouts = candidates(model_of("GPT3-175B"), machine, CHIPS, 1, space, Refused())
    return found, [each.layout for each in layouts], took


class Calculon:
    """The checkout's own classes."""

    def __init__(self, checkout: str) -> None:
        root = Path(checkout)
        sys.path.insert(0, str(root))
        try:
            from calculon.io import read_json_file
            from calculon.llm import Llm
            from calculon.system import System
        except ImportError as error:
            skip(f"'{checkout}' is no checkout that works: {error}")
        self.llm = Llm
        self.application = Llm.Application(read_json_file(f"{root}/models/gpt3-175B.json"))
        self.system = System(read_json_file(f"{root}/systems/h100_80g_nvl8.json"))
        self.executions = 0

    def step_s(self, layout) -> float | None:
        """The best of what is open, in seconds; None where it fits in none."""
        networks = range(self.system.num_networks)
        times = [
            self._run(layout, *nets, overlap)
            for nets in itertools.product(networks, networks, networks)
            for overlap in ((True, False) if layout.dp > 1 else (False,))
        ]
        return min((each for each in times if each is not None), default=None)

    def _run(self, layout, tp_net: int, pp_net: int, dp_net: int, overlap: bool) -> float | None:
        self.executions += 1
        model = self.llm(self.application, logging.getLogger("calculon"))
        execution = self.llm.Execution.from_json({
            "num_procs": CHIPS, "tensor_par": layout.tp, "pipeline_par": layout.pp,
            "data_par": layout.dp, "tensor_par_net": tp_net, "pipeline_par_net": pp_net,
            "data_par_net": dp_net, "batch_size": BATCH, "microbatch_size": layout.micro_batch,
            "datatype": "float16", "fused_activation": True, "attention_type": "multihead",
            "activation_recompute": RECOMPUTE[layout.recompute],
            "pipeline_interleaving": layout.vp, "optimizer_sharding": layout.dp > 1,
            "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none",
            "seq_par_ag_redo": False, "data_par_overlap": overlap, "weight_offload": False,
            "activations_offload": False, "optimizer_offload": False, "training": True,
        })  # fmt: skip
        try:
            model.compile(self.system, execution)
            model.run(self.system)
        except self.llm.Error:
            return None
        return model.get_total_time()


def ranks(values: list[float]) -> list[float]:
    """Places in the order of the values, equal ones between them."""
    return [
        sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values
    ]


def correlation(a: list[float], b: list[float]) -> float:
    """Spearman's, of two lists."""
    x, y = ranks(a), ranks(b)
    mean = (len(a) - 1) / 2
    together = sum((p - mean) * (q - mean) for p, q in zip(x, y, strict=True))
    own = (sum((p - mean) ** 2 for p in of) for of in (x, y))
    return together / (next(own) * next(own)) ** 0.5


def row_of(tool: str, times: dict, others: dict, **more) -> dict:
    """What a tool says of its own best layout, and of the other's."""
    best, theirs = min(times, key=times.get), min(others, key=others.get)
    both = [each for each in times if each in others]
    said = times.get(theirs)
    return {
        "tool": tool, **more,
        "fit": len(times), "best": name_of(best), "best_step_s": round(times[best], 4),
        "step_s_of_other_tool's_best": "" if said is None else round(said, 4),
        "place_of_other_tool's_best":
            "" if said is None else 1 + sum(each < said for each in times.values()),
        "layouts_timed_by_both": len(both),
        "rank_correlation":
            round(correlation([times[e] for e in both], [others[e] for e in both]), 3),
    }  # fmt: skip


def run() -> list[dict]:
    """A row for each."""
    checkout = os.environ.get("TRNSIM_CALCULON")
    if not checkout:
        skip("set TRNSIM_CALCULON to a checkout of github.com/calculon-ai/calculon")
    calculon = Calculon(checkout)
    found, layouts, took = search_ours()
    ours = {each.candidate.layout: each.trial.step_time_s for each in found.simulated if each.fits}
    began, wall = cpu_s(), time.monotonic()
    timed = {layout: calculon.step_s(layout) for layout in layouts}
    theirs = {layout: step for layout, step in timed.items() if step is not None}
    theirs_took = {"cpu_s": cpu_s() - began, "wall_s": time.monotonic() - wall}

    def effort(worked_out: int, of: dict) -> dict:
        return {
            "layouts": len(layouts), "worked_out": worked_out, "cpu_s": round(of["cpu_s"], 1),
            "layouts_per_cpu_s": round(len(layouts) / of["cpu_s"], 2),
            "worked_out_per_cpu_s": round(worked_out / of["cpu_s"], 2),
        }  # fmt: skip

    return [
        row_of("Calculon", theirs, ours, **effort(calculon.executions, theirs_took)),
        row_of("trnsim", ours, theirs, **effort(found.counts.simulated, took)),
    ]
