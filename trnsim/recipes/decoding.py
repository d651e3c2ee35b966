# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Attention of one query a sequence against a cache: one kernel, or products with their scores.

With scores, what the cache holds and what the new token brings are two parts of one softmax, so
that the cache is read while the token's own keys are still being computed, as transformers-neuronx
and NxD Inference have it (prior and active scores). Query heads that share keys are rows of one
product.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from trnsim.recipes import kernels
from trnsim.recipes.serving import Cache


def attend_kernel(cache: Cache, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[batch, heads, size] each to the same: the cache is written, then read by one kernel."""
    cache.append(k, v)
    keys, values = cache.past(1)
    shared = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q.unsqueeze(2), keys, values, enable_gqa=shared)[:, :, 0]


def attend_scores(cache: Cache, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[batch, heads, size] each to the same: the cache is read and then written."""
    batch, heads, size = q.shape
    groups = batch * k.shape[1]
    keys, values = (x.flatten(0, 1) for x in cache.past(0))
    queries = q.reshape(groups, heads * batch // groups, size)
    own = (queries * k.reshape(groups, 1, size)).sum(-1, keepdim=True)
    if kernels.is_simulated(q):
        scores = q.new_empty((*queries.shape[:2], keys.shape[1]), dtype=torch.float32)
        inputs = [("self", queries), ("mat2", keys.transpose(1, 2))]
        kernels.record("aten::bmm", inputs, [scores])
        shares, of_own = torch.empty_like(scores, dtype=q.dtype), torch.empty_like(own)
        inputs = [("input", scores), ("own", own)]
        kernels.record("trnsim::decode_softmax", inputs, [shares, of_own])
    else:
        both = torch.cat([queries @ keys.transpose(1, 2), own], -1) * size**-0.5
        both = F.softmax(both, -1, dtype=torch.float32).to(q.dtype)
        shares, of_own = both[..., :-1], both[..., -1:]
    out = torch.bmm(shares, values) + of_own * v.reshape(groups, 1, -1)
    cache.append(k, v)
    return out.reshape(batch, heads, -1)
