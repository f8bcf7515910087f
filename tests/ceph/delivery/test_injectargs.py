"""Options injected into running daemons: asked, taken back, lost by a restart and injected again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_state import state_of
from conf_examples import ceph
from existing_cluster_lab import choice_of, make_key, open_existing_cluster
from key_capabilities import Level, capabilities
from rest_server import rest_api

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.delivery.daemon_values import fault_of_injection
from cephfit.ceph.delivery.option_delivery import DeliveryWay, OptionDelivery, has_store, parse_delivery
from cephfit.core.errors import InputError
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.target_choice import cluster_choice, open_target
from cephfit.sweep.declaration.sweep_file import read_sweep
from cephfit.targets.abilities import Previews
from cephfit.targets.ceph.existing_cluster import open_admin

CLONES = "osd_recover_clone_overlap_limit"
"""A common option that no scheduler of an OSD overrides: mClock sets the sleeps to 0."""
TUNED = Configuration(
    "tuned",
    (
        ceph("client", "rbd_cache", True),
        ceph("global", CLONES, 12),
        ceph("mon", "mon_mgr_blocklist_interval", 9000),
        ceph("osd", "osd_max_backfills", 3),
        ceph("osd/class:ssd", "osd_max_backfills", 5),
    ),
)
FEW = Configuration("few", (ceph("osd.0", "osd_max_backfills", 3),))
SHARDS = Configuration("shards", (ceph("osd", "osd_op_num_shards", 3),))


def test_the_release_chooses_the_way_by_default() -> None:
    by_release = OptionDelivery()
    assert by_release.way_of("16.2.15", acts_at_runtime=True) is DeliveryWay.STORE
    assert by_release.way_of("13.2.0", acts_at_runtime=False) is DeliveryWay.STORE
    assert by_release.way_of("12.2.13", acts_at_runtime=True) is DeliveryWay.INJECTARGS
    assert by_release.way_of("0.94.10", acts_at_runtime=False) is DeliveryWay.CONF
    assert OptionDelivery(DeliveryWay.CONF).way_of("16.2.15", acts_at_runtime=True) is DeliveryWay.CONF
    assert [has_store(version) for version in ("0.80.11", "10.2.11", "12.2.13", "13.2.10", "19.2.0")] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_the_delivery_in_a_targets_text() -> None:
    assert parse_delivery("", where="") == OptionDelivery()
    said = parse_delivery("settings=conf,osd_conf=/var/lib/ceph/x/osd.$id/config", where="")
    assert said == OptionDelivery(DeliveryWay.CONF, "/var/lib/ceph/x/osd.$id/config")
    for wrong, why in {
        "settings=file": "settings=file is not a known way",
        "setings=conf": "unknown word 'setings=conf' in the target",
        "settings=conf,settings=store": "settings is given twice",
        "settings=store,osd_conf=/x": "settings=store does not use osd_conf",
        "osd_conf=x": "is not an absolute path",
    }.items():
        with pytest.raises(InputError, match=why):
            parse_delivery(wrong, where="--target ceph")


def test_one_pool_and_a_way_to_daemons_do_not_go_together(tmp_path: Path) -> None:
    conf = tmp_path / "ceph.conf"
    conf.touch()
    assert cluster_choice("x,settings=conf", ClusterOptions(conf=conf)).delivery == OptionDelivery(
        DeliveryWay.CONF
    )
    with pytest.raises(InputError, match="--only-pool changes no daemon"):
        cluster_choice("x,settings=conf", ClusterOptions(conf=conf, only_pool="bench"))


def test_what_injectargs_takes_apart_is_not_injected() -> None:
    assert fault_of_injection("a b")
    assert not fault_of_injection("compression=kNoCompression,max_write_buffer_number=4")
    assert not fault_of_injection("")


@pytest.fixture
def injecting(lab_cluster: Lab) -> Iterator[LabTarget]:
    """A target that injects; the cluster must be as it was after it."""
    before = state_of(lab_cluster)
    target = LabTarget(lab_cluster, librbd=True, way=DeliveryWay.INJECTARGS)
    try:
        yield target
        target.reset()
    finally:
        target.close()
    assert state_of(lab_cluster) == before


def value_of(lab: Lab, osd: int, key: str) -> Any:
    admin = RadosAdmin(lab.conf)
    try:
        return admin.tell(f"osd.{osd}", "config get", var=key)[key]
    finally:
        admin.close()


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.parametrize("way", ["rados", "ceph", "rest"])
def test_every_way_of_administering_injects(lab_cluster: Lab, way: str) -> None:
    with rest_api(lab_cluster.conf) as url:
        admin = open_admin(choice_of(lab_cluster, admin=way, rest_url=url))
        try:
            admin.tell("osd.0", "injectargs", injected_args=["--osd_max_backfills=4"])
            assert value_of(lab_cluster, 0, "osd_max_backfills") == "4"
            admin.tell("osd.0", "config unset", var="osd_max_backfills")
            assert value_of(lab_cluster, 0, "osd_max_backfills") == "8"
        finally:
            admin.close()


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
def test_daemons_run_with_what_was_injected(lab_cluster: Lab, injecting: LabTarget) -> None:
    stored = state_of(lab_cluster)["config dump"]
    applied = injecting.apply(TUNED, n_clients=1, volume_nbytes=16 * MIB, fill=False)
    assert applied.ok, applied.mismatches
    assert applied.restarted == ()
    found = {
        osd: (value_of(lab_cluster, osd, "osd_max_backfills"), value_of(lab_cluster, osd, CLONES))
        for osd in lab_cluster.osd_ids()
    }
    wanted = {"hdd": ("3", "12"), "ssd": ("5", "12")}
    assert found == {osd: wanted[lab_cluster.device_class(osd)] for osd in lab_cluster.osd_ids()}
    assert applied.read_back["ceph/mon/mon_mgr_blocklist_interval = 9000"] == {"mon.a": "9000.000000"}
    # Clients read no store for it, so common options are in the clients' file.
    assert applied.read_back[f"ceph/client/{CLONES} = 12"] == {"a new client": "12"}
    assert state_of(lab_cluster)["config dump"] == stored, "nothing of it went into the store"
    what = {undoing.what: undoing.then for undoing in injecting.undoings()}
    assert what["option osd_max_backfills injected into osd.0"] == "8"
    fewer = Configuration("fewer", (ceph("osd.0", "osd_max_backfills", 2),))
    assert injecting.apply(fewer, n_clients=1, volume_nbytes=16 * MIB, fill=False).ok
    assert value_of(lab_cluster, 0, "osd_max_backfills") == "2"
    assert {value_of(lab_cluster, osd, "osd_max_backfills") for osd in lab_cluster.osd_ids()[1:]} == {"8"}


@pytest.mark.ceph
@pytest.mark.root
def test_what_acts_at_the_start_only_is_refused(injecting: LabTarget) -> None:
    (why,) = injecting.unsupported([SHARDS])["shards"]
    assert why.startswith(
        "osd_op_num_shards acts only when a daemon starts, but injectargs reaches running daemons"
    )
    assert "settings=conf" in why
    applied = injecting.apply(SHARDS, n_clients=1, volume_nbytes=16 * MIB)
    assert (applied.ok, applied.mismatches) == (False, (why,))


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
def test_an_osd_that_restarts_loses_it_and_gets_it_again(lab_cluster: Lab, injecting: LabTarget) -> None:
    assert injecting.apply(TUNED, n_clients=1, volume_nbytes=16 * MIB, fill=False).ok
    mark = injecting.mark()
    assert injecting.disturbances_since(mark) == ()
    lab_cluster.restart_osds([0])
    assert value_of(lab_cluster, 0, "osd_max_backfills") == "8"
    reasons = injecting.disturbances_since(mark)
    assert "osd.0 went down and came back" in reasons
    assert "osd.0 lost osd_max_backfills = 3 by a restart; it was injected again" in reasons
    assert value_of(lab_cluster, 0, "osd_max_backfills") == "3"
    assert injecting.disturbances_since(injecting.mark()) == ()


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
def test_an_override_of_another_client_is_restored(lab_cluster: Lab) -> None:
    admin = RadosAdmin(lab_cluster.conf)
    admin.tell("osd.0", "config set", var="osd_max_backfills", val=["6"])
    try:
        target = LabTarget(lab_cluster, librbd=True, way=DeliveryWay.INJECTARGS)
        try:
            assert target.apply(TUNED, n_clients=1, volume_nbytes=16 * MIB, fill=False).ok
            target.reset()
        finally:
            target.close()
        assert admin.tell("osd.0", "config get", var="osd_max_backfills") == {"osd_max_backfills": "6"}
    finally:
        admin.tell("osd.0", "config unset", var="osd_max_backfills")
        admin.close()


VICTIM = """
import sys, time; sys.path[:0] = sys.argv[3:]
from pathlib import Path
from test_injectargs import *
target = open_existing_cluster(
    Lab.open(folder=Path(sys.argv[1])), admin=sys.argv[2], delivery=OptionDelivery(DeliveryWay.INJECTARGS)
)
applied = target.apply(FEW, n_clients=1, volume_nbytes=16 * MIB, fill=False)
print(applied.ok, applied.mismatches, flush=True); time.sleep(600)
"""


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.slow  # killed between file and restart is the quick one, in test_conf_files.py
@pytest.mark.parametrize("admin", ["rados", "ceph"])
def test_after_a_kill_restore_takes_it_back(lab_cluster: Lab, admin: str) -> None:
    before = state_of(lab_cluster)
    folders = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2] / "support")]
    argv = [sys.executable, "-c", VICTIM, str(lab_cluster.folder), admin, *folders]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        said = victim.stdout.readline()
        os.kill(victim.pid, signal.SIGKILL)
    assert said == "True ()\n"
    assert value_of(lab_cluster, 0, "osd_max_backfills") == "3"
    # Which way it was is not said again: the journal knows.
    where = ["--target", "ceph:lab", "--conf", str(lab_cluster.conf), "--admin", admin, "--apply"]
    done = subprocess.run(
        [sys.executable, "-m", "cephfit.cli.main", "restore", *where], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert state_of(lab_cluster) == before


def leave_in_the_managers_reports(lab: Lab, daemon: str, key: str, value: int) -> None:
    """The manager reports a value for some seconds after the daemon dropped it."""
    admin = RadosAdmin(lab.conf)
    try:
        admin.tell(daemon, "injectargs", injected_args=[f"--{key}={value}"])
        deadline = time.monotonic() + 60
        while float(admin.command("config show", who=daemon, key=key)) != value:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        admin.tell(daemon, "config unset", var=key)
    finally:
        admin.close()


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
def test_what_the_key_must_be_allowed(lab_cluster: Lab, tmp_path: Path) -> None:
    keyring = make_key(lab_cluster, "full", capabilities(Level.FULL), tmp_path)
    target = open_existing_cluster(
        lab_cluster, client_id="full", keyring=keyring, delivery=OptionDelivery(DeliveryWay.INJECTARGS)
    )
    try:
        assert target.apply(FEW, n_clients=1, volume_nbytes=16 * MIB, fill=False).ok
        monitors = Configuration("monitors", (ceph("mon", "mon_mgr_blocklist_interval", 9000),))
        leave_in_the_managers_reports(lab_cluster, "mon.a", "mon_mgr_blocklist_interval", 9000)
        applied = target.apply(monitors, n_clients=1, volume_nbytes=16 * MIB, fill=False)
        assert not applied.ok
        assert "mon 'allow *'" in applied.mismatches[0]
        assert value_of(lab_cluster, 0, "osd_max_backfills") == "8"
    finally:
        target.reset()
        target.close()


@pytest.mark.ceph
@pytest.mark.root
def test_a_dry_run_shows_the_injections(lab_cluster: Lab, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(
        "schema_version: 1\nname: injected\ndescription: x\nconfigurations:\n  A: {}\n"
        "  B: {ceph: {osd: {osd_max_backfills: 3}}}\n  C: {ceph: {osd: {osd_op_num_shards: 3}}}\n"
        "measurement: {sizes: [4K], patterns: [randwrite], clients: 1, volume_size: 16M, repeats: 1,\n"
        "  ramp_seconds: 0.2, run_seconds: 0.5, ioengine: rbd, iodepth: 4, direct: true, cache: cold, seed: 1}\n"
    )
    target = open_target(
        "ceph:lab,settings=injectargs", for_change=False, cluster=ClusterOptions(conf=lab_cluster.conf)
    )
    try:
        assert isinstance(target, Previews)
        preview = target.preview(read_sweep(sweep))
    finally:
        target.close()
    n_osds = len(lab_cluster.osd_ids())
    assert [n for n in preview.notes if "inject" in n] == [
        f"B injects {n_osds} values into running daemons; a daemon that restarts loses them, so the current "
        "sample is invalid and the values are injected again"
    ]
    assert {d.configuration for d in preview.differences} == {"B"}
    assert preview.n_restarts == 0
