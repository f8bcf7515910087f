"""Surveillance of a target while a cell is measured, and the judgement which samples are valid.

Health is checked during the measurement (rule 3 of the design); disturbances and telemetry before and after it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client, Health, Target
from cephfit.core.units import format_seconds
from cephfit.core.values.sample import INDEPENDENT_COUNT, Sample, SampleKey, State, counted, not_counted
from cephfit.core.waiting import Polling
from cephfit.measure.disturbances import ChecksClients, HasTelemetry, Mark, ReportsDisturbances
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, disagreement
from cephfit.measure.telemetry.telemetry_collector import ClientCpu, CounterReading, TelemetryCollector

POLLING_SECONDS = 0.5


def health_now(target: Target) -> Health:
    """Return the target's health; a cluster that does not answer is not healthy."""
    try:
        return target.health()
    except ClusterError as error:
        return Health(ok=False, reasons=(error.what,))


class HealthWatch(Polling):
    """Checks the health twice a second while a ``with`` block runs, and once more at its end."""

    def __init__(self, target: Target) -> None:
        super().__init__(self._check, seconds=POLLING_SECONDS, name="health watch")
        self._target = target
        self.n_health_checks = 0
        self._reasons: dict[str, None] = {}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why a health check failed, each once; empty if all succeeded."""
        return tuple(self._reasons)

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


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Circumstances of a run.

    Attributes:
        started_ns: wall clock, ns since the epoch.
        finished_ns: wall clock; not before ``started_ns``.
        monotonic_ns: monotonic clock at start and end, because the wall clock may be set in between.
        unhealthy: reasons why a health check failed; empty if all succeeded.
        n_health_checks: number of health checks.
        used: utilization of hosts and daemons; None without telemetry.
    """

    started_ns: int
    finished_ns: int
    monotonic_ns: tuple[int, int]
    unhealthy: Sequence[str]
    n_health_checks: int
    used: Mapping[str, Any] | None = None


def judge(run: CellRun, outcome: CellOutcome, around: Circumstances) -> list[Sample]:
    """Return one sample per client.

    A sample is ``failed`` if the client has no result. It is ``invalid`` if a health check failed, if the program
    and the independent count disagree, or if another client of the same run is not ok: they shared the cluster.
    """
    verdicts = {
        client.name: _verdict(outcome.clients[client.name], outcome.program, around.unhealthy)
        for client in run.clients
    }
    broken = [f"client {name}: {reason}" for name, (state, reason) in verdicts.items() if state is not State.OK]
    samples = []
    for client in run.clients:
        state, reason = verdicts[client.name]
        if state is State.OK and broken:
            state, reason = State.INVALID, f"another client of the same run is not ok ({broken[0]})"
        given = outcome.clients[client.name]
        samples.append(
            Sample(
                key=SampleKey(run.configuration, run.cell, client.name, run.repeat, run.attempt, run.load),
                state=state,
                metrics=given.metrics,
                started_ns=around.started_ns,
                finished_ns=max(around.started_ns, around.finished_ns),
                reason=reason,
                evidence=_evidence(run, client.name, given, around),
            )
        )
    return samples


def _verdict(given: ClientOutcome, program: str, unhealthy: Sequence[str]) -> tuple[State, str]:
    reasons = [f"not healthy: {'; '.join(unhealthy)}"] if unhealthy else []
    if given.metrics is None:
        return State.FAILED, "; ".join([given.failure or "no result", *reasons])
    reasons += [given.doubt] if given.doubt else []
    if given.count is not None and (why := disagreement(given.metrics, given.count, program=program)):
        reasons.append(why)
    return (State.INVALID, "; ".join(reasons)) if reasons else (State.OK, "")


def _evidence(run: CellRun, client: str, given: ClientOutcome, around: Circumstances) -> dict[str, Any]:
    count = given.count
    return {
        **given.evidence,
        "load": run.measurement.shape(),
        "cache": run.measurement.cache.value,
        "io_seed": run.seeds[client],
        "monotonic_ns": list(around.monotonic_ns),
        "health": {"looks": around.n_health_checks, "unhealthy": list(around.unhealthy)},
        # Applies to the whole run, so it is kept once, with the first client.
        **({"used": around.used} if around.used is not None and client == run.clients[0].name else {}),
        INDEPENDENT_COUNT: not_counted(given.uncounted or "no independent count")
        if count is None
        else counted(
            source=count.source,
            window_nbytes=count.window_nbytes,
            total_nbytes=count.total_nbytes,
            allowed_nbytes=count.allowed_nbytes,
        ),
    }
