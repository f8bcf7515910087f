"""The page in a real browser."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from chromium_browser import CHROMIUM, load_address
from example_run import RUN_ID, example_predictions, example_run
from test_scaling import samples as samples_under_loads

from cephfit.results.report.figures.report_figures import ranking_of
from cephfit.results.report.render import to_html
from cephfit.results.report.report_build import read_findings, report_of
from cephfit.results.report.report_model import Answer, LatencyText, ReportModel
from cephfit.results.store.sample_store import Store

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def load(page: Path, profile: Path, *more: str) -> tuple[str, list[str]]:
    """As ``load_address``, for a file."""
    return load_address(page.as_uri(), profile, *more)


def test_the_page_loads_without_network_or_complaint_and_gives_the_answer(
    finished_store: Path, tmp_path: Path
) -> None:
    with Store.open(finished_store) as store:
        html = to_html(report_of(read_findings(store), made_ns=0))
    page = tmp_path / "report.html"
    page.write_text(html, encoding="utf-8")
    document, console = load(page, tmp_path / "profile")
    assert console == []
    best = example_predictions().of("hybrid")
    assert f"configuration hybrid is predicted to be {best.relative / 100:.2f} times as fast" in document
    assert document.count("<svg") == html.count("<svg")

    # The page's policy forbids every fetch, and a fetch would be seen here: the test could fail.
    page.write_text(html.replace("</body>", '<img src="http://127.0.0.1:9/x.png"></body>'), encoding="utf-8")
    _, console = load(page, tmp_path / "profile")
    assert len(console) == 1 and "Content Security Policy" in console[0]


A4_WIDTH_PX = 718
"""21 cm less Chromium's own margins of 1 cm, at 96 pixels an inch."""

LOOK = """<script>
const map = document.querySelector(".heat"), squares = [...map.querySelectorAll("tbody tr:not(.under) td")];
document.body.dataset.found = JSON.stringify({
  "past the edge": map.getBoundingClientRect().right > document.documentElement.clientWidth + 1,
  "too narrow": squares.filter(square => square.scrollWidth > square.clientWidth).length,
  "with an interval": squares.filter(square => square.innerText.includes("±")).length,
});
</script></body>"""


def test_on_paper_the_whole_map_is_there_with_its_intervals(finished_store: Path, tmp_path: Path) -> None:
    with Store.open(finished_store) as store:
        html = to_html(report_of(read_findings(store), made_ns=0))
    printed = html.replace("@media print", "@media all").replace("</body>", LOOK)
    page = tmp_path / "printed.html"
    page.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", printed), encoding="utf-8")
    document, console = load(page, tmp_path / "profile", f"--window-size={A4_WIDTH_PX},1000")
    assert console == []
    (found,) = re.findall(r'data-found="([^"]*)"', document)
    assert json.loads(unescape(found)) == {
        "past the edge": False,
        "too narrow": 0,
        "with an interval": 6 * 20 - 1,  # one cell never worked
    }


def test_the_figures_of_scaling_are_drawn_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "loads.sqlite"
    with Store.open(path, create=True) as store:
        store.add_run(example_run())
        for group in samples_under_loads():
            store.add_samples(RUN_ID, group, fio_json=None)
        html = to_html(report_of(read_findings(store), made_ns=0))
    page = tmp_path / "scaling.html"
    page.write_text(html, encoding="utf-8")
    document, console = load(page, tmp_path / "profile")
    assert console == []
    assert document.count('<figure class="scaling">') == 4
    assert document.count("<svg") == html.count("<svg"), "the browser closed none of them early"
    assert document.count('class="curve"') == html.count('class="curve"')


GAPS = """<script>
const boxes = [...document.querySelectorAll("thead .figure text")].map(text => text.getBoundingClientRect());
document.body.dataset.found = JSON.stringify(boxes.slice(1).map((box, i) => box.left - boxes[i].right));
</script></body>"""


@pytest.mark.parametrize(("width", "style"), [(1400, ""), (500, "<style>html { max-width: 390px; }</style>")])
def test_labels_of_a_wide_scale_are_apart(tmp_path: Path, width: int, style: str) -> None:
    """Next to many other columns, on a desktop and on a phone (Chromium has no narrower windows than 500 px)."""
    found = example_predictions()
    best, *others = found.predictions
    wide = replace(found, predictions=(replace(best, relative=3100.0, low=2500.0, high=3500.0), *others))
    latencies = {p.configuration: LatencyText("12.34 (11.20 to 13.50)", "45.67 (40.12 to 51.23)") for p in others}
    ranking = ranking_of(wide)
    html = to_html(ReportModel("a test", Answer("wide", ()), ranking=ranking, latencies=latencies))
    page = tmp_path / "wide.html"
    looked = html.replace("</body>", style + GAPS)
    page.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", looked), encoding="utf-8")
    document, _ = load(page, tmp_path / "profile", f"--window-size={width},900")
    (gaps,) = re.findall(r'data-found="([^"]*)"', document)
    assert len(json.loads(unescape(gaps))) == len(ranking.axis.ticks) - 1 >= 2
    assert min(json.loads(unescape(gaps))) >= 6


PHONE = """<style>html { max-width: 390px; }</style><script>
document.querySelectorAll("details").forEach(one => { one.open = true; });
document.body.dataset.found = JSON.stringify([...document.querySelectorAll(".wide")].filter(
  one => one.scrollWidth > one.clientWidth + 1).map(one => one.getAttribute("aria-label")));
</script></body>"""


def test_no_table_is_cut_on_a_phone(finished_store: Path, tmp_path: Path) -> None:
    with Store.open(finished_store) as store:
        html = to_html(report_of(read_findings(store), made_ns=0))
    narrow = html.replace("</body>", PHONE)
    page = tmp_path / "narrow.html"
    page.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", narrow), encoding="utf-8")
    document, _ = load(page, tmp_path / "profile", "--window-size=390,2400")
    (found,) = re.findall(r'data-found="([^"]*)"', document)
    assert json.loads(unescape(found)) == []
    assert html.count('aria-label="Heat map of cells') == html.count('class="figures-table cards"') == 1


def test_the_printed_report_has_at_most_four_pages(finished_store: Path, tmp_path: Path) -> None:
    with Store.open(finished_store) as store:
        html = to_html(report_of(read_findings(store), made_ns=0))
    page, printed = tmp_path / "report.html", tmp_path / "report.pdf"
    page.write_text(html, encoding="utf-8")
    load(page, tmp_path / "profile", "--no-pdf-header-footer", f"--print-to-pdf={printed}")
    n_pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", printed.read_bytes()))
    assert 1 <= n_pages <= 4
