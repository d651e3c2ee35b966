# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Charts and tables of a page say what can be compared, and can be read."""

import base64
import itertools
import re

import pytest
import small_workload
from report_documents import LAYOUT, SEARCH, SLOW, Reader, point

import trnsim
from trnsim.plan.comparison import Comparison, ComparisonRow
from trnsim.report import palette, words
from trnsim.report.page import labels, make_page, render_page
from trnsim.report.page.parts import Chart, Table

pytest.importorskip("matplotlib", reason="the report needs matplotlib: trnsim[report]")


def section_of(page, anchor):
    (section,) = [section for section in page.sections if section.anchor == anchor]
    return section


def chart_of(page, anchor):
    (chart,) = [block for block in section_of(page, anchor).blocks if isinstance(block, Chart)]
    return chart


def texts_of(address):
    """What stands in an SVG, in order."""
    svg = base64.b64decode(address.split(",", 1)[1]).decode()
    return [text.strip() for text in re.findall(r"<text [^>]*>([^<]*)</text>", svg)]


# --- layouts -------------------------------------------------------------------------------------


def search_of(front, others=()):
    return SEARCH | {"front": front, "best": front[:1], "simulated": [*front, *others]}


def test_numbers_of_the_front_do_not_pile_up(four_chips):
    """Thirty layouts within a thousandth of each other, and one far off that has room."""
    near = [
        LAYOUT | {"step_time_s": 1 + i * 1e-5, "memory_peak_bytes": (40 << 30) - (i << 20)}
        for i in range(30)
    ]
    far = LAYOUT | {"step_time_s": 1.09, "memory_peak_bytes": 5 << 30}
    page = make_page(four_chips, search=search_of([*near, far], [SLOW]), figures=False)
    chart = chart_of(page, "layouts")
    for address in (chart.wide, chart.narrow):
        numbers = [text for text in texts_of(address) if text in map(str, range(1, 32))]
        assert {"1", "31"} <= set(numbers) and len(numbers) < 12
    (table,) = [b for b in section_of(page, "layouts").blocks if isinstance(b, Table)]
    assert [row[0] for row in table.rows] == [str(i) for i in range(1, 32)]


