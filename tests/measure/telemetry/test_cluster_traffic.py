"""The traffic of a cluster: what its hosts sent, and what the disks of its OSDs moved."""

from collections.abc import Mapping
from typing import Any

import pytest

from cephfit.ceph.host import LocalHost
from cephfit.ceph.host_access import Hosts
from cephfit.core.errors import HostError
from cephfit.measure.telemetry import telemetry_collector
from cephfit.measure.telemetry.kernel_counters import DiskCounters, HostCounters
from cephfit.measure.telemetry.telemetry_collector import ClusterTelemetryCollector


class _Admin:
    def __init__(self, *osds: Mapping[str, Any]) -> None:
        self._osds = osds or ({"id": 0, "hostname": LocalHost().name, "devices": "vdx"},)

    def command(self, name: str) -> Any:
        assert name == "osd metadata", "the OSDs' own counters are not read"
        return self._osds

    def tell(self, daemon: str, name: str) -> Any:
        return {}


class _Hosts:
    def named(self, name: str) -> LocalHost:
        return LocalHost()


def collector(*osds: Mapping[str, Any], hosts: Any = None) -> ClusterTelemetryCollector:
    return ClusterTelemetryCollector(_Admin(*osds), hosts or _Hosts(), {0: "hdd", 1: "hdd"})  # type: ignore[arg-type]


def with_disks(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """This machine has these disks."""
    disks = {name: DiskCounters(1, 100, 2, 30, 0.3, 0.2) for name in names}
    counters = HostCounters(1.0, 2, 0.5, 10, 5, disks, {"lo": 3}, {"lo": 7, "eth0": 4})
    for read in ("device_counters_of", "counters_of_host"):
        monkeypatch.setattr(telemetry_collector, read, lambda host: counters)


def test_disks_of_others_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    disks = {name: DiskCounters(1, 100, 2, 30, 0.3, 0.2) for name in ("vdx", "vdy")}
    counters = HostCounters(1.0, 2, 0.5, 10, 5, disks, {"lo": 3}, {"lo": 7, "eth0": 4})
    monkeypatch.setattr(telemetry_collector, "device_counters_of", lambda host: counters)
    found = collector().traffic()
    of_disk = disks["vdx"]
    assert (found.wire_nbytes, found.disk_read_nbytes, found.disk_written_nbytes) == (
        11,
        of_disk.read_nbytes,
        of_disk.written_nbytes,
    )


def test_no_readable_host_is_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(host: object) -> HostCounters:
        raise HostError("no /proc here", where="host")

    monkeypatch.setattr(telemetry_collector, "device_counters_of", fails)
    with pytest.raises(HostError, match="no /proc here"):
        collector().traffic()


def disks_of(collector: ClusterTelemetryCollector) -> list[str]:
    reading = collector.read_counters()
    (here,) = collector.used(reading, reading, io_seconds=1.0, clients=(), cpu={})["hosts"].values()
    return list(here["disks"])


def test_a_disk_of_a_host_without_access_is_not_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most machines have a disk sda."""
    with_disks(monkeypatch, "sda")
    remote = collector({"id": 0, "hostname": "storage1", "devices": "sda"}, hosts=Hosts())
    assert remote.traffic().disk_written_nbytes is None
    assert disks_of(remote) == []


def test_a_disk_for_the_databases_of_several_osds_is_not_that_of_their_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_disks(monkeypatch, "sda", "sdb", "sdc")
    db = {"hostname": "here", "bluefs_db_devices": "sdc"}
    first = {"id": 0, "devices": "sda,sdc", "bluestore_bdev_devices": "sda", **db}
    second = {"id": 1, "devices": "sdb,sdc", "bluestore_bdev_devices": "sdb", **db}
    assert disks_of(collector(first, second)) == [
        "osd.0 (hdd)",
        "osd.1 (hdd)",
        "osd.0, osd.1: sdc (DB, WAL or journal)",
    ]
