"""The commands that people type: each setting once, in an order that works, and undone in reverse."""

import os
import subprocess
from pathlib import Path

import pytest

from cephfit.ceph.delivery.shell_commands import Present, commands_for, parts_of, undo_lines
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.sweep.declaration.sweep_file import bundled_sweeps, find_sweep, read_sweep

CEPH, POOL, GREATER = Partition.CEPH, Partition.POOL, Partition.GREATER
AT_RUNTIME = {"osd_max_backfills": True, "rbd_cache": True}


def acts(key: str) -> bool:
    return AT_RUNTIME.get(key, False)


def lines(*settings: Setting, present: Present | None = None) -> list[str]:
    found = commands_for(Configuration("c", settings), acts_at_runtime=acts, pool="vms", present=present)
    return [c.do for c in found]


@pytest.mark.parametrize("sweep", sorted(bundled_sweeps()))
def test_every_setting_of_every_bundled_sweep_is_named_or_left_with_a_reason(sweep: str) -> None:
    for configuration in read_sweep(find_sweep(sweep)).configurations:
        parts = parts_of(configuration)
        by_hand = {setting for setting, why in parts.by_hand if why}
        assert set(parts.settings) | by_hand == set(configuration.settings)
        assert not set(parts.settings) & by_hand
        commands = commands_for(configuration, acts_at_runtime=acts)
        named = {setting for command in commands for setting in command.settings}
        assert named >= set(parts.settings)
        assert all(c.undo for c in commands if not c.do.startswith(("rbd create", "ceph osd crush rule")))


def test_an_option_is_set_and_removed_again_or_gets_its_old_value() -> None:
    configuration = Configuration("c", (Setting(CEPH, "osd", "osd_max_backfills", 3),))
    (unknown,) = commands_for(configuration, acts_at_runtime=acts)
    assert unknown.do == "ceph config set osd osd_max_backfills 3"
    assert unknown.undo == "ceph config rm osd osd_max_backfills"
    assert unknown.look == "ceph config dump | grep -w osd_max_backfills"
    present = Present(stored={("osd", "osd_max_backfills"): "7"})
    (known,) = commands_for(configuration, acts_at_runtime=acts, present=present)
    assert (known.undo, known.look) == ("ceph config set osd osd_max_backfills 7", "")


def test_what_is_read_at_the_start_goes_to_each_osd_and_ends_with_restarts() -> None:
    setting = Setting(CEPH, "osd/class:hdd", "osd_op_num_shards", 3)
    assert lines(setting) == [
        "for osd in $(ceph osd crush class ls-osd hdd); do ceph config set osd.$osd osd_op_num_shards 3; done",
        "for osd in $(ceph osd ls); do until ceph osd ok-to-stop $osd; do sleep 5; done; "
        "ceph orch daemon restart osd.$osd; sleep 30; done",
    ]


def test_single_osds_get_their_known_values_again() -> None:
    setting = Setting(CEPH, "osd/class:hdd", "osd_op_num_shards", 3)
    stored = {
        ("osd.1", "osd_op_num_shards"): "7",
        ("osd.2", "osd_max_backfills"): "5",
        ("osd", "osd_op_num_shards"): "4",
        ("osd/class:ssd", "osd_op_num_shards"): "6",
    }
    configuration = Configuration("c", (setting,))
    command, _ = commands_for(configuration, acts_at_runtime=acts, present=Present(stored=stored))
    assert command.undo == (
        "for osd in $(ceph osd crush class ls-osd hdd); do ceph config rm osd.$osd osd_op_num_shards; done; "
        "ceph config set osd.1 osd_op_num_shards 7"
    )
    assert command.look == "", "everything is known"
    unknown, _ = commands_for(configuration, acts_at_runtime=acts)
    assert unknown.undo.endswith("ceph config rm osd.$osd osd_op_num_shards; done")
    assert unknown.look == "ceph config dump | grep -w osd_op_num_shards"


