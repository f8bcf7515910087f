"""OSDs of a real lab recreated on other stores and restored, also after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_state import await_clean

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.environment.scopes import OsdStore
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Applied
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value
from cephfit.lab.cluster import Lab
from cephfit.lab.devices.disks import device_number, mounts
from cephfit.lab.devices.throttle import find_throttle
from cephfit.lab.lab_target import LabTarget

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

NBYTES = 16 * MIB


@pytest.fixture(scope="module")
def lab_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A separate lab: OSDs are not recreated while other tests have data in a pool."""
    lab = Lab.up(f"stores-{os.getpid()}", folder=tmp_path_factory.mktemp("stores"))
    try:
        yield lab
    finally:
        lab.down()


def stores(**scopes: dict[str, Value]) -> Configuration:
    settings = [Setting(Partition.GREATER, s, key, v) for s, keys in scopes.items() for key, v in keys.items()]
    return Configuration("tried", tuple(sorted(settings)))


def apply(target: LabTarget, configuration: Configuration) -> Applied:
    return target.apply(configuration, n_clients=1, volume_nbytes=NBYTES)


def file_systems(lab: Lab) -> dict[str, str]:
    """By OSD, from the kernel."""
    return {
        m.point.name: m.kind for m in mounts() if m.point.parent == lab.folder and m.point.name.startswith("osd.")
    }


def object_stores(lab: Lab) -> list[str]:
    """By OSD, from the OSDs themselves."""
    admin = RadosAdmin(lab.conf)
    try:
        return [osd["osd_objectstore"] for osd in admin.command("osd metadata")]
    finally:
        admin.close()


@pytest.mark.filestore
@pytest.mark.slow  # OSDs with another store are created in the other tests
def test_osds_of_one_cluster_on_different_file_systems(target: LabTarget, lab_cluster: Lab) -> None:
    mixed = stores(
        **{
            "osd_store/host:host0": {"filesystem": "ext4"},
            "osd_store/osd:1": {"filesystem": "xfs", "journal": "ssd"},
            "osd_store/osd:3": {"db": "ssd"},
        }
    )
    assert target.unsupported([mixed]) == {}
    applied = apply(target, mixed)
    assert applied.ok, applied.mismatches
    assert file_systems(lab_cluster) == {"osd.0": "ext4", "osd.1": "xfs", "osd.2": "ext4"}
    assert object_stores(lab_cluster) == ["filestore", "filestore", "filestore", "bluestore"]
    assert applied.read_back["greater/osd_store/host:host0/filesystem = ext4"] == {
        "osd.0": "ext4",
        "osd.2": "ext4",
    }
    journal = lab_cluster.folder / "osd.1" / "journal"
    assert journal.is_symlink() and journal.resolve().is_block_device()
    assert (lab_cluster.folder / "osd.3" / "block.db").resolve().is_block_device()
    throttle = find_throttle(lab_cluster.folder)
    numbers = [device_number(Path(disk.device)) for disk in lab_cluster.status().osd_disks if disk.device]
    limits = [throttle.limits(number) for number in numbers]
    assert [limit is None for limit in limits] == [False, False, False, True], "the kernel does FileStore's I/O"
    target.drop_caches()

    assert apply(target, Configuration("A")).ok
    assert (file_systems(lab_cluster), object_stores(lab_cluster)) == ({}, ["bluestore"] * 4)


@pytest.mark.slow
@pytest.mark.filestore
def test_impossible_stores_are_reported_in_preflight(target: LabTarget) -> None:
    nowhere = stores(**{"osd_store/class:nvme": {"filesystem": "xfs"}})
    no_such_disk = stores(osd_store={"journal": "nvme"})
    contradiction = stores(osd_store={"filesystem": "xfs", "db": "ssd"})
    reasons = {
        configuration.settings: target.unsupported([configuration])["tried"]
        for configuration in (nowhere, no_such_disk, contradiction)
    }
    assert reasons[nowhere.settings] == (
        "greater/osd_store/class:nvme/filesystem = xfs applies to no OSD of this lab",
    )
    assert reasons[no_such_disk.settings] == ("journal on nvme: this lab has the classes hdd, ssd",)
    assert reasons[contradiction.settings] == ("db applies to bluestore, but the object store is filestore",)


