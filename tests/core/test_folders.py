"""Folders of journals, locks, labs and downloads, by the XDG Base Directory Specification."""

from pathlib import Path

import pytest

from cephfit.ceph.options.option_archive import archive_folder
from cephfit.cloud.guests.guest_image import cache_folder
from cephfit.lab.registry import labs_root
from cephfit.targets.ceph.existing_cluster import state_folder as folder_of_cluster
from cephfit.targets.local import state_folder as folder_of_local

VARIABLES = ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without XDG variables."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_without_variables_the_folders_are_those_of_the_specification(home: Path) -> None:
    assert labs_root() == home / ".local/state/cephfit/labs"
    assert folder_of_cluster("1f2e") == home / ".local/state/cephfit/clusters/1f2e"
    assert folder_of_local(Path("/srv/disk")).parent == home / ".local/state/cephfit/local"
    assert archive_folder() == home / ".local/share/cephfit/options"
    assert cache_folder() == home / ".cache/cephfit/packages"


def test_an_empty_variable_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert labs_root() == home / ".local/state/cephfit/labs"
    assert archive_folder() == home / ".local/share/cephfit/options"
    assert cache_folder() == home / ".cache/cephfit/packages"


def test_each_variable_moves_its_own_folders(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, str(home / name))
    assert labs_root() == home / "XDG_STATE_HOME/cephfit/labs"
    assert archive_folder() == home / "XDG_DATA_HOME/cephfit/options"
    assert cache_folder() == home / "XDG_CACHE_HOME/cephfit/packages"
