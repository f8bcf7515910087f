"""Samples: what was measured, each in a terminal state, with its evidence.

Samples: what was measured, each in a terminal state.

What a sample's evidence says of an independent count: written by what measures, read by what reports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cephfit.core.values.cells import Cell

OWN_LOAD = ""
"""The load that a sweep's measurement describes by itself; the others have names."""


class State(StrEnum):
    """How a run ended. There is no state for a run under way: a sample exists when it is over."""

    OK = "ok"
    FAILED = "failed"
    """fio or the cluster gave no result."""
    INVALID = "invalid"
    """There is a result, but it must not be trusted; it is taken again."""
    SKIPPED = "skipped"
    """Never tried, on purpose."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """What one fio run of one cell on one client gave.

    Attributes:
        iops: I/Os per second over the measured time.
        nbytes_per_s: bytes per second over the measured time.
        n_ios: I/Os completed in the measured time.
        runtime_ns: the measured time.
        latency_mean_ns: mean completion latency.
        latency_percentiles_ns: by percentile, such as ``{50.0: ..., 99.0: ...}``.
    """

    iops: float
    nbytes_per_s: float
    n_ios: int
    runtime_ns: int
    latency_mean_ns: float
    latency_percentiles_ns: dict[float, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.iops >= 0 and self.nbytes_per_s >= 0 and self.runtime_ns > 0):
            raise ValueError(f"impossible metrics: {self}")


@dataclass(frozen=True, slots=True)
class SampleKey:
    """Which sample it is. ``repeat`` and ``attempt`` count from 0; ``attempt`` grows when one is taken again.

    ``load`` names the shape of the load (I/Os in flight, clients, mix, rate) as the sweep file does; ``""`` is the
    measurement's own.
    """

    configuration: str
    cell: Cell
    client: str
    repeat: int
    attempt: int = 0
    load: str = OWN_LOAD


@dataclass(frozen=True, slots=True)
class Sample:
    """One fio run of one cell on one client, in a terminal state.

    Attributes:
        key: which one.
        state: terminal.
        reason: why it is not ``ok``; empty when it is.
        metrics: None unless fio gave a result.
        started_ns: wall clock, ns since the epoch.
        finished_ns: wall clock, ns since the epoch.
        evidence: what speaks for or against it: health before and after, the independent count of I/O, cache
            condition. JSON values only.
    """

    key: SampleKey
    state: State
    metrics: Metrics | None
    started_ns: int
    finished_ns: int
    reason: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.state is State.OK and (self.metrics is None or self.reason):
            raise ValueError("an ok sample has metrics and no reason")
        if self.state is not State.OK and not self.reason:
            raise ValueError(f"a sample that is {self.state} says why")
        if self.finished_ns < self.started_ns:
            raise ValueError("a sample cannot end before it starts")


@dataclass(frozen=True, slots=True)
class WorkloadSample:
    """One run of the real workload on one configuration (verification).

    Attributes:
        configuration: name.
        repeat: counts from 0.
        attempt: counts from 0.
        state: terminal.
        metric: what was measured, for example ``tps``; more is better.
        value: None unless the run gave a result.
        reason: why it is not ``ok``.
        evidence: the program's own output and the state of the cluster around it. JSON values only.
    """

    configuration: str
    repeat: int
    attempt: int
    state: State
    metric: str
    value: float | None
    started_ns: int
    finished_ns: int
    reason: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)


INDEPENDENT_COUNT = "independent_count"
"""What somebody else counted than the program that measured (rule 4 of the design)."""
_WINDOW = "window_nbytes"


def counted(*, source: str, window_nbytes: float, total_nbytes: int, allowed_nbytes: float) -> dict[str, Any]:
    """The document of a count, kept under ``INDEPENDENT_COUNT``.

    Args:
        source: who counted, for people.
        window_nbytes: moved in the measured window.
        total_nbytes: moved from before the program's start to after its end.
        allowed_nbytes: by how much ``window_nbytes`` may differ for reasons that are known.
    """
    return {
        "source": source,
        _WINDOW: round(window_nbytes),
        "total_nbytes": total_nbytes,
        "allowed_nbytes": round(allowed_nbytes),
    }


def not_counted(why: str) -> dict[str, Any]:
    """The document where nobody could count."""
    return {"none_because": why}


def window_nbytes_of(evidence: Mapping[str, Any]) -> float | None:
    """Bytes that were counted in the measured window; None where nobody did."""
    count = evidence.get(INDEPENDENT_COUNT)
    found = count.get(_WINDOW) if isinstance(count, Mapping) else None
    return float(found) if isinstance(found, int | float) else None
