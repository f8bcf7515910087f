"""Plots over addresses: of the busiest disk, and of other disks on request."""

import json
from pathlib import Path

import pytest
from test_trace_views import run

pytest.importorskip("matplotlib")

MANY = "".join(
    f"{i},{disk},R,{4096 * i},4096\n" for i in range(50) for disk in (["a/0", 'b"<>#)'] if i % 2 else ["a/0"])
)
COLUMNS = ("--columns", "time:ms,disk,op,offset:bytes,length:bytes")


@pytest.fixture
def two_disks(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(MANY)
    return tmp_path / "t.csv"


def test_each_disk_can_be_drawn(two_disks: Path, tmp_path: Path) -> None:
    usual = json.loads(run("plot", two_disks, *COLUMNS, "-o", tmp_path / "w.svg", "--json").stdout)["pictures"]
    assert {"lbn", "heat_map"} <= set(usual)
    assert not [name for name in usual if ":" in name]
    for name in ("lbn", 'lbn:b"<>#)', 'heat_map:b"<>#)'):
        run("plot", two_disks, *COLUMNS, "-o", tmp_path / "w.png", "--only", name)
        assert (tmp_path / "w.png").read_bytes().startswith(b"\x89PNG")
    both = [word for name in ("lbn", 'lbn:b"<>#)') for word in ("--only", name)]
    run("plot", two_disks, *COLUMNS, "-o", tmp_path / "w.html", *both)
    page = (tmp_path / "w.html").read_text()
    assert page.count("<svg") == 2
    assert 'id="p0-' in page
    assert 'id="p1-' in page


def test_an_unknown_plot_is_refused_before_the_trace_is_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.csv"
    done = run("plot", missing, "-o", tmp_path / "w.png", "--only", "cat", check=False)
    assert done.returncode == 2
    assert "there is no plot 'cat'" in done.stderr
    assert "heat_map" in done.stderr


def test_an_unknown_disk_is_named(two_disks: Path, tmp_path: Path) -> None:
    done = run("plot", two_disks, *COLUMNS, "-o", tmp_path / "w.png", "--only", "lbn:c", check=False)
    assert done.returncode == 2
    assert "the workload has no plot 'lbn:c'" in done.stderr
