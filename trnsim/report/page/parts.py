# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a page is made of: sections of paragraphs, charts and tables. No HTML stands here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Chart:
    """Drawn twice, for a desk and for a phone, as data: addresses of SVG.

    Attributes:
        alt: what it shows, for who cannot see it; its figures stand in a table beside it.
    """

    alt: str
    wide: str
    narrow: str
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Cells as text.

    Attributes:
        right: columns to align so.
        folded: what to call it where it is shown only when asked for; "" shows it.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    folded: str = ""


@dataclass(frozen=True)
class Lines:
    """A list."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Notice:
    """A line that has to be seen."""

    text: str


@dataclass(frozen=True)
class Html:
    """Markup of our own making."""

    markup: str


Block = str | Chart | Table | Lines | Notice | Html


@dataclass(frozen=True)
class Section:
    """Attributes:
    anchor: its id in the page.
    blocks: paragraphs (text), charts, tables and lists, in order.
    """

    anchor: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Absent:
    """A section that the run has no data for, and why, in one line."""

    title: str
    reason: str


@dataclass(frozen=True)
class Card:
    """A figure of the summary. bad: it has to be seen."""

    name: str
    value: str
    note: str = ""
    bad: bool = False


@dataclass
class Page:
    """A whole report. facts: what it is of, by names; notices: lines that have to be seen."""

    title: str
    facts: list[tuple[str, str]]
    notices: list[str] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)

    def add(self, part: Section | Absent) -> None:
        """In order."""
        if isinstance(part, Section):
            self.sections.append(part)
        else:
            self.absent.append(part)
