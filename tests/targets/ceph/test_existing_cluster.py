"""`cephfit` on an existing cluster: no change without permission, and no remains."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster_state import await_clean, state_of
from existing_cluster_lab import open_existing_cluster, restart_program, restarted
from rest_server import rest_api

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.delivery.osd_restarts import pools_that_would_stop
from cephfit.core.errors import ClusterError
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.sample import State
from cephfit.lab.cluster import Lab
from cephfit.results.store.sample_store import Store

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

SWEEP = """
schema_version: 1
name: existing
description: something at run time, something at start, a pool, an image setting
configurations:
  A: {}
  restart:
    ceph: {"osd/class:hdd": {osd_op_num_shards: 3}}
  runtime:
    ceph: {osd: {bluestore_prefer_deferred_size_hdd: 0}, client: {rbd_cache: true}}
    pool: {crush_rule: ssd}
    image: {object_size: 1M}
measurement: {sizes: [4K], patterns: [randwrite], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0.2,
  run_seconds: 0.5, ioengine: rbd, iodepth: 4, direct: true, cache: CACHE, seed: 1, max_attempts: 10}
"""
SHARDS = Configuration("shards", (Setting(Partition.CEPH, "osd.0", "osd_op_num_shards", 3),))


class Cluster:
    """The lab's cluster and the command line."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.program = str(restart_program(lab, folder))

    def sweep(self, cache: str = "cold") -> Path:
        path = self.folder / f"{cache}.yaml"
        path.write_text(SWEEP.replace("CACHE", cache))
        return path

    def __call__(self, *words: object, pools: bool = True) -> subprocess.CompletedProcess[str]:
        more = ["--crush-rule", "hdd", "--pg-num", "16"] if pools else []
        where = ["--target", "ceph:lab", "--conf", self.lab.conf, *more]
        argv = [sys.executable, "-m", "cephfit.cli.main", *map(str, [*words, *where])]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)

    def state(self) -> dict[str, Any]:
        admin = RadosAdmin(self.lab.conf)
        try:
            states = [o["state"] for o in admin.command("osd dump")["osds"]]
            return {
                **state_of(self.lab),
                "flags": states,
                "locks": admin.command("config-key dump", key="cephfit/"),
            }
        finally:
            admin.close()

    def command(self, prefix: str, **arguments: Any) -> Any:
        admin = RadosAdmin(self.lab.conf)
        try:
            return admin.command(prefix, **arguments)
        finally:
            admin.close()


