# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Costs of ops that a script defines itself: kernels in NKI or CUDA, code for GPSIMD.

    @trnsim.cost("mylib::attention")
    def cost_of_attention(query, key, value, causal=False):
        pairs = query.shape[0] * query.shape[1] * key.shape[1]
        return {"flops": 4 * pairs * query.shape[2], "dtype": "bfloat16"}

The function gets the op's arguments by name, tensors as meta tensors, and says what the op asks of
a rank. The numbers become part of the op's signature, so that a run file keeps them and
`trnsim project` uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trnsim.errors import CaptureError

if TYPE_CHECKING:
    from trnsim import _core

CostFunction = Callable[..., Mapping[str, Any]]

# What a cost may say, and of what type.
_KEYS: dict[str, type] = {
    "flops": int,
    "dtype": str,
    "read_bytes": int,
    "write_bytes": int,
    "tensor_cycles": int,
    "vector_cycles": int,
    "scalar_cycles": int,
    "gpsimd_cycles": int,
}
_MOST = 1 << 62

_functions: dict[str, CostFunction] = {}


def cost(op: Any) -> Callable[[CostFunction], CostFunction]:
    """Registers what an op of a library of your own costs; a decorator.

    The function returns a dictionary, all of whose keys may be left out:

    - ``flops`` and ``dtype``: of matrix products; they count in MFU.
    - ``read_bytes``, ``write_bytes``: of the HBM, whole rank; those of the op's tensors else.
    - ``tensor_cycles``, ``vector_cycles``, ``scalar_cycles``, ``gpsimd_cycles``: of each engine of
      one core, on Trainium alone. ``tensor_cycles`` are those of the FLOPs at the engine's peak
      where they are left out, and the others none.

    The op is one record from here on, also where it is composed of other ops.

    Args:
        op: "mylib::op", or what ``torch.library.custom_op`` or ``torch.ops.mylib.op`` is.

    Raises:
        CaptureError: there is no such op, or it has a cost rule of trnsim's.
    """
    name, overload = _name_of(op)
    if "::" not in name or name.startswith(("aten::", "trnsim::", "c10d::", "prim::")):
        raise CaptureError(f"trnsim.cost is for ops of a library of your own, not '{name}'")

    def register(function: CostFunction) -> CostFunction:
        import trnsim.device  # noqa: F401
        from trnsim import _torch

        full_name = f"{name}.{overload}" if overload else name
        _torch.serve_op(full_name, replace=False)
        _functions[full_name] = function
        return function

    return register


def _name_of(op: Any) -> tuple[str, str]:
    """Name and overload, of a name, a CustomOpDef, an OpOverload or a packet of overloads."""
    import torch

    opoverload = getattr(op, "_opoverload", op)
    if isinstance(opoverload, torch._ops.OpOverload):
        overload = opoverload._overloadname
        return opoverload._schema.name, "" if overload == "default" else overload
    name = op if isinstance(op, str) else getattr(op, "_qualified_op_name", str(op))
    base, _, overload = name.partition(".")
    return base, "" if overload == "default" else overload


def with_given_costs(workload: _core.Workload) -> _core.Workload:
    """Puts the registered costs into the signatures of their ops."""
    if not _functions:
        return workload
    for index in range(workload.signature_count):
        parts = workload.signature_parts(index)
        function = _functions.get(parts["op"])
        if function is not None and "cost_given" not in parts["scalars"]:
            workload.add_scalars(index, _scalars(parts["op"], _asked(function, parts)))
    return workload


def _asked(function: CostFunction, parts: dict[str, Any]) -> Any:
    try:
        return function(**_arguments(parts))
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise CaptureError(f"the cost function of '{parts['op']}' raised {what}") from error


def _arguments(parts: dict[str, Any]) -> dict[str, Any]:
    import torch

    arguments = dict(parts["scalars"])
    for name, index, dtype, sizes, strides in parts["inputs"]:
        kind = getattr(torch, "bool" if dtype == "bool" else dtype, torch.uint8)
        tensor = torch.empty_strided(sizes, strides, dtype=kind, device="meta")
        if index < 0:
            arguments[name] = tensor
        else:
            arguments.setdefault(name, []).append(tensor)
    return arguments


def _scalars(op: str, given: Any) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        raise CaptureError(f"the cost of '{op}' is {given!r}: return a dictionary")
    scalars: list[tuple[str, Any]] = [("cost_given", True)]
    for key, value in given.items():
        kind = _KEYS.get(key)
        if kind is None:
            raise CaptureError(f"the cost of '{op}' has no '{key}': use {', '.join(_KEYS)}")
        if kind is int:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 <= value <= _MOST or value != int(value):
                raise CaptureError(f"the cost of '{op}' has {key} {value!r}: use 0 to 2^62")
            value = int(value)
        scalars.append((f"cost_{key}", value if kind is int else str(value).removeprefix("torch.")))
    if given.get("flops") and "dtype" not in given:
        scalars.append(("cost_dtype", "float32"))
    return scalars