def test_warnings_on_filestore_options_consider_the_new_stores(target: LabTarget) -> None:
    option = Setting(Partition.CEPH, "osd", "filestore_max_sync_interval", 1)
    on_bluestore = Configuration("on-bluestore", (option,))
    on_xfs = Configuration("on-xfs", (option, *stores(osd_store={"filesystem": "xfs"}).settings))
    assert set(target.without_effect([on_bluestore, on_xfs])) == {"on-bluestore"}


def test_an_existing_pool_is_not_lost(target: LabTarget, lab_cluster: Lab) -> None:
    admin = RadosAdmin(lab_cluster.conf)
    try:
        admin.command("osd pool create", pool="precious", pg_num=1, pgp_num=1, rule="hdd")
        admin.command("osd pool application enable", pool="precious", app="rbd")
        await_clean(admin)
        with pytest.raises(ClusterError, match="pool precious would be lost"):
            apply(target, stores(osd_store={"db": "ssd"}))
    finally:
        admin.command("osd pool delete", pool="precious", pool2="precious", yes_i_really_really_mean_it=True)
        admin.close()
    assert (file_systems(lab_cluster), object_stores(lab_cluster)) == ({}, ["bluestore"] * 4)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_restore_after_a_kill_while_osds_are_recreated(lab_cluster: Lab, seconds: float) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from cephfit.core.values.configuration import Configuration, Partition, Setting\n"
        "from cephfit.lab.cluster import Lab; from cephfit.lab.lab_target import LabTarget\n"
        "target = LabTarget(Lab.open(folder=Path(sys.argv[1])))\n"
        "other = Configuration('x', (Setting(Partition.GREATER, 'osd_store', 'db', 'ssd'),))\n"
        f"target.apply(other, n_clients=1, volume_nbytes={NBYTES})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(lab_cluster.folder)]) as victim:
        until = time.monotonic() + 120
        while not json.loads((lab_cluster.folder / "lab.json").read_text())["unmade"]:
            assert victim.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        time.sleep(seconds)
        os.kill(victim.pid, signal.SIGKILL)
    target = LabTarget(lab_cluster)
    try:
        target.reset()
        assert target.health().reasons == ()
    finally:
        target.close()
    lab = Lab.open(folder=lab_cluster.folder)
    assert [lab.osd_store(osd) for osd in lab.osd_ids()] == [OsdStore()] * 4
    assert (file_systems(lab), object_stores(lab)) == ({}, ["bluestore"] * 4)
    assert not (lab_cluster.folder / "target" / "journal.jsonl").exists()
    assert lab.status().pgs == {"active+clean": 32}


@pytest.mark.filestore
@pytest.mark.slow
def test_a_lab_on_filestore_is_started_again_after_a_power_cut(tmp_path: Path) -> None:
    from cephfit.lab.daemons import processes
    from cephfit.lab.devices import disks
    from cephfit.lab.devices.disks import unmount_under
    from cephfit.lab.lab_spec import LabSpec

    spec = LabSpec(
        stores={"hdd": OsdStore("filestore", "btrfs"), "ssd": OsdStore("filestore", "xfs", journal="hdd")}
    )
    lab = Lab.up(f"cut-{os.getpid()}", folder=tmp_path / "lab", spec=spec)
    try:
        processes.kill(processes.of_folder(lab.folder))
        unmount_under(lab.folder)
        for device in disks.loops_of(lab.folder):
            disks.detach_loop(device)
        lab.start()
        assert lab.status().health == "HEALTH_OK"
        assert file_systems(lab) == {"osd.0": "btrfs", "osd.1": "btrfs", "osd.2": "xfs", "osd.3": "xfs"}
    finally:
        lab.down()
    assert not any(lab.folder in m.point.parents for m in mounts())
    assert not disks.loops_of(lab.folder)
