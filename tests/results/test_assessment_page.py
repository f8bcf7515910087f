"""The page on the accuracy of predictions, as values and in a real browser."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from evaluated_workloads import WAITED, evaluated
from test_report_browser import CHROMIUM, load

from cephfit.operations.assessment_page import Ratio, page_html, page_of, panels_of
from cephfit.operations.evaluation_set import EvaluationSet
from cephfit.operations.model_assessment import assess_models


def ratio(predicted: float, measured: float, configuration: str = "fast") -> Ratio:
    return Ratio("shop", configuration, predicted, None, None, measured, None, None, None)


@pytest.mark.parametrize(
    ("predicted", "measured", "level", "error_pct"),
    [(104, 100, 0, 4), (100, 104, 0, -100 * 4 / 104), (110, 100, 1, 10), (130, 100, 2, 30), (100, 250, -4, -60)],
)
def test_the_colour_of_an_error_is_that_of_its_factor(
    predicted: float, measured: float, level: int, error_pct: float
) -> None:
    found = ratio(predicted, measured)
    assert found.level == level
    assert found.error_pct == pytest.approx(error_pct)


def test_the_configurations_with_the_largest_errors_are_at_the_top() -> None:
    (panel,) = panels_of([("time", [ratio(100, 101, "a"), ratio(50, 200, "b"), ratio(130, 100, "c")])])
    assert panel.configurations == ("b", "c", "a")
    assert panel.axis.low < 50 and panel.axis.high > 200
    assert panel.axis.at(100) == pytest.approx((panel.axis.at(50) + panel.axis.at(200)) / 2), "logarithmic"


def html_of_wrong_time() -> str:
    assessment = assess_models(EvaluationSet("shops <&> more", tuple(evaluated("waiting"))))
    return page_html(assessment, "shops <&> more", made_ns=0)


def test_the_page_names_the_closest_model_first_and_escapes_names() -> None:
    assessment = assess_models(EvaluationSet("shops", tuple(evaluated("waiting"))))
    page = page_of(assessment, "shops", made_ns=0)
    assert page.panels[0].model == "waiting"
    assert page.headline.startswith("waiting predicts 15 ratios on 3 workloads with a median error of 0.0 %")
    assert page.headline.endswith("It reaches 6 of 7 goals")  # the coverage of a perfect model is too high
    html = html_of_wrong_time()
    assert "shops &lt;&amp;&gt; more" in html
    assert "<&>" not in html


NARROW = """<script>
const frame = document.createElement("iframe");
frame.style = "width: 390px; height: 800px; border: 0";
frame.srcdoc = document.documentElement.outerHTML.replace(/<script>[^]*?<\\/script>/, "");
frame.onload = () => {
  const wide = frame.contentDocument.documentElement;
  document.body.dataset.found = JSON.stringify({
    "page": document.documentElement.scrollWidth <= document.documentElement.clientWidth,
    "narrow": wide.clientWidth === 390 || wide.clientWidth === 375,
    "narrow fits": wide.scrollWidth <= wide.clientWidth,
    "square": [...document.querySelectorAll(".scatter svg")].every(
      svg => Math.abs(svg.clientWidth - svg.clientHeight) <= 1 && svg.clientWidth > 100),
    "points": document.querySelectorAll(".scatter.large circle").length,
  });
};
document.body.append(frame);
</script></body>"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_the_page_loads_without_complaint_and_fits_wide_and_narrow_screens(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    html = html_of_wrong_time()
    page.write_text(html, encoding="utf-8")
    document, console = load(page, tmp_path / "profile")
    assert console == []
    assert document.count("<svg") == html.count("<svg")

    looked_at = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    page.write_text(looked_at.replace("</body>", NARROW), encoding="utf-8")
    document, console = load(page, tmp_path / "profile", "--window-size=1400,1000", "--virtual-time-budget=5000")
    assert console == []
    (found,) = re.findall(r'data-found="([^"]*)"', document)
    assert json.loads(unescape(found)) == {
        **{"page": True, "narrow": True, "narrow fits": True, "square": True},
        "points": 5 * len(WAITED),
    }
