"""A target releases its lock and connections when its opening fails."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cephfit.core.errors import ClusterError, StoreError
from cephfit.core.journal import TargetLock


class Connection:
    name = "work"

    def __init__(self, *_: Any) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


def lab_opening(folder: Path, link: Connection, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    target = pytest.importorskip("cephfit.lab.lab_target", reason="needs Ceph's Python bindings")
    monkeypatch.setattr(target, "RadosAdmin", lambda _: link)
    lab: Any = SimpleNamespace(
        name="mine", folder=folder, conf=folder, reassert_limits=lambda: None, unmade_osds=lambda: ()
    )
    return lambda: target.LabTarget(lab)


def cloud_opening(folder: Path, link: Connection, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    pytest.importorskip("openstack", reason="needs the extra openstack")
    from cephfit.cloud.cloud_choice import parse_choice
    from cephfit.targets import openstack_target

    monkeypatch.setattr(openstack_target, "connect", lambda _: link)
    monkeypatch.setattr(openstack_target, "state_folder", lambda _: folder / "target")
    return lambda: openstack_target.OpenStackTarget(parse_choice("openstack:work"))


@pytest.mark.parametrize("opening", [lab_opening, cloud_opening])
def test_a_damaged_journal_keeps_neither_lock_nor_connection(
    opening: Callable[..., Callable[[], Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Connection()
    opened = opening(tmp_path, link, monkeypatch)
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "journal.jsonl").write_text("no JSON\n{}\n")
    with pytest.raises(StoreError, match="line of the journal is damaged"):
        opened()
    assert not link.is_open
    TargetLock(folder / "lock", "the next command").release()
    with pytest.raises(ClusterError):
        held = TargetLock(folder / "lock", "somebody")
        try:
            opened()
        finally:
            held.release()


def test_a_cluster_below_a_cloud_is_released_when_its_connection_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("openstack", reason="needs the extra openstack")
    from cephfit.ceph.admin import rados_admin
    from cephfit.lab import cluster, lab_target, machine
    from cephfit.operations.measuring import target_choice
    from cephfit.targets import openstack_ceph

    below = Connection()

    def refuse(_: Any) -> None:
        raise ClusterError("no monitor answers")

    def open_both(_choice: Any, open_ceph: Callable[[], Any], **_: Any) -> None:
        open_ceph()

    monkeypatch.setattr(cluster.Lab, "open", lambda _: SimpleNamespace(conf="ceph.conf"))
    monkeypatch.setattr(machine, "require_root", lambda _: None)
    monkeypatch.setattr(lab_target, "LabTarget", lambda *_, **__: below)
    monkeypatch.setattr(rados_admin, "RadosAdmin", refuse)
    monkeypatch.setattr(openstack_ceph, "OpenStackWithCeph", open_both)
    with pytest.raises(ClusterError, match="no monitor answers"):
        target_choice.open_target("openstack:work,lab=mine", for_change=True)
    assert not below.is_open
