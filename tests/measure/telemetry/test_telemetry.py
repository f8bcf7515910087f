"""What hosts and daemons did during a run, and what it was bound by."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cephfit.ceph.host import LocalHost
from cephfit.core.protocols import NullProgress
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome
from cephfit.measure.telemetry import kernel_counters, osd_counters
from cephfit.measure.telemetry.bottleneck import bottleneck_of, cpu_of_clients, thread_cpu
from cephfit.measure.telemetry.kernel_counters import CpuTime, DiskCounters, HostCounters, ThreadCounters
from cephfit.measure.telemetry.osd_counters import OsdCounters, Timed
from cephfit.measure.telemetry.telemetry_collector import (
    CounterReading,
    DeviceRoles,
    LocalTelemetryCollector,
    used_between,
)
from cephfit.results.store.sample_store import Store
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep
from cephfit.targets.simulated import SimulatedEngine, SimulatedTarget


def host(busy: float = 0.0, disk_busy: float = 0.0, **more: object) -> HostCounters:
    fields = {
        "at_seconds": 0.0,
        "n_cpus": 4,
        "cpu_busy_seconds": busy,
        "memory_nbytes": 1 << 30,
        "memory_available_nbytes": 1 << 29,
        "disks": {"sdb": DiskCounters(0, 0, 0, 0, 0.0, disk_busy)},
        "received_nbytes": {"eth0": 0},
        "sent_nbytes": {"eth0": 0},
        **more,
    }
    return HostCounters(**fields)  # type: ignore[arg-type]


def used(after: HostCounters, osd: OsdCounters | None = None) -> dict:
    places = DeviceRoles({"h": {"sdb": "osd.0 (hdd)"}}, {"h": {"eth0": 125_000_000}})
    before = CounterReading({"h": host()}, {0: OsdCounters()})
    return used_between(before, CounterReading({"h": after}, {0: osd or OsdCounters()}), places, io_seconds=10.0)


def test_the_counters_of_this_machine_are_read_and_only_grow():
    before = kernel_counters.counters_of_host(LocalHost())
    sum(range(3_000_000))
    after = kernel_counters.counters_of_host(LocalHost())
    assert after.at_seconds > before.at_seconds
    assert after.cpu_busy_seconds > before.cpu_busy_seconds
    assert 0 < after.memory_available_nbytes < after.memory_nbytes
    assert after.n_cpus >= 1
    assert after.processes[1][1] >= 0


def stat_line(path: str, name: str, user: int, system: int, flags: int = 4194304) -> str:
    return f"{path}:12 ({name}) S 1 12 12 0 -1 {flags} 1 0 0 0 {user} {system} 0 0 20 0 1 0 7 0 0"


def test_a_programs_name_may_have_spaces_and_parentheses():
    line = stat_line("/proc/12/stat", "a (odd) name", 250, 50)
    found = kernel_counters.parse_threads(line)
    assert found == {(12, 0): ThreadCounters("a (odd) name", CpuTime(2.5, 0.5))}


def test_a_disk_that_was_always_busy_is_the_bottleneck():
    found = bottleneck_of(used(host(busy=2.0, disk_busy=9.7)))
    assert found.what == "disks of hdd"
    assert found.sentence == "the disk of osd.0 (hdd) was at its limit: busy 97 % of the time"


def test_a_busy_cpu_is_named_with_the_programs_that_had_it():
    after = host(busy=32.0, processes={7: ("ceph-osd", 28.0), 8: ("fio", 2.0), 9: ("sh", 0.1)})
    found = bottleneck_of(used(after))
    assert found.what == "CPU"
    assert found.sentence == "the CPU of h was near its limit: busy 80 % of the time (ceph-osd 70 %, fio 5 %)"


def test_a_full_link_is_the_bottleneck():
    found = bottleneck_of(used(host(sent_nbytes={"eth0": 1_240_000_000})))
    assert (found.what, found.sentence) == ("network", "eth0 of h was at its limit: busy 99 % of the time")


def test_where_nothing_was_near_its_limit_the_time_of_an_io_is_taken_apart():
    osd = OsdCounters(writes=Timed(1000, 5.0), commits=Timed(1000, 4.0))
    found = bottleneck_of(used(host(busy=4.0, disk_busy=3.0), osd))
    assert found.what == "latency of disks"
    assert found.sentence.startswith("of 5.00 ms of a write at the OSDs, the slowest disk took 4.00 ms")
    osd = OsdCounters(reads=Timed(1000, 5.0), disk_reads=Timed(1000, 1.0))
    assert bottleneck_of(used(host(), osd)).what == "latency"


def test_a_client_whose_one_thread_has_a_whole_cpu_is_the_bottleneck():
    """One of 32 CPUs is 3 % of the machine: the host's own counters show nothing of it."""
    seen = used(host(n_cpus=32, busy=10.0, disk_busy=5.0))
    assert bottleneck_of(seen).what != "CPU of clients"
    found = bottleneck_of(
        {**seen, "clients": {"c0": {"user": 0.3, "system": 0.2}, "c1": {"user": 0.6, "system": 0.35}}}
    )
    assert found.what == "CPU of clients"
    assert found.sentence == (
        "the one thread of client c1 was at its limit: busy 95 % of the time of one CPU (user 60 %, system 35 %); "
        "only more clients can use the storage's remaining capacity"
    )


