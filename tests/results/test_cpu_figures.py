"""CPU time by layer over the repeats, in the report and in its table."""

import csv
import io
import math
import re
from dataclasses import replace

import pytest

from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import CpuLayer, Metrics, Run, Sample, SampleKey, State
from cephfit.results.report.figures.cpu_figures import cpu_section_of, cpu_use_of
from cephfit.results.report.render import to_html, to_markdown
from cephfit.results.report.report_build import report_of
from cephfit.results.report.report_model import Findings
from cephfit.results.statistics.sample_baselines import tried_of
from cephfit.results.tables.sample_tables import CPU_COLUMNS, cpu_csv

OPS, STORE = CpuLayer.OPS.value, CpuLayer.STORE.value


def sample(
    configuration: str, cell: str, repeat: int, *, client: str = "c0", iops: float = 100.0, **cpus: float
) -> Sample:
    """One client; ``cpus`` of op threads and object store on each of two hosts."""
    evidence: dict = {}
    if cpus:
        layers = {
            OPS: {"user": cpus["ops"] / 4, "system": cpus["ops"] / 4},
            STORE: {"user": 0.0, "system": cpus["store"] / 2},
            "other programs": {"user": 0.1, "system": 0.1},
        }
        host = {"cpu_by_layer": layers, "n_cpus": 4}
        evidence["used"] = {"hosts": {"one": host, "two": host, "unread": {"n_cpus": 9}}}
    key = SampleKey(configuration, Cell.parse(cell), client, repeat)
    return Sample(key, State.OK, Metrics(iops, 4096 * iops, 1, 10**9, 1.0), 1, 2, evidence=evidence)


def run_of_two() -> list[Sample]:
    samples = []
    for repeat, ops in enumerate((0.9, 1.1)):
        samples += [
            sample("A", "4K-randread", repeat, ops=ops, store=0.5),
            sample("A", "4K-randread", repeat, client="c1", iops=300.0),
            sample("B", "4K-randread", repeat, ops=0.2, store=0.05),
            sample("B", "4K-randread", repeat, client="c1"),
        ]
    return samples


def test_layers_are_summed_over_hosts_and_divided_by_the_rate_of_all_clients() -> None:
    a, b = cpu_use_of(tried_of(run_of_two()))
    assert (a.configuration, a.n_repeats, a.n_cpus) == ("A", 2, 8)
    assert a.busy[CpuLayer.OPS].mean == pytest.approx(1.0)
    assert a.us_per_io[CpuLayer.OPS].mean == pytest.approx(1e6 * 1.0 / 400)
    assert a.all_us_per_io.mean == pytest.approx(1e6 * 1.5 / 400)
    assert a.system_share == pytest.approx({CpuLayer.OPS: 0.5, CpuLayer.STORE: 1.0})
    assert a.others_busy.mean == pytest.approx(0.4)
    found = a.busy[CpuLayer.OPS].interval
    assert found is not None
    # Student's t of two repeats at 95 %: 12.706 standard deviations of the mean.
    assert found.high - 1.0 == pytest.approx(12.7062 * math.sqrt(0.02) / math.sqrt(2), rel=1e-4)
    assert b.all_busy.mean == pytest.approx(0.25)


def test_samples_without_readings_of_threads_give_nothing() -> None:
    assert cpu_use_of(tried_of([sample("A", "4K-read", 0)])) == ()
    assert cpu_section_of(()) is None


def test_the_bars_of_a_cell_share_one_scale() -> None:
    section = cpu_section_of(cpu_use_of(tried_of(run_of_two())))
    assert section is not None
    (chart,) = section.charts
    widths = {row.configuration: sum(bar.width for bar in row.bars) for row in chart.rows}
    assert widths == pytest.approx({"A": 100.0, "B": 100 * 0.25 / 1.5}, abs=0.01)
    starts = [bar.x for bar in chart.rows[0].bars]
    assert starts == pytest.approx([0.0, 100 / 1.5], abs=0.01)


def test_the_cell_that_carries_the_workload_comes_first() -> None:
    samples = [sample("A", cell, 0, ops=1.0, store=1.0) for cell in ("4K-read", "1M-write")]
    section = cpu_section_of(cpu_use_of(tried_of(samples)), {Cell.parse("1M-write"): 0.9})
    assert section is not None
    assert [chart.cell for chart in section.charts] == ["1M-write", "4K-read"]


@pytest.fixture
def findings() -> Findings:
    return Findings(Run("r1", "nodes", "", "digest", "lab", 1, 0), SampleColumns.of(run_of_two()))


def test_the_report_has_the_chart_and_the_table_only_where_they_were_measured(findings: Findings) -> None:
    report = report_of(findings, made_ns=1)
    page, text = to_html(report), to_markdown(report)
    section = page[page.index('id="cpu"') :]
    assert len(re.findall(r'<rect class="l\d+"', section)) == 4
    assert "A, object store: 0.500 CPUs" in section
    assert "| 4K-randread | A | 2,500 | 1,250 | 3,750 |" in text
    bare = replace(findings, samples=SampleColumns.of((sample("A", "4K-read", 0),)))
    assert "Where the CPU time goes" not in to_html(report_of(bare, made_ns=1))


def test_the_table_has_every_layer_and_their_sum(findings: Findings) -> None:
    rows = list(csv.DictReader(io.StringIO(cpu_csv(findings))))
    assert tuple(rows[0])[: len(CPU_COLUMNS)] == CPU_COLUMNS
    by_layer = {row["layer"]: row for row in rows if row["configuration"] == "A"}
    assert list(by_layer) == [OPS, STORE, "all", "others"]
    assert float(by_layer["others"]["cpus"]) == pytest.approx(0.4)
    assert float(by_layer["all"]["cpus"]) == pytest.approx(1.5)
    assert float(by_layer[STORE]["us_per_io"]) == pytest.approx(1250)
