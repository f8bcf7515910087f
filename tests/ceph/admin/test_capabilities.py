"""Keys with exactly the documented capabilities suffice; with less, the error names what is missing."""

import time
from pathlib import Path

import pytest
from existing_cluster_lab import make_key, open_existing_cluster, restart_program
from key_capabilities import Level, capabilities

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import ClusterError
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.sweep.declaration.sweep_file import parse_sweep

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "capabilities.md"
SWEEP = """
schema_version: 1
name: tiny
accept_risk: [size]
description: one option at run time, one that needs a restart, one pool
configurations:
  A: {}
  B:
    ceph: {osd: {osd_max_backfills: 3, osd_op_num_shards: 3}, mon: {mon_mgr_blocklist_interval: 3600}}
    pool: {size: 1}
measurement: {sizes: [4K], patterns: [randread], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0,
  run_seconds: 1, ioengine: rbd, iodepth: 1, direct: true, cache: cold, seed: 1}
"""
OPTIONS = Configuration(
    "B",
    (
        Setting(Partition.CEPH, "osd", "osd_max_backfills", 3),
        Setting(Partition.CEPH, "osd.0", "osd_op_num_shards", 3),
        Setting(Partition.CEPH, "mon", "mon_mgr_blocklist_interval", 3600),
        Setting(Partition.POOL, "pool", "size", 1),
    ),
)
IMAGES = Configuration(
    "C",
    (
        Setting(Partition.CEPH, "client", "rbd_cache", True),
        Setting(Partition.POOL, "image", "object_size", "1M"),
    ),
)


@pytest.mark.parametrize("level", Level)
def test_the_document_has_the_tested_capabilities(level: Level) -> None:
    words = " ".join(f"{daemon} '{caps}'" for daemon, caps in capabilities(level, pool="bench").items())
    assert f"ceph auth get-or-create client.cephfit {words}" in DOCUMENT.read_text()


def test_reading_suffices_for_a_preview(lab_cluster: Lab, tmp_path: Path) -> None:
    keyring = make_key(lab_cluster, "look", capabilities(Level.READ), tmp_path)
    program = str(restart_program(lab_cluster, tmp_path))
    target = open_existing_cluster(
        lab_cluster, client_id="look", keyring=keyring, for_change=False, restarts=program
    )
    try:
        sweep = parse_sweep(SWEEP, file="tiny")
        assert not target.unsupported(sweep.configurations)
        preview = target.preview(sweep)
        assert preview.health.ok
        assert preview.restarts == {"B": (0, 1, 2, 3)}
        assert any("the caches of all 4 OSDs are dropped 2 times" in note for note in preview.notes)
        assert all(pool.n_pgs > 0 and pool.pgs_per_osd > 0 for pool in preview.pools)
        warm = target.preview(parse_sweep(SWEEP.replace("cold", "warm"), file="tiny"))
        assert any("fit into those of the" in note for note in warm.notes), "16 MiB in what OSDs take at least"
        assert target.catalogue().all()
        assert target.facts()["fsid"] == lab_cluster.fsid
        assert all(osd["osd_memory_target"] > 0 for osd in target.facts()["osds"])
    finally:
        target.close()


@pytest.mark.parametrize("value", ["false", "true"])
def test_a_preview_warns_of_osds_that_leave_deferred_writes(lab_cluster: Lab, tmp_path: Path, value: str) -> None:
    program = str(restart_program(lab_cluster, tmp_path))
    admin = RadosAdmin(lab_cluster.conf)
    target = open_existing_cluster(lab_cluster, for_change=False, restarts=program)
    option = {"who": "osd.1", "name": "osd_fast_shutdown"}
    try:
        admin.command("config set", value=value, **option)
        until = time.monotonic() + 30
        while {e["name"]: e["value"] for e in admin.command("config show", who="osd.1")}[option["name"]] != value:
            assert time.monotonic() < until
            time.sleep(0.1)
        notes = [n for n in target.preview(parse_sweep(SWEEP, file="tiny")).notes if "deferred writes" in n]
        assert [n.split(" leave ")[0] for n in notes] == (["1 of the restarted OSDs"] if value == "true" else [])
    finally:
        admin.command("config rm", **option)
        target.close()
        admin.close()


