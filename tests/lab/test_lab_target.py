"""Configurations on the real lab: applied, read back, undone."""

import mmap
import os
import signal
import time
from pathlib import Path

import pytest
from cluster_state import state_of

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.delivery.client_conf import live_sockets
from cephfit.ceph.volumes import Volume, Volumes
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Applied, Target
from cephfit.core.units import MIB
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value
from cephfit.lab.cluster import Lab
from cephfit.lab.devices.image_export import attached
from cephfit.lab.lab_target import LabTarget
from cephfit.targets.abilities import JudgesConfigurations

pytestmark = [pytest.mark.ceph, pytest.mark.root, pytest.mark.fio]

NBYTES = 16 * MIB
DEFAULT = Configuration("A")


def ceph(section: str, **options: Value) -> Configuration:
    settings = tuple(Setting(Partition.CEPH, section, key, value) for key, value in sorted(options.items()))
    return Configuration("tried", settings)


def pool(scope: str = "pool", **options: Value) -> Configuration:
    settings = tuple(Setting(Partition.POOL, scope, key, value) for key, value in sorted(options.items()))
    return Configuration("tried", settings)


def apply(target: LabTarget, configuration: Configuration, *, fill: bool = False) -> Applied:
    return target.apply(configuration, n_clients=1, volume_nbytes=NBYTES, fill=fill)


def test_it_is_a_target_that_judges(target: LabTarget) -> None:
    judge: JudgesConfigurations = target
    whole: Target = target
    assert isinstance(target, JudgesConfigurations)
    assert judge is whole


def test_devices_of_an_earlier_command_end_where_fio_opens_the_images(lab_cluster: Lab) -> None:
    """Their images are deleted: a program that still has one would flush its cache for ever."""
    size = {"n_clients": 1, "volume_nbytes": 16 * MIB}
    folder = lab_cluster.folder / "target"
    earlier = LabTarget(lab_cluster)
    try:
        assert earlier.apply(Configuration("A", ()), **size).ok
    finally:
        earlier.close()
    assert len(attached(folder)) == len(live_sockets(folder / "sock")) == 1
    target = LabTarget(lab_cluster, librbd=True)
    try:
        assert target.apply(Configuration("A", ()), **size).ok
        assert not attached(folder)
        assert not live_sockets(folder / "sock")
        target.drop_caches()
    finally:
        target.reset()
        target.close()


def test_a_runtime_option_needs_no_restart_and_runs_on_every_osd(target: LabTarget) -> None:
    applied = apply(target, ceph("osd", bluestore_max_blob_size_hdd="512K"))
    assert applied.ok, applied.mismatches
    assert applied.restarted == ()
    (found,) = applied.read_back.values()
    assert found == {f"osd.{osd}": "524288" for osd in range(4)}


def test_a_masked_option_that_is_read_once_restarts_its_class_only(target: LabTarget, lab_cluster: Lab) -> None:
    ssds = tuple(f"osd.{osd}" for osd in lab_cluster.osd_ids() if lab_cluster.device_class(osd) == "ssd")
    applied = apply(target, ceph("osd/class:ssd", osd_op_num_shards=3))
    assert applied.ok, applied.mismatches
    assert applied.restarted == ssds
    (found,) = applied.read_back.values()
    assert found == dict.fromkeys(ssds, "3")


def test_the_next_configuration_undoes_the_last_one(target: LabTarget, lab_cluster: Lab) -> None:
    before = state_of(lab_cluster)["config dump"]
    assert apply(target, ceph("osd", osd_client_message_cap=100)).ok
    assert state_of(lab_cluster)["config dump"] != before
    applied = apply(target, DEFAULT)
    assert applied.ok, applied.mismatches
    assert state_of(lab_cluster)["config dump"] == before


def test_an_option_that_was_set_before_gets_its_old_value_not_cephs_default(
    target: LabTarget, lab_cluster: Lab
) -> None:
    before = state_of(lab_cluster)
    assert apply(target, ceph("osd", osd_max_backfills=3)).ok
    target.reset()
    after = state_of(lab_cluster)
    assert after == before
    assert any(e["name"] == "osd_max_backfills" and e["value"] == "8" for e in after["config dump"])


