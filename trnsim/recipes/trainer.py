# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Trainer: one rank's training step of a model in a layout, written in a style.

It is the reference program: it trains on CPUs with gloo, and the simulated device records it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trnsim.recipes.block import Parts
from trnsim.recipes.kernels import is_simulated
from trnsim.recipes.layout import Layout
from trnsim.recipes.models import Model
from trnsim.recipes.optimizer import BucketOptimizer, Buckets
from trnsim.recipes.parallel import Place
from trnsim.recipes.schedule import Action, computations, with_messages
from trnsim.recipes.stage import Chunk, fill
from trnsim.recipes.style import Style, style_of

RATE, CLIP = 3e-4, 1.0
WAYS = ("forward", "backward")
_DTYPES = {"fp16": torch.float16, "fp32": torch.float32}


class Trainer:
    """One rank of a job.

    Args:
        model, layout, style: what is trained, how it is divided, and how it is written.
        device: where.
        rank: of this process; that of the default process group when None.

    Attributes:
        chunks: the rank's pieces of the model.
        loss: sum of the losses of the step's micro-batches, on the last stage.
    """

    def __init__(
        self, model: Model, layout: Layout, style: Style | str = "megatron",
        device: Any = "cpu", rank: int | None = None,
    ) -> None:  # fmt: skip
        layout.check(model)
        self.model, self.layout, self.style = model, layout, style_of(style)
        self.device = torch.device(device)
        if rank is None:
            rank = dist.get_rank() if dist.is_initialized() else 0
        self.place = Place(layout, rank)
        dtype = _DTYPES.get(layout.precision, torch.bfloat16)
        held = dtype if self.style.data == "buckets" else torch.float32  # FSDP casts as it gathers
        made_on = torch.device("meta") if self._makes_parts_alone else self.device
        parts = Parts(model, self.place, self.style, held, made_on)
        pieces = layout.chunk_layers(model)
        self.chunks: list[Any] = []
        for number in range(layout.vp):
            piece = number * layout.pp + self.place.stage
            chunk = Chunk(parts, pieces[piece], piece == 0, piece == len(pieces) - 1)
            fill(chunk, pieces[piece], self.place, model.hidden)
            self.chunks.append(chunk)
        self.dtype = dtype
        stage = self.place.stage
        self.actions = with_messages(layout, stage, computations(layout, stage))
        self._prepare()
        self.loss = torch.zeros((), dtype=torch.float32, device=self.device)
        self._micro: dict[tuple[int, int], dict[str, Any]] = {}
        self._sent: list[Any] = []  # messages of this step, and their data

    @property
    def _makes_parts_alone(self) -> bool:
        """Whether FSDP gets a model without memory, and each rank makes its own part: as torchtitan
        and LLM Foundry (init_device: meta) do, and here on the simulated device alone, where
        nothing has values to begin with."""
        is_divided = self.style.data != "buckets" and dist.is_initialized()
        return is_divided and self.device.type != "cpu"

    def _prepare(self) -> None:
        """What divides parameters, gradients and the optimizer."""
        style = self.style
        clip = CLIP if style.clip else 0.0
        if style.data != "buckets":
            from trnsim.recipes.sharded import Sharded

            self.data: Any = Sharded(self.chunks, self.place, style, self.device)
            self.chunks = self.data.chunks
            self.optimizer: Any = self.data.optimizer(RATE, clip)
            return
        gradient = getattr(torch, self.layout.gradient)
        self.data = Buckets(self.chunks, self.place, style, gradient, self._shared_embedding())
        self.optimizer = BucketOptimizer(self.data, RATE, clip, style.optimizer)
        for chunk in self.chunks:
            for module in [chunk.embedding, *chunk.layers, chunk.head]:
                if module is not None:
                    module.register_forward_pre_hook(self.data.gather_before)

    def _shared_embedding(self) -> tuple[Tensor, Any] | None:
        """The embedding's weight and the ranks of the first and last stage that have it too."""
        if not self.model.tied or self.layout.pp == 1:
            return None
        weight = None
        if self.place.is_first:
            weight = self.chunks[0].embedding.weight
        elif self.place.is_last:
            weight = self.chunks[-1].head.logits.weight
        if weight is None:
            return None
        weight.is_reduced_late = True
        return weight, self.place.ends()

    # --- a step ----------------------------------------------------------------------------------

    def step(
        self, tokens: Callable[[int], tuple[Tensor, Tensor]],
        actions: Iterable[Action] | None = None, watch: Callable[..., Any] | None = None,
    ) -> Tensor:  # fmt: skip
        """One training step; returns the loss, the sum over this rank's micro-batches by count.

        Args:
            tokens: inputs and targets of a micro-batch by its number, of this rank.
            actions: another order than the layout's.
            watch: called with each action before it is done, and with None after the last.
        """
        actions = list(self.actions if actions is None else actions)
        self.begin()
        last = max(action.micro_batch for action in actions)
        for action in actions:
            if watch is not None:
                watch(action)
            self.do(action, tokens, action.micro_batch == last, last + 1)
        if watch is not None:
            watch(None)
        return self.finish()

    def begin(self) -> None:
        """What a step begins with."""
        self.loss.zero_()
        if self.style.data == "buckets" and self.style.parameter_overlap:
            self.data.start_gathers()

    def finish(self) -> Tensor:
        """What ends a step: gradients over ranks, and the optimizer."""
        if self.style.data == "buckets":
            self.data.finish_reduces()
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()
        self.optimizer.step()
        for chunk in self.chunks:
            for module in chunk.modules():  # weights change: they are cast again
                held = getattr(module, "held_fp8", None)
                if isinstance(held, dict):
                    held.clear()
                elif held is not None:
                    module.held_fp8 = None
        return self.loss

    def close(self) -> None:
        """Ends its use, so that its memory is freed."""
        self.data.close()
        self._micro.clear()
        self.chunks.clear()

    def do(self, action: Action, tokens: Any, is_last: bool, count: int) -> None:
        """One action."""
        key = action.chunk, action.micro_batch
        state = self._micro.setdefault(key, {})
        if action.kind == "forward":
            self._forward(action, state, tokens, count)
        elif action.kind == "backward":
            self._backward(action, state, is_last)
        else:
            getattr(self, f"_{action.kind}")(action, state)
        if not state:
            del self._micro[key]

    # --- computations ----------------------------------------------------------------------------

    def _forward(self, action: Action, state: dict[str, Any], tokens: Any, count: int) -> None:
        chunk = self.chunks[action.chunk]
        piece = action.chunk * self.layout.pp + self.place.stage
        is_last = piece == self.layout.pp * self.layout.vp - 1
        targets = None
        if piece == 0 or is_last:
            inputs, targets = tokens(action.micro_batch)
        if piece > 0:
            inputs = state["input"] = self._arrived(state, "forward").requires_grad_()
        out = chunk(inputs, targets) if is_last else chunk(inputs)
        if is_last:
            out = out / count
            ranks = self.layout.dp * self.layout.cp
            self.loss += out.detach() / ranks
            if self.style.data == "buckets":  # sums gradients; FSDP takes their mean
                out = out / ranks
        state["output"] = out

    def _backward(self, action: Action, state: dict[str, Any], is_last: bool) -> None:
        self.data.is_last_backward = is_last
        if self.style.data != "buckets":
            self.data.before_backward(action.chunk, is_last)
        gradient = self._arrived(state, "backward")
        state.pop("output").backward(gradient)
        inputs = state.pop("input", None)
        if inputs is not None:
            state["gradient"] = inputs.grad

    # --- messages --------------------------------------------------------------------------------

    @property
    def _boundary(self) -> tuple[int, int]:
        rows = self.layout.tokens
        if self.layout.sequence_parallel:
            rows //= self.layout.tp
        return rows, self.model.hidden

    def _peer(self, step: int) -> int:
        return self.place.pp_ranks[(self.place.stage + step) % self.layout.pp]

    def _receive(self, state: dict[str, Any], way: str, step: int) -> None:
        data = torch.empty(self._boundary, dtype=self.dtype, device=self.device)
        group = self.place.pp
        work = dist.irecv(data, self._peer(step), group=group, tag=WAYS.index(way))
        state[f"received {way}"] = data, work

    def _arrived(self, state: dict[str, Any], way: str) -> Tensor | None:
        data, work = state.pop(f"received {way}", (None, None))
        if work is not None:
            work.wait()
        return data

    def _send(self, data: Tensor, way: str, step: int) -> None:
        """Nothing waits for it: on a device, what holds the data until then is its stream."""
        group = self.place.pp
        work = dist.isend(data, self._peer(step), group=group, tag=WAYS.index(way))
        if not is_simulated(data):
            self._sent.append((work, data))

    def _receive_forward(self, action: Action, state: dict[str, Any]) -> None:
        self._receive(state, "forward", -1)

    def _receive_backward(self, action: Action, state: dict[str, Any]) -> None:
        self._receive(state, "backward", 1)

    def _send_forward(self, action: Action, state: dict[str, Any]) -> None:
        self._send(state["output"].detach(), "forward", 1)

    def _send_backward(self, action: Action, state: dict[str, Any]) -> None:
        self._send(state.pop("gradient"), "backward", -1)
