"""Every target passes the contract suite; further tests cover what is specific to each."""

import json
import os
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from simulated_truth import true_iops
from target_contract import DEFAULT, Harness, TargetContract

from cephfit.cli.main import cephfit
from cephfit.core.errors import HostError, InputError
from cephfit.core.units import MIB
from cephfit.core.values.cells import CELLS
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.targets.local import LocalTarget, identity_of, local_target
from cephfit.targets.simulated import SimulatedTarget, simulated_target

READAHEAD = Configuration("readahead", (Setting(Partition.GREATER, "client_disk", "read_ahead_kb", 64),))
DEFERRED = Configuration("d", (Setting(Partition.CEPH, "osd", "bluestore_prefer_deferred_size_hdd", 0),))


STRIPED = Configuration(
    "s",
    (
        Setting(Partition.CEPH, "client", "rbd_cache", True),
        Setting(Partition.POOL, "image", "stripe_count", 4),
        Setting(Partition.POOL, "image", "stripe_unit", "64K"),
    ),
)
SHARDS = Configuration(
    "o",
    (
        Setting(Partition.CEPH, "osd/class:hdd", "osd_op_num_shards", 3),
        Setting(Partition.GREATER, "client_disk", "read_ahead_kb", 64),
    ),
)


def _state_of_cluster(lab: Any) -> object:
    from cephfit.ceph.admin.rados_admin import RadosAdmin

    admin = RadosAdmin(lab.conf)
    try:
        options = [(o["section"], o["name"], o["value"]) for o in admin.command("config dump")]
        images = admin.cluster.open_ioctx("rbd")
        with images:
            objects = sorted(o.key for o in images.list_objects() if o.key.startswith("rbd_id."))
        locks = sorted(admin.command("config-key dump", key="cephfit/"))
        flags = [o["state"] for o in admin.command("osd dump")["osds"]]
        return options, admin.command("osd pool ls"), objects, locks, flags
    finally:
        admin.close()


