# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Charts by matplotlib, as SVG that stands in the page. The same data gives the same bytes."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trnsim.errors import ReportError
from trnsim.report.page import labels
from trnsim.report.page.parts import Chart
from trnsim.report.palette import BLACK, BLUE, GREY, ORANGE, SKY, Fill

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = 7.6, 3.7  # inches
EDGE = {"edgecolor": BLACK, "linewidth": 0.5}
MANY_SHAPES = 300  # more of them become pixels, or the file grows large
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"), (1e-12, "ps"))


def check_library() -> None:
    """Raises ReportError where there is no matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ReportError(
            "a report needs matplotlib, which is not here: pip install 'trnsim[report]', or pip "
            "install matplotlib"
        ) from None


@contextmanager
def _style(salt: str) -> Iterator[None]:
    import matplotlib

    settings = {
        "font.size": 8.5,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial"],
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "hatch.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "savefig.dpi": 192,
    }
    with matplotlib.rc_context(settings):
        yield


def chart(
    name: str,
    alt: str,
    draw: Callable[[Figure, bool], None],
    height: float | tuple[float, float],
    caption: str = "",
) -> Chart:
    """Calls draw(figure, is_narrow) for both widths. height: in inches, of the wide one and of the
    narrow one."""
    from matplotlib.figure import Figure

    heights = height if isinstance(height, tuple) else (height, height)
    drawn = []
    for width, tall, narrow in ((WIDE, heights[0], False), (NARROW, heights[1], True)):
        with _style(f"{name} {narrow}"):
            figure = Figure(figsize=(width, tall), layout="constrained")
            draw(figure, narrow)
            buffer = io.BytesIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        drawn.append("data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode())
    return Chart(alt, drawn[0], drawn[1], caption)


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which this many seconds are best read, as (seconds of one, its name)."""
    for size, name in _UNITS:
        if seconds >= size * 0.9995:
            return size, name
    return _UNITS[-1]


@dataclass(frozen=True)
class Bar:
    """One line of a waterfall: from..to in seconds."""

    name: str
    begin: float
    end: float
    text: str
    fill: Fill


def waterfall(bars: Sequence[Bar]) -> Callable[[Figure, bool], None]:
    """Bars that begin where the one above ends."""

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        whole = max(bar.end for bar in bars)
        size, unit = time_unit(whole)
        for y, bar in enumerate(bars):
            width = (bar.end - bar.begin) / size
            axes.barh(
                y, width, left=bar.begin / size, color=bar.fill.colour, hatch=bar.fill.hatch, **EDGE
            )
            after = bar.end / size + 0.01 * whole / size
            if bar.end < 0.62 * whole:
                axes.text(after, y, bar.text, va="center", ha="left")
            elif bar.begin > 0.38 * whole:
                axes.text(
                    bar.begin / size - 0.01 * whole / size, y, bar.text, va="center", ha="right"
                )
            else:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                middle = (bar.begin + bar.end) / 2 / size
                axes.text(middle, y, bar.text, va="center", ha="center", bbox=box)
        names = [_wrapped(bar.name) if narrow else bar.name for bar in bars]
        axes.set_yticks(range(len(bars)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, whole / size)
        axes.set_xlabel(f"time ({unit})")
        axes.grid(axis="x", color=GREY, linewidth=0.5)

    return draw


def _wrapped(name: str, columns: int = 16) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(name, columns, break_long_words=True)) or name


