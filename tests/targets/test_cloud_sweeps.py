"""Sweeps on the lab's OpenStack over numbers of guests, volume types with QoS, and options of the Ceph below."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")

from live_cloud import MARKS, cephfit, everything, target_text, until
from openstack.connection import Connection

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.delivery.central_config import stored_settings
from cephfit.core.values.sample import State
from cephfit.lab.cluster import Lab
from cephfit.results.store.sample_store import Store

pytestmark = [*MARKS, pytest.mark.timeout(1500)]

CAPPED = "cephfit-tests-capped"
MOST_IOPS = 60
MEASUREMENT = """
  sizes: [4K]
  patterns: [randread]
  clients: 1
  volume_size: 32M
  repeats: 1
  ramp_seconds: 0.5
  run_seconds: 6
  iodepth: 4
  max_attempts: 5
  cache: warm
"""
COUNTS = f"""
schema_version: 1
name: counts
configurations: {{A: {{}}}}
measurement: {MEASUREMENT}
  seed: 1
  loads:
    two: {{clients: 2}}
    three: {{clients: 3}}
"""
"""The seed has two guests measured first, then one, then three."""
BELOW = f"""
schema_version: 1
name: below
configurations:
  deferred: {{ceph: {{osd: {{bluestore_prefer_deferred_size_hdd: 64K}}}}}}
  no-cache: {{ceph: {{client: {{rbd_cache: false}}}}}}
measurement: {MEASUREMENT.replace("randread", "randwrite")}
  seed: 1
