"""Two targets on one machine do not set its kernel's values over each other."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from greater_examples import greater, osd

from cephfit.configuration import Configuration
from cephfit.errors import HostError
from cephfit.sweep.greater import kernel_locks
from cephfit.sweep.greater.host_settings import HostSettings
from cephfit.sweep.hosts.access import Hosts
from cephfit.sweep.hosts.host import HostRefusedError
from cephfit.sweep.journal import Journal

SYSCTL = "net.ipv4.tcp_notsent_lowat"
HOST = socket.gethostname()


@pytest.fixture(autouse=True)
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Not the machine's own: other tests may run."""
    place = tmp_path / "run" / "kernel-values"
    place.parent.mkdir()
    monkeypatch.setattr(kernel_locks.KernelLocks.__init__, "__kwdefaults__", {"link": PurePosixPath(place)})
    return place


@pytest.fixture
def sysctl() -> Iterator[Path]:
    file = Path("/proc/sys") / SYSCTL.replace(".", "/")
    before = file.read_text()
    yield file
    if os.geteuid() == 0:
        file.write_text(before)


def target(name: str, folder: Path) -> HostSettings:
    """Called again it is the next process."""
    journal = Journal(folder / name / "journal.jsonl")
    journal.path.parent.mkdir(exist_ok=True)
    return HostSettings(Hosts(), journal, osds=lambda: [osd(0, "loop0")], target=f"lab:{name}")


@pytest.mark.root
def test_the_second_of_two_labs_is_told_who_changes_the_machines_values(tmp_path: Path, sysctl: Path) -> None:
    at_first = sysctl.read_text()
    first, second = target("first", tmp_path), target("second", tmp_path)
    first.apply(greater(osd_host={SYSCTL: 2000001}), ())
    with pytest.raises(HostError, match=f"{HOST}: .*changed by another cephfit: lab:first on {HOST}") as caught:
        second.apply(greater(osd_host={SYSCTL: 2000002}), ())
    assert "cephfit restore" in str(caught.value)
    assert sysctl.read_text() == "2000001\n"
    second.restore()
    assert sysctl.read_text() == "2000001\n", "the second has nothing to put back"

    first.apply(Configuration("A"), ())
    with pytest.raises(HostError, match="lab:first"):
        second.apply(greater(osd_host={SYSCTL: 2000002}), ())
    first.restore()
    second.apply(greater(osd_host={SYSCTL: 2000002}), ())
    second.restore()
    assert sysctl.read_text() == at_first


@pytest.mark.root
def test_values_that_a_killed_process_left_stay_locked_until_they_are_put_back(
    tmp_path: Path, sysctl: Path, link: Path
) -> None:
    at_first = sysctl.read_text()
    target("killed", tmp_path).apply(greater(osd_host={SYSCTL: 2000001}), ())
    with pytest.raises(HostError, match="lab:killed"):
        target("other", tmp_path).apply(greater(osd_host={SYSCTL: 2000002}), ())
    target("killed", tmp_path).restore()
    assert sysctl.read_text() == at_first
    assert not link.is_symlink()
    assert not Journal(tmp_path / "killed" / "journal.jsonl").entries()


@pytest.mark.root
def test_a_lock_whose_owner_is_gone_is_taken_over(tmp_path: Path, sysctl: Path, link: Path) -> None:
    target("gone", tmp_path).apply(greater(osd_host={SYSCTL: int(sysctl.read_text())}), ())
    (tmp_path / "gone" / "journal.jsonl").unlink()  # with its lab
    other = target("other", tmp_path)
    other.apply(greater(osd_host={SYSCTL: 2000002}), ())
    assert str(link.readlink()).startswith("lab:other on ")
    other.restore()


@pytest.mark.root
def test_what_another_machine_says_of_itself_only_a_person_can_judge(tmp_path: Path, link: Path) -> None:
    link.symlink_to("ceph:prod on elsewhere, /root/.local/state/cephfit/clusters/5e0c/journal.jsonl")
    with pytest.raises(HostError, match="another cephfit: ceph:prod on elsewhere") as caught:
        target("ours", tmp_path).apply(greater(osd_host={SYSCTL: 2000001}), ())
    assert f"delete {link} there" in str(caught.value)
    assert not Journal(tmp_path / "ours" / "journal.jsonl").entries()


@pytest.mark.root
def test_disks_are_one_clusters_and_need_no_lock_of_the_machine(tmp_path: Path, link: Path) -> None:
    around = target("ours", tmp_path)
    around.apply(greater(osd_disk={"read_ahead_kb": Path("/sys/block/loop0/queue/read_ahead_kb").read_text()}), ())
    assert not link.is_symlink()
    around.restore()


def test_a_machine_that_makes_no_lock_changes_nothing(tmp_path: Path, link: Path, sysctl: Path) -> None:
    before = sysctl.read_text()
    link.parent.rmdir()
    with pytest.raises(HostRefusedError, match=r"no lock can be made: .*No such file or directory"):
        target("ours", tmp_path).apply(greater(osd_host={SYSCTL: 2000001}), ())
    assert sysctl.read_text() == before