def test_a_client_option_is_read_back_from_the_running_client(target: LabTarget) -> None:
    applied = apply(target, ceph("client", objecter_inflight_ops=128))
    assert applied.ok, applied.mismatches
    assert list(applied.read_back.values()) == [{"client 0": "128"}]


def test_a_value_that_ceph_refuses_is_reported_with_its_message(target: LabTarget, lab_cluster: Lab) -> None:
    # The catalogue cannot decide whether a text is a log level; the monitor does.
    before = state_of(lab_cluster)["config dump"]
    applied = apply(target, ceph("osd", osd_client_message_cap=7, debug_osd="many"))
    assert not applied.ok
    assert "many" in applied.mismatches[0]
    assert state_of(lab_cluster)["config dump"] == before


def test_an_invalid_value_is_refused_before_anything_is_changed(target: LabTarget, lab_cluster: Lab) -> None:
    before = state_of(lab_cluster)["config dump"]
    with pytest.raises(InputError, match="osd_max_backfills must be a whole number"):
        apply(target, ceph("osd", osd_client_message_cap=7, osd_max_backfills="many"))
    assert state_of(lab_cluster)["config dump"] == before


def test_a_value_that_does_not_take_effect_fails_the_configuration(target: LabTarget, lab_cluster: Lab) -> None:
    admin = RadosAdmin(lab_cluster.conf)
    admin.tell("osd.2", "config set", var="bluestore_max_blob_size_hdd", val=["131072"])
    try:
        applied = apply(target, ceph("osd", bluestore_max_blob_size_hdd="512K"))
        assert not applied.ok
        assert applied.mismatches == (
            "osd.2 runs bluestore_max_blob_size_hdd = 131072, not 512K: "
            "an override (`ceph tell ... config set`) sets 131072",
        )
    finally:
        admin.tell("osd.2", "config unset", var="bluestore_max_blob_size_hdd")
        admin.close()


def test_pool_and_image_settings_get_a_separate_pool(target: LabTarget, lab_cluster: Lab) -> None:
    settings = (
        Setting(Partition.POOL, "pool", "crush_rule", "hybrid"),
        Setting(Partition.POOL, "pool", "pg_num", 16),
        Setting(Partition.POOL, "pool", "size", 1),
        Setting(Partition.POOL, "image", "object_size", "64K"),
        Setting(Partition.POOL, "image", "stripe_count", 4),
        Setting(Partition.POOL, "image", "stripe_unit", "16K"),
    )
    applied = apply(target, Configuration("tried", settings))
    assert applied.ok, applied.mismatches
    values = {key.split("/")[-1]: next(iter(found.values())) for key, found in applied.read_back.items()}
    assert values == {
        "crush_rule = hybrid": "hybrid",
        "pg_num = 16": 16,
        "size = 1": 1,
        "object_size = 64K": 65536,
        "stripe_count = 4": 4,
        "stripe_unit = 16K": 16384,
    }
    target.reset()
    assert [p["poolname"] for p in state_of(lab_cluster)["pools"]] == [lab_cluster.spec.pool]


def test_kernel_queue_values_are_set_and_restored(target: LabTarget, lab_cluster: Lab) -> None:
    before = state_of(lab_cluster)
    settings = (
        Setting(Partition.GREATER, "client_disk", "read_ahead_kb", 0),
        Setting(Partition.GREATER, "osd_disk", "nr_requests", 64),
    )
    applied = apply(target, Configuration("tried", settings))
    assert applied.ok, applied.mismatches
    (client,) = target.clients()
    assert client.device is not None
    assert (Path("/sys/block") / client.device.name / "queue/read_ahead_kb").read_text() == "0\n"
    target.reset()
    assert state_of(lab_cluster) == before


