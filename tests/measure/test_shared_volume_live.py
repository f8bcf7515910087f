"""A volume that several clients share on a real cluster."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rbd
from click.testing import CliRunner

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.cli.sweep.shared_volume_command import command
from cephfit.core.units import MIB
from cephfit.core.values.cells import Op
from cephfit.lab.cluster import Lab
from cephfit.measure.sharing_client import LOCK_NAMESPACE, RangeLocks
from cephfit.measure.sharing_runs import ClusterAccess, SharingClients

pytestmark = [pytest.mark.ceph, pytest.mark.root]


@pytest.fixture
def admin(lab_cluster: Lab) -> Iterator[RadosAdmin]:
    connection = RadosAdmin(lab_cluster.conf)
    yield connection
    connection.close()


def lock_objects(admin: RadosAdmin, pool: str) -> list[str]:
    ioctx = admin.cluster.open_ioctx(pool)
    ioctx.set_namespace(LOCK_NAMESPACE)
    try:
        return [found.key for found in ioctx.list_objects()]
    finally:
        ioctx.close()


def test_writers_exclude_each_other_in_a_range_and_readers_do_not(lab_cluster: Lab, admin: RadosAdmin) -> None:
    ioctx = admin.cluster.open_ioctx(lab_cluster.spec.pool)
    ioctx.set_namespace(LOCK_NAMESPACE)
    try:
        writers = [RangeLocks(ioctx, f"w{n}", Op.WRITE) for n in range(2)]
        readers = [RangeLocks(ioctx, f"r{n}", Op.READ) for n in range(2)]
        assert writers[0].acquire([1, 2]) == 0
        assert not writers[1]._try(1) and not readers[0]._try(2)
        assert writers[1].acquire([3]) == 0, "another range is free"
        writers[0].release([1, 2])
        assert [one.acquire([1]) for one in readers] == [0, 0]
        assert not writers[1]._try(1)
        for one in readers:
            one.release([1])
        writers[1].release([3])
    finally:
        for key in lock_objects(admin, lab_cluster.spec.pool):
            ioctx.remove_object(key)
        ioctx.close()


def test_the_exclusive_lock_goes_from_client_to_client(lab_cluster: Lab, admin: RadosAdmin) -> None:
    pool = lab_cluster.spec.pool
    ioctx = admin.cluster.open_ioctx(pool)
    features = rbd.RBD_FEATURE_LAYERING | rbd.RBD_FEATURE_EXCLUSIVE_LOCK
    rbd.RBD().create(ioctx, "handed", 8 * MIB, old_format=False, features=features)

    def owner() -> str:
        with rbd.Image(ioctx, "handed", read_only=True) as image:
            (found,) = image.list_lockers()["lockers"]
            return str(found[0])

    try:
        access = ClusterAccess(lab_cluster.conf, "admin", lab_cluster.keyring, pool)
        with SharingClients(access, 2) as clients:
            clients.open("handed")
            owners = []
            for turn in range(4):
                assert len(clients.burst(turn % 2, 2, nbytes=4096, seed=turn)) == 2
                owners.append(owner())
            clients.close()
        assert owners[0] == owners[2] != owners[1] == owners[3]
    finally:
        rbd.RBD().remove(ioctx, "handed")
        ioctx.close()


def test_the_command_measures_all_ways_and_leaves_nothing(lab_cluster: Lab, admin: RadosAdmin) -> None:
    arguments = ["--target", f"lab:{lab_cluster.folder}", "--clients", "2", "--repeats", "2", "--seconds", "0.5"]
    small = ["--shared", "100", "--range", "1M", "--volume-size", "8M", "--turns", "2", "--json"]
    done = CliRunner().invoke(command, [*arguments, *small], catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.stdout)
    by_way = {cost["way"]: cost for cost in document["costs"]}
    assert set(by_way) == {"none", "exclusive-lock", "ranges"}
    assert by_way["none"]["lock_share"] < 0.01 < by_way["ranges"]["lock_share"]
    assert by_way["ranges"]["relative"]["mean"] < 100, "two more writes for each write"
    assert by_way["ranges"]["busy_per_access"] > 0, "both clients write to the same two ranges"
    assert {one["way"]: one["turns"] for one in document["hand_overs"]} == {"none": 2, "exclusive-lock": 2}
    assert shared_images(admin, lab_cluster.spec.pool) == []
    assert lock_objects(admin, lab_cluster.spec.pool) == []


@pytest.mark.slow
def test_restore_deletes_what_a_killed_command_left(
    lab_cluster: Lab, admin: RadosAdmin, cephfit: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The killed clients have the images open for half a minute."""
    pool, target = lab_cluster.spec.pool, f"lab:{lab_cluster.folder}"
    arguments = ["--target", target, "--clients", "2", "--seconds", "60"]
    ways = ["--way", "ranges", "--way", "exclusive-lock"]
    more = ["--shared", "100", "--range", "1M", "--volume-size", "8M"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cephfit.cli.main", "shared-volume", *arguments, *ways, *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not (lock_objects(admin, pool) and shared_images(admin, pool)) and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    assert len(shared_images(admin, pool)) == 2
    done = cephfit("restore", "--target", target)
    assert done.returncode == 0, done.stderr
    assert shared_images(admin, pool) == []
    assert lock_objects(admin, pool) == []


def shared_images(admin: RadosAdmin, pool: str) -> list[str]:
    ioctx = admin.cluster.open_ioctx(pool)
    try:
        return [name for name in rbd.RBD().list(ioctx) if "shared" in name]
    finally:
        ioctx.close()