@pytest.fixture
def cluster(lab_cluster: Lab, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(lab_cluster, tmp_path)
    before = cluster.state()
    yield cluster
    assert cluster.state() == before, "nothing is left behind"


def state_files(lab: Lab) -> Sequence[str]:
    folder = Path(os.environ["XDG_STATE_HOME"]) / "cephfit" / "clusters" / lab.fsid
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else ()


def test_without_apply_it_shows_the_plan_and_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    before, earlier = cluster.state(), restarted(cluster.lab)
    store = tmp_path / "results.sqlite"
    done = cluster("sweep", "run", cluster.sweep(), "--store", store, "--restarts", cluster.program, "--json")
    assert done.returncode == 0, done.stderr
    preview = json.loads(done.stdout)["on_the_cluster"]
    assert preview["healthy"]
    hdds = [osd for osd in cluster.lab.osd_ids() if cluster.lab.device_class(osd) == "hdd"]
    assert preview["restarts"] == {"restart": hdds}
    assert preview["osd_restarts"] == 2 * len(hdds), "apply and undo"
    assert preview["moved_nbytes"] == 0
    differences = {
        (d["configuration"], d["place"], d["key"]): (d["now"], d["then"]) for d in preview["differences"]
    }
    assert differences == {
        ("restart", "osd (class hdd)", "osd_op_num_shards"): ("0", "3"),
        ("runtime", "osd (class hdd)", "bluestore_prefer_deferred_size_hdd"): ("65536", "0"),
        ("runtime", "osd (class ssd)", "bluestore_prefer_deferred_size_hdd"): ("65536", "0"),
        ("runtime", "clients", "rbd_cache"): ("false", "true"),
        ("runtime", "images", "object_size"): ("", "1M"),
    }
    pools = {tuple(p["configurations"]): (p["nbytes"], p["raw_nbytes"]) for p in preview["pools"]}
    assert pools == {("A", "restart"): (32 * MIB, 64 * MIB), ("runtime",): (16 * MIB, 32 * MIB)}
    assert cluster.state() == before
    assert not store.exists()
    assert restarted(cluster.lab) == earlier
    text = cluster("sweep", "run", cluster.sweep(), "--store", store).stdout
    assert text.endswith("Nothing was changed. Run the same command with --apply to do it.\n")
    assert "this target cannot restart OSDs" in text


@pytest.mark.slow  # the ceph program takes a second per command on a busy machine
def test_all_admin_connections_report_the_same(cluster: Cluster) -> None:
    seen = {}
    with rest_api(cluster.lab.conf) as url:
        for way, more in (("rados", ()), ("ceph", ()), ("rest", ("--rest-url", url))):
            done = cluster("sweep", "plan", cluster.sweep(), "--json", "--admin", way, *more)
            assert done.returncode == 0, done.stderr
            seen[way] = json.loads(done.stdout)["on_the_cluster"]
    assert seen["rados"] == seen["ceph"] == seen["rest"]
    assert len(seen["rados"]["differences"]) == 4


def test_with_apply_it_measures_and_restores_everything(cluster: Cluster, tmp_path: Path) -> None:
    store = tmp_path / "results.sqlite"
    log = cluster.lab.folder / "restarts.log"
    log.unlink(missing_ok=True)
    done = cluster(
        "sweep", "run", cluster.sweep(), "--store", store, "--restarts", cluster.program, "--apply", "--json"
    )
    assert done.returncode == 0, done.stderr
    with Store.open(store) as opened:
        samples = opened.samples(opened.run().run_id)
    assert {s.key.configuration for s in samples if s.state is State.OK} == {"A", "restart", "runtime"}
    hdds = [f"osd.{osd}" for osd in cluster.lab.osd_ids() if cluster.lab.device_class(osd) == "hdd"]
    assert sorted(restarted(cluster.lab)) == sorted(2 * hdds)
    log.unlink()
    assert "journal.jsonl" not in state_files(cluster.lab)


def test_a_cluster_that_is_not_healthy_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    cluster.command("osd set", key="norecover")
    try:
        done = cluster("sweep", "run", cluster.sweep(), "--store", tmp_path / "r.sqlite", "--apply")
        assert done.returncode == 2
        assert "not healthy, so nothing is changed on it: OSDMAP_FLAGS: norecover flag(s) set" in done.stderr
        dry = cluster("sweep", "run", cluster.sweep(), "--store", tmp_path / "r.sqlite")
        assert "The cluster is not healthy, so nothing would be done: OSDMAP_FLAGS" in dry.stdout
    finally:
        cluster.command("osd unset", key="norecover")


@pytest.mark.slow
def test_restore_lists_first_and_restores_with_apply(cluster: Cluster, lab_cluster: Lab) -> None:
    target = open_existing_cluster(lab_cluster)
    applied = target.apply(
        Configuration("B", (Setting(Partition.CEPH, "osd", "osd_max_backfills", 3),)),
        n_clients=1,
        volume_nbytes=16 * MIB,
    )
    assert applied.ok, applied.mismatches
    target.close()
    done = cluster("restore", "--json", pools=False)
    listed = {u["what"]: (u["now"], u["then"]) for u in json.loads(done.stdout)["undoings"]}
    assert listed == {
        "pool cephfit-default with its images": ("there", "deleted"),
        "option osd_max_backfills of osd": ("3", "8"),
    }
    assert "cephfit-default" in cluster.command("osd pool ls"), "listing changes nothing"
    assert "Nothing was changed" in cluster("restore", pools=False).stdout
    assert cluster("restore", "--apply", pools=False).returncode == 0
    assert "nothing to undo" in cluster("restore", pools=False).stdout


@pytest.mark.slow
def test_only_one_pool_is_changed(cluster: Cluster, tmp_path: Path) -> None:
    store = tmp_path / "results.sqlite"
    words = ("sweep", "run", cluster.sweep("warm"), "--store", store, "--only-pool", "rbd")
    before = cluster.state()
    done = cluster(*words, "--apply", "--keep", "--json", pools=False)
    assert done.returncode == 0, done.stderr
    during = cluster.state()
    assert during | {"locks": {}} == before, "except the lock, which remains for the remaining images"
    with Store.open(store) as opened:
        samples = opened.samples(opened.run().run_id)
    assert {(s.key.configuration, s.state) for s in samples} == {
        ("A", State.OK),
        ("restart", State.SKIPPED),
        ("runtime", State.SKIPPED),
    }
    (why,) = {s.reason for s in samples if s.key.configuration == "restart"}
    assert why == "osd_op_num_shards needs the cluster's config store, and only pool rbd may be changed"
    assert cluster("restore", "--apply", "--only-pool", "rbd", pools=False).returncode == 0


def test_cold_caches_are_refused_within_one_pool(cluster: Cluster, tmp_path: Path) -> None:
    done = cluster("sweep", "plan", cluster.sweep("cold"), "--only-pool", "rbd", pools=False)
    assert done.returncode == 2
    assert "needs cold caches, and only pool rbd may be changed" in done.stderr


def test_two_machines_exclude_each_other(
    lab_cluster: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = open_existing_cluster(lab_cluster)
    try:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        with pytest.raises(ClusterError, match="another cephfit is at work on this cluster"):
            open_existing_cluster(lab_cluster)
        open_existing_cluster(lab_cluster, for_change=False).close()
        other = open_existing_cluster(lab_cluster, take_over=True)
        with pytest.raises(ClusterError, match="another process took this cluster's lock"):
            target.apply(SHARDS, n_clients=1, volume_nbytes=MIB)
        other.close()
    finally:
        target.close()
    admin = RadosAdmin(lab_cluster.conf)
    assert admin.command("config-key dump", key="cephfit/") == {}
    admin.close()


def test_an_osd_that_must_not_stop_is_not_restarted(lab_cluster: Lab, tmp_path: Path) -> None:
    admin = RadosAdmin(lab_cluster.conf)
    admin.command("osd pool create", pool="precious", pg_num=8, pgp_num=8, pool_type="replicated", rule="hdd")
    admin.command("osd pool set", pool="precious", var="size", val="1", yes_i_really_mean_it=True)
    await_clean(admin)  # before that `ok-to-stop` says only that it does not know yet
    target = open_existing_cluster(lab_cluster, restarts=str(restart_program(lab_cluster, tmp_path)))
    try:
        with pytest.raises(ClusterError, match=r"osd\.0 must not be stopped now") as error:
            target.apply(SHARDS, n_clients=1, volume_nbytes=16 * MIB, fill=False)
        assert error.value.where == "pools precious"
    finally:
        admin.command("osd pool rm", pool="precious", pool2="precious", yes_i_really_really_mean_it=True)
        target.reset()
        target.close()
        admin.close()


def test_the_next_opening_removes_the_flag_of_a_killed_restart(lab_cluster: Lab, tmp_path: Path) -> None:
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from existing_cluster_lab import open_existing_cluster\n"
        "from cephfit.lab.cluster import Lab\n"
        "from cephfit.core.values.configuration import Configuration, Partition, Setting\n"
        "target = open_existing_cluster(Lab.open(folder=Path(sys.argv[2])), restarts=sys.argv[3])\n"
        "shards = Setting(Partition.CEPH, 'osd.0', 'osd_op_num_shards', 3)\n"
        "target.apply(Configuration('s', (shards,)), n_clients=1, volume_nbytes=1 << 24, fill=False)\n"
    )
    tests = Path(__file__).resolve().parents[2] / "support"
    argv = [sys.executable, "-c", code, str(tests), str(lab_cluster.folder), str(program)]
    admin = RadosAdmin(lab_cluster.conf)

    def flagged() -> list[int]:
        return [o["osd"] for o in admin.command("osd dump")["osds"] if "noout" in o["state"]]

    with subprocess.Popen(argv, start_new_session=True) as victim:
        while not flagged():
            assert victim.poll() is None
        os.killpg(victim.pid, 9)
    assert flagged() == [0]
    target = open_existing_cluster(lab_cluster, restarts=str(restart_program(lab_cluster, tmp_path)))
    try:
        assert flagged() == []
        assert target.health().ok
        target.reset()
    finally:
        target.close()
        admin.close()


def test_which_pools_would_stop() -> None:
    pools = [
        {"pool": 1, "pool_name": "pair", "min_size": 1},
        {"pool": 2, "pool_name": "single", "min_size": 1},
        {"pool": 3, "pool_name": "coded", "min_size": 3},
    ]
    pgs = [
        {"pgid": "1.0", "acting": [0, 1]},
        {"pgid": "2.0", "acting": [0]},
        {"pgid": "3.0", "acting": [0, 1, 2, 2147483647]},
    ]
    assert pools_that_would_stop(pgs, pools) == ("single", "coded")
