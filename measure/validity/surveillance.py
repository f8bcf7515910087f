"""Surveillance of a target while a cell is measured: its health, disturbances and telemetry.

Health is checked during the measurement (rule 3 of the design), hosts and daemons before and after it.
"""

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client, Health, Target
from cephfit.core.units import format_seconds
from cephfit.measure.telemetry.telemetry_collector import ClientCpu, CounterReading, TelemetryCollector
from cephfit.measure.validity.disturbances import ChecksClients, HasTelemetry, Mark, ReportsDisturbances

POLLING_SECONDS = 0.5


def health_now(target: Target) -> Health:
    """Return the target's health; a cluster that does not answer is not healthy."""
    try:
        return target.health()
    except ClusterError as error:
        return Health(ok=False, reasons=(error.what,))


class HealthWatch:
    """Checks the health twice a second while a ``with`` block runs, and once more at its end."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._check_until_over, name="health watch", daemon=True)
        self.n_health_checks = 0
        self._reasons: dict[str, None] = {}
        self._fault: BaseException | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why a health check failed, each once; empty if all succeeded."""
        return tuple(self._reasons)

    def __enter__(self) -> "HealthWatch":
        self._check()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            if self._fault is not None:
                raise self._fault
            self._check()

    def _check_until_over(self) -> None:
        while not self._over.wait(POLLING_SECONDS):
            try:
                self._check()
            except BaseException as fault:
                self._fault = fault
                return

    def _check(self) -> None:
        health = health_now(self._target)
        self.n_health_checks += 1
        if not health.ok:
            self._reasons.update(dict.fromkeys(health.reasons or ("not healthy",)))


def wait_until_healthy(
    target: Target,
    *,
    limit_seconds: float,
    note: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the target is healthy.

    Args:
        target: to wait for.
        limit_seconds: longest time to wait.
        note: receives one note if the target is not healthy yet.
        sleep: for tests.

    Raises:
        ClusterError: the target is still unhealthy after ``limit_seconds``.
    """
    deadline = time.monotonic() + limit_seconds
    noted = False
    while not (health := health_now(target)).ok:
        why = "; ".join(health.reasons) or "no reason given"
        if time.monotonic() >= deadline:
            raise ClusterError(
                f"still not healthy after {format_seconds(limit_seconds)}: {why}",
                where=target.name,
                remedy=f"{_remedy(health.reasons)}, then run the same command again to continue",
            )
        if not noted:
            note(f"waiting for {target.name} to be healthy: {why}")
            noted = True
        sleep(POLLING_SECONDS)


def _remedy(reasons: tuple[str, ...]) -> str:
    if reasons and all("scrubbing" in reason for reason in reasons):
        return "suspend scrubs during the sweep (`ceph osd set noscrub`, `ceph osd set nodeep-scrub`)"
    return "repair the cluster"


class Surveillance:
    """Watches a target while a ``with`` block runs.

    The health is checked twice a second (one monitor command). The counters of hosts and daemons are read before
    and after the block, so that reading them does not change the measurement. The block does not start if a
    client's device is no longer its volume.

    Args:
        target: under measurement.
        telemetry: collector for its hosts and daemons, kept from run to run; None where there is none.
    """

    def __init__(self, target: Target, telemetry: TelemetryCollector | None) -> None:
        self._target = target
        self._telemetry = telemetry
        self._health = HealthWatch(target)
        self._mark: Mark | None = None
        self._disturbances: tuple[str, ...] = ()
        self._before: CounterReading | None = None
        self._after: CounterReading | None = None

    @property
    def n_health_checks(self) -> int:
        """Number of health checks."""
        return self._health.n_health_checks

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the measurement is invalid, each once; empty if it is valid."""
        return tuple(dict.fromkeys((*self._health.reasons, *self._disturbances)))

    def used(
        self, *, io_seconds: float, clients: Iterable[Client], cpu: ClientCpu | None = None
    ) -> dict[str, Any] | None:
        """Return the utilization of hosts and daemons and the run's bottleneck; None without telemetry.

        See ``TelemetryCollector.used``.
        """
        if self._telemetry is None or self._before is None or self._after is None:
            return None
        return self._telemetry.used(
            self._before, self._after, io_seconds=io_seconds, clients=clients, cpu=cpu or {}
        )

    def __enter__(self) -> "Surveillance":
        if isinstance(self._target, ChecksClients):
            self._target.require_served()
        if isinstance(self._target, ReportsDisturbances):
            try:
                self._mark = self._target.mark()
            except ClusterError as error:
                self._disturbances = (error.what,)
        self._before = self._read_counters()
        self._health.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._after = self._read_counters() if kind is None else None
        self._health.__exit__(kind, error, tb)
        if kind is None and self._mark is not None and isinstance(self._target, ReportsDisturbances):
            try:
                self._disturbances = self._target.disturbances_since(self._mark)
            except ClusterError as refused:
                self._disturbances = (refused.what,)

    def _read_counters(self) -> CounterReading | None:
        if self._telemetry is None:
            return None
        try:
            return self._telemetry.read_counters()
        except ClusterError as error:
            return CounterReading({}, {}, (error.what,))


def telemetry_of(target: Target) -> TelemetryCollector | None:
    """Return the collector for the target's hosts and daemons; None if it has none."""
    return target.telemetry() if isinstance(target, HasTelemetry) else None
