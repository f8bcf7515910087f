"""Pools on separate devices, erasure-coded and tiered, on the real lab: created as declared, fully removed."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import rbd
from cluster_state import state_of
from kill_at_work import kill_at_work

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.crush.live_map import LiveMap, try_rule
from cephfit.ceph.volumes import Volume, Volumes
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Applied
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

SSD = {"devices.class": "ssd", "size": 2, "pg_num": 16}
CODED = {"erasure.k": 2, "erasure.m": 1, "failure_domain": "osd", "pg_num": 16}
TIERED = {
    "devices.class": "hdd", "size": 2, "pg_num": 16, "cache.devices.class": "ssd", "cache.size": 2,
    "cache.pg_num": 8, "cache.mode": "writeback", "cache.target_max_bytes": "256M", "cache.hit_set_count": 8,
    "cache.hit_set_period": 600, "cache.cache_target_dirty_ratio": 0.3, "cache.cache_target_full_ratio": 0.7,
    "cache.cache_min_flush_age": 5, "cache.cache_min_evict_age": 6, "cache.min_read_recency_for_promote": 1,
    "cache.min_write_recency_for_promote": 1, "cache.target_max_objects": 1000,
}  # fmt: skip


def pool(name: str, settings: dict[str, Any]) -> Configuration:
    return Configuration(name, tuple(sorted(Setting(Partition.POOL, "pool", k, v) for k, v in settings.items())))


def apply(target: LabTarget, name: str, settings: dict[str, Any], *, fill: bool = False) -> Applied:
    applied = target.apply(pool(name, settings), n_clients=1, volume_nbytes=32 * MIB, fill=fill)
    assert applied.ok, applied.mismatches
    return applied


@pytest.fixture
def admin(lab_cluster: Lab) -> Iterator[RadosAdmin]:
    admin = RadosAdmin(lab_cluster.conf)
    yield admin
    admin.close()


@pytest.fixture
def crush_map(admin: RadosAdmin) -> Iterator[bytes]:
    """The map before; it must be the same, byte for byte, when the test and the target's reset are over."""
    before = admin.exchange("osd getcrushmap")
    yield before
    assert admin.exchange("osd getcrushmap") == before


def test_a_pool_on_a_class_uses_that_class_and_restores_the_map(
    crush_map: bytes, target: LabTarget, lab_cluster: Lab
) -> None:
    before = state_of(lab_cluster)
    applied = apply(target, "ssd", SSD)
    ssds = " ".join(f"osd.{o}" for o in lab_cluster.osd_ids() if lab_cluster.device_class(o) == "ssd")
    (found,) = applied.read_back["pool/pool/devices.class = ssd"].values()
    assert found == ssds
    target.reset()
    assert state_of(lab_cluster) == before


def test_a_pool_that_was_created_again_gets_an_image(lab_cluster: Lab, admin: RadosAdmin) -> None:
    """The map of the connection still has the deleted pool of the same name."""
    plain = Configuration("A")
    admin.command("config set", who="mon", name="mon_allow_pool_delete", value="true")
    try:
        for _ in range(6):
            admin.command("osd pool create", pool="created-again", pg_num=8)
            volume = Volume("created-again", "first", 4 * MIB)
            Volumes(admin).ensure(plain, volume)
            assert Volumes(admin).exists(volume)
            admin.command(
                "osd pool delete", pool="created-again", pool2="created-again", yes_i_really_really_mean_it=True
            )
    finally:
        admin.command("config rm", who="mon", name="mon_allow_pool_delete")


def test_an_image_on_an_erasure_code_has_its_data_there_and_its_metadata_in_copies(
    crush_map: bytes, target: LabTarget, admin: RadosAdmin
) -> None:
    applied = apply(target, "coded", CODED, fill=True)
    (data_pool,) = applied.read_back["pool/pool/erasure.k = 2"]
    assert set(applied.read_back["pool/pool/erasure.k = 2"].values()) == {"2"}
    stored = {p["name"]: p["stats"] for p in admin.command("df")["pools"]}
    until = time.monotonic() + 30
    while stored[data_pool]["stored"] < 32 * MIB and time.monotonic() < until:
        time.sleep(1)
        stored = {p["name"]: p["stats"] for p in admin.command("df")["pools"]}
    assert 32 * MIB <= stored[data_pool]["stored"] < 33 * MIB
    assert stored[data_pool.removesuffix("-data")]["stored"] < MIB
    raw = stored[data_pool].get("bytes_used") or 0
    assert 1.4 * 32 * MIB < raw < 1.7 * 32 * MIB, "three chunks for two, not copies"
    target.reset()
    assert admin.command("osd erasure-code-profile ls") == ["default"]


