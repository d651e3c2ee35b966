# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Generator: prefill and decoding steps of a model, in the modules of the training program.

It generates on CPUs too; the simulated device records one prefill and one decoding step.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trnsim.recipes import kernels
from trnsim.recipes.block import Parts
from trnsim.recipes.experts import Experts
from trnsim.recipes.int8 import keep_in_int8
from trnsim.recipes.layout import padded_vocab
from trnsim.recipes.linear import Linear
from trnsim.recipes.models import Model
from trnsim.recipes.parallel import Place, gather
from trnsim.recipes.roles import recorded
from trnsim.recipes.serving import Cache, Serving
from trnsim.recipes.stage import Chunk, fill
from trnsim.recipes.style import Style, style_of

KINDS = ("prefill", "decode")


class Generator:
    """One rank of a server.

    Args:
        model, serving, style: what is served, how it is divided and kept, and how it is written.
        device: where.
        rank: of this process; that of the default process group when None.
    """

    def __init__(
        self, model: Model, serving: Serving, style: Style | str = "megatron",
        device: Any = "cpu", rank: int | None = None,
    ) -> None:  # fmt: skip
        self.model, self.serving = serving.fitted(model), serving
        self.device, self.style = torch.device(device), style_of(style)
        if rank is None:
            rank = dist.get_rank() if dist.is_initialized() else 0
        self.prompts = serving.prefill_batch or serving.batch
        layout = serving.layout(serving.prompt, self.prompts)
        layout.check(self.model)
        self.place = Place(layout, rank)
        dtype = torch.float32 if serving.weights == "fp32" else torch.bfloat16
        parts = Parts(self.model, self.place, self.style, dtype, self.device)
        parts.serves = True
        layers = list(range(self.model.layers))
        self.chunk: Any = Chunk(parts, layers, True, True)
        fill(self.chunk, layers, self.place, self.model.hidden)
        self.vocab = padded_vocab(self.model, layout.tp)
        self.caches = [self._cached(layer, block) for layer, block in enumerate(self.chunk.layers)]
        self._keep_weights()
        self.turns: tuple[Any, Any] = (None, None)
        if self.model.position == "rope":
            size = self.model.rope_dim or self.model.head_dim
            every = torch.arange(serving.cache)
            self.turns = kernels.rotary_table(every.to(self.device), size, self.device)

    def _cached(self, layer: int, block: Any) -> Cache:
        mixer, model = block.mixer, self.model
        cache = Cache(
            self.serving.cache, self.serving.batch, mixer.kv_heads,
            (model.head_dim, model.value_dim), model.window_of(layer),
            self.chunk.embedding.weight.dtype, self.device,
        )  # fmt: skip
        cache.with_scores = self.style.decode == "scores"
        mixer.attention.cache = cache
        return cache

    def _keep_weights(self) -> None:
        """Weights stand as products read them, contraction first, and in 8 bits where asked."""
        for module in self.chunk.modules():
            if isinstance(module, Linear):
                if self.serving.weights == "int8" and module is not self.chunk.head.logits:
                    keep_in_int8(module)
                module.weight.data = module.weight.data.t().contiguous().t()
            elif isinstance(module, Experts):
                for weight in (module.up, module.down):
                    weight.data = weight.data.transpose(1, 2).contiguous().transpose(1, 2)

    @torch.no_grad()
    def prefill(self, tokens: Tensor) -> Tensor:
        """[sequences, prompt] fill the cache; the logits of each one's last token, [sequences,
        vocab]. A prefill of fewer sequences than the batch fills the first ones' places."""
        self._switch(False)
        x = self.chunk.embedding(tokens, self.chunk.positions)
        for block in self.chunk.layers:
            x = block(x, self.chunk.cos, self.chunk.sin)
        return self._logits(x.unflatten(0, (self.prompts, -1))[:, -1])

    @torch.no_grad()
    def decode(self, tokens: Tensor) -> Tensor:
        """[batch] next tokens; the logits of each, [batch, vocab]."""
        self._switch(True)
        at = min(self.caches[0].filled, self.serving.cache - 1)
        cos, sin = (
            None if table is None else table[at].expand(len(tokens), -1) for table in self.turns
        )
        positions = torch.full_like(tokens, at)
        x = self.chunk.embedding(tokens[:, None], positions)
        for block in self.chunk.layers:
            x = block(x, cos, sin)
        return self._logits(x)

    def _switch(self, is_decoding: bool) -> None:
        for cache, block in zip(self.caches, self.chunk.layers, strict=True):
            cache.is_decoding = is_decoding
            if block.has_experts:
                block.feed.decodes = is_decoding

    def _logits(self, x: Tensor) -> Tensor:
        own = self.chunk.head(x)
        if self.place.tp is None:
            return own
        every = gather(own, self.place.tp)
        return every.unflatten(0, (self.serving.tp, -1)).transpose(0, 1).flatten(1)


def capture_inference(
    model: Model, serving: Serving, style: Style | str, kind: str, *, ranks_per_server: int = 8
) -> Any:
    """The Workload of one prefill or one decoding step, with the host's reading of the tokens.

    Args:
        kind: "prefill" or "decode".

    Raises:
        RecipeError: the model cannot be served so.
    """
    import trnsim.device  # noqa: F401  the device
    from trnsim import _torch

    layout = serving.layout(serving.prompt, serving.batch)
    with recorded(layout, 0, ranks_per_server) as made, torch.no_grad():
        device = torch.device(_torch.device_name(), 0)
        generator = Generator(model, serving, style, device, 0)
        shape = (serving.batch,) if kind == "decode" else (generator.prompts, serving.prompt)
        tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        for _ in range(2):
            getattr(generator, kind)(tokens).argmax(-1).cpu()
            torch.trn.step(tokens=tokens.numel())
        del generator, tokens
    workload = made[0]
    workload.parameter_count = model.parameters()
    workload.role = "rank0"
    return workload