def tornado(
    rows: Sequence[tuple[str, float, float]], whole: float
) -> Callable[[Figure, bool], None]:
    """rows: (name, step at the better bound, at the worse) in seconds; whole: the step as it is."""

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        for y, (_, faster, slower) in enumerate(rows):
            for value, fill in ((faster, Fill(SKY)), (slower, Fill(ORANGE, "///"))):
                change = 100 * (value / whole - 1)
                axes.barh(y, change, color=fill.colour, hatch=fill.hatch, **EDGE)
        changes = [100 * (value / whole - 1) for row in rows for value in row[1:]]
        low, high = min(0.0, *changes), max(0.0, *changes)
        room = (0.34 if narrow else 0.2) * ((high - low) or 1.0)
        for y, (_, faster, slower) in enumerate(rows):
            ends = sorted((100 * (faster / whole - 1), 100 * (slower / whole - 1)))
            for end, side, pad in ((min(ends[0], 0), "right", -1), (max(ends[1], 0), "left", 1)):
                if abs(end) >= 0.005:
                    axes.text(end + pad * 0.03 * room, y, f"{end:+.2f} %", va="center", ha=side)
        axes.set_xlim(low - room, high + room)
        axes.axvline(0, color=BLACK, linewidth=1)
        names = [_wrapped(row[0], 18) if narrow else row[0] for row in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.set_xlabel("change of the step time (%)")
        _legend(
            figure, {"at the better bound": Fill(SKY), "at the worse bound": Fill(ORANGE, "///")}
        )

    return draw


def _legend(figure: Figure, fills: Mapping[str, Fill], columns: int = 0) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=fill.colour, hatch=fill.hatch, label=name, **EDGE)
        for name, fill in fills.items()
    ]
    narrow = figure.get_figwidth() < WIDE - 1
    figure.legend(
        handles=handles, loc="outside upper left", ncols=columns or (2 if narrow else 4),
        handlelength=2.4, handleheight=1.0, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip


def _edges(step_s: float, bins: int) -> tuple[list[float], str]:
    size, unit = time_unit(step_s)
    return [step_s * i / bins / size for i in range(bins + 1)], unit


def _stack(
    axes: Axes, edges: Sequence[float], layers: Mapping[str, Sequence[float]],
    fills: Mapping[str, Fill],
) -> None:  # fmt: skip
    """Layers on each other, constant within a bin."""
    base = [0.0] * (len(edges) - 1)
    for name, values in layers.items():
        top = [b + v for b, v in zip(base, values, strict=True)]
        axes.fill_between(
            edges, [*base, base[-1]], [*top, top[-1]], step="post", facecolor=fills[name].colour,
            hatch=fills[name].hatch, edgecolor=BLACK, linewidth=0.3, rasterized=True,
        )  # fmt: skip
        base = top


def over_time(
    step_s: float, doing: Mapping[str, Sequence[float]], fills: Mapping[str, Fill],
    engines: Mapping[str, Sequence[float]],
) -> Callable[[Figure, bool], None]:  # fmt: skip
    """What ranks do, as shares on each other, and below how busy each engine is."""

    def draw(figure: Figure, narrow: bool) -> None:
        count = len(engines)
        panels = figure.subplots(
            1 + count, 1, sharex=True, squeeze=False, height_ratios=[2.2] + [1] * count
        )[:, 0]
        edges, unit = _edges(step_s, len(next(iter(doing.values()))))
        _stack(panels[0], edges, doing, fills)
        panels[0].set_ylabel("ranks")
        for axes, (name, busy) in zip(panels[1:], engines.items(), strict=True):
            axes.fill_between(
                edges,
                [*busy, busy[-1]],
                step="post",
                facecolor=BLUE,
                alpha=0.35,
                linewidth=0,
                rasterized=True,
            )
            axes.step(edges, [*busy, busy[-1]], where="post", color=BLUE, linewidth=0.8)
            axes.set_ylabel(name, rotation=0, ha="right", va="center")
        for axes in panels:
            axes.set_ylim(0, 1)
            axes.set_yticks([0, 1], ["0", "100 %"])
            axes.set_xlim(0, edges[-1])
        panels[-1].set_xlabel(f"time ({unit})")
        _legend(figure, {name: fills[name] for name in doing})

    return draw


def rows_over_time(
    step_s: float, rows: Mapping[str, Sequence[str]], fills: Mapping[str, Fill]
) -> Callable[[Figure, bool], None]:
    """A row a role: the word of each bin as a fill."""

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        bins = len(next(iter(rows.values())))
        edges, unit = _edges(step_s, bins)
        runs = {name: list(_runs(words)) for name, words in rows.items()}
        is_large = sum(map(len, runs.values())) > MANY_SHAPES
        for y, of_row in enumerate(runs.values()):
            for word in dict.fromkeys(word for _, _, word in of_row):
                spans = [
                    (edges[begin], edges[end] - edges[begin])
                    for begin, end, its in of_row
                    if its == word
                ]
                axes.broken_barh(
                    spans, (y - 0.42, 0.84), facecolor=fills[word].colour, rasterized=is_large,
                    hatch=fills[word].hatch, edgecolor=BLACK, linewidth=0.15,
                )  # fmt: skip
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, edges[-1])
        axes.set_xlabel(f"time ({unit})")
        shown = {word for of_row in runs.values() for _, _, word in of_row}
        _legend(figure, {word: fill for word, fill in fills.items() if word in shown})

    return draw