def zero_pages(content: bytes) -> list[int]:
    return [at // 4096 for at in range(0, len(content), 4096) if content[at : at + 4096] == bytes(4096)]


def read_direct(device: Path) -> bytes:
    descriptor, page = os.open(device, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, NBYTES)
    try:
        return page[: os.preadv(descriptor, [page], 0)]
    finally:
        os.close(descriptor)


def test_volumes_are_filled_once_and_a_half_filled_one_again(target: LabTarget, lab_cluster: Lab) -> None:
    assert apply(target, DEFAULT, fill=True).ok
    (client,) = target.clients()
    device = Path(client.fio_options["filename"])
    content = device.read_bytes()
    assert len(content) == NBYTES
    # Random bytes; reading without the page cache, as fio does, shows whether the volume or the reading is wrong.
    assert (zero_pages(content), zero_pages(read_direct(device))) == ([], [])

    assert apply(target, DEFAULT, fill=True).ok
    (client,) = target.clients()  # its device may have changed
    assert Path(client.fio_options["filename"]).read_bytes() == content

    admin = RadosAdmin(lab_cluster.conf)
    volume = Volume("cephfit-default", "A.e3b0c442.c0.16M.bench", NBYTES)
    Volumes(admin).set_note(volume, "cephfit.filled", None)  # the state after a kill during the fill
    admin.close()
    assert apply(target, DEFAULT, fill=True).ok
    assert Path(target.clients()[0].fio_options["filename"]).read_bytes() != content


def test_volumes_that_do_not_fit_are_refused_before_anything_is_written(target: LabTarget) -> None:
    with pytest.raises(ClusterError, match=r"the volumes need 1153433M, the pool has .* free"):
        target.apply(DEFAULT, n_clients=1, volume_nbytes=1 << 40, fill=True)


def test_what_cannot_be_applied_is_named_with_reasons(target: LabTarget) -> None:
    def why(configuration: Configuration) -> str:
        return "; ".join(target.unsupported([configuration]).get("tried", ()))

    assert why(DEFAULT) == ""
    assert "osd_op_num_shards" in why(ceph("osd", osd_op_threads=4))
    assert why(ceph("osd", osd_max_backfill=1)) == (
        "this Ceph has no option osd_max_backfill; did you mean osd_max_backfills?"
    )
    assert "takes effect only when an OSD is created" in why(ceph("osd", bluestore_min_alloc_size_hdd="64K"))
    assert "no CRUSH rule nvme; it has" in why(pool(crush_rule="nvme"))
    unknown = Configuration("tried", (Setting(Partition.GREATER, "osd_disk", "speed", 9),))
    assert "no queue value speed" in why(unknown)
    applied = apply(target, ceph("osd", osd_op_threads=4))
    assert not applied.ok
    assert "removed" in applied.mismatches[0]


def test_filestore_options_on_bluestore_give_a_warning(target: LabTarget) -> None:
    tried = ceph("osd", filestore_op_threads=8)
    assert target.unsupported([tried]) == {}
    (warning,) = target.without_effect([tried])["tried"]
    assert "bluestore" in warning


def test_a_second_process_is_kept_out(target: LabTarget, lab_cluster: Lab) -> None:
    with pytest.raises(ClusterError, match=f"process {os.getpid()}.* is using this target"):
        LabTarget(lab_cluster)
    looking = LabTarget(lab_cluster, for_change=False)
    assert looking.health().ok
    with pytest.raises(ClusterError, match="reading only"):
        apply(looking, DEFAULT)
    looking.close()


def test_facts_have_versions_and_no_secrets(target: LabTarget, lab_cluster: Lab) -> None:
    facts = target.facts()
    assert {"ceph", "fio", "qemu", "kernel", "cephfit"} <= set(facts["versions"])
    assert facts["machine"]["clock_source"]
    assert {osd["device_class"] for osd in facts["osds"]} == {"hdd", "ssd"}
    secrets = [
        line.split("=", 1)[1].strip() for line in lab_cluster.keyring.read_text().splitlines() if "key =" in line
    ]
    assert secrets
    assert not any(secret in str(facts) for secret in secrets)


def test_caches_are_dropped(target: LabTarget) -> None:
    apply(target, DEFAULT, fill=True)
    (client,) = target.clients()
    Path(client.fio_options["filename"]).read_bytes()
    target.drop_caches()
    assert target.health().ok


def test_a_killed_osd_is_detected_and_refused(target: LabTarget, lab_cluster: Lab) -> None:
    assert target.health().ok
    victim = next(d for d in lab_cluster.status().daemons if d.name == "osd.3")
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    try:
        deadline = time.monotonic() + 30
        while (health := target.health()).ok and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not health.ok
        assert any("OSD_DOWN" in reason or "3 up" in reason for reason in health.reasons)
    finally:
        lab_cluster.start()
    assert target.health().ok