def test_a_client_below_its_limit_is_not_named():
    seen = used(host(busy=4.0, disk_busy=8.0))
    busy = {"c0": {"user": 0.6, "system": 0.29}}
    assert bottleneck_of({**seen, "clients": busy}).what == "disks of hdd"


def test_what_is_busier_than_a_client_is_named_before_it():
    seen = used(host(busy=4.0, disk_busy=9.9))
    assert bottleneck_of({**seen, "clients": {"c0": {"user": 0.9, "system": 0.05}}}).what == "disks of hdd"


def test_a_job_of_fio_says_what_its_thread_had_of_a_cpu():
    assert thread_cpu({"usr_cpu": 61.25, "sys_cpu": 30.5}) == {"user": 0.6125, "system": 0.305}
    assert thread_cpu({"jobname": "c0"}) == {}, "an engine that does not say it"


def test_clients_that_do_not_say_what_they_had_are_left_out():
    outcomes = {
        "c0": ClientOutcome(None, evidence={"cpu": {"user": 0.5, "system": 0.1}}),
        "c1": ClientOutcome(None),
    }
    assert cpu_of_clients(outcomes) == {"c0": {"user": 0.5, "system": 0.1}}


def test_a_target_without_osds_has_the_utilization_of_this_machine() -> None:
    collector = LocalTelemetryCollector()
    before = collector.read_counters()
    until = os.times().user + 0.2  # as the kernel accounts it in /proc; the processor's clock may differ from that
    while os.times().user < until:
        sum(range(10_000))
    found = collector.used(before, collector.read_counters(), io_seconds=0.5, clients=(), cpu={})
    (figures,) = found["hosts"].values()
    assert figures["cpu_by_layer"]["other programs"]["user"] > 0.3
    assert "OSDs" not in found["bottleneck"]["sentence"]


class Watcher:
    """A telemetry collector without readings; keeps the CPU shares of the clients."""

    def __init__(self) -> None:
        self.shares: list[dict[str, Mapping[str, float]]] = []

    def read_counters(self) -> CounterReading:
        return CounterReading({}, {})

    def used(
        self, before: CounterReading, after: CounterReading, *, cpu: Mapping[str, Mapping[str, float]], **_: Any
    ) -> dict[str, Any]:
        self.shares.append(dict(cpu))
        found = bottleneck_of({"hosts": {}, "osds": {}, "clients": cpu})
        return {"bottleneck": {"what": found.what, "sentence": found.sentence}}


class Watched(SimulatedTarget):
    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher

    def telemetry(self) -> Watcher:
        return self._watcher


class Straining(SimulatedEngine):
    """Its clients say that their threads had a whole CPU."""

    def run(self, run: CellRun) -> CellOutcome:
        outcome = super().run(run)
        strained = {
            name: replace(given, evidence={**given.evidence, "cpu": {"user": 0.7, "system": 0.3}})
            for name, given in outcome.clients.items()
        }
        return replace(outcome, clients=strained)


@pytest.mark.parametrize("limited", [False, True])
def test_a_sweep_names_clients_at_their_limit_unless_they_were_held_back(
    small_sweep: Sweep, store: Store, limited: bool
) -> None:
    watcher = Watcher()
    target = Watched(watcher)
    measurement = replace(small_sweep.measurement, repeats=1, rate_iops=10 if limited else None)
    sweep = replace(small_sweep, measurement=measurement, configurations=small_sweep.configurations[:1])
    run = run_sweep(sweep, target, store, NullProgress(), resume=None, engine=Straining(target))
    used = [s.evidence["used"] for s in store.samples(run.run_id) if s.key.client == "c0"]
    causes = {said["bottleneck"]["what"] for said in used}
    assert causes == ({"unknown"} if limited else {"CPU of clients"})
    assert all(bool(shares) is not limited for shares in watcher.shares)


def test_queues_that_were_full_are_named():
    osd = OsdCounters(writes=Timed(1000, 5.0), throttled=Timed(400, 3.0))
    assert bottleneck_of(used(host(), osd)).what == "queue limits"


def test_counters_of_an_osd_that_was_restarted_begin_anew():
    before = OsdCounters(reads=Timed(100, 1.0), commits=Timed(50, 1.0))
    after = OsdCounters(reads=Timed(7, 0.1))
    assert after.since(before) == after


def test_what_an_osd_counts_is_read_from_bluestore_and_filestore():
    bluestore = {
        "osd": {"op_w_latency": {"avgcount": 2, "sum": 1.0}},
        "bluestore": {"commit_lat": {"avgcount": 3, "sum": 0.5}},
    }
    filestore = {"filestore": {"journal_latency": {"avgcount": 4, "sum": 0.25}}}
    assert osd_counters.parse(bluestore).commits == Timed(3, 0.5)
    assert osd_counters.parse(bluestore).writes == Timed(2, 1.0)
    assert osd_counters.parse(filestore).commits == Timed(4, 0.25)
