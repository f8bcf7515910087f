"""What a sweep would do to a cluster, before anything is done: for people to read and agree to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cephfit.core.journal import Entry
from cephfit.core.protocols import Health

HEALTHY = Health(ok=True)
"""Stands in a preview until the health has been asked."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting of one configuration in one place.

    Attributes:
        configuration: name.
        place: who has it: ``osd (class hdd)``, ``clients``, ``pool cephfit-default`` ...
        key: the option.
        now: value as it is; several where the members of the place differ; empty where there is none yet.
        then: value as the sweep sets it.
    """

    configuration: str
    place: str
    key: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class PoolToMake:
    """A pool that a sweep makes.

    Attributes:
        name: of the pool.
        values: its settings.
        configurations: whose images it holds; a cache tier or a data pool has those of its base.
        n_pgs: placement groups.
        nbytes: written into it in all.
        raw_nbytes: the same on the disks, all copies or chunks counted.
        pgs_per_osd: placement groups on each OSD beneath it, all copies or chunks counted; 0 where it holds no
            data of volumes, or its OSDs are not known.
    """

    name: str
    values: Mapping[str, str]
    configurations: tuple[str, ...]
    n_pgs: int
    nbytes: int
    raw_nbytes: int
    pgs_per_osd: float = 0.0


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be done.

    Attributes:
        health: as it is; a cluster that is not healthy is refused.
        differences: every setting, now and then.
        restarts: configuration to OSDs that run with values of it which only a restart brings.
        n_restarts: of OSDs over the whole sweep and its undoing, in the order of the plan.
        restart_seconds: what they take in all, as assumed.
        pools: that are made, and deleted at the end.
        moved_nbytes: data of other pools that would move, from the CRUSH map offline.
        notes: what else there is to know.
    """

    health: Health
    differences: tuple[Difference, ...]
    restarts: Mapping[str, tuple[int, ...]]
    n_restarts: int
    restart_seconds: float
    pools: tuple[PoolToMake, ...]
    moved_nbytes: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "healthy": self.health.ok,
            "unhealthy_because": list(self.health.reasons),
            "differences": [asdict(d) for d in self.differences],
            "restarts": {name: list(osds) for name, osds in self.restarts.items()},
            "osd_restarts": self.n_restarts,
            "osd_restart_seconds": self.restart_seconds,
            "pools": [{**asdict(p), "values": dict(p.values)} for p in self.pools],
            "moved_nbytes": self.moved_nbytes,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Undoing:
    """One thing that ``reset`` would put back.

    Attributes:
        what: the thing, in words.
        now: what it is; empty where that is not asked.
        then: what it was, and will be.
    """

    what: str
    now: str
    then: str


_TOLD_BY_THE_CLUSTER = frozenset({"config", "restart", "pool", "image", "injected", "ceph.conf"})
_WORDS = 60


def other_undoings(entries: Sequence[Entry]) -> list[Undoing]:
    """What a journal holds besides options, pools and images of the cluster, newest first as it is undone."""
    found = []
    for entry in reversed(entries):
        if entry.kind not in _TOLD_BY_THE_CLUSTER:
            was = "not there" if entry.was is None else str(entry.was)
            found.append(Undoing(f"{entry.kind} {entry.place}", "", was if len(was) < _WORDS else "as it was"))
    return found
