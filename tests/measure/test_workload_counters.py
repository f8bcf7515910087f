"""Counters of a workload's devices and of the CPUs, for the measured part of a run."""

import time
from pathlib import Path

import pytest

from cephfit.core.errors import HostError
from cephfit.core.protocols import Client
from cephfit.measure import workload_counters
from cephfit.measure.block_device import DeviceTotals
from cephfit.measure.workload_counters import WorkloadCounters

S = 10**9
CLIENT = Client("c0", {}, 1 << 20, device=Path("/dev/x"))


class Kernel:
    """Answers in place of the kernel: a moment, the CPUs' busy seconds, and what each device completed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.busy, self.totals = 0, 0.0, DeviceTotals(0, 0, 0, 0)
        monkeypatch.setattr(time, "time_ns", lambda: self.now_ns)
        monkeypatch.setattr(workload_counters, "cpus_of_this_machine", lambda: (self.busy, 2))
        monkeypatch.setattr(workload_counters, "totals_of", lambda device: self.totals)
        monkeypatch.setattr(workload_counters, "_SECONDS", 3600.0)  # readings are made by the test

    def at(self, counters: WorkloadCounters, second: float, busy: float, n_reads: int, n_writes: int) -> None:
        self.now_ns, self.busy = round(second * S), busy
        self.totals = DeviceTotals(n_reads, 4096 * n_reads, n_writes, 4096 * n_writes)
        counters._poll()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_what_happens_before_and_after_the_measured_time_does_not_count(kernel: Kernel) -> None:
    """A database that starts for 1 s, is measured for 2 s, and then writes 1,000 pages."""
    with WorkloadCounters([CLIENT]) as counters:
        for second, busy, reads, writes in ((1, 1.5, 50, 0), (3, 2.5, 150, 20), (4, 4.5, 150, 1020)):
            kernel.at(counters, second, busy, reads, writes)
    assert counters.device_io(1 * S, 3 * S) == {
        "n_reads": 100,
        "read_nbytes": 409600,
        "n_writes": 20,
        "written_nbytes": 81920,
    }
    assert counters.cpu_busy(1 * S, 3 * S) == pytest.approx(0.25), "one second of two CPUs in 2 s"
    assert counters.cpu_busy(3 * S, 4 * S) == 1.0
    assert counters.device_io(int(1.5 * S), 2 * S)["n_reads"] == 25, "even between two readings"


def test_several_devices_are_summed(kernel: Kernel) -> None:
    with WorkloadCounters([CLIENT, CLIENT]) as counters:
        kernel.at(counters, 2, 1.0, 8, 3)
    assert counters.device_io(0, 2 * S)["n_reads"] == 16


@pytest.mark.parametrize(("begin", "end"), [(-1, 1), (1, 3), (1, 1), (2, 1)])
def test_a_time_that_was_not_covered_has_no_figures(kernel: Kernel, begin: int, end: int) -> None:
    with WorkloadCounters([CLIENT]) as counters:
        kernel.at(counters, 2, 1.0, 8, 3)
    assert counters.device_io(begin * S, end * S) is None
    assert counters.cpu_busy(begin * S, end * S) is None


def test_a_client_on_another_machine_has_no_figures(kernel: Kernel) -> None:
    with WorkloadCounters([CLIENT, Client("guest", {}, 1 << 20)]) as counters:
        pass
    assert counters.device_io(0, S) is None and counters.cpu_busy(0, S) is None


def test_a_device_that_the_kernel_does_not_count_leaves_the_cpus(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(device: Path) -> DeviceTotals:
        raise HostError("no counters")

    monkeypatch.setattr(workload_counters, "totals_of", refuse)
    with WorkloadCounters([CLIENT]) as counters:
        kernel.at(counters, 2, 1.0, 8, 3)
    assert counters.device_io(0, S) is None
    assert counters.cpu_busy(0, 2 * S) == pytest.approx(0.25)
