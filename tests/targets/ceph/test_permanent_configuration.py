"""`cephfit apply` on a real cluster: what it changes stays, is what the printed commands do, and can be undone."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_state import await_clean, state_of
from existing_cluster_lab import restart_program
from kill_at_work import kill_at_work

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget

pytestmark = [pytest.mark.ceph, pytest.mark.root]

Run = Callable[..., subprocess.CompletedProcess[str]]

SWEEP = """
schema_version: 1
name: permanent
accept_risk: [size]
configurations:
  A: {}
  runtime:
    ceph: {osd: {bluestore_prefer_deferred_size_hdd: 0}, client: {rbd_cache: false}}
    greater: {osd_disk: {nr_requests: 64}}
    image: {object_size: 1M}
  shards:
    ceph: {"osd/class:ssd": {osd_op_num_shards: 3}}
  backfills:
    ceph: {osd: {osd_max_backfills: 3}}
  pool:
    pool: {compression_mode: passive, crush_rule: ssd}
  two-copies:
    pool: {size: 2}
measurement: {sizes: [4K], patterns: [randwrite], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0.2,
  run_seconds: 0.5, ioengine: rbd, iodepth: 4, direct: true, cache: warm, seed: 1}
"""


@pytest.fixture
def apply(cephfit: Run, lab_cluster: Lab, tmp_path: Path) -> Run:
    """Runs `cephfit apply NAME ...` on the lab."""
    sweep = tmp_path / "permanent.yaml"
    sweep.write_text(SWEEP)

    def run(name: str, *more: str) -> subprocess.CompletedProcess[str]:
        where = ["--sweep", str(sweep), "--target", f"lab:{lab_cluster.folder}", "--watch", "2"]
        return cephfit("apply", name, *where, *more)

    return run


@pytest.fixture
def undo(cephfit: Run, lab_cluster: Lab) -> Iterator[Run]:
    """Runs `cephfit restore` on the lab, and leaves it restored."""

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return cephfit("restore", "--target", f"lab:{lab_cluster.folder}", *more)

    yield run
    assert run("--applied").returncode == 0


@pytest.fixture
def admin(lab_cluster: Lab) -> Iterator[RadosAdmin]:
    opened = RadosAdmin(lab_cluster.conf)
    yield opened
    opened.close()


@pytest.fixture
def vms(admin: RadosAdmin) -> Iterator[str]:
    """A pool of other people, with a few PGs."""
    admin.command("osd pool create", pool="vms", pg_num=8, rule="hdd", autoscale_mode="off")
    admin.command("osd pool application enable", pool="vms", app="rbd")
    await_clean(admin)
    yield "vms"
    admin.command("config set", who="mon", name="mon_allow_pool_delete", value="true")
    admin.command("osd pool rm", pool="vms", pool2="vms", yes_i_really_really_mean_it=True)
    admin.command("config rm", who="mon", name="mon_allow_pool_delete")
    await_clean(admin)


def options_of(admin: RadosAdmin) -> dict[str, str]:
    return {f"{e['section']} {e['name']}": e["value"] for e in admin.command("config dump")}


def test_what_is_applied_stays_and_is_undone(apply: Run, undo: Run, lab_cluster: Lab, admin: RadosAdmin) -> None:
    before = state_of(lab_cluster)
    planned = apply("runtime")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("runtime changes ")
    assert "Nothing was changed" in planned.stdout
    assert state_of(lab_cluster) == before

    done = apply("runtime", "--apply", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["applied"]
    assert [entry["setting"] for entry in document["by_hand"]] == ["pool/image/object_size = 1M"]
    assert document["undo"].endswith("--applied")
    stored = options_of(admin)
    assert stored["osd bluestore_prefer_deferred_size_hdd"] == "0"
    assert stored["client rbd_cache"] == "false"
    after = state_of(lab_cluster)
    changed = {name for name, value in after["queues"].items() if value != before["queues"][name]}
    assert changed == {name for name in after["queues"] if name.endswith("/nr_requests")}

    restored = undo("--json")  # undoes sweeps; the configuration stays
    assert json.loads(restored.stdout)["kept"] == "runtime"
    assert state_of(lab_cluster) == after
    assert undo("--applied").returncode == 0
    assert state_of(lab_cluster) == before
    assert not (lab_cluster.folder / "target" / "applied.jsonl").exists()


@pytest.mark.slow
def test_another_configuration_replaces_the_first(
    apply: Run, undo: Run, lab_cluster: Lab, admin: RadosAdmin
) -> None:
    before = state_of(lab_cluster)
    assert apply("runtime", "--apply").returncode == 0
    done = apply("backfills", "--apply")
    assert done.returncode == 0, done.stderr
    stored = options_of(admin)
    assert stored["osd osd_max_backfills"] == "3"
    assert "osd bluestore_prefer_deferred_size_hdd" not in stored
    assert state_of(lab_cluster)["queues"] == before["queues"]
    assert undo("--applied").returncode == 0
    assert state_of(lab_cluster) == before


def test_a_sweep_starts_from_what_is_applied(apply: Run, undo: Run, lab_cluster: Lab, admin: RadosAdmin) -> None:
    assert apply("backfills", "--apply").returncode == 0
    target = LabTarget(lab_cluster, librbd=True)
    try:
        target.reset()
    finally:
        target.close()
    assert options_of(admin)["osd osd_max_backfills"] == "3"


@pytest.mark.slow
def test_a_pool_gets_its_settings_and_its_old_ones_again(
    apply: Run, undo: Run, admin: RadosAdmin, vms: str
) -> None:
    def values() -> dict[str, Any]:
        return dict(admin.command("osd pool get", pool=vms, var="crush_rule")), _compression(admin, vms)

    before = values()
    assert "--pool" in apply("pool").stdout
    refused = apply("pool", "--pool", "vm", "--apply")
    assert (refused.returncode, "no pool vm" in refused.stderr) == (2, True)
    planned = apply("pool", "--pool", vms)
    assert "PGs move" in planned.stdout.splitlines()[0]
    done = apply("pool", "--pool", vms, "--apply")
    assert done.returncode == 0, done.stderr
    assert values() == ({"pool": vms, "pool_id": before[0]["pool_id"], "crush_rule": "ssd"}, "passive")
    assert undo("--applied").returncode == 0
    assert values() == before


def _compression(admin: RadosAdmin, pool: str) -> str:
    dumped = next(p for p in admin.command("osd dump")["pools"] if p["pool_name"] == pool)
    return str(dumped["options"].get("compression_mode", ""))


def test_what_risks_data_is_refused_unless_named(apply: Run, vms: str) -> None:
    refused = apply("two-copies", "--pool", vms, "--apply")
    assert refused.returncode == 2
    assert "--accept-risk size" in refused.stderr
    assert "Refused" not in apply("two-copies", "--pool", vms, "--accept-risk", "size").stdout


def test_a_cluster_that_is_not_healthy_is_refused(apply: Run, lab_cluster: Lab, admin: RadosAdmin) -> None:
    before = options_of(admin)
    admin.command("osd set", key="pause")
    try:
        planned, done = apply("backfills"), apply("backfills", "--apply")
    finally:
        admin.command("osd unset", key="pause")
    assert "The cluster is not healthy" in planned.stdout
    assert (done.returncode, "not healthy" in done.stderr) == (2, True)
    assert options_of(admin) == before


def test_the_printed_commands_do_what_apply_does(
    apply: Run, undo: Run, lab_cluster: Lab, admin: RadosAdmin
) -> None:
    before = options_of(admin)
    for name in ("shards", "backfills"):
        commands = json.loads(apply(name, "--json").stdout)["commands"]
        _in_shell(lab_cluster, [c["do"] for c in commands if c["settings"]])
        by_hand = options_of(admin)
        _in_shell(lab_cluster, [c["undo"] for c in reversed(commands) if c["settings"]])
        assert options_of(admin) == before
        done = apply(name, "--apply")
        assert done.returncode == 0, done.stderr
        assert options_of(admin) == by_hand != before
        assert undo("--applied").returncode == 0
        assert options_of(admin) == before


def _in_shell(lab: Lab, lines: list[str]) -> None:
    environment = {**os.environ, "CEPH_CONF": str(lab.conf)}
    for line in lines:
        done = subprocess.run(
            ["bash", "-euc", line], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, (line, done.stderr)


APPLY_AND_STOP = """
import sys, time
from pathlib import Path
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget

