# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""Versions of the machines' data, the file of assumptions, and fleets of two kinds of chip."""

import csv
import re
from pathlib import Path

import pytest
import small_workload

import trnsim
from trnsim import machine as machines
from trnsim.errors import MachineError, ReportError
from trnsim.machine import versions
from trnsim.report.assumptions import HEADER, list_assumptions, write_assumptions

_SHARE = "chip.neuroncore.vector_tt16_speedup"


def test_no_sheet_changes_without_a_change_that_says_so():
    now, then = versions.digests(), versions.recorded()
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    assert not changed, (
        f"{changed} changed: add a [[change]] to trnsim/machine/changes.toml, then run "
        "tests/machine/record_changes.py"
    )


def test_changes_are_in_order_and_of_sheets_that_there_are():
    found = machines.changes()
    assert [one.number for one in found] == list(range(len(found), 0, -1))
    dates = [one.date for one in found]
    assert dates == sorted(dates, reverse=True)
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", date) for date in dates)
    named = {name for one in found for name in one.sheets}
    assert named == set(versions.digests())


def test_a_version_counts_the_changes_of_what_a_machine_is_made_of(tmp_path):
    bare = machines.version_of(machines.load("rainier"))
    assert bare.sheets == ("rainier", "trn2-ultra", "trn2")
    mine = [one for one in machines.changes() if set(one.sheets) & set(bare.sheets)]
    assert (bare.number, bare.date) == (len(mine), mine[0].date)
    under = machines.version_of(machines.load("rainier", stack="neuron"))
    assert "constants" in under.sheets and under.number > bare.number
    carried = machines.version_of(machines.load("rainier", ["fabric.transport.kind=srd"]))
    assert carried.sheets[-1] == "srd" and carried.number == bare.number + 1
    own = tmp_path / "mine.toml"
    own.write_text('extends = "trn2"\n')
    named = machines.version_of(machines.load(own))
    assert named.sheets == (str(own), "trn2") and str(own) in str(named)


def test_a_projection_says_its_version():
    workload = small_workload.train(world_size=4)
    projection = trnsim.project(workload, "trn2", advise=False, interval=False)
    version = str(machines.version_of(projection.machine))
    assert projection.to_dict()["machine_data"] == version
    assert version in str(projection).replace("\n", " ")


def test_assumptions_are_what_nobody_published(tmp_path):
    workload = small_workload.train(world_size=4)
    projection = trnsim.project(
        workload, "trn2", overrides=["chip.hbm.bandwidth=3TB/s"], advise=False
    )
    machine = projection.machine
    rows = list_assumptions(machine, projection)
    unsure = {
        figure.key
        for figure in machine.figures
        if figure.confidence in ("guessed", "inferred") or figure.source == "set by hand"
    }
    of_run = [name for name, _, _ in projection.figures.guesses]
    assert [row.figure for row in rows[len(unsure) :]] == of_run
    assert {row.figure for row in rows[: len(unsure)]} == unsure
    assert {"chip.hbm.bandwidth"} < unsure and not any(row.signed_off_by for row in rows)
    by_name = {row.figure: row for row in rows}
    product, vector = by_name["chip.peak.physical.bfloat16"], by_name[_SHARE]
    assert float(product.lowest) == pytest.approx(0.75 * 629.1456, rel=1e-5)
    assert float(product.highest) == pytest.approx(1.25 * 629.1456, rel=1e-5)
    assert (vector.lowest, vector.highest) == ("0.5", "1")  # guessed, and no share is above 1
    effects = {name: moved for name, *moved in projection.figures.inputs}
    first = rows[0]
    kind = re.search(r"with all of (.*)$", first.moves)[1]
    sizes = {name: max(abs(ps - projection.figures.step_ps) for ps in moved)
             for name, moved in effects.items()}  # fmt: skip
    assert sizes[kind] == max(sizes[name] for name in sizes if any(
        f"with all of {name}" in row.moves for row in rows))  # fmt: skip

    path = tmp_path / "sign.csv"
    assert write_assumptions(path, machine, projection) == len(rows)
    with path.open(newline="") as text:
        table = list(csv.reader(text))
    assert table[0] == HEADER and table[0][-1] == "signed off by" and len(table) == len(rows) + 1
    page = tmp_path / "sign.md"
    write_assumptions(page, machine, projection)
    lines = page.read_text().splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(rows) + 2  # header, its rule
    assert machine.hash in page.read_text()
    with pytest.raises(ReportError, match="none of .md, .csv"):
        write_assumptions(Path("sign.txt"), machine)


def test_two_kinds_of_chip_are_refused_by_name(tmp_path):
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('extends = ["trn2-ultra", "h100"]\n')
    for asked in ("trn2+h100", fleet):
        with pytest.raises(MachineError, match="a fleet of Trainium2 and H100 SXM: a job runs"):
            machines.load(asked)
