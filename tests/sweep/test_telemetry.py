"""What hosts and daemons did during a run, and what it was bound by."""

from cephfit.sweep.hosts.local_host import LocalHost
from cephfit.sweep.telemetry import kernel_counters, osd_counters
from cephfit.sweep.telemetry.bottleneck import bottleneck_of
from cephfit.sweep.telemetry.kernel_counters import DiskCounters, HostCounters
from cephfit.sweep.telemetry.osd_counters import OsdCounters, Timed
from cephfit.sweep.telemetry.use import Look, Places, used_between


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
    places = Places({"h": {"sdb": "osd.0 (hdd)"}}, {"h": {"eth0": 125_000_000}})
    before = Look({"h": host()}, {0: OsdCounters()})
    return used_between(before, Look({"h": after}, {0: osd or OsdCounters()}), places, io_seconds=10.0)


def test_the_counters_of_this_machine_are_read_and_only_grow():
    before = kernel_counters.counters_of_host(LocalHost())
    sum(range(3_000_000))
    after = kernel_counters.counters_of_host(LocalHost())
    assert after.at_seconds > before.at_seconds
    assert after.cpu_busy_seconds > before.cpu_busy_seconds
    assert 0 < after.memory_available_nbytes < after.memory_nbytes
    assert after.n_cpus >= 1
    assert after.processes[1][1] >= 0


def test_a_programs_name_may_have_spaces_and_parentheses():
    line = "12 (a (odd) name) S 1 12 12 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 7 0 0"
    assert kernel_counters.parse_processes(line) == {12: ("a (odd) name", 3.0)}


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
