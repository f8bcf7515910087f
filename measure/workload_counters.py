"""What a workload's devices and this machine's CPUs did while it was measured, from the kernel's counters.

A run of a workload has more than its measured time: a database starts before it, and writes what is left in memory
after it. So the counters are read during the whole run, and evaluated for the measured time.
"""

import time
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import HostError
from cephfit.core.protocols import Client
from cephfit.core.units import NS_PER_S
from cephfit.core.waiting import Polling
from cephfit.measure.block_device import DeviceTotals, totals_of
from cephfit.measure.telemetry.kernel_counters import cpus_of_this_machine

_SECONDS = 0.1


class WorkloadCounters(Polling):
    """Reads the counters while a ``with`` block runs, ten times a second.

    Args:
        clients: of the run. Where one has no device on this machine, nothing is counted.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        super().__init__(self._read, seconds=_SECONDS, name="workload counters")
        self._devices = [client.device for client in clients if client.device is not None]
        self._is_here = len(self._devices) == len(clients)
        self._times_ns: list[int] = []
        self._cpus: list[tuple[float, int]] = []
        self._totals: list[list[int]] = []

    def device_io(self, begin_ns: int, end_ns: int) -> dict[str, int] | None:
        """Return what the devices completed in a time, summed: attributes of ``DeviceTotals``. JSON values only.

        Args:
            begin_ns: wall clock, ns since the epoch.
            end_ns: wall clock, after ``begin_ns``.

        Returns:
            None where the time was not covered, or the kernel does not count.
        """
        if not self._covers(begin_ns, end_ns) or len(self._totals) < len(self._times_ns):
            return None
        names = [field.name for field in fields(DeviceTotals)]
        series = np.array(self._totals, dtype=float)
        return {name: round(self._done(series[:, i], begin_ns, end_ns)) for i, name in enumerate(names)}

    def cpu_busy(self, begin_ns: int, end_ns: int) -> float | None:
        """Return the share of this machine's CPUs that was busy in a time, 0 to 1; arguments as ``device_io``."""
        if not self._covers(begin_ns, end_ns):
            return None
        done = self._done(np.array([busy for busy, _ in self._cpus]), begin_ns, end_ns)
        _, n_cpus = self._cpus[-1]
        return min(1.0, max(0.0, done * NS_PER_S / ((end_ns - begin_ns) * n_cpus)))

    def _covers(self, begin_ns: int, end_ns: int) -> bool:
        return self._is_here and self._times_ns[0] <= begin_ns < end_ns <= self._times_ns[-1]

    def _done(self, counts: NDArray[np.float64], begin_ns: int, end_ns: int) -> float:
        """Return the difference of a counter between two moments, linear between readings."""
        begin, end = np.interp([begin_ns, end_ns], self._times_ns, counts)
        return float(end - begin)

    def _read(self) -> None:
        if not self._is_here:
            return
        try:
            totals = [totals_of(device) for device in self._devices]
        except HostError:  # the kernel does not count, or the device is gone, which the workload reports
            totals = []
        self._times_ns.append(time.time_ns())
        self._cpus.append(cpus_of_this_machine())
        if totals:
            self._totals.append(
                [sum(getattr(one, field.name) for one in totals) for field in fields(DeviceTotals)]
            )
