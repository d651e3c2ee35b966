# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Numbers as people read them: three digits and a unit. GB is 1e9 bytes, GiB is 2^30."""

from __future__ import annotations

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"), (1e-12, "ps"))
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def significant(value: float, digits: int = 3) -> str:
    """Three significant digits, without an exponent: 3.21, 32.1, 321, 3210."""
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    if "e" in text:
        text = (
            f"{float(text):.15f}".rstrip("0").rstrip(".")
            if abs(value) < 1
            else (f"{float(text):.0f}")
        )
    shown = text.lstrip("-0").replace(".", "")
    if len(shown) < digits and abs(value) < 10 ** (digits - 1):  # 3 -> 3.00
        text += ("" if "." in text else ".") + "0" * (digits - len(shown))
    return text


def duration(seconds: float) -> str:
    """0.00321 -> "3.21 ms"; over two minutes "2 min 5 s" and "3 h 2 min"."""
    if seconds >= 7200:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    if seconds >= 120:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    for size, unit in _TIMES:
        # 0.9996 ms reads as 1.00 ms, not 1e+03 µs
        if seconds >= size * 0.9995:
            return f"{significant(seconds / size)} {unit}"
    return "0 s"


def change(seconds: float) -> str:
    """A difference of times, with its sign."""
    return ("-" if seconds < 0 else "+") + duration(abs(seconds))


def count(value: float, unit: str = "") -> str:
    """1234567 -> "1.23 M"; whole numbers below a thousand as they are."""
    if abs(value) < 1000 and value == int(value):
        return f"{int(value)} {unit}".rstrip()
    step = 0
    while abs(value) >= 999.5 and step + 1 < len(_PREFIXES):
        value /= 1000
        step += 1
    return f"{significant(value)} {_PREFIXES[step]}{unit}".rstrip()


def size(count_bytes: float) -> str:
    """49821356032 -> "46.4 GiB"."""
    step = 0
    value = float(count_bytes)
    while value >= 999.5 and step + 1 < len(_BINARY):
        value /= 1024
        step += 1
    return f"{int(count_bytes)} B" if step == 0 else f"{significant(value)} {_BINARY[step]}"


def percent(fraction: float) -> str:
    """0.4213 -> "42.1 %"; what is not zero never reads as zero."""
    if 0 < fraction < 0.0005:
        return "< 0.1 %"
    return f"{100 * fraction:.1f} %"


def shift(share: float) -> str:
    """A change as a signed share: -0.081 -> "-8.10 %"; what is not zero never reads as zero."""
    if share == 0:
        return "0 %"
    return "< 0.01 %" if abs(share) < 5e-5 else f"{100 * share:+.2f} %"


def figure(value: str, unit: str) -> str:
    """A machine's figure: words, lists and plain numbers have no unit to be read."""
    return value if unit in ("word", "list", "1") else f"{value} {unit}"


def money(dollars: float) -> str:
    """Projected dollars, no surer than their interval: 0.00123 -> "$0.00123", 71395.69 ->
    "$71,400": three digits below $100, four above."""
    if dollars < 100:
        return f"${significant(dollars)}"
    rounded = float(f"{dollars:.4g}")
    return f"${rounded:,.1f}" if rounded < 1000 else f"${rounded:,.0f}"
