# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Public training scripts from checkouts that TRNSIM_CLIENTS names: the rows of the benchmark."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
try:
    from clients import case
finally:
    sys.path.pop(0)

CHECKOUTS = os.environ.get("TRNSIM_CLIENTS")
# Its first line of work takes its rank in the job for its device on the server.
ONE_SERVER = ("examples distributed/ddp", 64)


@pytest.mark.parametrize(
    ("script", "chips"),
    [(each, chips) for each in case.SCRIPTS for chips in each.chips],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_public_script_has_a_step_and_says_what_is_untranslated(script, chips):
    if why := case.why_not(script, CHECKOUTS):
        pytest.skip(why.removeprefix("skipped: "))
    row = case.row_of(script, chips, CHECKOUTS)
    if (script.name, chips) == ONE_SERVER:
        assert row["exit_code"] == 2 and "invalid device ordinal" in row["reason"]
    else:
        assert row["exit_code"] == 0, row["reason"]
    assert row["interval_low_us"] < row["step_time_us"] < row["interval_high_us"]
    assert row["untranslated_share"] < 0.001
    assert row["parameters"] > 0
    assert row["result_on_trn"] == row["result_on_cpu"] != "none"
