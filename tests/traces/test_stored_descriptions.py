"""Quantities with different definitions are not compared; a profile that cannot be shown is refused."""

import json
from pathlib import Path

import pytest
from test_trace_views import run
from trace_maker import mixed_workload, write

NOTHING = {"schema_version": 1, "accesses": {"read": {}, "write": {}}, "random": {"read": 0, "write": 0}}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "t.blktrace.0", mixed_workload(500))


@pytest.mark.parametrize("view", ["show", "compare", "jobs", "plot"])
def test_a_profile_without_accesses_is_refused(tmp_path: Path, view: str) -> None:
    """A hand-written profile with counts of 0: there is nothing to divide by."""
    (tmp_path / "none.json").write_text(json.dumps(NOTHING))
    more = {"compare": [tmp_path / "none.json"], "plot": ["-o", tmp_path / "w.png"]}.get(view, [])
    done = run(view, tmp_path / "none.json", *more, check=False)
    assert done.returncode == 2
    assert "none.json: accesses: the profile counts no access" in done.stderr


def test_profiles_of_different_thresholds_are_compared_by_size_only(tmp_path: Path, trace: Path) -> None:
    """The same trace twice: random and sequential have a different definition in each."""
    for lbn in ("128", "1000000000"):
        run("profile", trace, "--threshold", lbn, "--describe", "full", "-o", tmp_path / f"{lbn}.json")
    found = json.loads(run("compare", tmp_path / "128.json", tmp_path / "1000000000.json", "--json").stdout)
    assert found["total_variation"] == 0
    assert found["random_threshold_lbn"] == {"a": 128, "b": 1_000_000_000}
    (note,) = found["notes"]
    assert note.startswith("random means more than 128 LBN away in A and more than 1000000000 in B")
    assert note in run("compare", tmp_path / "128.json", tmp_path / "1000000000.json").stdout


def test_disks_have_the_shares_of_the_requested_threshold(trace: Path) -> None:
    whole, usual = (
        json.loads(run("profile", trace, "--threshold", lbn, "--json").stdout) for lbn in ("1000000000", "128")
    )
    (disk,) = whole["description"]["disks"].values()
    assert (disk["random"], disk["random_by_bin"]) == (whole["random"], whole["random_by_bin"])
    assert disk["random"]["read"] < usual["random"]["read"]


def test_outstanding_in_histograms_differs_from_outstanding_in_traces(tmp_path: Path, trace: Path) -> None:
    """vscsiStats counts outstanding reads at a read; for a trace all accesses in flight count."""
    run("profile", trace, "-o", tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    document["description"]["sources"][0]["format"] = "vscsi-histogram"
    (tmp_path / "b.json").write_text(json.dumps(document))
    found = json.loads(run("compare", tmp_path / "a.json", tmp_path / "b.json", "--json").stdout)
    kinds = {(h["name"], h["kind"]) for h in found["histograms"]}
    assert ("outstanding", "all") in kinds
    assert not {("outstanding", "read"), ("outstanding", "write")} & kinds
    assert [note[:34] for note in found["notes"]] == ["outstanding at reads and at writes"]
    same = json.loads(run("compare", tmp_path / "b.json", tmp_path / "b.json", "--json").stdout)
    assert ("outstanding", "read") in {(h["name"], h["kind"]) for h in same["histograms"]}
    assert same["notes"] == []
