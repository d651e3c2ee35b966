# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Which points of a chart get a label, and where, so that all can be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

LETTER, LINE = 5.6, 10.0  # points, of a letter of 8.5 points and of a line
GAP = 5.0  # from the middle of a point to its label
SPACE = 4.0  # after a label
MARK = 4.0  # half of what a point's mark takes

Box = tuple[float, float, float, float]  # left, bottom, right, top


def placed(
    points: Sequence[tuple[float, float]], texts: Sequence[str], first: Sequence[int],
    size: tuple[float, float],
) -> dict[int, tuple[float, float]]:  # fmt: skip
    """Offsets in points of the labels that have room, by their point's number.

    Args:
        points: as shares of the chart's width and height.
        texts: of each point's label.
        first: numbers of points that come before the others, most important first.
        size: of the chart, width and height in points.
    """
    at = [(x * size[0], y * size[1]) for x, y in points]
    marks = [(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in at]
    taken: list[Box] = []
    found = {}
    for i in dict.fromkeys([*first, *range(len(points))]):
        around = list(_around(len(texts[i]) * LETTER))
        for strict in (True, False):
            kept_clear = [*taken, *(marks if strict else [])]
            boxes = ((offset, _box(at[i], offset, texts[i])) for offset in around)
            free = next((offset for offset, box in boxes if _is_free(box, kept_clear, size)), None)
            if free is not None or i not in first:
                break
        if free is not None:
            found[i] = free
            taken.append(_box(at[i], free, texts[i]))
    return found


def _around(width: float) -> Iterator[tuple[float, float]]:
    for y in (GAP, -GAP - LINE):
        yield from ((GAP, y), (-GAP - width, y))


def _box(at: tuple[float, float], offset: tuple[float, float], text: str) -> Box:
    left, bottom = at[0] + offset[0], at[1] + offset[1]
    return left, bottom, left + len(text) * LETTER + SPACE, bottom + LINE


def _is_free(box: Box, taken: Sequence[Box], size: tuple[float, float]) -> bool:
    is_inside = box[0] >= 0 and box[1] >= 0 and box[2] <= size[0] and box[3] <= size[1]
    return is_inside and not any(_meet(box, other) for other in taken)


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