def test_printed_lines_restore_every_stored_value(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    stored.mkdir()
    for osd, value in {"osd.1": "7", "osd.5": "9"}.items():  # osd.5 has another class
        (stored / osd).write_text(value)
    ceph = tmp_path / "ceph"
    ceph.write_text(
        f"""#!/bin/sh
case "$1 $2 $3" in
"osd crush class") echo 0; echo 1;;
"config set "*) printf %s "$5" > {stored}/$3;;
"config rm "*) rm -f {stored}/$3;;
esac
"""
    )
    ceph.chmod(0o755)

    def values() -> dict[str, str]:
        return {path.name: path.read_text() for path in stored.iterdir()}

    before = values()
    setting = Setting(CEPH, "osd/class:hdd", "osd_op_num_shards", 3)
    present = Present(stored={(osd, "osd_op_num_shards"): value for osd, value in before.items()})
    command, _ = commands_for(Configuration("c", (setting,)), acts_at_runtime=acts, present=present)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", command.do], env=environment, check=True)
    assert values() == {"osd.0": "3", "osd.1": "3", "osd.5": "9"}
    subprocess.run(["bash", "-euc", command.undo], env=environment, check=True)
    assert values() == before


def test_a_masked_option_that_acts_at_runtime_keeps_its_mask() -> None:
    assert lines(Setting(CEPH, "osd/class:hdd", "osd_max_backfills", 3)) == [
        "ceph config set osd/class:hdd osd_max_backfills 3"
    ]


def test_the_host_comes_after_the_class_because_the_last_line_wins() -> None:
    host = Setting(CEPH, "osd/host:a", "osd_op_num_shards", 4)
    found = lines(host, Setting(CEPH, "osd/class:hdd", "osd_op_num_shards", 3))
    assert ["class ls-osd" in found[0], "ls-tree a" in found[1]] == [True, True]


def test_a_pool_gets_its_size_before_its_other_values_and_is_undone_in_reverse() -> None:
    settings = (Setting(POOL, "pool", "compression_mode", "force"), Setting(POOL, "pool", "size", 2))
    present = Present(stored={}, pool={"size": "3", "min_size": "3", "compression_mode": None})
    commands = commands_for(Configuration("c", settings), acts_at_runtime=acts, pool="my pool", present=present)
    assert [c.do for c in commands] == [
        "ceph osd pool set 'my pool' size 2",
        "ceph osd pool set 'my pool' compression_mode force",
    ]
    assert [line for _, line in undo_lines(commands)] == [
        "ceph osd pool set 'my pool' compression_mode unset",
        "ceph osd pool set 'my pool' size 3 && ceph osd pool set 'my pool' min_size 3",
    ]


def test_min_size_comes_after_size_because_ceph_resets_it_in_both_directions() -> None:
    settings = (Setting(POOL, "pool", "min_size", 1), Setting(POOL, "pool", "size", 2))
    commands = commands_for(Configuration("c", settings), acts_at_runtime=acts, pool="vms")
    assert [c.do for c in commands] == ["ceph osd pool set vms size 2", "ceph osd pool set vms min_size 1"]
    assert [line for _, line in undo_lines(commands)] == [
        "ceph osd pool set vms size OLD_SIZE && ceph osd pool set vms min_size OLD_MIN_SIZE"
    ]
    assert [c.look for c in commands] == ["ceph osd pool get vms size && ceph osd pool get vms min_size", ""]
    present = Present(stored={}, pool={"size": "3", "min_size": "3"})
    commands = commands_for(Configuration("c", settings), acts_at_runtime=acts, pool="vms", present=present)
    assert [line for _, line in undo_lines(commands)] == [
        "ceph osd pool set vms size 3 && ceph osd pool set vms min_size 3"
    ]


def test_a_number_that_a_pool_did_not_have_is_removed_by_0() -> None:
    ratio = Configuration("c", (Setting(POOL, "pool", "compression_required_ratio", 0.7),))
    for present in (None, Present(stored={}, pool={"compression_required_ratio": None})):
        (command,) = commands_for(ratio, acts_at_runtime=acts, pool="vms", present=present)
        assert command.undo == "ceph osd pool set vms compression_required_ratio 0"


def test_min_size_alone_is_undone_alone() -> None:
    (command,) = commands_for(
        Configuration("c", (Setting(POOL, "pool", "min_size", 1),)), acts_at_runtime=acts, pool="vms"
    )
    assert command.undo == "ceph osd pool set vms min_size OLD_MIN_SIZE"


def test_devices_of_a_pool_need_a_rule_of_their_own() -> None:
    settings = (Setting(POOL, "pool", "devices.class", "ssd"), Setting(POOL, "pool", "failure_domain", "rack"))
    commands = commands_for(Configuration("c", settings), acts_at_runtime=acts, pool="vms")
    assert [c.do for c in commands] == [
        "ceph osd crush rule create-replicated vms default rack ssd",
        "ceph osd pool set vms crush_rule vms",
    ]
    assert commands[1].undo == "ceph osd pool set vms crush_rule OLD_CRUSH_RULE; ceph osd crush rule rm vms"


def test_the_scheduler_of_a_disk_comes_before_what_it_resets() -> None:
    found = lines(
        Setting(GREATER, "osd_disk/class:hdd", "nr_requests", 64),
        Setting(GREATER, "osd_disk/class:hdd", "scheduler", "bfq"),
        Setting(GREATER, "osd_host", "vm.dirty_ratio", 5),
    )
    assert found == [
        "echo bfq > /sys/block/DISK/queue/scheduler",
        "echo 64 > /sys/block/DISK/queue/nr_requests",
        "sysctl -w vm.dirty_ratio=5",
    ]


def test_settings_of_a_new_pool_or_image_are_left_with_reasons() -> None:
    parts = parts_of(
        Configuration(
            "c",
            (
                Setting(POOL, "pool", "erasure.k", 2),
                Setting(POOL, "pool", "erasure.m", 1),
                Setting(POOL, "pool", "pg_num", 32),
                Setting(POOL, "image", "object_size", "1M"),
                Setting(CEPH, "client", "rbd_cache", True),
            ),
        )
    )
    assert [s.key for s in parts.settings] == ["rbd_cache"]
    assert {s.key: why.split()[0] for s, why in parts.by_hand} == {
        "erasure.k": "a",
        "erasure.m": "a",
        "pg_num": "a",
        "object_size": "an",
    }
