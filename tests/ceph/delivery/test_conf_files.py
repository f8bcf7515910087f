"""Options in the ceph.conf of a real cluster: daemons run with them, and all is restored, also after a kill."""

import os
import random
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_state import state_of
from conf_examples import SITE, ceph
from existing_cluster_lab import open_existing_cluster, restart_program
from kill_at_work import kill_at_work
from ssh_server import SSHD, ssh_server

from cephfit.ceph.delivery.conf_files import sections_of
from cephfit.ceph.delivery.option_delivery import DeliveryWay, OptionDelivery
from cephfit.ceph.host_access import SshAccess
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.target_choice import open_target
from cephfit.sweep.declaration.sweep_file import read_sweep
from cephfit.targets.abilities import Previews

TUNED = Configuration(
    "tuned",
    (
        ceph("osd/class:ssd", "osd_op_num_shards", 3),
        ceph("osd/class:ssd", "osd_max_backfills", 3),
        ceph("mon", "mon_mgr_blocklist_interval", 9000),
        ceph("client", "rbd_cache", True),
    ),
)


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
def test_daemons_run_with_what_stands_in_the_file(lab_cluster: Lab) -> None:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    mode = stat.S_IMODE(lab_cluster.conf.stat().st_mode)
    target = LabTarget(lab_cluster, librbd=True, way=DeliveryWay.CONF)
    try:
        applied = target.apply(TUNED, n_clients=1, volume_nbytes=16 * MIB, fill=False)
        assert applied.ok, applied.mismatches
        ssds = [osd for osd in lab_cluster.osd_ids() if lab_cluster.device_class(osd) == "ssd"]
        assert applied.restarted == tuple(f"osd.{osd}" for osd in ssds)
        assert applied.read_back["ceph/osd/class:ssd/osd_op_num_shards = 3"] == {f"osd.{o}": "3" for o in ssds}
        assert applied.read_back["ceph/mon/mon_mgr_blocklist_interval = 9000"] == {"mon.a": "9000.000000"}
        content = lab_cluster.conf.read_bytes()
        assert content.startswith(original)
        ours = sections_of(content[len(original) :])
        each = {"osd_op_num_shards": "3", "osd_max_backfills": "3"}
        assert ours == {"mon": {"mon_mgr_blocklist_interval": "9000"}, **{f"osd.{osd}": each for osd in ssds}}
        sources = state_of(lab_cluster)["osds"][ssds[0]]["diff"]
        assert sources["osd_max_backfills"]["file"] == 3
        again = target.apply(TUNED, n_clients=1, volume_nbytes=16 * MIB, fill=False)
        assert again.ok
        assert again.restarted == (), "what the file says already needs no restart"
        what = {undoing.what: undoing.then for undoing in target.undoings()}
        assert all(what[f"osd.{osd}"] == "restarted" for osd in ssds)
        assert "as it was" in what.values()
        target.reset()
    finally:
        target.close()
    assert lab_cluster.conf.read_bytes() == original
    assert stat.S_IMODE(lab_cluster.conf.stat().st_mode) == mode
    assert state_of(lab_cluster) == before


