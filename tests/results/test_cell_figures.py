"""What a cell gives in absolute figures, and where a page shows them."""

from dataclasses import replace
from pathlib import Path

import pytest
from example_run import CLIENTS, RUN_ID, example_assessment, example_run, example_samples

from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.units import MIB, NS_PER_S
from cephfit.core.values.assessment import AssessmentRow
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.results.report import formatting
from cephfit.results.report.figures.cell_figures import baseline_rows_of, cell_figures_of
from cephfit.results.report.method_facts import REJECTED_SHOWN
from cephfit.results.report.render import to_html, to_markdown
from cephfit.results.report.report_build import read_findings, report_of
from cephfit.results.report.report_model import Findings
from cephfit.results.report.run_notes import ROUNDS_OF_CELLS, ROUNDS_OF_WORKLOADS
from cephfit.results.statistics.sample_baselines import baselines_of, tried_of
from cephfit.results.store.sample_store import Store

CELL = Cell.parse("4K-randread")


def sample(client: str, repeat: int, iops: float, latency_ms: float, p99_ms: float) -> Sample:
    metrics = Metrics(
        iops, iops * 4096, int(iops), NS_PER_S, latency_ms * 1e6, {50.0: latency_ms * 1e6, 99.0: p99_ms * 1e6}
    )
    return Sample(SampleKey("A", CELL, client, repeat), State.OK, metrics, repeat, repeat + 1)


def test_figures_are_of_all_clients_together() -> None:
    samples = [sample("c0", 0, 300, 2, 5), sample("c1", 0, 100, 4, 9)]
    samples += [sample("c0", 1, 300, 2, 7), sample("c1", 1, 100, 4, 8)]
    figures = cell_figures_of(tried_of(samples))["A", CELL]
    assert (figures.n_repeats, figures.n_clients) == (2, 2)
    assert figures.nbytes_per_s.mean == 400 * 4096
    assert figures.latency_ns.mean == pytest.approx(2.5e6), "each client's mean weighs as much as it did I/Os"
    assert figures.p99_ns is not None and figures.p99_ns.mean == 8.5e6, "that of the slower client, in each repeat"
    assert figures.latency_ns.interval is not None and 2.5e6 in figures.latency_ns.interval


def test_the_table_of_baselines_has_throughput_latency_and_intervals(finished_store: Path) -> None:
    with Store.open(finished_store) as store:
        samples = store.samples(RUN_ID)
    rows = {
        (row.configuration, row.cell): row
        for row in baseline_rows_of(baselines_of(samples, source="x"), cell_figures_of(tried_of(samples)))
    }
    row = rows["hybrid", "1M-read"]
    both = [s.metrics for s in samples if s.key.configuration == "hybrid" and str(s.key.cell) == "1M-read"]
    rate = sum(m.nbytes_per_s for m in both if m is not None) / 2 / MIB
    assert len(both) == 2 * len(CLIENTS) and float(row.mib_per_s) == pytest.approx(rate, rel=1e-3)
    assert " to " in row.latency_interval and " to " in row.p99_interval
    assert float(row.p99_ms) > float(row.latency_ms)
    low, high = map(float, row.relative_interval.split(" to "))
    assert low < float(row.relative) < high
    assert rows["A", "1M-read"].relative_interval == "–"


@pytest.mark.parametrize("repeats", [7, 8, 12])
def test_all_means_of_a_row_have_one_kind_of_interval_however_many_repeats(repeats: int) -> None:
    """Rates had a bootstrap's from 8 repeats on, latencies Student's: on the same scatter they must agree."""
    scatter = [1.0, 1.04, 0.97, 1.02, 0.99, 1.05, 0.96, 1.01, 1.03, 0.98, 1.06, 0.95][:repeats]
    samples = [sample("c0", i, 100 * by, 20 * by, 50 * by) for i, by in enumerate(scatter)]
    (row,) = baseline_rows_of(baselines_of(samples, source="x"), cell_figures_of(tried_of(samples)))
    ends = [
        [float(end) / float(mean) for end in interval.split(" to ")]
        for mean, interval in (
            (row.mean, row.interval),
            (row.latency_ms, row.latency_interval),
            (row.p99_ms, row.p99_interval),
        )
    ]
    assert ends[0] == pytest.approx(ends[1], rel=2e-3)
    assert ends[0] == pytest.approx(ends[2], rel=2e-3)


