"""Removing a lab restores kernel values that a killed sweep on it changed."""

import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import pytest
from click.testing import CliRunner

from cephfit.ceph.admin.daemons import Daemon
from cephfit.ceph.environment.host_settings import HostSettings, OsdPlace
from cephfit.ceph.host import LocalHost
from cephfit.ceph.host_access import Hosts
from cephfit.cli.cluster import lab_command
from cephfit.core.errors import HostError
from cephfit.core.journal import Journal
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab import lab_lifecycle
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.registry import Record

pytestmark = pytest.mark.root

SYSCTL = "net.ipv4.tcp_notsent_lowat"
OSD = OsdPlace(Daemon("osd", "0", "hdd", {}), socket.gethostname(), ("loop0",), (), "bluestore")
CHANGED = Configuration("changed", (Setting(Partition.GREATER, "osd_host", SYSCTL, 2000001),))


@pytest.fixture(autouse=True)
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate lock, because other tests may use that of the machine."""
    there = partial(HostSettings, lock=PurePosixPath(tmp_path / "lock"))
    monkeypatch.setattr(lab_lifecycle, "HostSettings", there)
    return tmp_path / "lock"


@pytest.fixture
def sysctl() -> Iterator[Path]:
    file = Path("/proc/sys") / SYSCTL.replace(".", "/")
    before = file.read_text()
    yield file
    if os.geteuid() == 0:
        file.write_text(before)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sysctl: Path, link: Path) -> Journal:
    """The journal of a new lab on which a sweep was killed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "lab" / "target").mkdir(parents=True)
    Record("swept", "f-s-i-d", 20001, ready=False, devices={}, spec=LabSpec()).write(tmp_path / "lab")
    journal = Journal(tmp_path / "lab" / "target" / "journal.jsonl")
    hosts = Hosts(all_local=True)
    HostSettings(hosts, journal, osds=lambda: [OSD], target="lab:swept", lock=PurePosixPath(link)).apply(
        CHANGED, ()
    )
    assert sysctl.read_text() == "2000001\n"
    return journal


def test_they_are_restored_and_the_lock_is_released(
    journal: Journal, tmp_path: Path, sysctl: Path, link: Path
) -> None:
    was = next(entry.was for entry in journal.entries("host file"))
    assert link.is_symlink()
    Lab.remove("swept", folder=tmp_path / "lab")
    assert sysctl.read_text().strip() == was
    assert not link.is_symlink()
    assert not (tmp_path / "lab").exists()


def test_queue_values_of_the_labs_disks_are_not_restored(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another lab may use the device now, and hanging I/O would block the removal forever."""
    journal.note("host file", "localhost:/sys/block/loop0/queue/read_ahead_kb", "4096")
    written: list[PurePosixPath] = []
    write = LocalHost.write

    def noted(self: LocalHost, path: PurePosixPath, text: str) -> None:
        written.append(path)
        write(self, path, text)

    monkeypatch.setattr(LocalHost, "write", noted)
    Lab.remove("swept", folder=tmp_path / "lab")
    assert [str(path) for path in written] == ["/proc/sys/net/ipv4/tcp_notsent_lowat"]


def test_if_a_value_cannot_be_restored_the_lab_stays_and_keeps_the_lock(
    journal: Journal, tmp_path: Path, sysctl: Path, link: Path
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalHost, "write", lambda self, path, text: None)
        with pytest.raises(
            HostError, match=r"cannot be restored, so the lab stays: .*tcp_notsent_lowat: is 2000001"
        ) as caught:
            Lab.remove("swept", folder=tmp_path / "lab")
    assert str(journal.path) in caught.value.remedy
    assert link.is_symlink()
    assert journal.path.exists()
    Lab.remove("swept", folder=tmp_path / "lab")
    assert sysctl.read_text() != "2000001\n"
    assert not link.is_symlink()


def test_with_a_damaged_journal_the_lab_stays(journal: Journal, tmp_path: Path) -> None:
    whole = journal.path.read_text()
    journal.path.write_text("damaged\n" + whole)
    with pytest.raises(HostError, match=r"the lab stays: .*journal\.jsonl:1: this line of the journal is damaged"):
        Lab.remove("swept", folder=tmp_path / "lab")
    said = " ".join(CliRunner().invoke(lab_command.down, ["--help"]).output.split())
    assert "the journal is damaged, the lab stays" in said
    journal.path.write_text(whole)
    Lab.remove("swept", folder=tmp_path / "lab")
    assert not (tmp_path / "lab").exists()
