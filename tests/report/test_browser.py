# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The trnsim authors
"""The report in a headless browser: it draws every chart, and nothing is wider than a phone."""

import html
import json
import re
import shutil
import subprocess

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
# A page around the report, as wide as asked for, that measures it: the report itself runs nothing.
FRAME = """<!DOCTYPE html><body style="margin:0"><pre id="seen"></pre>
<iframe id="report" style="width:{width}px;height:2000px;border:0" srcdoc="{page}"></iframe>
<script>
document.getElementById("report").onload = async (event) => {{
  const page = event.target.contentDocument;
  const images = [...page.images];
  await Promise.all(images.map((image) => image.decode().catch(() => null)));
  const boxes = [...page.querySelectorAll("h1, h2, p, img, .cards div, .scroll, li")];
  document.getElementById("seen").textContent = JSON.stringify({{
    width: page.documentElement.scrollWidth,
    images: images.map((image) => [image.naturalWidth, image.clientWidth]),
    narrow: images.filter((image) => image.currentSrc !== image.src).length,
    wide_boxes: boxes.filter((box) => box.getBoundingClientRect().right > {width} + 1).length,
    cut_tables: [...page.querySelectorAll(".scroll")]
      .filter((box) => box.scrollWidth > box.clientWidth + 1)
      .map((box) => [box.ariaLabel, box.scrollWidth]),
    layout_lines: Math.max(0, ...[...page.querySelectorAll("td")]
      .filter((cell) => cell.textContent.startsWith("tp8 pp16"))
      .map((cell) => cell.clientHeight / parseFloat(getComputedStyle(cell).lineHeight))),
    small_boxes: boxes.filter((box) => box.getBoundingClientRect().height < 1).length,
    fetched: event.target.contentWindow.performance.getEntriesByType("resource")
      .map((entry) => entry.name).filter((name) => !name.startsWith("data:")),
  }});
}};
</script></body>
"""

if BROWSER is None:
    pytest.skip(f"no browser here: none of {', '.join(NAMES)}", allow_module_level=True)
pytest.importorskip("matplotlib", reason="the report needs matplotlib: trnsim[report]")


@pytest.fixture(scope="module")
def page(four_chips):
    from trnsim.report.page import make_page, render_page

    return render_page(make_page(four_chips, figures=False))


def look(page, width, folder):
    """What a browser sees of the page in a window of so many pixels."""
    path = folder / f"frame{width}.html"
    path.write_text(FRAME.format(width=width, page=html.escape(page)), encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000",
        f"--user-data-dir={folder / 'profile'}", "--window-size=1200,2000", "--dump-dom",
        path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    seen = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert seen and seen[1], done.stderr[-2000:]
    return json.loads(html.unescape(seen[1]))


@pytest.fixture(scope="module")
def tables(four_chips):
    """A page with the widest tables: a comparison, a curve and a front in long layouts, with CO2
    and six digits of money."""
    from report_documents import LAYOUT, SEARCH, point

    from trnsim.plan.comparison import Comparison, ComparisonRow
    from trnsim.plan.scaling import Point, Scaling
    from trnsim.report.page import make_page, render_page

    layout = {
        "tp": 8, "pp": 16, "vp": 2, "cp": 2, "ep": 1, "dp": 128, "zero": 1, "micro_batch": 1,
        "recompute": "selective", "global_batch": 2048, "sequence": 8192, "precision": "bf16",
        "chosen_by": "search", "allowed": 12345,
    }  # fmt: skip
    document = point(
        16384, 23.456, 5e6, chips_used=16384, layout=layout, cost_usd_per_step=0.123456,
        carbon_kg_per_step=0.5, bottleneck="exposed communication",
    )  # fmt: skip
    names = ("rainier", "h100:nemo", "trn2-ultra:neuronx")
    rows = [ComparisonRow(name, name, None, 16384, document) for name in names]
    front = [LAYOUT | {"dp": 128, "tp": 8, "pp": 16, "usd_per_million_tokens": 1234.5}] * 3
    page = make_page(
        four_chips, figures=False, comparison=Comparison(tuple(rows), "dollars", 16384, "llama"),
        scaling=Scaling((Point(16384, document),), "rainier", None, None, {}, "llama"),
        search=SEARCH | {"front": front},
    )  # fmt: skip
    return render_page(page)


def test_no_table_is_cut_on_a_desk(tables, tmp_path):
    seen = look(tables, 1200, tmp_path)
    assert "Rows" in tables and "Sizes" in tables
    assert seen["cut_tables"] == [] and seen["width"] <= 1200
    assert 0 < seen["layout_lines"] < 3.5  # of its 51 letters


def test_no_table_is_cut_in_print(tables, tmp_path):
    """A4 without its margins is 680 pixels wide; the rules of paper hold in every window here."""
    printed = tables.replace("@media print {", "@media all {")
    assert printed != tables
    seen = look(printed, 680, tmp_path)
    assert seen["cut_tables"] == [] and seen["width"] <= 680


@pytest.mark.parametrize(("width", "is_phone"), [(360, True), (1000, False)])
def test_the_report_fits_the_window_and_draws_its_charts(page, tmp_path, width, is_phone):
    seen = look(page, width, tmp_path)
    assert seen["width"] <= width
    assert seen["wide_boxes"] == 0 and seen["small_boxes"] == 0
    assert len(seen["images"]) == page.count("<img ") > 5
    assert all(natural > 0 and shown > 0.8 * min(width, 700) for natural, shown in seen["images"])
    assert seen["narrow"] == (len(seen["images"]) if is_phone else 0)
    assert seen["fetched"] == []


def test_a_page_that_is_too_wide_is_seen(page, tmp_path):
    wide = page.replace("<main>", '<main><p style="width:2000px">wide</p>')
    seen = look(wide, 360, tmp_path)
    assert seen["width"] > 360 and seen["wide_boxes"] == 1