class TestSimulated(TargetContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness(SimulatedTarget, DEFERRED, n_clients=2, state=lambda: None)


class TestLocalFile(TargetContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        path = tmp_path / "volume"
        return Harness(lambda: LocalTarget(path), Configuration("B"), n_clients=2, state=path.exists)


@pytest.mark.root
class TestLocalDevice(TargetContract):
    @pytest.fixture
    def harness(self, loop_device: Callable[[int], Path]) -> Harness:
        device = loop_device(64 * MIB)
        queue = Path("/sys/block") / device.name / "queue" / "read_ahead_kb"
        return Harness(lambda: LocalTarget(device), READAHEAD, n_clients=1, state=queue.read_text)


@pytest.mark.root
@pytest.mark.ceph
class TestLab(TargetContract):
    @pytest.fixture
    def harness(self, lab_cluster: Any) -> Harness:
        from cephfit.lab.lab_target import LabTarget

        return Harness(
            lambda: LabTarget(lab_cluster), DEFERRED, n_clients=1, state=lambda: _state_of_cluster(lab_cluster)
        )


class _OnExistingCluster(TargetContract):
    """The lab's cluster, opened with a ceph.conf and a key only."""

    other: Configuration
    how: Mapping[str, Any]

    @pytest.fixture
    def harness(self, lab_cluster: Any, tmp_path: Path) -> Harness:
        from existing_cluster_lab import open_existing_cluster, restart_program

        how = dict(self.how)
        if how.pop("restarts", False):
            how["restarts"] = str(restart_program(lab_cluster, tmp_path))
        return Harness(
            lambda: open_existing_cluster(lab_cluster, **how),
            self.other,
            n_clients=1,
            state=lambda: _state_of_cluster(lab_cluster),
        )


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.fio
class TestExistingCluster(_OnExistingCluster):
    other = DEFERRED
    how: Mapping[str, Any] = {}


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.fio
class TestExistingClusterOnlyPool(_OnExistingCluster):
    other = STRIPED
    how: Mapping[str, Any] = {"only_pool": "rbd"}


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.fio
@pytest.mark.slow
class TestExistingClusterWithRestartsAndDevices(_OnExistingCluster):
    other = SHARDS
    how: Mapping[str, Any] = {"librbd": False, "restarts": True}


@pytest.mark.root
@pytest.mark.ceph
@pytest.mark.fio
@pytest.mark.slow
class TestExistingClusterByRest(_OnExistingCluster):
    other = DEFERRED

    @pytest.fixture
    def harness(self, lab_cluster: Any) -> Iterator[Harness]:
        from existing_cluster_lab import open_existing_cluster
        from rest_server import rest_api

        with rest_api(lab_cluster.conf) as url:
            yield Harness(
                lambda: open_existing_cluster(lab_cluster, admin="rest", rest_url=url),
                self.other,
                n_clients=1,
                state=lambda: _state_of_cluster(lab_cluster),
            )


def test_a_simulation_has_options_and_identifies_itself() -> None:
    target = simulated_target("sim:noise=0.1,unhealthy=0.2,seed=5")
    assert (target.simulation.noise, target.simulation.unhealthy, target.simulation.seed) == (0.1, 0.2, 5)
    assert target.facts()["simulated"] is True
    with pytest.raises(InputError, match="did you mean 'noise'"):
        simulated_target("sim:nois=0.1")
    with pytest.raises(InputError, match="between 0 and 1"):
        simulated_target("sim:unhealthy=2")


def test_some_settings_have_simulated_effects_and_others_none() -> None:
    small_write, large_read = CELLS[3], CELLS[12]
    assert str(small_write) == "4K-randwrite"
    assert str(large_read) == "1M-read"

    def truth(configuration: Configuration, cell: Any) -> float:
        return true_iops(configuration, cell, n_clients=2, iodepth=4)

    assert truth(DEFERRED, small_write) > 1.1 * truth(DEFAULT, small_write)
    assert truth(DEFERRED, large_read) == truth(DEFAULT, large_read)
    assert truth(READAHEAD, small_write) == truth(DEFAULT, small_write)


def test_the_simulation_reports_settings_without_effect() -> None:
    def ceph(key: str) -> Setting:
        return Setting(Partition.CEPH, "osd", key, 8)

    mixed = Configuration("mixed", (ceph("osd_op_num_shards"), ceph("osd_op_nun_shards"), *DEFERRED.settings))
    more = Configuration("more", (Setting(Partition.POOL, "pool", "pg_num", 64), *READAHEAD.settings))
    gone = Configuration("gone", (ceph("osd_op_threads"),))  # skipped, see `unsupported`
    warned = SimulatedTarget().without_effect([DEFAULT, DEFERRED, mixed, more, gone])
    assert set(warned) == {"mixed", "more"}
    assert warned["more"] == ("pg_num, read_ahead_kb: no effect in the simulation",)
    known, unknown = warned["mixed"]
    assert known == "osd_op_num_shards: no effect in the simulation"
    assert unknown.startswith("osd_op_nun_shards (did you mean osd_op_num_shards?): no effect in the simulation")
    assert unknown.endswith("no known release of Ceph has it")


def test_a_local_target_changes_no_file_that_it_did_not_create(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    target = local_target(f"local:{precious}")
    with pytest.raises(InputError, match="did not create it"):
        target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    target.reset()
    target.close()
    assert precious.read_text() == "years of work"


def test_unchanged_values_are_not_reported_as_restored(tmp_path: Path) -> None:
    """A misspelled path must not look like a restored one."""
    words = ["restore", "--target", f"local:{tmp_path / 'v'}"]
    done = CliRunner().invoke(cephfit, words)
    assert done.exit_code == 0
    assert "nothing to undo" in done.output and "check the path" in done.output
    assert "as it was" not in done.output
    assert json.loads(CliRunner().invoke(cephfit, [*words, "--json"]).stdout)["restored"] is False
    target = local_target(f"local:{tmp_path / 'v'}")
    target.apply(Configuration("A"), n_clients=1, volume_nbytes=MIB)
    target.close()
    assert "is restored: all changes of cephfit are undone" in CliRunner().invoke(cephfit, words).stdout
    assert not (tmp_path / "v").exists()


def test_a_device_that_does_not_exist_is_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    target = LocalTarget(Path("/dev/no-such-disk"))
    try:
        with pytest.raises(InputError, match="no device /dev/no-such-disk"):
            target.apply(DEFAULT, n_clients=1, volume_nbytes=4096)
        assert not Path("/dev/no-such-disk").exists()
    finally:
        target.reset()
        target.close()


def test_a_local_target_refuses_settings_of_ceph(tmp_path: Path) -> None:
    target = local_target(f"local:{tmp_path / 'v'}")
    for configuration in (DEFERRED, READAHEAD):
        with pytest.raises(InputError, match="is only a file"):
            target.unsupported([configuration])
        with pytest.raises(InputError, match="is only a file"):
            target.apply(configuration, n_clients=1, volume_nbytes=MIB)
    target.close()
    assert not (tmp_path / "v").exists()
    with pytest.raises(InputError, match="absolute path"):
        local_target("local:v")
    with pytest.raises(InputError, match=r"^--target local: the path of a file or block device is missing"):
        local_target("local:")


def test_a_local_target_skips_options_of_storage_protocols(tmp_path: Path) -> None:
    digest = Configuration("digest", (Setting(Partition.GREATER, "iscsi", "header_digest", "crc32c"),))
    target = local_target(f"local:{tmp_path / 'v'}")
    (why,) = target.unsupported([DEFAULT, digest])["digest"]
    assert why.endswith("is of this machine: header_digest of iscsi is not used")
    target.close()


def test_a_local_volume_is_filled_with_incompressible_data(tmp_path: Path) -> None:
    target = local_target(f"local:{tmp_path / 'v'}")
    target.apply(DEFAULT, n_clients=2, volume_nbytes=MIB)
    content = (tmp_path / "v").read_bytes()
    assert len(content) == 2 * MIB
    assert len(zlib.compress(content)) > 2 * MIB
    assert [c.fio_options["offset"] for c in target.clients()] == ["0", str(MIB)]
    target.reset()
    target.close()


def test_a_file_of_a_workload_is_large_enough_and_filled_again_for_a_sweep(tmp_path: Path) -> None:
    """The file system of a workload discards blocks, and reads of holes cost nothing."""
    target, file = local_target(f"local:{tmp_path / 'v'}"), tmp_path / "v"
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    target.apply(DEFAULT, n_clients=1, volume_nbytes=2 * MIB, fill=False)
    assert file.stat().st_size == 2 * MIB
    file.write_bytes(bytes(2 * MIB))
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB, fill=False)
    assert file.stat().st_size == 2 * MIB, "no data of the workload are cut off"
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    assert len(zlib.compress(file.read_bytes()[:MIB])) > MIB
    target.reset()
    target.close()


@pytest.mark.root
def test_a_device_with_content_is_refused(loop_device: Callable[[int], Path]) -> None:
    device = loop_device(16 * MIB)
    subprocess.run(("mkswap", str(device)), check=True, capture_output=True)
    target = LocalTarget(device)
    with pytest.raises(InputError, match="not empty"):
        target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    target.close()
    assert b"SWAPSPACE2" in device.read_bytes()[:8192]


@pytest.mark.root
def test_another_disk_at_the_path_of_a_filled_one_is_probed(
    loop_device: Callable[[int], Path], tmp_path: Path
) -> None:
    ours, theirs = loop_device(16 * MIB), loop_device(16 * MIB)
    subprocess.run(("mkswap", str(theirs)), check=True, capture_output=True)
    path = tmp_path / "sdb"
    path.symlink_to(ours)
    target = LocalTarget(path)
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    target.close()
    written = ours.read_bytes()
    path.unlink()
    path.symlink_to(theirs)  # what a reboot may do to /dev/sdb
    target = LocalTarget(path)
    with pytest.raises(InputError, match="not empty"):
        target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    target.close()
    assert b"SWAPSPACE2" in theirs.read_bytes()[:8192]

    path.unlink()
    path.symlink_to(ours)
    target = LocalTarget(path)
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    assert ours.read_bytes() == written, "the filled disk is recognised"
    target.reset()
    target.close()


@pytest.mark.root
def test_a_device_with_the_file_system_of_a_workload_is_used_again_and_left_empty(
    loop_device: Callable[[int], Path], tmp_path: Path
) -> None:
    """A workload formats the device; the next configuration, round and process find the file system there."""
    device, theirs = loop_device(16 * MIB), loop_device(16 * MIB)
    for content in (device, theirs):
        assert not content.read_bytes()[:8192].strip(b"\0")
    path = tmp_path / "sdb"
    path.symlink_to(device)
    target = LocalTarget(path)
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB, fill=False)
    for disk in (device, theirs):
        subprocess.run(("mkswap", str(disk)), check=True, capture_output=True)
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB, fill=False)
    target.close()
    path.unlink()
    path.symlink_to(theirs)
    target = LocalTarget(path)
    with pytest.raises(InputError, match="not empty"):
        target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB, fill=False)
    target.close()
    path.unlink()
    path.symlink_to(device)
    target = LocalTarget(path)
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB)
    assert len(zlib.compress(device.read_bytes()[:MIB])) > MIB, "a sweep fills it again"
    target.apply(DEFAULT, n_clients=1, volume_nbytes=MIB, fill=False)
    subprocess.run(("mkswap", str(device)), check=True, capture_output=True)
    target.reset()
    target.close()
    assert b"SWAPSPACE2" not in device.read_bytes()[:8192]
    assert b"SWAPSPACE2" in theirs.read_bytes()[:8192]
    assert not target.is_changed()


