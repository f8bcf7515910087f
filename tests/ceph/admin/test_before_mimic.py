"""A cluster before Mimic: monitors do not describe options, OSDs report their values only on their hosts.

The lab's cluster is a later one; its administration is made to refuse what those releases did not know.
"""

import errno
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_state import state_of

from cephfit.ceph.admin.answers import refusal
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.options.option_history import described, names_of
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.lab import lab_target as lab_target
from cephfit.lab.cluster import Lab
from cephfit.lab.lab_target import LabTarget
from cephfit.sweep.declaration.sweep_file import parse_sweep

SWEEP = """
schema_version: 1
name: old
description: one option at run time, one at the start
configurations:
  A: {}
  B: {ceph: {osd.0: {osd_max_backfills: 3, osd_op_num_shards: 3}}}
measurement: {sizes: [4K], patterns: [randread], clients: 1, volume_size: 16M, repeats: 1, ramp_seconds: 0,
  run_seconds: 1, ioengine: rbd, iodepth: 1, direct: true, cache: cold, seed: 1}
"""
BOTH = Configuration(
    "B",
    (
        Setting(Partition.CEPH, "osd.0", "osd_max_backfills", 3),
        Setting(Partition.CEPH, "osd.0", "osd_op_num_shards", 3),
    ),
)


class OldAdmin(RadosAdmin):
    """Luminous's table of commands, without later ones."""

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        if prefix.startswith("config "):
            raise refusal("mon", prefix, errno.EINVAL, "command not known")
        if prefix == "version":
            return {"version": "ceph version 12.2.13 (584a20eb0237c657dc0567da126be145106aa47e) luminous (stable)"}
        return super().command(prefix, **arguments)

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        if prefix.startswith("config "):
            raise refusal(daemon, prefix, errno.EINVAL, "unrecognized command")
        return super().tell(daemon, prefix, **arguments)


def test_what_is_known_of_options_without_asking() -> None:
    backfills = described("osd_max_backfills", "12.2.13")
    assert backfills is not None
    assert (backfills.type, backfills.acts_at_runtime) == ("uint", True)
    assert described("osd_mclock_profile", "12.2.13") is None, "it came with Pacific"
    assert described("osd_op_threads", "12.2.13") is None, "it was gone"
    threads = described("osd_op_threads", "0.94.10")  # Hammer lies between two releases that are known
    assert threads is not None
    assert threads.takes_effect == "restart", "which is right of every option"
    assert "osd_op_threads" in names_of("10.2.11")


@pytest.fixture
def old(lab_cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabTarget]:
    before, original = state_of(lab_cluster), lab_cluster.conf.read_bytes()
    monkeypatch.setattr(lab_target, "RadosAdmin", OldAdmin)
    target = LabTarget(lab_cluster, librbd=True)
    try:
        yield target
        target.reset()
    finally:
        target.close()
    assert lab_cluster.conf.read_bytes() == original
    after = state_of(lab_cluster)
    # What was injected is injected back, for want of a command that takes it away: the values are the same.
    for osd in before["osds"]:
        after["osds"][osd]["diff"].pop("osd_max_backfills")
        before["osds"][osd]["diff"].pop("osd_max_backfills")
    assert after == before


@pytest.mark.slow
@pytest.mark.ceph
@pytest.mark.root
@pytest.mark.fio
def test_options_are_injected_or_stand_in_ceph_conf(lab_cluster: Lab, old: LabTarget) -> None:
    preview = old.preview(parse_sweep(SWEEP, file="old"))
    assert {(d.key, d.now, d.then) for d in preview.differences} == {
        ("osd_max_backfills", "8", "3"),
        ("osd_op_num_shards", "0", "3"),
    }
    assert preview.restarts == {"B": (0,)}
    assert any("[osd.0] osd_op_num_shards = 3" in note for note in preview.notes)
    applied = old.apply(BOTH, n_clients=1, volume_nbytes=16 * MIB, fill=False)
    assert applied.ok, applied.mismatches
    assert applied.restarted == ("osd.0",)
    assert b"[osd.0]\nosd_op_num_shards = 3\n" in lab_cluster.conf.read_bytes()
    sources = state_of(lab_cluster)["osds"][0]["diff"]
    assert sources["osd_max_backfills"]["override"] == 3
    assert sources["osd_op_num_shards"]["file"] == 3


@pytest.mark.ceph
@pytest.mark.root
def test_pools_are_deleted_by_leave_that_is_injected_and_taken_back(lab_cluster: Lab, old: LabTarget) -> None:
    admin = RadosAdmin(lab_cluster.conf)
    (monitor,) = (f"mon.{mon['name']}" for mon in admin.command("mon dump")["mons"])
    try:
        admin.tell(monitor, "config set", var="mon_allow_pool_delete", val=["false"])
        declared = {"old-gold": {"crush_rule": "hdd", "size": "2", "pg_num": "8"}}
        old.declared_pools().apply(declared)
        assert old.declared_pools().remove(declared) == ("pool old-gold is deleted",)
        assert admin.tell(monitor, "config get", var="mon_allow_pool_delete") == {"mon_allow_pool_delete": "false"}
    finally:
        admin.tell(monitor, "config unset", var="mon_allow_pool_delete")
        admin.close()
