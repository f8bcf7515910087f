"""`cephfit lab status` while `cephfit lab down` removes the lab."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cephfit.core.errors import CephfitError, HostError
from cephfit.lab import cluster, registry
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons.ceph_daemons import DaemonState
from cephfit.lab.daemons.osd_creation import OsdDisks
from cephfit.lab.devices.throttle import IoMaxThrottle
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.lab_status import LabStatus, ask_health
from cephfit.lab.registry import Record

ROOM = str(Path(cluster.__file__).parent)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Path]:
    """Creates a lab without daemons, with attached disks, and limits in files."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(cluster, "require_root", lambda what: None)
    monkeypatch.setattr(OsdDisks, "_loop", lambda self, osd: Path("/dev/null"))
    monkeypatch.setattr("cephfit.lab.daemons.osd_creation.disks.is_rotational", lambda device: False)
    groups = tmp_path / "groups"
    monkeypatch.setattr(cluster, "find_throttle", lambda folder: IoMaxThrottle(groups, folder))

    def make() -> Path:
        folder = registry.claim("x", tmp_path / "lab")
        Record("x", "f-s-i-d", 20001, ready=True, devices={}, spec=LabSpec()).write(folder)
        (folder / "full-speed.lock").touch()
        shutil.rmtree(groups, ignore_errors=True)
        groups.mkdir()
        (groups / "cgroup.subtree_control").write_text("io")
        return folder

    return make


def down(folder: Path) -> None:
    shutil.rmtree(folder)
    registry.release("x")


def status_and(step: Callable[[], None], *, at: int) -> tuple[LabStatus | CephfitError, int]:
    """Status, with ``step`` done as the room's function number ``at`` is called; and how many were called."""
    n_calls = 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal n_calls
        if event == "call" and frame.f_code.co_filename.startswith(ROOM):
            n_calls += 1
            if n_calls == at:
                sys.setprofile(None)
                step()

    sys.setprofile(look)
    try:
        return Lab.open("x").status(), n_calls
    except CephfitError as error:
        return error, n_calls
    finally:
        sys.setprofile(None)


@pytest.fixture
def profile() -> Iterator[None]:
    before = sys.getprofile()
    yield
    sys.setprofile(before)


@pytest.mark.usefixtures("profile")
@pytest.mark.slow
def test_a_lab_removed_at_any_moment_is_shown_or_reported_as_missing(made: Callable[[], Path]) -> None:
    folder = made()
    whole, n_calls = status_and(lambda: None, at=0)
    assert isinstance(whole, LabStatus)
    down(folder)
    assert n_calls > 50
    for moment in (*range(1, n_calls, 7), n_calls):  # 7: each has a lab to be made, and the calls are many
        folder = made()
        found, n_called = status_and(lambda: down(folder), at=moment)  # noqa: B023 (called at once)
        if n_called < moment:  # this status called fewer functions than the first, as other labs came or went
            down(folder)
            break
        if isinstance(found, CephfitError):
            assert str(found).startswith(f"{registry.labs_root()}: there is no lab 'x'"), moment
        assert not folder.exists(), moment


def test_a_name_removed_during_lookup_is_unknown(
    made: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, is_symlink = made(), Path.is_symlink

    def then_gone(path: Path) -> bool:
        there = is_symlink(path)
        monkeypatch.undo()
        path.unlink()
        return there

    labs = registry.labs_root()
    monkeypatch.setattr(registry, "labs_root", lambda: labs)
    monkeypatch.setattr(Path, "is_symlink", then_gone)
    assert registry.folder_of("x") is None
    shutil.rmtree(folder)


def test_a_part_that_disappears_is_reported_with_a_remedy(
    made: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(group: IoMaxThrottle, device: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/sys/fs/cgroup/cephfit-lab-1/io.max")

    made()
    monkeypatch.setattr(IoMaxThrottle, "limits", gone)
    with pytest.raises(HostError, match=r"^lab x: a part of it disappeared .*io.max'\n.*try again when"):
        Lab.open("x").status()


def test_limits_are_not_created_again_for_a_lab_without_osds(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("io")
    throttle = IoMaxThrottle(tmp_path, tmp_path / "lab")
    throttle.place([])
    assert not throttle.group.exists()


def test_a_ceph_conf_deleted_while_it_is_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cephfit.ceph.admin.rados_admin.require_conf", lambda conf: None)
    health, checks, pgs = ask_health(tmp_path / "ceph.conf", DaemonState("mon.a", 1, 0))
    assert "conf_read_file" in health
    assert (checks, pgs) == ((), {})