"""


@pytest.fixture
def capped(cloud_admin: Connection) -> Iterator[str]:
    """A volume type on the fast devices that limits each volume to 60 I/Os per second."""
    storage = cloud_admin.block_storage
    spec = storage.create_qos_spec(name=CAPPED, consumer="front-end", total_iops_sec=str(MOST_IOPS))
    made = storage.create_type(name=CAPPED, extra_specs={"volume_backend_name": "ssd"})
    storage.get(f"/qos-specs/{spec.id}/associate", params={"vol_type_id": made.id})
    yield CAPPED
    storage.delete_type(made)
    until(lambda: storage.delete(f"/qos-specs/{spec.id}").status_code in (202, 404))


@pytest.mark.takes(seconds=130)
def test_guests_grow_with_the_loads_and_qos_is_reported(
    cloud_admin: Connection, capped: str, tmp_path: Path
) -> None:
    before = everything(cloud_admin)
    file, store = tmp_path / "counts.yaml", tmp_path / "counts.sqlite"
    file.write_text(COUNTS)
    target = target_text(cloud_admin, volume_type=capped)
    checked = cephfit("cloud", "check", target)
    sentence = f"volumes of type {capped} do at most {MOST_IOPS} I/Os per second"
    assert sentence in checked.stdout
    run = cephfit("sweep", "run", str(file), "--target", target, "--store", str(store))
    assert run.returncode == 0, run.stderr
    assert sentence in run.stderr
    with Store.open(str(store)) as opened:
        (done,) = opened.runs()
        good = [sample for sample in opened.samples(done.run_id) if sample.state is State.OK]
        applied = {a.configuration: a.read_back for _, a in opened.applied(done.run_id)}
    assert sentence in done.facts["limits"]["A"][0]
    qos = applied["A"][f"QoS of volume type {capped}"]["cinder"]
    assert qos["specs"] == {"total_iops_sec": str(MOST_IOPS)}
    assert {(s.key.load, s.key.client) for s in good} == {
        ("", "c0"),
        *(("two", client) for client in ("c0", "c1")),
        *(("three", client) for client in ("c0", "c1", "c2")),
    }
    assert "is being created: 2 servers" in run.stderr
    assert run.stderr.count("is being scaled to 3 servers") == run.stderr.count("is being scaled") == 1
    for sample in good:
        assert sample.metrics is not None
        assert 0.5 * MOST_IOPS < sample.metrics.iops < 1.2 * MOST_IOPS
    places = {(s.key.load, s.key.client): s.evidence["placement"] for s in good}
    assert places["", "c0"]["idle_guests"] == 1
    servers = {place["server"] for place in places.values()}
    assert len(servers) == 3, "existing guests keep their servers when more are added"
    assert {place["host"] for place in places.values()} == {places["", "c0"]["host"]} != {""}
    page = tmp_path / "report.html"
    assert cephfit("report", "--store", str(store), "-o", str(page)).returncode == 0
    assert sentence in page.read_text()
    until(lambda: everything(cloud_admin) == before)


@pytest.mark.takes(seconds=80)
def test_ceph_is_configured_below_its_guests_and_restored_after_a_kill(
    openstack_lab: Lab, cloud_admin: Connection, tmp_path: Path
) -> None:
    before = everything(cloud_admin)
    with_admin = RadosAdmin(openstack_lab.conf)
    stored, pools = stored_settings(with_admin), with_admin.command("osd lspools")
    file, store = tmp_path / "below.yaml", tmp_path / "below.sqlite"
    file.write_text(BELOW)
    target = target_text(cloud_admin, lab=str(openstack_lab.folder))
    argv = [sys.executable, "-m", "cephfit.cli.main", "sweep", "run", str(file), "--target", target]
    with subprocess.Popen([*argv, "--store", str(store)], stderr=subprocess.DEVNULL, env={**os.environ}) as first:
        while stored_settings(with_admin).get(("osd", "bluestore_prefer_deferred_size_hdd")) is None:
            assert first.poll() is None
            time.sleep(0.2)
        first.kill()
    second = cephfit("sweep", "run", str(file), "--target", target, "--store", str(store))
    assert second.returncode == 0, second.stderr
    assert "continuing run" in second.stderr
    with Store.open(str(store)) as opened:
        (done,) = opened.runs()
        samples = opened.samples(done.run_id)
        applied = {a.configuration: a.read_back for _, a in opened.applied(done.run_id)}
    states = {(s.key.configuration, s.state) for s in samples if s.state is not State.INVALID}
    assert states == {("A", State.OK), ("deferred", State.OK), ("no-cache", State.SKIPPED)}
    assert "opened by the compute hosts" in next(s.reason for s in samples if s.state is State.SKIPPED)
    read_back = applied["deferred"]["ceph/osd/bluestore_prefer_deferred_size_hdd = 64K"]
    assert set(read_back.values()) == {"65536"}
    assert done.target.endswith(f"+lab:{openstack_lab.name}")
    assert done.facts["osds"] and done.facts["cloud"]
    assert (stored_settings(with_admin), with_admin.command("osd lspools")) == (stored, pools)
    with_admin.close()
    until(lambda: everything(cloud_admin) == before)


@pytest.mark.cloud_whole
@pytest.mark.takes(seconds=160)
def test_an_existing_ceph_is_configured_below_its_guests(
    openstack_lab: Lab, cloud_admin: Connection, tmp_path: Path
) -> None:
    """Known are a ceph.conf without keys, a key, and a program that restarts OSDs; options go into ceph.conf."""
    from existing_cluster_lab import make_key, restart_program, restarted

    before, daemons_conf = everything(cloud_admin), openstack_lab.conf.read_text()
    with_admin = RadosAdmin(openstack_lab.conf)
    stored, pools = stored_settings(with_admin), with_admin.command("osd lspools")
    conf = tmp_path / "their.conf"
    monitors = re.search(r"^\s*mon_host = .*$", daemons_conf, re.MULTILINE)
    assert monitors is not None
    conf.write_text(f"[global]\n{monitors[0]}\n")
    caps = {"mon": "allow *", "osd": "allow *", "mgr": "allow *"}
    keyring = make_key(openstack_lab, "cephfit", caps, tmp_path)
    file, store = tmp_path / "below.yaml", str(tmp_path / "below.sqlite")
    file.write_text(BELOW)
    way = f"settings=conf,osd_conf={openstack_lab.conf}"
    target = f"{target_text(cloud_admin, ceph=str(conf))},{way}"
    access = ("--id", "cephfit", "--keyring", str(keyring), "--crush-rule", "hdd", "--pg-num", "16")
    access += ("--restarts", str(restart_program(openstack_lab, tmp_path)))
    command = ("sweep", "run", str(file), "--target", target, "--store", store, *access)
    try:
        dry = cephfit(*command)
        assert "bluestore_prefer_deferred_size_hdd" in dry.stdout
        assert everything(cloud_admin) == before, "a dry run creates nothing"
        done = cephfit(*command, "--apply", "--keep")
        assert done.returncode == 0, done.stderr
        with Store.open(store) as opened:
            (run,) = opened.runs()
            good = {s.key.configuration for s in opened.samples(run.run_id) if s.state is State.OK}
            applied = {a.configuration: a.read_back for _, a in opened.applied(run.run_id)}
        assert good == {"A", "deferred"}
        assert run.facts["options_by"] == "conf"
        read_back = applied["deferred"]["ceph/osd/bluestore_prefer_deferred_size_hdd = 64K"]
        assert set(read_back.values()) == {"65536"}
        assert stored_settings(with_admin) == stored, "nothing was set in the config store"
        n_restarts = len(restarted(openstack_lab))
        assert set(restarted(openstack_lab)) == {f"osd.{n}" for n in range(4)}
        back = cephfit("restore", "--target", target, *access, "--apply")
        assert back.returncode == 0, back.stderr
    finally:
        with_admin.command("auth rm", entity="client.cephfit")
    assert len(restarted(openstack_lab)) >= n_restarts
    assert openstack_lab.conf.read_text() == daemons_conf
    assert with_admin.command("osd lspools") == pools
    with_admin.close()
    until(lambda: everything(cloud_admin) == before)
