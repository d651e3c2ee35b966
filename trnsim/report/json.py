# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The document of `trnsim run --json`, which other programs rely on.

Units stand in the names. Every promised key is always there; what is not known is null, with a line
in `guesses`. Nothing is NaN or infinite.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trnsim.project import Projection

PROMISED = (
    "machine", "chips", "chips_used", "ranks", "mode", "step_time_s", "step_time_interval_s",
    "interval_basis", "breakdown_s", "engine_busy", "exposed_by_group", "mfu", "mfu_causal",
    "model_flops", "parameters", "memory_peak_bytes", "memory_capacity_bytes", "memory_by_kind",
    "fits", "tokens_per_s", "samples_per_s", "cost_usd_per_step", "energy_j_per_step",
    "bottleneck", "advice", "top_ops", "outside_step_s", "roles", "fallback_ops", "guesses",
    "untranslated", "timeline_hash", "workload_hash", "seed", "version",
)  # fmt: skip


def _peak(p: Any) -> dict[str, Any] | None:
    """What MFU divides by: the published dense peak of a chip."""
    if p.mfu is None:
        return None
    return {"dtype": p.peak_dtype, "flops_per_s_per_chip": p.peak_flops}


def _role(role: Any) -> dict[str, Any]:
    return {
        "name": role.name,
        "ranks": role.rank_count,
        "which_ranks": role.ranks,
        "memory_peak_bytes": role.memory_peak_bytes,
    }


def _advice(advice: Any) -> dict[str, Any]:
    return {
        "change": advice.change,
        "relieves": advice.relieves,
        "step_time_s": advice.step_ps / 1e12,
        "gain": advice.gain,
    }


def to_json(projection: Projection) -> dict[str, Any]:
    """The projection as plain numbers, strings, lists and dicts."""
    import trnsim
    from trnsim.machine import version_of

    p = projection.figures
    document = {
        "machine": p.machine,
        "chips": p.chips,
        "chips_used": p.chips_used,
        "ranks": p.ranks,
        "ranks_per_chip": p.ranks_per_chip,
        "mode": p.mode,
        "step_time_s": projection.step_time_s,
        "step_time_ps": p.step_ps,
        "step_time_interval_s": list(projection.step_time_interval_s),
        "interval_basis": p.interval_basis,
        **_interval_parts(p),
        "breakdown_s": projection.breakdown_s,
        "breakdown_ps": projection.breakdown_ps,
        "engine_busy": dict(p.engine_busy),
        "exposed_by_group": {k: v / 1e12 for k, v in p.exposed_by_group_ps.items()},
        "mfu": p.mfu,
        "mfu_causal": p.mfu_causal,
        "mfu_peak": _peak(p),
        "model_flops": p.model_flops,
        "parameters": p.parameters or None,
        "memory_peak_bytes": p.memory_peak_bytes,
        "memory_capacity_bytes": p.memory_capacity_bytes,
        "memory_reserved_bytes": p.memory_reserved_bytes,
        "memory_by_kind": dict(p.memory_by_kind),
        "memory_is_upper_bound": p.memory_is_upper_bound,
        "fits": p.fits,
        "tokens_per_s": p.tokens_per_s,
        "samples_per_s": p.samples_per_s,
        "cost_usd_per_step": p.cost_usd_per_step,
        "cost_usd_per_step_interval": _pair(projection.cost_usd_per_step_interval),
        "cost_usd_per_step_of_instances": projection.cost_usd_per_step_of_instances,
        "price_usd_per_chip_hour": p.price_usd_per_chip_hour,
        "energy_j_per_step": p.energy_j_per_step,
        "energy_network_j_per_step": p.energy_network_j_per_step,
        "energy_site_j_per_step": p.energy_site_j_per_step,
        "carbon_kg_per_step": p.carbon_kg_per_step,
        "bottleneck": p.bottleneck,
        "bottleneck_kind": p.bottleneck_kind,
        "bottleneck_share": p.bottleneck_share,
        "advice": [_advice(advice) for advice in p.advice],
        "top_ops": [_op(op, p.step_ps) for op in p.top_ops],
        "top_modules": [_module(m, p.step_ps) for m in p.top_modules],
        "outside_step_s": p.outside_step_ps / 1e12,
        "roles": [_role(role) for role in p.roles],
        "fallback_ops": [
            {"name": f.name, "count": f.count, "share": f.share} for f in p.fallback_ops
        ],
        "guesses": [
            {"name": name, "value": value, "effect": effect} for name, value, effect in p.guesses
        ],
        "untranslated": [],
        "overrides": list(p.overrides),
        "overrides_without_effect": list(p.idle_overrides),
        "faults": _faults(projection),
        "timeline_hash": p.timeline_hash,
        "workload_hash": p.workload_hash,
        "machine_hash": projection.machine.hash,
        "machine_data": str(version_of(projection.machine)),
        "seed": p.seed,
        "version": trnsim.__version__,
    }
    return _finite(document)


def _interval_parts(p: Any) -> dict[str, Any]:
    """What the interval is made of."""
    return {
        "interval_inputs": [
            {
                "input": name,
                "faster_step_time_s": faster / 1e12,
                "slower_step_time_s": slower / 1e12,
            }
            for name, faster, slower in p.inputs
        ],
        "interval_own_error": p.own_error or None,
    }


def _faults(projection: Projection) -> dict[str, Any] | None:
    p, added_ps = projection.figures, projection.slowdown_ps
    if added_ps is None:
        return None
    return {
        "what": list(p.faults),
        "step_time_s_without": p.healthy_step_ps / 1e12,
        "added_s": {name: time_ps / 1e12 for name, time_ps in added_ps.items()},
    }


def _pair(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _share(time_ps: int, step_ps: int) -> float:
    return time_ps / step_ps if step_ps else 0.0


def _op(op: Any, step_ps: int) -> dict[str, Any]:
    return {
        "name": op.name,
        "module": op.module,
        "phase": op.phase,
        "count": op.count,
        "time_s": op.time_ps / 1e12,
        "share": _share(op.time_ps, step_ps),
        "read_bytes": op.read_bytes,
        "write_bytes": op.write_bytes,
        "flops": op.flops,
        "bound": op.bound,
        "roofline_fraction": op.roofline_fraction,
        "rule_class": op.rule_class,
    }


def _module(module: Any, step_ps: int) -> dict[str, Any]:
    return {
        "module": module.module,
        "count": module.count,
        "time_s": module.time_ps / 1e12,
        "share": _share(module.time_ps, step_ps),
        "read_bytes": module.read_bytes,
        "write_bytes": module.write_bytes,
        "flops": module.flops,
    }


def _finite(value: Any) -> Any:
    """The same with null where a ratio had no value, so that any parser takes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return value
