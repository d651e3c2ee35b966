# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""How unevenly a router fills experts: their popularity follows a Zipf law, alike on every rank.

The k-th most popular expert is chosen by a share of k^-s of all choices. Experts are dealt out in
that order, one to each expert parallel rank in turn: the expert at place p (from 0) is on rank p
mod ep, so that rank 0 of an expert parallel group has most tokens. Whole numbers throughout.
"""

from __future__ import annotations

import functools
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING

from trnsim.errors import RecipeError

if TYPE_CHECKING:
    from trnsim.recipes.layout import Layout
    from trnsim.recipes.models import Model
    from trnsim.recipes.style import Style

LARGEST_EXPONENT = 16
MOST_PROGRAMS = 128  # that a skewed job captures, lowers and simulates: some seconds each
_EXACT = Context(prec=90)  # decimal powers are the same on every computer
_UNIT = Decimal(10) ** 70  # of a share: that of the 4,096th expert at the largest exponent is whole


def normal_skew(text: str) -> str:
    """ "" where all experts are as popular, else the skew with its exponent in shortest form.

    Raises:
        RecipeError: it is no Zipf law of an exponent from 0 to 16.
    """
    if not text:
        return ""
    law, _, number = text.partition(":")
    try:
        exponent = Decimal("NaN" if "_" in number else number)
    except InvalidOperation:
        exponent = Decimal("NaN")
    if law != "zipf" or not exponent.is_finite() or not 0 <= exponent <= LARGEST_EXPONENT:
        raise RecipeError(
            f"expert_skew '{text}': write zipf:S with S from 0 to {LARGEST_EXPONENT}, as zipf:1.2"
        )
    return f"zipf:{exponent.normalize():f}" if exponent else ""


@functools.lru_cache(256)
def tokens_of_experts(skew: str, experts: int, tokens: int, topk: int) -> tuple[int, ...]:
    """Of so many tokens that choose `topk` experts each: how many choose every expert, the most
    popular first. Sums to tokens x topk.

    Shares are rounded by their largest remainders. A token chooses an expert once, so none has more
    than all tokens: what is over goes to the others by their shares.
    """
    exponent = Decimal(skew.partition(":")[2] or 0)
    powers = (_EXACT.power(Decimal(place), -exponent) for place in range(1, experts + 1))
    shares = [int(_EXACT.multiply(_UNIT, power)) for power in powers]
    full, whole = 0, sum(shares)
    while (tokens * topk - full * tokens) * shares[full] > tokens * whole:
        whole -= shares[full]
        full += 1
    return (tokens,) * full + _shared_out(tokens * (topk - full), shares[full:])


def _shared_out(count: int, shares: list[int]) -> tuple[int, ...]:
    """So many in proportion to shares, by largest remainders; of equal ones the earlier first."""
    whole = sum(shares)
    parts = [count * share // whole for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (-(count * shares[i] % whole), i))
    for i in by_remainder[: count - sum(parts)]:
        parts[i] += 1
    return tuple(parts)


def rows_of_experts(model: Model, layout: Layout, ep_rank: int) -> tuple[int, ...]:
    """Of a micro-batch: how many rows each expert of a rank gets from all ranks of its group."""
    counts = _counts(model, layout)
    return tuple(layout.ep * count for count in counts[ep_rank :: layout.ep])


def rows_to_ranks(model: Model, layout: Layout) -> tuple[int, ...]:
    """Of a micro-batch: how many rows a rank sends to each expert parallel rank."""
    counts = _counts(model, layout)
    return tuple(sum(counts[rank :: layout.ep]) for rank in range(layout.ep))


def hottest_share(model: Model, layout: Layout) -> float:
    """Rows of the expert parallel rank that gets most, over their mean."""
    rows = rows_to_ranks(model, layout)
    return max(rows) * layout.ep / sum(rows)


def _counts(model: Model, layout: Layout) -> tuple[int, ...]:
    # Tensor parallel ranks have their parts of the sequence.
    tokens = layout.tokens // (layout.tp if layout.sequence_parallel else 1)
    return tokens_of_experts(layout.expert_skew, model.experts, tokens, model.topk)


def alike_ranks(model: Model, layout: Layout) -> list[list[int]]:
    """Expert parallel ranks by what they run: those of a list run the same. All of them where they
    get alike; where tensor and context parallel groups hold several of them, and some are unlike,
    each is alone."""
    ranks = list(range(layout.ep))
    if not layout.expert_skew:
        return [ranks]
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in ranks:
        found.setdefault(rows_of_experts(model, layout, rank), []).append(rank)
    if len(found) > 1 and layout.tp * layout.cp > 1:
        return [[rank] for rank in ranks]
    return list(found.values())


def check_skew(model: Model, layout: Layout) -> None:
    """Raises RecipeError where a layout's skew does not go with the model or its other degrees."""
    skew, ep = layout.expert_skew, layout.ep
    if not skew:
        return
    if not model.experts:
        raise RecipeError(f"expert_skew {skew} of a model without experts: leave it out")
    groups = {"tp": layout.tp, "tp x cp": layout.tp * layout.cp}
    if layout.zero == 3 and layout.shard:
        groups["tp x shard"] = layout.tp * layout.shard
    for what, ranks in groups.items():  # else groups of one kind hold unlike ranks
        if ranks % ep and ep % ranks:
            raise RecipeError(
                f"expert_skew {skew} with ep {ep} and {what} {ranks}: use an ep that divides "
                f"{ranks}, or a multiple of it"
            )
    programs = layout.pp * len(alike_ranks(model, layout))
    if programs > MOST_PROGRAMS:
        raise RecipeError(
            f"expert_skew {skew} with ep {ep} and pp {layout.pp}: {programs} ranks have unlike "
            f"programs, and at most {MOST_PROGRAMS} are captured: use a smaller ep or pp"
        )


def check_style(layout: Layout, style: Style) -> None:
    """Raises RecipeError where a style's experts do not take what a skewed router sends them."""
    skew = layout.expert_skew
    if skew and style.capacity:
        raise RecipeError(
            f"expert_skew {skew} with a capacity of {style.capacity:g}: tokens beyond it are "
            "dropped, so that every expert has as many: leave out one of them"
        )
    if skew and style.dispatch_ranks and layout.ep > style.dispatch_ranks:
        raise RecipeError(
            f"expert_skew {skew} with tokens that go once to each server (dispatch_ranks "
            f"{style.dispatch_ranks}): how many servers a token's experts are on depends on which "
            f"experts are chosen together: use dispatch_ranks 0, or ep {style.dispatch_ranks}"
        )