target = LabTarget(Lab.open(folder=Path(sys.argv[1])), librbd=True)
permanent = target.permanent()
configuration = Configuration("killed", (
    Setting(Partition.CEPH, "osd", "bluestore_prefer_deferred_size_hdd", 0),
    Setting(Partition.GREATER, "osd_disk", "nr_requests", 64),
    Setting(Partition.CEPH, "osd", "osd_op_num_shards", 3),
))
plan = permanent.plan(configuration)
print("ready", flush=True)
permanent.apply(plan)
permanent.watch(plan, seconds=60)
"""


@pytest.mark.parametrize(
    "after_seconds", [pytest.param(0.05, marks=pytest.mark.slow), 0.7, pytest.param(12.0, marks=pytest.mark.slow)]
)
def test_restore_undoes_a_killed_application(undo: Run, lab_cluster: Lab, after_seconds: float) -> None:
    before = state_of(lab_cluster)
    kill_at_work(APPLY_AND_STOP, lab_cluster.folder, after_seconds=after_seconds)
    restored = undo("--json")  # it was never completed, so that it does not stay
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["kept"] == ""
    assert state_of(lab_cluster) == before


def test_health_that_gets_worse_undoes_it(lab_cluster: Lab, admin: RadosAdmin) -> None:
    from cephfit.core.errors import ClusterError
    from cephfit.core.values.configuration import Configuration, Partition, Setting

    configuration = Configuration("watched", (Setting(Partition.CEPH, "osd", "osd_max_backfills", 3),))
    before = options_of(admin)
    target = LabTarget(lab_cluster, librbd=True)
    try:
        permanent = target.permanent()
        plan = permanent.plan(configuration)
        permanent.apply(plan)
        assert options_of(admin)["osd osd_max_backfills"] == "3"
        admin.command("osd set", key="pause")
        try:
            with pytest.raises(ClusterError, match="Everything was undone"):
                permanent.watch(plan, seconds=60)
        finally:
            admin.command("osd unset", key="pause")
        assert options_of(admin) == before
    finally:
        target.close()


@pytest.mark.slow
def test_an_existing_cluster_is_changed_and_restored(
    cephfit: Run, lab_cluster: Lab, admin: RadosAdmin, tmp_path: Path
) -> None:
    sweep = tmp_path / "permanent.yaml"
    sweep.write_text(SWEEP)
    before = state_of(lab_cluster)
    cluster = ["--target", "ceph:lab", "--conf", str(lab_cluster.conf)]
    without = cephfit("apply", "shards", "--sweep", str(sweep), *cluster)
    assert "cannot restart OSDs" in without.stdout
    cluster += ["--restarts", str(restart_program(lab_cluster, tmp_path))]
    done = cephfit("apply", "shards", "--sweep", str(sweep), *cluster, "--watch", "1", "--apply")
    try:
        assert done.returncode == 0, done.stderr
        assert "Restarted: osd." in done.stdout
        assert "3" in {v for k, v in options_of(admin).items() if k.endswith("osd_op_num_shards")}
        listed = cephfit("restore", *cluster, "--applied")
        assert "osd_op_num_shards" in listed.stdout
    finally:
        restored = cephfit("restore", *cluster, "--applied", "--apply")
    assert restored.returncode == 0, restored.stderr
    assert state_of(lab_cluster) == before


def test_a_dry_run_that_is_refused_ends_with_the_exit_code_of_the_change(apply: Run) -> None:
    for pool, words in (((), "add --pool POOL"), (("--pool", "absent"), "this cluster has no pool absent")):
        planned = apply("two-copies", *pool)
        assert planned.returncode == 2
        assert "Refused: " in planned.stdout and "with --apply to do it" not in planned.stdout
        assert words in planned.stderr
