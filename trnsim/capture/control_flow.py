# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""torch.cond and while_loop on the device, where the predicate depends on values nobody knows.

Where it is known (compute mode, and small tensors in phantom mode), torch's own eager kernels read
it and run what it says; scan and associative_scan have a known length and need nothing. Where it is
not, cond takes the branch with more FLOPs, or at the same FLOPs with more bytes, and a note says
so; the predicate is made to say it too, so that the backward takes the same branch. A loop is
refused: nobody knows how often it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from trnsim import _torch
from trnsim.errors import CaptureError

_DENSE = torch._C.DispatchKey.CompositeExplicitAutograd


def _device_key() -> Any:
    keys = torch._C.DispatchKey
    return keys.CUDA if _torch.device_name() == "cuda" else keys.PrivateUse1


def serve_cond(module: ModuleType) -> None:
    """Registers our kernel at torch._higher_order_ops.cond, once it is imported."""
    dense = module.cond_op.py_kernels[_DENSE]

    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
        if _is_unknown(pred):
            taken = _costlier(true_fn, false_fn, operands)
            if not _torch.can_be_known(pred) or pred.untyped_storage().nbytes() != pred.nbytes:
                return (true_fn if taken else false_fn)(*operands)  # a piece of what stays unknown
            _torch.values_of(pred).fill_(taken)
        return dense(pred, true_fn, false_fn, operands)

    module.cond_op.py_impl(_device_key())(cond)


def serve_while_loop(module: ModuleType) -> None:
    """Registers our kernels at torch._higher_order_ops.while_loop, once it is imported."""
    for op in (module.while_loop_op, module.while_loop_stack_output_op):
        op.py_impl(_device_key())(_counted(op.py_kernels[_DENSE]))


def _counted(dense: Callable[..., Any]) -> Callable[..., Any]:
    def while_loop(cond_fn: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        def asked(*values: Any) -> Any:
            pred = cond_fn(*values)
            if _is_unknown(pred):
                raise CaptureError(
                    "while_loop: its condition depends on values that phantom mode does not know, "
                    "so how often it runs is unknown: use --mode compute, or a condition that "
                    "counts turns"
                )
            return pred

        return dense(asked, *arguments, **named)

    return while_loop


def _is_unknown(pred: Any) -> bool:
    is_ours = isinstance(pred, torch.Tensor) and pred.device.type == _torch.device_name()
    return is_ours and not _torch.is_known(pred)


# --- which branch costs more --------------------------------------------------------------------


def _costlier(true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> bool:
    with _torch.Quiet():
        of_true, of_false = (_work(branch, operands) for branch in (true_fn, false_fn))
    _torch.add_note(
        "torch.cond: a predicate depends on values that are not known: the branch with more FLOPs, "
        "or else more bytes, is taken"
    )
    return of_true >= of_false


def _work(branch: Any, operands: Sequence[Any]) -> tuple[int, int]:
    """FLOPs and bytes of a branch, found from shapes alone."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake, torch.no_grad(), _Count() as count:
        branch(*tree_map(lambda each: _faked(fake, each), tuple(operands)))
    return count.flops, count.bytes


def _faked(mode: Any, value: Any) -> Any:
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


class _Count(TorchDispatchMode):
    """Counts what runs inside."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils.flop_counter import flop_registry

        if isinstance(func, torch._ops.HigherOrderOperator):
            raise CaptureError(
                f"torch.cond: its predicate depends on values that phantom mode does not know, and "
                f"{func} in a branch hides which branch costs more: use --mode compute"
            )
        if func._overloadpacket not in flop_registry:
            with self:  # ops such as matmul come whole where autograd is left out
                parts = func.decompose(*args, **(kwargs or {}))
            if parts is not NotImplemented:
                return parts
        result = func(*args, **(kwargs or {}))
        count_flops = flop_registry.get(func._overloadpacket)
        if count_flops is not None:
            self.flops += count_flops(*args, **(kwargs or {}), out_val=result)
        if not func.is_view:
            tensors = [
                each
                for each in tree_leaves((args, kwargs, result))
                if isinstance(each, torch.Tensor)
            ]
            self.bytes += sum(each.numel() * each.element_size() for each in tensors)
        return result