@pytest.mark.slow
def test_a_rule_that_was_there_before_an_erasure_coded_pool_stays(
    crush_map: bytes, target: LabTarget, admin: RadosAdmin
) -> None:
    """Monitors since 20.2.4 remove the rule of an erasure-coded pool together with the pool."""
    code = ["k=2", "m=1", "crush-failure-domain=osd"]
    admin.command("osd erasure-code-profile set", name="theirs", profile=code)
    admin.command("osd crush rule create-erasure", name="theirs", profile="theirs")
    try:
        rules = admin.command("osd crush rule dump")
        apply(target, "theirs", {"erasure.k": 2, "erasure.m": 1, "crush_rule": "theirs", "pg_num": 8})
        target.reset()
        assert admin.command("osd crush rule dump") == rules
    finally:
        target.reset()
        admin.exchange("osd setcrushmap", crush_map)
        admin.command("osd erasure-code-profile rm", name="theirs")


def objects_in(admin: RadosAdmin, pool: str) -> int:
    """As Ceph reckons."""
    return int({p["name"]: p["stats"]["objects"] for p in admin.command("df")["pools"]}[pool])


def test_a_cache_tier_has_every_parameter_and_takes_the_writes(
    crush_map: bytes, target: LabTarget, admin: RadosAdmin
) -> None:
    applied = apply(target, "tiered", TIERED, fill=True)
    declared = {key: value for key, value in TIERED.items() if key.startswith("cache.")}
    assert {f"pool/pool/{key} = {value}" for key, value in declared.items()} <= set(applied.read_back)
    pools = {p["pool_name"]: p for p in admin.command("osd dump")["pools"]}
    (cache,) = [p for name, p in pools.items() if name.endswith("-cache")]
    base = pools[cache["pool_name"].removesuffix("-cache")]
    assert (cache["cache_mode"], base["read_tier"], base["write_tier"]) == (
        "writeback", cache["pool"], cache["pool"],
    )  # fmt: skip
    until = time.monotonic() + 30
    while not objects_in(admin, cache["pool_name"]) and time.monotonic() < until:
        time.sleep(0.5)  # the OSDs report every few seconds what their pools hold
    assert objects_in(admin, cache["pool_name"]) > 0
    apply(target, "ssd", SSD)  # another configuration while the tier is there


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["readproxy", "readonly"])
def test_the_other_modes_of_a_cache_tier(crush_map: bytes, target: LabTarget, mode: str) -> None:
    settings = {
        key: TIERED[key] for key in ("size", "pg_num", "cache.devices.class", "cache.size", "cache.pg_num")
    }
    applied = apply(target, mode, {**settings, "cache.mode": mode, "cache.target_max_bytes": "256M"})
    assert set(applied.read_back[f"pool/pool/cache.mode = {mode}"].values()) == {mode}


