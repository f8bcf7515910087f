"""Turn the outcome of a cell's run into samples, and decide which are valid. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit.core.values.sample import INDEPENDENT_COUNT, Sample, SampleKey, State, counted, not_counted
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, disagreement


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
