"""The traffic of a cluster: what its hosts sent, and what the disks of its OSDs moved."""

from typing import Any

import pytest

from cephfit.ceph.host import LocalHost
from cephfit.core.errors import HostError
from cephfit.measure.telemetry import telemetry_collector
from cephfit.measure.telemetry.kernel_counters import DiskCounters, HostCounters
from cephfit.measure.telemetry.telemetry_collector import ClusterTelemetryCollector


class _Admin:
    def command(self, name: str) -> Any:
        assert name == "osd metadata", "the OSDs' own counters are not read"
        return [{"id": 0, "hostname": LocalHost().name, "devices": "vdx"}]


class _Hosts:
    def named(self, name: str) -> LocalHost:
        return LocalHost()


def collector() -> ClusterTelemetryCollector:
    return ClusterTelemetryCollector(_Admin(), _Hosts(), {0: "hdd"})  # type: ignore[arg-type]


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
