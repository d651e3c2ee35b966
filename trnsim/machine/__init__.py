# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Machines: chips, links and prices as figures with sources, read from TOML files.

A machine file has an optional ``description``, an optional ``extends``, and figures. A figure is an
inline table of exactly four keys under a dotted name::

    description = "two servers of mine"
    extends = "trn2"                     # a preset's name, or a path ending in .toml

    [chip.hbm]
    bandwidth = { value = 3.2, unit = "TB/s", source = "vendor's letter", confidence = "published" }

``value`` is a number, a decimal in quotes (``"0.1"``), a fraction in quotes (``"37/45"``), a word
(unit ``word``) or a list of whole numbers (unit ``list``). Numbers are kept as written, digit by
digit; no binary fraction comes between. ``unit`` must have the dimension of the figure:

=========  ==============================================
time       ps, ns, us, ms, s
frequency  MHz, GHz
size       bytes, KiB, MiB, GiB, kB, MB, GB
bandwidth  MB/s, GB/s, TB/s, GiB/s, Gbps (per direction)
rate       GFLOP/s, TFLOP/s, PFLOP/s
other      W, kW, USD/h, 1 (a count or share), word, list
=========  ==============================================

``source`` says where the number comes from and may not be empty; ``confidence`` is ``measured``,
``published``, ``inferred`` or ``guessed``. A file that extends another replaces whole figures, and
where it gives another ``scale_up.kind``, all of that table.
``trnsim info trn2 --toml`` prints a whole machine in this form, with every key that it needs; keys
under ``fabric``, which a machine of more than one pod has besides, are in ``trnsim info rainier
--toml``. A table that none of ours has is ``chip.interference``: the share of its speed (unit
``1``, above 0 and up to 1) that each of ``tensor``, ``vector``, ``scalar``, ``gpsimd`` and ``dma``
keeps while a collective or a message moves data on its chip. What is left out keeps all of it.

Fused attention has rates by kernel, head size and pass
(``chip.gpu.attention.flash2.d128.forward_causal``, ``chip.tpu`` likewise), and
``chip.gpu.attention_kernel`` names the kernel that is used. ``scale_up.chips`` is how many chips
share a switch that joins several servers, and ``scale_up.job_chips`` how many of each pod a job of
several pods takes. ``scale_up.slices`` are the boxes of a torus that a job can have to itself, by
their chips, with ``*`` behind an axis that closes to a ring: ``"2x2 4x4 8x16*"``.

All errors are :class:`trnsim.errors.MachineError`, one line with the file, the key, the value and
what to change.
"""

from .loader import (
    apply,
    at_bounds,
    attention_kernel_of,
    figures,
    fitted_constants,
    load,
    placement,
    presets,
    sheets_of,
    stack_of,
    stacks,
    to_toml,
    topology,
    transports,
)
from .versions import Change, DataVersion, changes, version_of

__all__ = [
    "Change",
    "DataVersion",
    "apply",
    "at_bounds",
    "attention_kernel_of",
    "changes",
    "figures",
    "fitted_constants",
    "load",
    "placement",
    "presets",
    "sheets_of",
    "stack_of",
    "stacks",
    "to_toml",
    "topology",
    "transports",
    "version_of",
]
