# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""What plan finds shows itself in a notebook, and goes into parquet as its document has it."""

import pytest
import small_workload
from pyarrow import parquet

import trnsim
from trnsim.errors import ReportError
from trnsim.workload import save


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("shown") / "small.trnsim"
    save(small_workload.train(world_size=4), path, machine="trn2")
    return path


@pytest.fixture(scope="module")
def results(run):
    return {
        "compare": trnsim.compare([run, run]),
        "disturb": trnsim.disturb(run, ["straggler:chips=1,factor=1.2"], seeds=3),
        "goodput": trnsim.goodput(run, steps=1000),
    }


@pytest.mark.parametrize("verb", ["compare", "disturb", "goodput"])
def test_a_notebook_shows_the_tables_and_lines(results, verb):
    html = results[verb]._repr_html_()
    assert html.startswith("<div><table>") and html.count("<table>") == html.count("</table>")
    assert "<script" not in html and "<li>" in html
    first = str(results[verb]).splitlines()[0].split("  ")[0]
    assert first.strip() in html.replace("&#x27;", "'")


def test_parquet_has_the_rows_of_the_document(results, tmp_path):
    done = results["compare"]
    table = parquet.read_table(done.write_parquet(tmp_path / "rows.parquet"))
    rows = done.to_dict()["rows"]
    assert table["step_time_s"].to_pylist() == [row["step_time_s"] for row in rows]
    compute = [row["breakdown_s"]["compute"] for row in rows]
    assert table["breakdown_s.compute"].to_pylist() == compute
    seeds = parquet.read_table(results["disturb"].write_parquet(tmp_path / "d.parquet"))
    assert seeds.num_rows == len(results["disturb"].to_dict()["rows"])
    days = parquet.read_table(results["goodput"].write_parquet(tmp_path / "g.parquet"))
    assert days.num_rows == 1 and days.num_columns > 20
    with pytest.raises(ReportError, match="cannot write"):
        done.write_parquet(tmp_path / "missing" / "rows.parquet")