def _runs(words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    begin = 0
    for i in range(1, len(words) + 1):
        if i == len(words) or words[i] != words[begin]:
            yield begin, i, words[begin]
            begin = i


def heat(
    rows: Mapping[str, Sequence[float]], extent: tuple[float, float], x_label: str,
    notes: Sequence[str] = (),
) -> Callable[[Figure, bool], None]:  # fmt: skip
    """Loads (0 to 1; below 0: none) as a map: the darker the more. notes: at the end of rows."""

    def draw(figure: Figure, narrow: bool) -> None:
        import numpy as np

        axes = figure.subplots()
        values = np.ma.masked_less(np.array(list(rows.values()), dtype=float), 0)
        image = axes.imshow(
            100 * values, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest",
            vmax=100 * max(float(values.max()), 1e-6),
            extent=(*extent, len(rows) - 0.5, -0.5),
        )  # fmt: skip
        axes.set_facecolor("#FFFFFF")
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_xlabel(x_label)
        for y in range(1, len(rows)):
            axes.axhline(y - 0.5, color="white", linewidth=1)
        for y, note in enumerate(notes):
            axes.text(1.01, y, note, transform=axes.get_yaxis_transform(), va="center")
        bar = figure.colorbar(
            image, ax=axes, orientation="horizontal", location="top", aspect=40, shrink=0.6
        )
        bar.set_label("load of a link (%): darker is more")
        for side in axes.spines.values():
            side.set_visible(True)

    return draw


def memory(
    step_s: float, by_kind: Mapping[str, Sequence[float]], fills: Mapping[str, Fill],
    capacity_gib: float, peak: tuple[float, float],
) -> Callable[[Figure, bool], None]:  # fmt: skip
    """GiB by kind on each other; peak: (seconds, GiB)."""

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        edges, unit = _edges(step_s, len(next(iter(by_kind.values()))))
        _stack(axes, edges, by_kind, fills)
        size, _ = time_unit(step_s)
        at, most = peak[0] / size, peak[1]
        axes.axvline(at, color=BLACK, linewidth=0.8, linestyle=":")
        is_left = at < edges[-1] / 2
        axes.annotate(
            f"highest of the step: {most:.3g} GiB", (at, most), textcoords="offset points",
            xytext=(4 if is_left else -4, 3), ha="left" if is_left else "right", va="bottom",
        )  # fmt: skip
        top = 1.12 * most
        if capacity_gib < 4 * most:
            axes.axhline(capacity_gib, color=BLACK, linewidth=1.2, linestyle="--")
            axes.text(
                edges[-1], capacity_gib, f"capacity {capacity_gib:.3g} GiB", ha="right", va="bottom"
            )
            top = 1.12 * max(most, capacity_gib)
        axes.set_ylim(0, top)
        axes.set_xlim(0, edges[-1])
        axes.set_ylabel("GiB")
        axes.set_xlabel(f"time ({unit})")
        _legend(figure, {name: fills[name] for name in by_kind})

    return draw


def curve(points: Sequence[Mapping[str, Any]], basis: str) -> Callable[[Figure, bool], None]:
    """Step time with its interval, and efficiency, over chips. points: chips, step_s, low, high,
    efficiency (or None)."""

    def draw(figure: Figure, narrow: bool) -> None:
        shape = (2, 1) if narrow else (1, 2)
        left, right = figure.subplots(*shape, squeeze=False).flat
        chips = [point["chips"] for point in points]
        size, unit = time_unit(max(point["step_s"] for point in points))
        steps = [point["step_s"] / size for point in points]
        below = [(point["step_s"] - point["low"]) / size for point in points]
        above = [(point["high"] - point["step_s"]) / size for point in points]
        left.errorbar(
            chips, steps, [below, above], color=BLUE, marker="o", capsize=3, linewidth=1.2
        )
        left.set_ylim(bottom=0)
        left.set_ylabel(f"step time ({unit}), with interval")
        known = [point for point in points if point["efficiency"] is not None]
        right.plot(
            [point["chips"] for point in known], [100 * point["efficiency"] for point in known],
            color=ORANGE, marker="s", markeredgecolor=BLACK, linewidth=1.2,
        )  # fmt: skip
        right.axhline(100, color=BLACK, linewidth=0.8, linestyle="--")
        for point in known:
            right.annotate(
                f"{100 * point['efficiency']:.0f}", (point["chips"], 100 * point["efficiency"]),
                textcoords="offset points", xytext=(0, -12), ha="center",
            )  # fmt: skip
        most = max([100.0, *(100 * point["efficiency"] for point in known)])
        right.set_ylim(0, 1.1 * most)
        right.set_ylabel(f"efficiency (%), by {basis}")
        for axes in (left, right):
            if max(chips) > 4 * min(chips):
                axes.set_xscale("log")
            shown = chips if len(chips) <= 7 else chips[:: -(-len(chips) // 6)]
            axes.set_xticks(shown, [f"{count:,}" for count in shown])
            axes.minorticks_off()
            axes.tick_params(axis="x", labelrotation=30)
            axes.set_xlabel("chips")
            axes.grid(color=GREY, linewidth=0.5)

    return draw


def bars_with_intervals(
    rows: Sequence[tuple[str, float, float, float]], what: str = "", unit_size: float = 1.0
) -> Callable[[Figure, bool], None]:
    """rows: (name, value, low, high), in seconds; or of what is named, which is divided by
    unit_size."""

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        most = max(row[3] for row in rows)
        size, label = unit_size, what
        if not what:
            size, unit = time_unit(most)
            label = f"step time ({unit})"
        for y, (_, value, low, high) in enumerate(rows):
            axes.barh(y, value / size, color=SKY, height=0.6, **EDGE)
            axes.errorbar(
                value / size, y, xerr=[[(value - low) / size], [(high - value) / size]],
                color=BLACK, capsize=4, linewidth=1,
            )  # fmt: skip
            axes.text((high + 0.015 * most) / size, y, f"{value / size:.3g}", va="center")
        axes.set_yticks(
            range(len(rows)), [_wrapped(row[0], 18) if narrow else row[0] for row in rows]
        )
        axes.invert_yaxis()
        axes.set_xlim(0, 1.15 * most / size)
        axes.set_xlabel(f"{label}, with interval")

    return draw


def front(
    rows: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]], priced: bool
) -> Callable[[Figure, bool], None]:
    """Layouts by step time and memory, and by step time and money (or chips) unless all are on as
    many chips: rows of a search's document; best: those of the front, numbered in this order."""
    money = "usd_per_million_tokens" if priced else "chips"
    panels = (
        ("memory_peak_bytes", 1 << 30, "peak memory of a rank (GiB)"),
        (money, 1, "$ a million tokens" if priced else "chips"),
    )
    if len({row["chips"] for row in rows}) == 1:
        panels = panels[:1]

    def draw(figure: Figure, narrow: bool) -> None:
        count = len(panels)
        axes_of = figure.subplots(*((count, 1) if narrow else (1, count)), squeeze=False).flat
        size, unit = time_unit(max(row["step_time_s"] for row in rows))
        others = [row for row in rows if not row["on_front"]]
        for axes, (key, scale, label) in zip(axes_of, panels, strict=True):
            for shown, style in (
                (others, {"marker": "o", "s": 16, "facecolor": "none", "edgecolor": BLUE}),
                (best, {"marker": "D", "s": 42, "facecolor": ORANGE, "edgecolor": BLACK}),
            ):
                axes.scatter(
                    [row["step_time_s"] / size for row in shown],
                    [row[key] / scale for row in shown], linewidths=0.8, zorder=3,
                    rasterized=len(shown) > MANY_SHAPES, **style,
                )  # fmt: skip
            axes.set_xlabel(f"step time ({unit})")
            axes.set_ylabel(label)
            axes.margins(0.08)
            axes.grid(color=GREY, linewidth=0.5)
            width, height = (72 * inches for inches in figure.get_size_inches())
            room = (width, height / count) if narrow else (width / count, height)
            _label(axes, best, (size, key, scale), (room[0] - 50, room[1] - 50))

    return draw


def _label(
    axes: Axes, best: Sequence[Mapping[str, Any]], by: tuple[float, str, float],
    room: tuple[float, float],
) -> None:  # fmt: skip
    """Numbers the front where there is room: the fastest, the smallest and the cheapest first. by:
    the unit of time, and the figure upwards with its unit; room: of the axes, in points."""
    size, key, scale = by
    at: dict[tuple[float, float], list[int]] = {}
    for i, row in enumerate(best):
        where = (round(row["step_time_s"] / size, 6), round(row[key] / scale, 6))
        at.setdefault(where, []).append(i)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    points = [((x - left) / (right - left), (y - low) / (high - low)) for x, y in at]
    groups = list(at.values())
    texts = [_numbers(group) for group in groups]
    keys = ("step_time_s", "memory_peak_bytes", "usd_per_million_tokens")
    firsts = [
        min(range(len(best)), key=lambda i, name=name: best[i][name] or 0.0)
        for name in keys
        if best
    ]
    first = [next(g for g, group in enumerate(groups) if i in group) for i in firsts]
    places = list(at)
    for i, offset in labels.placed(points, texts, first, room).items():
        axes.annotate(texts[i], places[i], textcoords="offset points", xytext=offset, zorder=4)


def _numbers(group: Sequence[int]) -> str:
    """Of rows at one place, counted from 1: all up to three, else how many more there are."""
    shown = [str(i + 1) for i in group[:3]]
    more = len(group) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
