"""Bottleneck of a run, from its counters and fio's own CPU figures. Pure.

A client is one thread, which can use one CPU at most. On a machine of 32 CPUs a client at its limit keeps 3 % of
them busy, and hides the differences between configurations. The kernel's counters do not show this, because fio
begins and ends between two readings of them. So the CPU of clients comes from fio's report. It does not include
threads of libraries (librbd's).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

AT_LIMIT = 0.9
"""Busy share of the time from which on a resource has no capacity left."""
NEAR_LIMIT = 0.7
"""Busy share of the time from which on I/O waits for a resource at times."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The resource that limited a run.

    Attributes:
        what: short name, the same for the same cause in every run, so that runs can be counted by it, such as
            ``disks of hdd``.
        sentence: for people, with the figures of this run.
    """

    what: str
    sentence: str


def bottleneck_of(used: Mapping[str, Any]) -> Bottleneck:
    """Return the busiest resource, if one was near its limit; otherwise where an I/O's time went.

    Args:
        used: as returned by ``telemetry_collector.used_between``.
    """
    busiest = max(_resources(used), key=lambda one: one[0], default=None)
    if busiest is not None and busiest[0] >= NEAR_LIMIT:
        share, what, name = busiest
        word = "at its limit" if share >= AT_LIMIT else "near its limit"
        return Bottleneck(what, f"{name} was {word}: busy {100 * share:.0f} % of the time{_by(used, name)}")
    least = f"; busiest was {busiest[2]}, {100 * busiest[0]:.0f} %" if busiest is not None else ""
    return _latency(used, least)


def _resources(used: Mapping[str, Any]) -> Iterator[tuple[float, str, str]]:
    """Yield (busy share of the time, kind, name) of every resource that has a limit."""
    for host, figures in used["hosts"].items():
        yield figures["cpu_busy"], "CPU", f"the CPU of {host}"
        for disk, figure in figures["disks"].items():
            kind = disk.partition("(")[2].rstrip(")")
            if disk.startswith("osd."):
                yield figure["busy"], f"disks of {kind}" if kind else "disks of OSDs", f"the disk of {disk}"
        for device, share in figures["links_busy"].items():
            yield share, "network", f"{device} of {host}"
    for client, shares in used.get("clients", {}).items():
        # A thread below its limit waits for something else, so "near its limit" does not apply to it.
        if (share := min(1.0, sum(shares.values()))) >= AT_LIMIT:
            yield share, "CPU of clients", _thread_of(client)


def _thread_of(client: str) -> str:
    return f"the one thread of client {client}"


def _by(used: Mapping[str, Any], name: str) -> str:
    """Return what used a CPU: programs on a host, or modes of a client's thread."""
    for client, shares in used.get("clients", {}).items():
        if name == _thread_of(client):
            modes = ", ".join(f"{mode} {100 * share:.0f} %" for mode, share in shares.items())
            return f" of one CPU ({modes}); only more clients can use the storage's remaining capacity"
    for host, figures in used["hosts"].items():
        if name == f"the CPU of {host}" and figures.get("cpu_by_program"):
            return f" ({', '.join(f'{p} {100 * s:.0f} %' for p, s in figures['cpu_by_program'].items())})"
    return ""


def _latency(used: Mapping[str, Any], least: str) -> Bottleneck:
    osds = used["osds"].values()
    if not osds:
        return Bottleneck("unknown", f"no resource that was read was near its limit{least}")
    n_reads, n_writes = sum(o["reads"] for o in osds), sum(o["writes"] for o in osds)
    if not n_reads + n_writes:
        return Bottleneck("unknown", f"the OSDs counted no client I/O{least}")
    op, at_disk = ("write", "commit_mean_ms") if n_writes > n_reads else ("read", "disk_read_mean_ms")
    n = max(n_reads, n_writes)
    whole = sum(o[f"{op}_mean_ms"] * o[f"{op}s"] for o in osds) / n
    disk = max((o[at_disk] for o in osds if o["writes"] + o["reads"] + o["replica_writes"]), default=0.0)
    throttled = sum(o["throttled_seconds"] for o in osds)
    if throttled > 0.2 * whole * n / 1000:
        return Bottleneck("queue limits", f"the OSDs' queue limits: I/Os waited {throttled:.1f} s in all{least}")
    if whole and disk >= 0.5 * whole:
        text = f"of {whole:.2f} ms of a {op} at the OSDs, the slowest disk took {min(disk, whole):.2f} ms"
        return Bottleneck("latency of disks", text + least)
    return Bottleneck("latency", f"latency, not the disks': a {op} took {whole:.2f} ms at the OSDs{least}")


CPU = "cpu"
"""Key in a client's evidence."""


def thread_cpu(job: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of one CPU that a fio job used in user and kernel mode; empty where fio reports none.

    Args:
        job: a job of fio's JSON; ``usr_cpu`` and ``sys_cpu`` are per cent of the time that its threads ran.
    """
    if "usr_cpu" not in job or "sys_cpu" not in job:
        return {}
    return {"user": round(float(job["usr_cpu"]) / 100, 4), "system": round(float(job["sys_cpu"]) / 100, 4)}


class HasEvidence(Protocol):
    """Outcome of one client."""

    @property
    def evidence(self) -> Mapping[str, Any]: ...


def cpu_of_clients(outcomes: Mapping[str, HasEvidence]) -> dict[str, Mapping[str, float]]:
    """Return client name to ``thread_cpu``, for the clients that have it."""
    return {name: outcome.evidence[CPU] for name, outcome in outcomes.items() if outcome.evidence.get(CPU)}