def test_the_pools_capabilities_suffice_for_only_pool(lab_cluster: Lab, tmp_path: Path) -> None:
    keyring = make_key(lab_cluster, "one", capabilities(Level.ONLY_POOL, pool="rbd"), tmp_path)
    target = open_existing_cluster(lab_cluster, client_id="one", keyring=keyring, only_pool="rbd")
    try:
        warm = parse_sweep(SWEEP.replace("cold", "warm"), file="tiny")
        assert any("OSDs of pool rbd" in note for note in target.preview(warm).notes)
        applied = target.apply(IMAGES, n_clients=1, volume_nbytes=16 * MIB)
        assert applied.ok, applied.mismatches
        assert target.health().ok
        assert set(applied.read_back) == {str(s) for s in IMAGES.settings}
        target.reset()
    finally:
        target.close()


def test_full_capabilities_suffice_for_options_restarts_and_pools(lab_cluster: Lab, tmp_path: Path) -> None:
    keyring = make_key(lab_cluster, "full", capabilities(Level.FULL), tmp_path)
    program = str(restart_program(lab_cluster, tmp_path))
    target = open_existing_cluster(lab_cluster, client_id="full", keyring=keyring, restarts=program)
    try:
        applied = target.apply(OPTIONS, n_clients=1, volume_nbytes=16 * MIB)
        assert applied.ok, applied.mismatches
        assert applied.restarted == ("osd.0",)
        target.drop_caches()
        assert [c.fio_options["clientname"] for c in target.clients()] == ["full"]
        target.reset()
    finally:
        target.close()


@pytest.mark.parametrize("level", [Level.ONLY_POOL, Level.FULL])
def test_the_osds_counts_of_images_are_open_to_whoever_may_measure(
    lab_cluster: Lab, tmp_path: Path, level: Level
) -> None:
    keyring = make_key(lab_cluster, "counts", capabilities(level, pool="rbd"), tmp_path)
    admin = RadosAdmin(lab_cluster.conf, client_id="counts", keyring=keyring)
    try:
        said = admin.tell("mgr", "rbd perf image counters", pool_spec="rbd")
        assert "read_bytes" in said["counter_descriptors"]
        manager = admin.command("mgr dump")["active_name"]
        period = admin.command("config show", who=f"mgr.{manager}", key="mgr_stats_period")
        assert float(period) == 1, "as the lab's ceph.conf has it"
    finally:
        admin.close()


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("mon", "mon 'allow r"),
        ("osd", "osd 'allow *'"),
    ],
)
def test_too_little_is_named(lab_cluster: Lab, tmp_path: Path, missing: str, said: str) -> None:
    less = {**capabilities(Level.FULL)}
    less[missing] = {"mon": capabilities(Level.ONLY_POOL)["mon"], "osd": "profile rbd"}[missing]
    keyring = make_key(lab_cluster, "less", less, tmp_path)
    target = open_existing_cluster(lab_cluster, client_id="less", keyring=keyring)
    try:
        applied_or_raised: str
        try:
            applied = target.apply(
                Configuration("B", OPTIONS.settings[:1]), n_clients=1, volume_nbytes=16 * MIB, fill=False
            )
            applied_or_raised = "; ".join(applied.mismatches)
        except ClusterError as error:
            applied_or_raised = str(error)
        assert "lacks the capability" in applied_or_raised
        assert said in applied_or_raised
    finally:
        target.close()
        again = open_existing_cluster(lab_cluster)
        again.reset()
        again.close()


def test_without_the_lock_nothing_is_begun(lab_cluster: Lab, tmp_path: Path) -> None:
    keyring = make_key(lab_cluster, "look", capabilities(Level.READ), tmp_path)
    with pytest.raises(ClusterError, match=r'lacks the capability mon .*"config-key dump" with key=cephfit/lock/'):
        open_existing_cluster(lab_cluster, client_id="look", keyring=keyring)
