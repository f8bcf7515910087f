"""The target openstack on the lab's real OpenStack, by the command line."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, n_samples, started, target_text, until
from openstack.connection import Connection

from cephfit.cloud.cloud_choice import parse_choice
from cephfit.cloud.cloud_cleanup import clean
from cephfit.cloud.owned_resources import owned
from cephfit.core.protocols import NullProgress
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import State
from cephfit.measure.fio.fio_remote import BY_CLIENTS
from cephfit.results.store.sample_store import Store
from cephfit.targets.openstack_target import OpenStackTarget

pytestmark = [*MARKS, pytest.mark.timeout(1500)]

SWEEP = """
schema_version: 1
name: two-types
configurations:
  ssd: {volume: {type: ssd}}
measurement:
  sizes: [4K]
  patterns: [randread, randwrite]
  clients: 2
  volume_size: 32M
  repeats: 1
  ramp_seconds: 0.5
  run_seconds: 6
  iodepth: 16
  max_attempts: 5
  cache: warm
  seed: 7
"""
MARGIN = 1.25
"""Minimum speedup of the fast class; 1.6 and more was measured on a machine that was busy with other work."""


@pytest.mark.core
@pytest.mark.takes(seconds=170)
def test_two_volume_types_are_measured_and_a_killed_sweep_continues(
    cloud_admin: Connection, tmp_path: Path
) -> None:
    before = everything(cloud_admin)
    file, store = tmp_path / "types.yaml", tmp_path / "types.sqlite"
    file.write_text(SWEEP)
    command = ("sweep", "run", str(file), "--target", target_text(cloud_admin), "--store", str(store))
    first = started(*command)
    while n_samples(store) == 0:
        assert first.poll() is None, first.communicate()
        time.sleep(1)
    first.kill()
    first.communicate()
    done = n_samples(store)

    second = cephfit(*command)
    errors = second.stderr
    assert second.returncode == 0, errors
    assert "continuing run" in errors
    assert "filling" not in errors.split("stack ")[0], "the volumes of the first configuration were filled already"

    with Store.open(str(store)) as opened:
        (run,) = opened.runs()
        samples = list(opened.samples(run.run_id))
    assert len(samples) > done
    good = [sample for sample in samples if sample.state is State.OK]
    assert {(s.key.configuration, str(s.key.cell), s.key.client) for s in good} == {
        (c, cell, client)
        for c in ("A", "ssd")
        for cell in ("4K-randread", "4K-randwrite")
        for client in ("c0", "c1")
    }
    for sample in good:
        assert sample.metrics is not None
        count = sample.evidence["independent_count"]
        assert "hypervisor" in count["source"]
        moved = sample.metrics.nbytes_per_s * sample.metrics.runtime_ns / 1e9
        assert count["total_nbytes"] >= 0.99 * moved
        assert sample.evidence["results_by"] == "server"
        together = sample.evidence["together"][BY_CLIENTS]
        assert set(together["clocks"]) == {"c0", "c1"}
        for clock in together["clocks"].values():
            assert abs(clock["ahead_seconds"]) <= 3 + clock["uncertainty_seconds"]
        assert together["start_skew_at_least_seconds"] <= together["start_skew_seconds"]
        assert together["start_skew_seconds"] <= together["start_skew_at_most_seconds"]
    for cell in ("4K-randread", "4K-randwrite"):
        iops = {"A": 0.0, "ssd": 0.0}
        for sample in good:
            if str(sample.key.cell) == cell and sample.metrics is not None:
                iops[sample.key.configuration] += sample.metrics.iops
        assert iops["ssd"] > MARGIN * iops["A"], f"{cell}: disks of 3000 and of 500 I/Os per second, {iops}"
    until(lambda: everything(cloud_admin) == before)


@pytest.mark.core
@pytest.mark.takes(seconds=50)
def test_clean_deletes_only_the_resources_of_a_run(cloud_user: Connection) -> None:
    mine: list[Callable[[], Any]] = []
    other = cloud_user.block_storage.create_volume(size=1, name="cephfit-lost-0", volume_type="hdd")
    mine.append(lambda: cloud_user.block_storage.delete_volume(other))
    group = cloud_user.network.create_security_group(name="cephfit-lost-and-found")
    mine.append(lambda: cloud_user.network.delete_security_group(group))
    later = cloud_user.block_storage.create_volume(
        size=1, name="cephfit-lost-2-0", volume_type="hdd", metadata={"cephfit_run": "lost-2"}
    )
    mine.append(lambda: cloud_user.block_storage.delete_volume(later))
    try:
        before = everything(cloud_user)
        target = OpenStackTarget(parse_choice(target_text(cloud_user)))
        target.begin("lost")
        target.apply(Configuration("A"), n_clients=1, volume_nbytes=32 * MIB)
        target.close()  # as after a kill: nothing resets it
        cloud_user.block_storage.create_volume(
            size=1, name="stray", volume_type="ssd", metadata={"cephfit_run": "lost"}
        )  # what a stack lost sight of

        kinds = {thing.kind for thing in owned(cloud_user, "lost")}
        assert kinds == {"stack", "server", "port", "security group", "server group", "volume"}
        listing = cephfit("cloud", "list", "--cloud", str(cloud_user.config.name), "--json")
        assert set(json.loads(listing.stdout)) == {"lost", "lost-2"}

        gone, left = clean(cloud_user, "lost", NullProgress())
        assert not left
        assert {thing.kind for thing in gone} >= {"stack", "volume"}
        until(lambda: everything(cloud_user) == before)
        assert owned(cloud_user, "lost") == ()
    finally:
        for delete in mine:
            delete()
        for volume in (other, later):
            cloud_user.block_storage.wait_for_delete(volume, wait=120)
    restored = cephfit("restore", "--target", f"openstack:{cloud_user.config.name}")
    assert restored.returncode == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"image": "cephfit-gest"}, "has no image cephfit-gest.*did you mean 'cephfit-guest'"),
        ({"flavor": "cephfit.tny"}, "has no flavor cephfit.tny.*did you mean 'cephfit.tiny'"),
        ({"network": "labb"}, "has no network labb.*did you mean 'lab'"),
        ({"volume_type": "sdd"}, "has no volume type sdd.*did you mean 'ssd'"),
    ],
)
def test_missing_resources_are_reported_before_anything_is_created(
    cloud_user: Connection, tmp_path: Path, wrong: dict[str, str], words: str
) -> None:
    before = everything(cloud_user)
    file = tmp_path / "types.yaml"
    file.write_text(SWEEP.replace("  ssd: {volume: {type: ssd}}\n", "  A: {}\n"))
    store = str(tmp_path / "types.sqlite")
    run = cephfit("sweep", "run", str(file), "--target", target_text(cloud_user, **wrong), "--store", store)
    errors = run.stderr
    assert run.returncode == 2
    assert re.search(words, errors, re.DOTALL), errors
    assert "Traceback" not in errors
    until(lambda: everything(cloud_user) == before)


def test_an_insufficient_quota_is_reported_with_its_numbers(cloud_user: Connection) -> None:
    check = cephfit("cloud", "check", target_text(cloud_user), "--clients", "25", "--volume-size", "5G")
    errors = check.stderr
    assert check.returncode == 2
    assert re.search(r"25 more instances are needed, \d+ of 24 are free", errors)
    assert re.search(r"125 more GiB of volumes are needed, \d+ of 96 are free", errors)


def test_an_unknown_host_is_refused_with_the_hosts_of_the_zone(cloud_admin: Connection) -> None:
    (zone,) = (one.name for one in cloud_admin.compute.availability_zones())
    hosts = sorted(one.host for one in cloud_admin.compute.services() if one.binary == "nova-compute")
    check = cephfit("cloud", "check", target_text(cloud_admin, zone=f"{zone}:no-such-host"))
    assert check.returncode == 2
    words = f"availability zone {zone} has no enabled compute host no-such-host; it has {', '.join(hosts)}"
    assert words in check.stderr
    there = cephfit("cloud", "check", target_text(cloud_admin, zone=f"{zone}:{hosts[0]}"))
    assert there.returncode == 0, there.stderr
