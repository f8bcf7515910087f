"""Percentile curves and latencies of a report."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_workload_rate import exponential, sample

from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.values.cells import Cell
from cephfit.results.report.figures.cell_figures import percentile_figures
from cephfit.results.report.render import to_html
from cephfit.results.report.report_build import latencies_of, read_findings, report_of
from cephfit.results.report.report_model import Findings
from cephfit.results.statistics.sample_baselines import baselines_of, tried_of
from cephfit.results.statistics.summary_statistics import CONFIDENCE
from cephfit.results.statistics.workload_rate import mean_speeds, milliseconds
from cephfit.results.store.sample_store import Store


def test_the_curve_of_an_exponential_distribution_is_a_straight_line(finished_store: Path) -> None:
    """Its percentile p is -mean ln(1 - p/100), which is proportional to the position."""
    cell = Cell.parse("4K-randread")
    samples = [sample("A", cell, repeat, 2e6) for repeat in (0, 1)]
    full = {**exponential(2e6), 99.9: 2e6 * 6.907755}
    samples = [replace(s, metrics=replace(s.metrics, latency_percentiles_ns=full)) for s in samples if s.metrics]
    with Store.open(finished_store) as store:
        findings = replace(read_findings(store), samples=SampleColumns.of(samples))
    (figure,) = percentile_figures(tried_of(findings.samples), {cell: 1.0}, ["A", "not measured"])
    (line,) = figure.lines
    slopes = [(b.y - a.y) / (b.x - a.x) for a, b in zip(line.marks, line.marks[1:], strict=False)]
    assert slopes == pytest.approx([slopes[0]] * len(slopes), rel=1e-3) and len(slopes) >= 2
    assert line.marks[0].title == "A: 50 % take at most 1.39 ms", "2 ms x ln 2"


def test_the_answer_has_the_latency_of_the_mix(finished_store: Path) -> None:
    with Store.open(finished_store) as store:
        findings = read_findings(store)
    baselines = baselines_of(findings.samples, source="test")
    assert findings.profile is not None and isinstance(findings, Findings)
    speeds = mean_speeds(findings.profile, baselines, findings.samples)
    found = latencies_of(findings, baselines)
    assert found and set(found) == {name for name, _ in speeds.cells}
    for name, its in milliseconds(speeds, CONFIDENCE).items():
        value, low, high = (float(text) for text in re.findall(r"[0-9.]+", found[name].mean_ms.replace(",", "")))
        assert (value, low, high) == pytest.approx((its.value, its.low, its.high), rel=5e-3)
    html = to_html(report_of(findings, made_ns=0))
    assert all(f'data-label="latency, ms">{text.mean_ms}' in html for text in found.values())
    assert latencies_of(replace(findings, profile=None), baselines) == {}
