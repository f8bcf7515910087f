"""`cephfit plot`: the pictures of a report as files that other programs read."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from example_run import BIN_SECONDS, BURST_BINS, CONFIGURATIONS, RUN_ID, fill

from cephfit.cli.reports.plot_command import command as plot
from cephfit.core.errors import InputError
from cephfit.results.report.figures import report_plots
from cephfit.results.report.report_model import Answer, ReportModel, Scaling, ScalingFigure
from cephfit.results.store.sample_store import Store

pytest.importorskip("matplotlib")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "s.sqlite", create=True) as opened:
        fill(opened)
    return tmp_path / "s.sqlite"


def drawn(store: Path, name: str, *words: str) -> list[str]:
    """Draw into a file next to the store; return the names of the pictures."""
    arguments = ["--store", str(store), "-o", str(store.parent / name), "--json", *words]
    done = CliRunner().invoke(plot, arguments, catch_exceptions=False)
    document = json.loads(done.output)
    assert document["run"] == RUN_ID
    return list(document["pictures"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("p.png", "PNG image"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in [("p.svg", "SVG"), ("p.pdf", "PDF document")]),
    ],
)
def test_each_suffix_gives_a_file_of_its_format(store: Path, name: str, kind: str) -> None:
    expected = {"predictions", "verification", "heat-map", "workload-rate", "workload-positions"}
    assert expected <= set(drawn(store, name))
    found = subprocess.run(["file", str(store.parent / name)], capture_output=True, text=True, check=True).stdout
    assert kind in found


def test_the_pictures_show_the_values_of_the_report(store: Path) -> None:
    """Read from the drawn objects: every configuration, and the best one's prediction at its place."""
    from matplotlib.figure import Figure

    from cephfit.cli.reports.report_command import read_report
    from cephfit.results.report.figures.report_plots import pictures_of

    _, report, _ = read_report(str(store), None, "", ())
    axes = Figure().subplots()
    draw, _ = pictures_of(report)["predictions"]
    draw(axes)
    assert {label.get_text() for label in axes.get_yticklabels()} == set(CONFIGURATIONS)
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert report.ranking is not None
    assert marks == [row.relative for row in report.ranking.rows]


def test_the_pictures_over_time_show_the_values_of_the_profile(store: Path) -> None:
    """Read from the drawn objects: the rates of all bins, the burst at its time, and every field of the map."""
    from matplotlib.figure import Figure

    from cephfit.cli.reports.report_command import read_report
    from cephfit.results.report.figures.report_plots import pictures_of

    _, report, _ = read_report(str(store), None, "", ())
    rate, positions, known = report.rate_over_time, report.positions, pictures_of(report)
    assert rate is not None and positions is not None
    axes = Figure().subplots()
    known["workload-rate"][0](axes)
    reads, writes = axes.patches
    assert tuple(reads.get_data().values) == rate.reads and tuple(writes.get_data().values) == rate.totals
    assert tuple(writes.get_data().baseline) == rate.reads
    (burst,) = (line for line in axes.lines if line.get_label() == "burst")
    assert list(burst.get_xdata()) == [b * BIN_SECONDS for b in (BURST_BINS[0], BURST_BINS[-1] + 1)]
    axes = Figure().subplots()
    known["workload-positions"][0](axes)
    (image,) = axes.images
    assert image.get_array().tolist() == [list(row) for row in positions.levels]
    titles = {f"{figure.title}: of all I/Os" for figure in report.percentiles}
    drawn_titles = set()
    for name, (draw, _) in known.items():
        if name.startswith("latency-of-"):
            axes = Figure().subplots()
            draw(axes)
            drawn_titles.add(axes.get_title(loc="left"))
    assert titles and drawn_titles == titles


def test_curves_with_other_fixed_parts_of_the_load_are_pictures_of_their_own() -> None:
    from cephfit.results.report.figures.report_plots import pictures_of

    figure = ScalingFigure("Mean latency", "milliseconds", "clients", (), (), ())
    one, four = (
        Scaling("4K-read", "clients", f"{n} in flight per client", (figure,), (), ()) for n in ("1 I/O", "4 I/Os")
    )
    alone = ReportModel("a test", Answer("", ()), scaling=(one,))
    assert list(pictures_of(alone)) == ["scaling-4k-read-clients-mean-latency"]
    assert list(pictures_of(replace(alone, scaling=(one, four)))) == [
        "scaling-4k-read-clients-1-i-o-in-flight-per-client-mean-latency",
        "scaling-4k-read-clients-4-i-os-in-flight-per-client-mean-latency",
    ]


def test_pictures_that_are_too_high_for_one_file_are_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_plots, "_CHART_INCHES", 200.0)
    with pytest.raises(InputError, match="pictures are too high for one PNG"):
        drawn(store, "high.png")
    assert not list(store.parent.glob("*high.png*"))
    assert drawn(store, "one.png", "--only", "heat-map") == ["heat-map"]


def test_only_draws_the_named_picture_and_refuses_others(store: Path) -> None:
    assert drawn(store, "one.svg", "--only", "heat-map") == ["heat-map"]
    with pytest.raises(InputError, match="no picture 'cells'"):
        drawn(store, "no.svg", "--only", "cells")
    with pytest.raises(InputError, match="no output format"):
        drawn(store, "no.gif")
    assert not (store.parent / "no.svg").exists()
