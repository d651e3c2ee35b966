# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What the tests of the three databases share, which torch's own harness makes for the device.

`instantiate_device_type_tests` with PrivateUse1TestBase decides which entries there are, with which
dtypes, and which its decorators skip. ops.py, modules.py and optimizers.py say what a test does:
some samples, forward and backward, on the CPU and on the device. Compute mode compares values,
phantom mode strides, both shapes and dtypes.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Protocol

import torch
from torch.testing._internal import common_utils

import trnsim.device  # noqa: F401 - makes the device known to the harness
from tests.databases.compare import Results, difference
from tests.databases.expected import is_listed
from trnsim import _torch

MODES = ("compute", "phantom")
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
common_utils.TEST_WITH_SLOW = True  # what is slow on a GPU is not slow here
DEVICE_BASE = "privateuse1"  # torch's name for a device that is not one of its own


class Entry(Protocol):
    """One op, module or optimizer with one dtype."""

    def references(self) -> list[tuple[Any, Results]]:
        """Samples, and what the CPU makes of them."""

    def run(self, sample: Any, device: str) -> Results:
        """What a device makes of a copy of the sample."""

    def is_random(self, sample: Any) -> bool:
        """Do the values depend on a device's random numbers?"""


class Name(NamedTuple):
    """An entry as the lists have it, from the name that the harness gave its test."""

    entry: str  # "fft_rfftn", "nn_Dropout_train_mode", "foreach_Adam"
    dtype: str


def name_of(test: str) -> Name:
    """Of a test's name or id: "test_fft_rfftn_trn_float32"."""
    found = re.fullmatch(r"test_(.+)_trn_(\w+)", test.rsplit(".", 1)[-1])
    assert found, f"{test} is not a name that the harness gives"
    return Name(*found.groups())


class DatabaseTest(common_utils.TestCase):
    """A test of one entry, which can run in one mode after the other."""

    database: str  # as expected.json has it
    _references: list[tuple[Any, Results]] | None = None  # computed once, for both modes

    def check(self, entry: Entry, device: str) -> None:
        """Fails at the first sample with which the device does not agree with the CPU, or, when it
        is listed so, with CUDA."""
        if self._references is None:
            self._references = entry.references()
        if not self._references:
            self.skipTest("the CPU has no kernel for the samples")
        name = name_of(self._testMethodName)
        as_cuda = is_listed("as_cuda", self.database, *name, _torch.mode())
        differs = False
        for index, (sample, want) in enumerate(self._references):
            try:
                got = entry.run(sample, device)
                found = difference(got, want, _torch.mode(), entry.is_random(sample))
                if found and as_cuda:
                    differs = True
                    like = entry.run(sample, "meta")
                    found = difference(got, want, _torch.mode(), entry.is_random(sample), like)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this entry's result
                found = f"{type(error).__name__}: {error}"
            if found:
                self.fail(f"sample {index}: {found}".replace("\n", " "))
        if as_cuda and not differs:
            self.fail("agrees with the CPU and is listed as_cuda: take it out")
