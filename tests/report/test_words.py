# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Numbers read as a person would write them."""

import pytest

from trnsim.report import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00321, "3.21 ms"),
        (0, "0 s"),
        (1, "1.00 s"),
        (0.0009996, "1.00 ms"),
        (12e-12, "12.0 ps"),
        (0.4567e-6, "457 ns"),
        (59.96, "60.0 s"),
        (125, "2 min 5 s"),
        (3 * 3600 + 125, "3 h 2 min"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds, text):
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (999, "999 B"),
        (1023, "0.999 KiB"),
        (1024, "1.00 KiB"),
        (int(46.4 * 2**30), "46.4 GiB"),
        (2**40, "1.00 TiB"),
    ],
)
def test_sizes_are_binary(value, text):
    assert words.size(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (7, "", "7"),
        (1234567, "", "1.23 M"),
        (1.2e18, "FLOP", "1.20 EFLOP"),
        (999.6, "J", "1.00 kJ"),
        (0.123456, "J", "0.123 J"),
        (999, "tokens/s", "999 tokens/s"),
    ],
)
def test_counts_are_decimal(value, unit, text):
    assert words.count(value, unit) == text


def test_small_shares_never_read_as_zero():
    assert words.percent(0) == "0.0 %"
    assert words.percent(0.0001) == "< 0.1 %"
    assert words.percent(0.4213) == "42.1 %"


def test_money_keeps_its_digits():
    assert words.money(0.00123) == "$0.00123"
    assert words.money(1234.5) == "$1,234"
    assert words.money(760.12) == "$760.1" and words.money(999.99) == "$1,000"
    assert words.money(71395.69) == "$71,400"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (-0.081, "-8.10 %"), (0.31366, "+31.37 %"), (1e-6, "< 0.01 %"),
     (-4e-5, "< 0.01 %"), (6e-5, "+0.01 %")],
)  # fmt: skip
def test_changes_keep_their_sign_and_never_read_as_zero(share, text):
    assert words.shift(share) == text


def test_a_figure_has_a_unit_only_where_there_is_one():
    assert words.figure("2.9", "TB/s") == "2.9 TB/s"
    assert words.figure("0.98", "1") == "0.98" and words.figure("ring", "word") == "ring"
