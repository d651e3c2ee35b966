# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Colours of Okabe and Ito, which people see apart whatever their colour vision, with hatches that
stay apart in black and white."""

from __future__ import annotations

from typing import NamedTuple

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#D9D9D9"


class Fill(NamedTuple):
    """A colour, and matplotlib's word for a hatch."""

    colour: str
    hatch: str = ""


# Of the parts of the breakdown.
PARTS = {
    "compute": Fill(SKY),
    "exposed_communication": Fill(ORANGE, "///"),
    "bubble": Fill(GREY),
    "host": Fill(PURPLE, "xxx"),
    "stall": Fill(VERMILLION, "+++"),
}
# Of what a rank does (_core.DOINGS).
DOINGS = {
    "forward": Fill(SKY),
    "recomputation": Fill(YELLOW, "..."),
    "backward": Fill(BLUE),
    "optimizer": Fill(GREEN, "\\\\\\"),
    "other work": Fill(BLACK),
    "communication": Fill(ORANGE, "///"),
    "bubble": Fill("#F2F2F2"),
    "host": Fill(PURPLE, "xxx"),
    "stall": Fill(VERMILLION, "+++"),
}
# Of memory.
KINDS = {
    "parameters": Fill(BLUE),
    "gradients": Fill(ORANGE, "///"),
    "optimizer": Fill(GREEN, "\\\\\\"),
    "activations": Fill(SKY),
    "communication": Fill(VERMILLION, "+++"),
    "buffers": Fill(PURPLE, "xxx"),
    "inputs": Fill(BLACK),
    "temporary": Fill(YELLOW, "..."),
}
