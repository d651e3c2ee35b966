# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Colours of Okabe and Ito, which people see apart whatever their colour vision, with hatches that
stay apart in black and white."""

from __future__ import annotations

from typing import NamedTuple

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#D9D9D9"
# Tints, on which a hatch is seen in black and white too.
PALE_GREEN, PALE_PURPLE, PALE_VERMILLION = "#BFE8DA", "#F0D5E4", "#F6AE84"


class Fill(NamedTuple):
    """A colour, and matplotlib's word for a hatch."""

    colour: str
    hatch: str = ""


# Of the parts of the breakdown.
PARTS = {
    "compute": Fill(SKY),
    "exposed_communication": Fill(ORANGE, "///"),
    "bubble": Fill(GREY),
    "host": Fill(PALE_PURPLE, "xxx"),
    "stall": Fill(PALE_VERMILLION, "+++"),
}
# Of what a rank does (_core.DOINGS).
DOINGS = {
    "forward": Fill(SKY),
    "recomputation": Fill(YELLOW, "..."),
    "backward": Fill(BLUE),
    "optimizer": Fill(PALE_GREEN, "\\\\\\"),
    "other work": Fill(BLACK),
    "communication": Fill(ORANGE, "///"),
    "bubble": Fill("#F2F2F2"),
    "host": Fill(PALE_PURPLE, "xxx"),
    "stall": Fill(PALE_VERMILLION, "+++"),
}
# Of memory.
KINDS = {
    "parameters": Fill(BLUE),
    "gradients": Fill(ORANGE, "///"),
    "optimizer": Fill(PALE_GREEN, "\\\\\\"),
    "activations": Fill(SKY),
    "communication": Fill(PALE_VERMILLION, "+++"),
    "buffers": Fill(PALE_PURPLE, "xxx"),
    "inputs": Fill(BLACK),
    "temporary": Fill(YELLOW, "..."),
}
