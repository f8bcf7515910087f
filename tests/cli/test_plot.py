"""`cephfit plot`: the pictures of a report as files that other programs read."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from example_run import CONFIGURATIONS, RUN_ID, fill

from cephfit.cli.reports.plot_command import command as plot
from cephfit.core.errors import InputError
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


@pytest.mark.parametrize(("name", "kind"), [("p.png", "PNG image"), ("p.svg", "SVG"), ("p.pdf", "PDF document")])
def test_each_suffix_gives_a_file_of_its_format(store: Path, name: str, kind: str) -> None:
    assert {"predictions", "verification", "heat-map"} <= set(drawn(store, name))
    found = subprocess.run(["file", str(store.parent / name)], capture_output=True, text=True, check=True).stdout
    assert kind in found


def test_the_pictures_show_the_values_of_the_report(store: Path) -> None:
    """Read from the drawn objects: every configuration, and the best one's prediction at its place."""
    from matplotlib.figure import Figure

    from cephfit.cli.reports.report_command import read_report
    from cephfit.results.report.report_plots import pictures_of

    _, report, _ = read_report(str(store), None, "", ())
    axes = Figure().subplots()
    draw, _ = pictures_of(report)["predictions"]
    draw(axes)
    assert {label.get_text() for label in axes.get_yticklabels()} == set(CONFIGURATIONS)
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert report.ranking is not None
    assert marks == [row.relative for row in report.ranking.rows]


def test_only_draws_the_named_picture_and_refuses_others(store: Path) -> None:
    assert drawn(store, "one.svg", "--only", "heat-map") == ["heat-map"]
    with pytest.raises(InputError, match="no picture 'cells'"):
        drawn(store, "no.svg", "--only", "cells")
    with pytest.raises(InputError, match="no output format"):
        drawn(store, "no.gif")
    assert not (store.parent / "no.svg").exists()
