# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What a dead box of switches takes out, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trnsim.report.plan import Table

if TYPE_CHECKING:
    from trnsim import _core


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
    "the worst box of each tier. cut off: no way from its NIC to chips under other edge switches "
    "(its pod's other NICs carry for it); NICs left: of such a pod, at least",
    "paths left: where packets spread over all; of a pair on ECMP: of the path of a pair whose "
    "next switch takes over from all dead ones beside it",
)