def test_labels_overlap_neither_each_other_nor_marks():
    points = [(0.5 + 0.01 * (i % 7), 0.5 + 0.013 * (i // 7)) for i in range(35)] + [(0.1, 0.1)]
    texts, size = [str(i + 1) for i in range(36)], (200.0, 150.0)
    found = labels.placed(points, texts, [3], size)
    assert 3 in found and 35 in found and len(found) < 20
    boxes = [
        labels._box((points[i][0] * size[0], points[i][1] * size[1]), at, texts[i])
        for i, at in found.items()
    ]
    assert not any(labels._meet(a, b) for a, b in itertools.combinations(boxes, 2))
    apart = [(0.2, 0.2), (0.5, 0.5), (0.8, 0.8)]
    assert set(labels.placed(apart, ["1", "2", "3"], [], size)) == {0, 1, 2}


def test_money_is_drawn_only_where_it_is_no_multiple_of_the_time(four_chips):
    alike = make_page(four_chips, search=search_of([LAYOUT], [SLOW]), figures=False)
    assert "$ a million tokens" not in texts_of(chart_of(alike, "layouts").wide)
    assert any("All are on 16 chips" in str(b) for b in section_of(alike, "layouts").blocks)
    fewer = SLOW | {"chips": 8}
    several = make_page(four_chips, search=search_of([LAYOUT], [fewer]), figures=False)
    assert "$ a million tokens" in texts_of(chart_of(several, "layouts").wide)
    assert not any("All are on" in str(b) for b in section_of(several, "layouts").blocks)


# --- comparisons ---------------------------------------------------------------------------------


def comparison(equal, **more):
    """1000 tokens a step on 4 chips in 10 ms, and on 8 in 5 ms for half as much again."""
    found = []
    for name, chips, step_s, usd in (("a", 4, 0.010, 1e-3), ("b", 8, 0.005, 1.5e-3)):
        known = {"chips_used": chips, "cost_usd_per_step": usd} | more
        document = point(chips, step_s, 1000 / step_s) | known
        found.append(ComparisonRow(name, name, None, chips, document))
    return Comparison(tuple(found), equal, 4)


@pytest.mark.parametrize(
    ("equal", "more", "said", "label"),
    [
        ("dollars", {}, "Tokens a dollar: a, 4 chips 1.00 M, b, 8 chips 667 k.",
         "million tokens a dollar, with interval"),
        ("watts", {}, "Tokens a second: a, 4 chips 100 k, b, 8 chips 200 k.",
         "thousand tokens a second, with interval"),
        ("dollars", {"cost_usd_per_step": None}, "Tokens a second: a, 4 chips 100 k",
         "thousand tokens a second, with interval"),
        ("chips", {}, "Step times: a, 4 chips 10.0 ms, b, 8 chips 5.00 ms.",
         "step time (ms), with interval"),
        (None, {}, "Step times: a, 4 chips 10.0 ms", "step time (ms), with interval"),
    ],
)  # fmt: skip
def test_bars_are_of_what_can_be_compared(four_chips, equal, more, said, label):
    page = make_page(four_chips, comparison=comparison(equal, **more), figures=False)
    chart = chart_of(page, "comparison")
    assert chart.alt.startswith(said)
    assert label in texts_of(chart.wide)


# --- the step ------------------------------------------------------------------------------------


def test_changes_that_help_nothing_are_counted_not_listed(four_chips):
    page = make_page(four_chips, figures=False)
    blocks = section_of(page, "advice").blocks
    (table,) = [block for block in blocks if isinstance(block, Table)]
    gains = [abs(advice.gain) for advice in four_chips.figures.advice]
    left = sum(gain < 0.001 for gain in gains)
    assert left and len(table.rows) == len(gains) - left
    assert blocks[-1] == (
        f"Left out: {left} other changes that move the step by less than 0.1 %."
    )  # fmt: skip


def test_cards_are_short_and_money_no_surer_than_its_interval():
    dear = trnsim.project(small_workload.train(world_size=4), "trn2", advise=False,
                          overrides=["price.per_chip_hour=2e6 USD/h"])  # fmt: skip
    page = make_page(dear, figures=False)
    cards = {card.name: card for card in page.cards}
    memory = cards["peak memory of a rank"]
    assert " of " not in memory.value and memory.note.startswith("of 95.3 GiB: fits")
    cost = cards["cost of a million steps"]
    digits = re.sub(r"[^0-9]", "", cost.value).rstrip("0")
    assert "." not in cost.value and len(cost.value) > 7 and len(digits) <= 4
    low, high = (words.money(1e6 * end) for end in dear.cost_usd_per_step_interval)
    assert cost.note.startswith(f"{low} to {high}; 4 chips at $")


def test_a_number_is_not_broken_from_its_unit(four_chips):
    page = make_page(four_chips, figures=False, comparison=comparison("chips"))
    text = render_page(page)
    assert "9.00\u00a0ms to 12.0\u00a0ms" in text and "9.00 ms" not in text.split("Rows")[1]
    assert "9.00 ms to 12.0 ms" in Reader(text).text


# --- colours -------------------------------------------------------------------------------------


def grey(fill):
    """How light a colour is in black and white, 0 to 1."""
    red, green, blue = (int(fill.colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


@pytest.mark.parametrize("name", ["DOINGS", "KINDS", "PARTS"])
def test_fills_stay_apart_in_black_and_white(name):
    """By their grey, or by hatches on grounds so light that black lines are seen on them."""
    fills = getattr(palette, name)
    alike = [
        (one, other)
        for one, other in itertools.combinations(fills, 2)
        if abs(grey(fills[one]) - grey(fills[other])) < 0.18
        and (
            fills[one].hatch == fills[other].hatch
            or min(grey(fills[one]), grey(fills[other])) < 0.6
        )
    ]
    assert alike == []