def test_compression_takes_effect_on_what_is_written(
    target: LabTarget, admin: RadosAdmin, crush_map: bytes
) -> None:
    wanted = {
        "compression_mode": "force", "compression_algorithm": "zlib", "compression_required_ratio": 0.8,
        "compression_min_blob_size": "16K", "size": 2, "pg_num": 16,
    }  # fmt: skip
    applied = apply(target, "compressed", wanted)
    assert len(applied.read_back) == len(wanted)
    name = next(iter(applied.read_back["pool/pool/compression_mode = force"]))
    with admin.cluster.open_ioctx(name) as ioctx:
        rbd.RBD().create(ioctx, "text", 16 * MIB)
        with rbd.Image(ioctx, "text") as image:
            for at in range(0, 16 * MIB, MIB):
                image.write(b"compressible " * (MIB // 13), at)
    until = time.monotonic() + 30
    stats: dict[str, Any] = {}
    while time.monotonic() < until and not stats.get("compress_bytes_used"):
        time.sleep(1)
        stats = next(p["stats"] for p in admin.command("df", detail="detail")["pools"] if p["name"] == name)
    assert 0 < stats["compress_bytes_used"] <= 0.5 * stats["compress_under_bytes"], stats


def test_the_list_of_pools_shows_where_the_rules_place_them(target: LabTarget, admin: RadosAdmin) -> None:
    """Also on a cluster whose OSD map this machine's osdmaptool cannot read."""
    apply(target, "ssd", SSD)
    live = LiveMap(admin.exchange("osd getcrushmap"))
    dumped = {p["pool_name"]: p for p in admin.command("osd dump")["pools"]}
    descriptions = {p.name: p for p in target.pool_descriptions()}
    assert descriptions.keys() == dumped.keys()
    assert len(descriptions) >= 2
    for name, pool_ in dumped.items():
        places, _ = try_rule(
            live.binary, pool_["crush_rule"], size=pool_["size"], n_inputs=pool_["pg_num"], pool=pool_["pool"]
        )
        classes = Counter(live.class_of[osd] for osds in places.values() for osd in osds)
        assert descriptions[name].classes == classes
        assert descriptions[name].primary_classes == Counter(live.class_of[osds[0]] for osds in places.values())
        assert descriptions[name].kind == "2 copies"
    target.reset()


def test_what_the_rule_cannot_place_is_reported_and_nothing_is_injected(
    crush_map: bytes, target: LabTarget, admin: RadosAdmin
) -> None:
    impossible = [
        pool("many", {"devices.class": "ssd", "size": 3}),
        pool("coded", {"devices.class": "hdd", "erasure.k": 2, "erasure.m": 1, "failure_domain": "osd"}),
        pool("mixed", {"devices.class": "hdd", "primary.class": "ssd", "size": 2}),
        pool("nvme", {"devices.class": "nvme"}),
    ]
    why = target.unsupported(impossible)
    assert "finds fewer than 3 OSDs for 4096 of 4096" in why["many"][0]
    assert "finds fewer than 3 OSDs" in why["coded"][0]
    assert "two copies into one host" in why["mixed"][0]
    assert "no OSD is of class 'nvme'" in why["nvme"][0]
    assert not target.apply(impossible[0], n_clients=1, volume_nbytes=MIB).ok
    assert admin.exchange("osd getcrushmap") == crush_map


def test_a_map_that_another_client_changed_meanwhile_keeps_that_change(
    lab_cluster: Lab, target: LabTarget, admin: RadosAdmin
) -> None:
    original = admin.exchange("osd getcrushmap")
    before = LiveMap(original)
    apply(target, "ssd", {**SSD, "devices.osds": "2,3"})
    admin.command("osd crush add-bucket", name="theirs", type="host")
    try:
        target.reset()
        after = LiveMap(admin.exchange("osd getcrushmap"))
        assert "theirs" in after.buckets
        assert after.rules == before.rules
        assert set(after.buckets) == {*before.buckets, "theirs"}
    finally:
        admin.exchange("osd setcrushmap", original)  # Ceph gives a map weight sets when it adds a bucket


def test_a_rule_that_another_pool_uses_is_not_removed(
    crush_map: bytes, target: LabTarget, admin: RadosAdmin
) -> None:
    apply(target, "ssd", SSD)
    rule = next(r for r in admin.command("osd crush rule ls") if r.startswith("cephfit-"))
    admin.command("osd pool set", pool="rbd", var="crush_rule", val=rule)
    with pytest.raises(ClusterError, match="pool rbd uses a CRUSH rule that cephfit created"):
        target.reset()
    admin.command("osd pool set", pool="rbd", var="crush_rule", val="hdd")


def test_declared_pools_stay_through_a_restore_and_go_whole_when_removed(
    crush_map: bytes, lab_cluster: Lab, admin: RadosAdmin, target: LabTarget
) -> None:
    before = state_of(lab_cluster)
    declared = {
        "kept-ssd": {"devices.class": "ssd", "size": "2", "pg_num": "8"},
        "kept-coded": {"erasure.k": "2", "erasure.m": "1", "failure_domain": "osd", "pg_num": "8"},
    }
    pools = target.declared_pools()
    plan = pools.plan(declared)
    assert not plan.faults
    assert plan.proposal is not None
    assert plan.proposal.moved.n_pgs == 0
    assert state_of(lab_cluster) == before, "a plan changes nothing"
    pools.apply(declared)
    predicted = {t.rule: t.pgs for t in plan.proposal.trials}["kept-ssd"]
    listed = admin.command("pg ls-by-pool", poolstr="kept-ssd")["pg_stats"]
    assert {int(pg["pgid"].partition(".")[2], 16): tuple(pg["up"]) for pg in listed} == predicted

    apply(target, "ssd", SSD)
    target.reset()
    assert {"kept-ssd", "kept-coded", "kept-coded-data"} <= {p["poolname"] for p in admin.command("osd lspools")}
    assert all(not change.values for change in pools.plan(declared).changes), "applied again, nothing would change"
    pools.remove(declared)
    assert state_of(lab_cluster) == before


def test_a_pool_that_was_there_moves_as_planned_and_comes_back(
    crush_map: bytes, admin: RadosAdmin, target: LabTarget
) -> None:
    with admin.cluster.open_ioctx("rbd") as ioctx:
        for n in range(8):
            ioctx.write_full(f"object-{n}", os.urandom(MIB))
    declared = {"rbd": {"devices.class": "ssd", "size": "2", "compression_mode": "aggressive"}}
    pools = target.declared_pools()
    try:
        assert "cephfit does not change it without --adopt" in pools.plan(declared).faults[0]
        until = time.monotonic() + 60
        while abs(nbytes_of_pgs(admin, "rbd") - 8 * MIB) > 2048 and time.monotonic() < until:
            time.sleep(1)  # OSDs report the new objects, and those that other tests deleted, every few seconds
        (change,) = pools.plan(declared, adopt=frozenset({"rbd"})).changes
        assert change.moved.n_pgs == 32, "no hdd is an ssd"
        # In addition to the image's data there are its metadata, and leftovers of other tests.
        assert change.moved.nbytes == pytest.approx(2 * 8 * MIB, abs=4096)
        pools.apply(declared, adopt=frozenset({"rbd"}))
        assert admin.command("osd pool get", pool="rbd", var="crush_rule")["crush_rule"] == "rbd"
    finally:
        pools.remove(declared)
        with admin.cluster.open_ioctx("rbd") as ioctx:
            for n in range(8):
                ioctx.remove_object(f"object-{n}")
        _await_clean(admin)
    assert admin.command("osd pool get", pool="rbd", var="crush_rule")["crush_rule"] == "hdd"


def nbytes_of_pgs(admin: RadosAdmin, pool_name: str) -> int:
    """Return the bytes of one copy of a pool, as its OSDs last reported them."""
    stats = admin.command("pg ls-by-pool", poolstr=pool_name)["pg_stats"]
    return sum(pg["stat_sum"]["num_bytes"] for pg in stats)


def _await_clean(admin: RadosAdmin) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        states = admin.command("status")["pgmap"]["pgs_by_state"]
        if [s["state_name"] for s in states] == ["active+clean"]:
            return
        time.sleep(0.5)


FOR_EVER = """
import itertools, sys
from pathlib import Path
from test_pools_on_lab import CODED, SSD, TIERED, pool
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget

target = LabTarget(Lab.open(folder=Path(sys.argv[1])))
tried = [pool("ssd", SSD), pool("coded", CODED), pool("tiered", TIERED), pool("picked", {"devices.osds": "0,3"})]
print("ready", flush=True)
for configuration in itertools.cycle(tried):
    applied = target.apply(configuration, n_clients=1, volume_nbytes=16 << 20, fill=False)
    assert applied.ok, applied
    if configuration.name == "picked":
        target.reset()
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_restore_leaves_nothing_after_a_kill_at_any_point_of_creation_or_deletion(lab_cluster: Lab) -> None:
    admin = RadosAdmin(lab_cluster.conf)
    before, map_before = state_of(lab_cluster), admin.exchange("osd getcrushmap")
    dice = random.Random(4)
    try:
        for _ in range(6):
            kill_at_work(FOR_EVER, lab_cluster.folder, after_seconds=dice.uniform(0.5, 25.0))
            target = LabTarget(lab_cluster)
            target.reset()
            assert target.health().ok
            target.close()
            assert state_of(lab_cluster) == before
            assert admin.exchange("osd getcrushmap") == map_before
            assert admin.command("osd erasure-code-profile ls") == ["default"]
    finally:
        admin.close()
