# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a dead box of switches takes out, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trnsim.report.plan import Table

if TYPE_CHECKING:
    from trnsim import _core


def blast_of(machine: _core.Machine, chips: int, text: str) -> list[_core.BlastRadius]:
    """Of each dead-switch in a disturbance's text, the worst box of its tier."""
    from trnsim import _core

    return [
        row
        for part in _core.parse_disturbance(text)
        if part.name == "dead-switch"
        for row in _core.blast_radius(machine, chips, part.box)
        if row.tier == part.tier
    ]


def blast_line(row: _core.BlastRadius) -> str:
    """The same in words."""
    what = f"{row.tier}" if row.box == 1 else f"box of {row.box} switches ({row.tier})"
    lost = []
    if row.chips_cut:
        lost.append(
            f"cuts {row.chips_cut:,} chips off the fabric at once, in pods that keep "
            f"{_share(row.pod_nics_left)} of their NICs or more"
        )
    if row.chips_slowed:
        lost.append(f"leaves {row.chips_slowed:,} chips {_share(row.left_sprayed)} of their paths")
    return f"a dead {what}, the worst of {row.boxes:,}, {' and '.join(lost) or 'harms nobody'}"


def blast_row(row: _core.BlastRadius) -> dict[str, str | int | float]:
    """The same for a document."""
    names = ("tier", "switches", "box", "boxes", "chips_cut", "pods_hit", "pod_nics_left",
             "chips_slowed", "left_sprayed", "left_ecmp")  # fmt: skip
    return {name: getattr(row, name) for name in names}


def _share(value: float) -> str:
    """With two digits after the point: one switch of thousands is to be seen."""
    return f"{100 * value:.2f} %"


def blast_table(rows: Iterable[_core.BlastRadius]) -> Table:
    """A line for each tier and size of box."""
    cells = [
        [
            row.tier, f"{row.switches:,}", f"{row.box:,}", f"{row.boxes:,}",
            f"{row.chips_cut:,}", f"{row.pods_hit:,}",
            _share(row.pod_nics_left) if row.pods_hit else "-",
            f"{row.chips_slowed:,}",
            _share(row.left_sprayed) if row.chips_slowed else "-",
            _share(row.left_ecmp) if row.chips_slowed else "-",
        ]
        for row in rows
    ]  # fmt: skip
    header = ["tier", "switches", "in a box", "boxes", "chips cut off", "pods", "NICs left",
              "chips slowed", "paths left", "of a pair on ECMP"]  # fmt: skip
    return Table(header, cells, tuple(range(1, len(header))), ("boxes", "pods"))


NOTES = (
    (
        "the worst box of each tier. cut off: no way from its NIC to chips under other edge "
        "switches (its pod's other NICs carry for it); NICs left: of such a pod, at least"
    ),
    (
        "paths left: where packets spread over all; of a pair on ECMP: of the path of a pair whose "
        "next switch takes over from all dead ones beside it"
    ),
)
