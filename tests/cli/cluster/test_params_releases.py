"""`cephfit params` on a machine without a cluster."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cephfit.cli.main import cephfit


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user without a lab and without an archive."""
    for variable in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


def params(*arguments: str) -> Result:
    return CliRunner().invoke(cephfit, ["params", *arguments])


def test_the_tree_of_a_release_needs_no_cluster_and_says_where_it_comes_from() -> None:
    shown = params("tree", "--release", "16.2")
    assert shown.exit_code == 0
    assert "the options of Ceph 16.2.15 (comes with cephfit)" in shown.output


def test_a_search_and_one_option_of_a_release() -> None:
    found = json.loads(params("search", "mclock", "profile", "--release", "reef", "--json").output)
    assert (found["ceph_version"], found["source"]) == ("18.2.7", "comes with cephfit")
    assert found["parameters"][0]["name"] == "osd_mclock_profile"
    shown = params("show", "osd_mclock_profile", "--release", "18.2").output
    assert "one of balanced, high_recovery_ops, high_client_ops, custom" in shown
    assert "as of         Ceph 18.2.7 (comes with cephfit)" in shown


def test_without_a_cluster_and_without_a_release_the_releases_are_named() -> None:
    refused = params("tree")
    assert str(refused.exception).startswith("--target lab (the default): no cluster is available")
    assert "--release: 16.2.15, 18.2.7, 20.2.4" in str(refused.exception)


def test_the_known_releases_are_listed() -> None:
    listed = json.loads(params("releases", "--json").output)
    assert [one["ceph_version"] for one in listed] == ["16.2.15", "18.2.7", "20.2.4"]


def test_a_release_and_a_target_contradict_each_other() -> None:
    assert "--release needs no --target" in str(params("tree", "--release", "16.2", "--target", "lab").exception)


def test_an_exported_file_equals_the_bundled_one(tmp_path: Path) -> None:
    output = tmp_path / "options.json.gz"
    assert params("export", "--release", "20.2", "-o", str(output)).exit_code == 0
    exported = json.loads(gzip.decompress(output.read_bytes()))
    assert exported["ceph_version"] == "20.2.4"
    assert len(exported["options"]) == 2388