def test_captions_say_which_rounds_figures_are_of_where_not_all_have_the_same(finished_store: Path) -> None:
    with Store.open(finished_store) as store:
        whole = read_findings(store)
    key = SampleKey("hybrid", Cell.parse("1M-read"), CLIENTS[0], 1)
    lost = tuple(
        replace(s, state=State.FAILED, metrics=None, reason="died") if s.key == key else s for s in whole.samples
    )
    assert whole.profile is not None
    predictions = predictor("time").predict(whole.profile, baselines_of(lost, source="lost"))
    fewer = replace(whole, samples=SampleColumns.of(lost), predictions=predictions)
    for page in (to_html, to_markdown):
        text = page(report_of(fewer, made_ns=0)).replace("&#39;", "'")
        assert text.count(ROUNDS_OF_CELLS) == 2, "above the map and above the table"
        assert text.count(ROUNDS_OF_WORKLOADS) == 1
        assert "Not all configurations were measured in the same rounds" not in page(report_of(whole, made_ns=0))


@pytest.fixture
def alone(tmp_path: Path) -> Findings:
    """A sweep of nothing but the default."""
    with Store.open(tmp_path / "one.sqlite", create=True) as store:
        store.add_run(example_run())
        for group in example_samples():
            if group[0].key.configuration == "A":
                store.add_samples(RUN_ID, group, fio_json=None)
        return read_findings(store)


def test_a_sweep_of_the_default_alone_has_its_figures_on_the_page(alone: Findings) -> None:
    report = report_of(alone, made_ns=0)
    assert report.heat_map is None
    html = to_html(report)
    assert "<details open><summary>All baselines" in html
    for row in report.baselines:
        assert f'<td data-label="IOPS" class="n">{row.mean}<small>{row.interval}</small></td>' in html
        assert f'<td data-label="MiB/s" class="n">{row.mib_per_s}</td>' in html


def test_predicted_against_measured_has_its_intervals_in_figures(finished_store: Path) -> None:
    with Store.open(finished_store) as store:
        report = report_of(read_findings(store), made_ns=0)
    html, text = to_html(report), to_markdown(report)
    section = html[html.index('id="verification"') :]
    row = example_assessment().rows[0]
    for low, high in ((row.predicted_low, row.predicted_high), (row.measured_low, row.measured_high)):
        assert f"<small>{low:.0f} to {high:.0f}</small>" in section
        assert f" {low:.0f} to {high:.0f} |" in text
    assert row.error_interval is not None
    ends = " to ".join(map(formatting.points, row.error_interval))
    assert f"<small>{ends}</small>" in section
    assert f" {ends} |" in text


def test_the_interval_of_an_error_is_made_of_both() -> None:
    row = AssessmentRow("B", 120.0, 116.0, 124.0, 110.0, 107.0, 113.0, (1.0, 2.0, 3.0))
    assert row.error_interval == pytest.approx((5.0, 15.0)), "10 ∓ √(4² + 3²)"
    assert replace(row, measured_low=None).error_interval is None
    assert replace(row, predicted_low=120.0, predicted_high=120.0).error_interval is None, "the default"


def test_what_a_list_omits_is_stated(alone: Findings) -> None:
    lost = [
        Sample(SampleKey("A", CELL, "c0", 0, attempt), State.INVALID, None, 0, 1, "HEALTH_WARN")
        for attempt in range(REJECTED_SHOWN + 7)
    ]
    report = report_of(replace(alone, samples=SampleColumns.of((*alone.samples, *lost))), made_ns=0)
    assert len(report.method.rejected) == REJECTED_SHOWN
    assert any(f"the first {REJECTED_SHOWN} of them" in caveat for caveat in report.caveats)
    for text in (to_html(report), to_markdown(report)):
        assert f"These are the first {REJECTED_SHOWN}; 7 more" in text
    assert report.method.rejected[0][0] == "A 4K-randread, c0, repeat 1, attempt 1", "counted as while measuring"