SWEEP = """
schema_version: 1
name: by-file
description: an option that would reach running daemons, too
configurations:
  A: {}
  B: {ceph: {osd: {osd_max_backfills: 3}}}
measurement: {sizes: [4K], patterns: [randwrite], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0.2,
  run_seconds: 0.5, ioengine: rbd, iodepth: 4, direct: true, cache: cold, seed: 1}
"""
VICTIM = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from existing_cluster_lab import open_existing_cluster
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.targets.abilities import Previews
from cephfit.ceph.delivery.option_delivery import DeliveryWay, OptionDelivery
lab = Lab.open(folder=Path(sys.argv[2]))
target = open_existing_cluster(lab, restarts=sys.argv[3], delivery=OptionDelivery(DeliveryWay.CONF, str(lab.conf)))
shards = Setting(Partition.CEPH, "osd.0", "osd_op_num_shards", 3)
target.apply(Configuration("s", (shards,)), n_clients=1, volume_nbytes=1 << 24, fill=False)
"""


@pytest.mark.ceph
@pytest.mark.root
def test_a_kill_between_file_and_restart_is_undone_by_restore(lab_cluster: Lab, tmp_path: Path) -> None:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    tests = Path(__file__).resolve().parents[2] / "support"
    argv = [sys.executable, "-c", VICTIM, str(tests), str(lab_cluster.folder), str(program)]
    with subprocess.Popen(argv, start_new_session=True) as victim:
        while lab_cluster.conf.read_bytes() == original:
            assert victim.poll() is None
        os.killpg(victim.pid, signal.SIGKILL)
    edited = lab_cluster.conf.read_bytes() + b"# edited meanwhile\n"
    lab_cluster.conf.write_bytes(edited)

    # Which way it was is not said again: the journal knows.
    restart = str(restart_program(lab_cluster, tmp_path))
    where = ["--target", "ceph:lab", "--conf", str(lab_cluster.conf), "--restarts", restart]
    restore = [sys.executable, "-m", "cephfit.cli.main", "restore", *where]
    listed = subprocess.run(restore, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr
    assert "has lines of cephfit" in listed.stdout
    assert "osd.0" in listed.stdout
    assert lab_cluster.conf.read_bytes() == edited, "listing changes nothing"
    done = subprocess.run([*restore, "--apply"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "edited meanwhile" in done.stderr
    assert lab_cluster.conf.read_bytes() == original + b"# edited meanwhile\n"
    lab_cluster.conf.write_bytes(original)
    assert state_of(lab_cluster) == before
    assert list(lab_cluster.folder.glob("*cephfit-new")) == []


@pytest.mark.ceph
@pytest.mark.root
def test_the_dry_run_shows_the_lines_and_what_speaks_against_them(lab_cluster: Lab, tmp_path: Path) -> None:
    def reasons(delivery: OptionDelivery, restarts: str = "none") -> tuple[str, ...]:
        target = open_existing_cluster(lab_cluster, for_change=False, delivery=delivery, restarts=restarts)
        try:
            return tuple(target.unsupported([TUNED]).get("tuned", ()))
        finally:
            target.close()

    by_conf = OptionDelivery(DeliveryWay.CONF, str(lab_cluster.conf))
    (why,) = reasons(by_conf)
    assert "are in ceph.conf, which is read only when an OSD starts, and this target cannot restart OSDs" in why
    (why,) = reasons(OptionDelivery(DeliveryWay.CONF, str(tmp_path / "absent.conf")))
    assert "is not accessible" in why
    other = tmp_path / "other.conf"
    other.write_bytes(SITE)
    (why,) = reasons(OptionDelivery(DeliveryWay.CONF, str(other)))
    assert "belongs to another cluster, 5a3c1a4e" in why
    program = str(restart_program(lab_cluster, tmp_path))
    assert reasons(by_conf, program) == ()

    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(SWEEP)
    target = open_target(
        f"ceph:lab,settings=conf,osd_conf={lab_cluster.conf}",
        for_change=False,
        cluster=ClusterOptions(conf=lab_cluster.conf, restarts=program),
    )
    try:
        assert isinstance(target, Previews)
        preview = target.preview(read_sweep(sweep))
    finally:
        target.close()
    n_osds = len(lab_cluster.osd_ids())
    assert preview.restarts == {"B": tuple(lab_cluster.osd_ids())}
    assert preview.n_restarts == 2 * n_osds, "there and back"
    assert [n for n in preview.notes if n.startswith("B adds to")] == [
        f"B adds to {socket.gethostname()}:{lab_cluster.conf}: [osd] osd_max_backfills = 3"
    ]


APPLY_FOR_EVER = """
import itertools, sys
from pathlib import Path
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.ceph.delivery.option_delivery import DeliveryWay

def ceph(scope, key, value):
    return Setting(Partition.CEPH, scope, key, value)

way = DeliveryWay(sys.argv[2])
target = LabTarget(Lab.open(folder=Path(sys.argv[1])), librbd=True, way=way)
tried = [
    Configuration("both", (ceph("osd/class:ssd", "osd_max_backfills", 3), ceph("osd.0", "osd_max_backfills", 2))),
    Configuration("one", (ceph("osd.0", "osd_scrub_sleep", 0.5),)),
    Configuration("A"),
]
print("ready", flush=True)
for configuration in itertools.cycle(tried):
    applied = target.apply(configuration, n_clients=1, volume_nbytes=16 << 20, fill=False)
    assert applied.ok, applied
"""


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
@pytest.mark.slow
@pytest.mark.parametrize(("way", "seconds"), [("conf", 12.0), ("injectargs", 3.0)])
def test_whatever_a_kill_interrupts_restore_undoes(lab_cluster: Lab, way: str, seconds: float) -> None:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    dice = random.Random(2017)
    for _ in range(5):
        kill_at_work(APPLY_FOR_EVER, lab_cluster.folder, way, after_seconds=dice.uniform(0.1, seconds))
        restore = ["-m", "cephfit.cli.main", "restore", "--target", f"lab:{lab_cluster.folder}"]
        done = subprocess.run([sys.executable, *restore], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert lab_cluster.conf.read_bytes() == original
        assert state_of(lab_cluster) == before


@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(SSHD is None, reason="needs sshd (Debian: openssh-server)")
def test_files_of_other_hosts_are_reached_over_ssh(lab_cluster: Lab, tmp_path: Path) -> None:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    shards = Configuration("shards", (ceph("osd.0", "osd_op_num_shards", 3),))
    (tmp_path / "sshd").mkdir()
    with ssh_server(tmp_path / "sshd") as server:
        target = open_existing_cluster(
            lab_cluster,
            restarts=str(restart_program(lab_cluster, tmp_path)),
            ssh=SshAccess(config=server.client_config(), destinations={socket.gethostname(): "direct"}),
            delivery=OptionDelivery(DeliveryWay.CONF, str(lab_cluster.conf)),
        )
        try:
            applied = target.apply(shards, n_clients=1, volume_nbytes=16 * MIB, fill=False)
            assert applied.ok, applied.mismatches
            assert applied.restarted == ("osd.0",)
            assert lab_cluster.conf.read_bytes().startswith(original)
            assert "Accepted publickey" in server.log()
            target.reset()
        finally:
            target.close()
    assert lab_cluster.conf.read_bytes() == original
    assert state_of(lab_cluster) == before
