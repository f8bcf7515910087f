"""The capacity that mClock uses, as a run records it."""

from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.pools.osd_capacity import capacity_warnings, mclock_facts


class Cluster:
    """Implements ``CephAdmin`` for one hdd and two ssd OSDs; osd.2 has a capacity measured on a busy disk."""

    def __init__(self, scheduler: str = "mclock_scheduler") -> None:
        self.scheduler = scheduler

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        if prefix == "config dump":
            return [
                {"section": "osd.1", "name": "osd_mclock_max_capacity_iops_ssd", "value": "60000"},
                {"section": "osd.2", "name": "osd_mclock_max_capacity_iops_ssd", "value": "9000"},
                {"section": "osd", "name": "osd_memory_target", "value": "1"},
            ]
        assert prefix == "config show"
        if self.scheduler == "":
            raise RefusedError("unknown", code=-22)
        who, key = arguments["who"], arguments["key"]
        return {
            "osd_op_queue": self.scheduler,
            "osd_mclock_profile": "balanced",
            "osd_mclock_max_capacity_iops_hdd": "315.000000",
            "osd_mclock_max_capacity_iops_ssd": {"osd.1": "60000.0", "osd.2": "9000.0"}.get(who),
        }[key]


CLASSES = {0: "hdd", 1: "ssd", 2: "ssd"}
ROTATIONAL = {0: True, 1: False, 2: False}


def test_the_facts_have_each_osds_capacity_and_whether_it_measured_it() -> None:
    osds = mclock_facts(Cluster(), CLASSES, ROTATIONAL)["osds"]
    assert [(o["capacity_iops"], o["measured_by_osd"]) for o in osds.values()] == [
        (315, False),
        (60000, True),
        (9000, True),
    ]


def test_capacities_of_one_class_that_differ_by_more_than_a_factor_of_two_are_warned_of() -> None:
    (warning,) = mclock_facts(Cluster(), CLASSES, ROTATIONAL)["warnings"]
    assert "osd.2 to serve 9000 IOPS and osd.1 60000" in warning
    alike = {
        "1": {"device_class": "ssd", "capacity_iops": 9000.0},
        "2": {"device_class": "ssd", "capacity_iops": 9900.0},
    }
    assert capacity_warnings(alike) == ()
    # Disks of other classes may differ.
    assert capacity_warnings({**alike, "3": {"device_class": "hdd", "capacity_iops": 300.0}}) == ()


def test_there_are_no_facts_under_wpq_and_where_the_monitor_refuses() -> None:
    assert mclock_facts(Cluster("wpq"), CLASSES, ROTATIONAL) == {}
    assert mclock_facts(Cluster(""), CLASSES, ROTATIONAL) == {}
