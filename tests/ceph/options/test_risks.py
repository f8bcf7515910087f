"""Which settings are named as risks, and which of their values."""

import pytest

from cephfit.ceph.options.option import risk_of
from cephfit.core.values.configuration import Partition, Setting, Value


@pytest.mark.parametrize(
    ("scope", "key", "value"),
    [
        ("osd", "osd_heartbeat_grace", 5),
        ("osd", "osd_heartbeat_interval", 60),
        ("osd", "osd_heartbeat_min_healthy_ratio", 0),
        ("osd", "osd_op_thread_suicide_timeout", 1),
        ("mon", "mon_osd_down_out_interval", 30),
        ("mon", "mon_osd_down_out_subtree_limit", "osd"),
        ("mon", "mon_osd_report_timeout", 60),
        ("mon", "mon_osd_min_down_reporters", 1),
        ("mon", "mon_osd_min_in_ratio", 0),
        ("osd", "osd_failsafe_full_ratio", 0.99),
        ("global", "mon_osd_full_ratio", 0.99),
        ("global", "mon_osd_backfillfull_ratio", 0.99),
        ("osd_host", "vm.panic_on_oom", 1),
        ("osd_host", "vm/panic_on_oom", 1),
        ("osd_host", "vm.overcommit_memory", 2),
        ("osd_host", "kernel/sched_migration_cost_ns", 1),
    ],
)
def test_what_may_take_osds_or_hosts_out_of_a_cluster_is_a_risk(scope: str, key: str, value: Value) -> None:
    partition = Partition.GREATER if scope == "osd_host" else Partition.CEPH
    assert risk_of(Setting(partition, scope, key, value)) is not None


@pytest.mark.parametrize(
    ("scope", "key", "value"),
    [
        ("osd", "osd_heartbeat_grace", 30),
        ("osd", "osd_max_backfills", 3),
        ("osd", "osd_pool_default_cache_target_full_ratio", 0.8),
        ("osd_host", "vm.dirty_ratio", 5),
        ("osd_host", "vm/swappiness", 10),
    ],
)
def test_what_only_changes_performance_is_none(scope: str, key: str, value: Value) -> None:
    partition = Partition.GREATER if scope == "osd_host" else Partition.CEPH
    assert risk_of(Setting(partition, scope, key, value)) is None
