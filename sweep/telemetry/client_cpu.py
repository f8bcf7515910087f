"""How busy the thread of each client was, by fio's own account. Pure.

A client is one thread, which can have one CPU at most: on a machine of 32 CPUs a client at its limit keeps 3 % of
them busy, and all configurations look alike behind it. The kernel's counters do not show it either, since fio
begins and ends between two looks at them. Threads of libraries (librbd's) are not in it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

CPU = "cpu"
"""Key of a client's evidence."""


def thread_cpu(job: Mapping[str, Any]) -> dict[str, float]:
    """Shares of one CPU that a job of fio had, in user and in kernel mode; empty where fio does not say.

    Args:
        job: of fio's JSON; ``usr_cpu`` and ``sys_cpu`` are per cent of the time that its threads ran.
    """
    if "usr_cpu" not in job or "sys_cpu" not in job:
        return {}
    return {"user": round(float(job["usr_cpu"]) / 100, 4), "system": round(float(job["sys_cpu"]) / 100, 4)}


class HasEvidence(Protocol):
    """What one client gave."""

    @property
    def evidence(self) -> Mapping[str, Any]: ...


def cpu_of_clients(outcomes: Mapping[str, HasEvidence]) -> dict[str, Mapping[str, float]]:
    """Client to ``thread_cpu``, of those that have it."""
    return {name: outcome.evidence[CPU] for name, outcome in outcomes.items() if outcome.evidence.get(CPU)}