def test_a_disk_is_identified_by_its_own_attributes(tmp_path: Path) -> None:
    number = Path("/dev/null").stat().st_rdev
    disk = tmp_path / "devices" / "sdb"
    (disk / "device").mkdir(parents=True)
    place = tmp_path / f"{os.major(number)}:{os.minor(number)}"
    place.symlink_to(disk)
    boot = tmp_path / "boot_id"
    boot.write_text("5e0c\n")

    def identity() -> str:
        return identity_of(Path("/dev/null"), sys_dev_block=tmp_path, boot_id=boot)

    assert identity() == "", "an old kernel, and a disk without attributes"
    (disk / "size").write_text("2048\n")
    (disk / "diskseq").write_text("7\n")
    assert identity() == "boot=5e0c; diskseq=7; sectors=2048"
    (disk / "device" / "wwid").write_text("naa.5000c500a1b2c3d4\n")
    assert identity() == "wwid=naa.5000c500a1b2c3d4; sectors=2048"
    partition = disk / "sdb2"
    partition.mkdir()
    for key, text in (("partition", "2"), ("start", "512"), ("size", "1024")):
        (partition / key).write_text(f"{text}\n")
    place.unlink()
    place.symlink_to(partition)
    assert identity() == "wwid=naa.5000c500a1b2c3d4; partition=2; start=512; sectors=1024"


@pytest.mark.root
def test_a_volume_without_disk_space_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(("mount", "-t", "tmpfs", "-o", "size=2m", "none", folder), check=False).returncode:
        pytest.skip("cannot mount a tmpfs")
    try:
        target = LocalTarget(folder / "v")
        with pytest.raises(HostError, match="No space left"):
            target.apply(DEFAULT, n_clients=1, volume_nbytes=8 * MIB)
        target.reset()
        target.close()
        assert not (folder / "v").exists()
    finally:
        subprocess.run(("umount", folder), check=True)
