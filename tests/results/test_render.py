"""The first sentence of an index of reports, its chart, and its sentences on what could not be reported."""

import math

from cephfit.core.values.fit import Verdict as FitVerdict
from cephfit.results.report.render import IndexRow, Lost, gain_chart_of, headline_of, reasons_of, to_index_html
from cephfit.results.report.report_model import RankingRow


def row(workload: str, best: str = "ssd", *, run: str = "r", fits: FitVerdict | None = None) -> IndexRow:
    """A page on which ``best`` gains by 2 (1.5 to 3); ``A`` is the default."""
    figures = (100.0, 100.0, 100.0, "default") if best == "A" else (200.0, 150.0, 300.0, "better")
    return IndexRow(
        **{"page": f"{run}_{workload}.html", "workload": workload, "target": f"ceph:{run}", "run_id": run},
        **{"begun": "", "load": "", "warnings": (), "default": None, "best": best, "as_good": ()},
        **{"against": "" if best == "A" else "2.00 (1.50 to 3.00)", "serves": None, "same_rounds": True},
        headline=f"for {workload}",
        fits=fits,
        best_row=RankingRow(best, *figures, why="") if workload else None,
    )


def test_the_first_sentence_counts_gains_and_names_what_does_not_fit() -> None:
    rows = [row("a"), row("b"), row("c", fits=FitVerdict.FITS), row("d", "hybrid"), row("e", "A")]
    assert headline_of(rows) == "3 of 5 workloads gain from ssd, 1 from hybrid; e gains from none"
    rows = [row("a"), row("dbench", "A", fits=FitVerdict.NOT)]
    assert headline_of(rows) == "1 of 2 workloads gains from ssd; dbench gains from none; dbench does not fit"
    assert (
        headline_of([row("a", "A"), row("b", "A")]) == "no workload gains distinguishably from any configuration"
    )
    many = [row("a"), *(row(name, "A") for name in "bcde")]
    assert headline_of(many) == "1 of 5 workloads gains from ssd; 4 workloads gain from none"


def test_a_workload_whose_runs_disagree_counts_for_no_configuration() -> None:
    rows = [row("a"), row("a", run="s"), row("b"), row("b", "A", run="s", fits=FitVerdict.NOT)]
    assert headline_of(rows) == (
        "1 of 2 workloads gains from ssd; for b, the best configuration differs between runs or loads; "
        "b does not fit in some runs or loads"
    )


def test_without_a_workload_the_first_sentence_counts_reports() -> None:
    rows = [row(""), row("", run="s"), row("", run="s")]
    assert headline_of(rows) == "3 reports on 2 runs, without a workload"
    assert gain_chart_of(rows) is None
    assert "<svg" not in to_index_html(rows, store="s", made_ns=0)


def test_the_chart_has_a_row_per_page_on_one_scale() -> None:
    rows = [row("a"), row("a", "A", run="s")]
    chart = gain_chart_of(rows)
    assert chart is not None
    assert [(r.workload, r.where, r.best.configuration) for r in chart.rows] == [
        ("a", "ceph:r", "ssd"),
        ("a", "ceph:s", "A"),
    ]
    assert chart.axis.low < 100 and chart.axis.high > 300, "the default and the whole interval are on the scale"
    # Positions on a logarithmic scale: 100 to 200 is as far as 150 to 300.
    assert chart.axis.logarithmic
    steps = [chart.axis.at(2 * x) - chart.axis.at(x) for x in (100, 150)]
    assert math.isclose(*steps, abs_tol=0.01)
    page = to_index_html(rows, store="s", made_ns=0)
    assert page.count('role="img"') == 2
    assert "a: 200, interval" not in page and "ssd: 200, interval 150 to 300" in page


def test_what_could_not_be_reported_is_one_sentence_per_reason() -> None:
    lost = [
        Lost("run r on sim", "a", "no baseline for 32M-read"),
        Lost("run r on sim", "b", "no baseline for 32M-read"),
        Lost("run s on sim", "a", "no baseline for 32M-read"),
        Lost("run t on sim", "", "no samples yet"),
    ]
    assert reasons_of(lost) == (
        "No baseline for 32M-read: run r on sim for a and b; run s on sim for a.",
        "No samples yet: run t on sim.",
    )
    assert to_index_html([row("a")], store="s", made_ns=0, lost=lost).count("<li>") == 2
