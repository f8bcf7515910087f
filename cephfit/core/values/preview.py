"""The preview of a sweep: what it would change on a cluster, for the user to review."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cephfit.core.journal import Entry
from cephfit.core.protocols import Health

HEALTHY = Health(ok=True)
"""Placeholder in a preview until the health has been queried."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting of one configuration in one place.

    Attributes:
        configuration: name.
        place: what the setting belongs to: ``osd (class hdd)``, ``clients``, ``pool cephfit-default`` ...
        key: the option.
        now: current value; several if the members of the place differ; empty if there is none yet.
        then: value that the sweep sets.
    """

    configuration: str
    place: str
    key: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class PoolToCreate:
    """A pool that a sweep creates.

    Attributes:
        name: of the pool.
        values: its settings.
        configurations: with images in this pool; for a cache tier or a data pool, those of its base pool.
        n_pgs: placement groups.
        nbytes: total number of bytes written into it.
        raw_nbytes: the same on the disks, including all copies or chunks.
        pgs_per_osd: placement groups on each of its OSDs, including all copies or chunks; 0 if it holds no data of
            volumes, or its OSDs are unknown.
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
    """All changes that a sweep would make.

    Attributes:
        health: current health; a cluster that is not healthy is refused.
        differences: every setting, with current and new value.
        restarts: configuration to OSDs that need a restart to apply its values.
        n_restarts: restarts of OSDs in the whole sweep and its undoing, in the order of the plan.
        restart_seconds: their assumed total duration.
        pools: that are created, and deleted at the end.
        moved_nbytes: data of other pools that would move, computed offline from the CRUSH map.
        notes: further remarks.
    """

    health: Health
    differences: tuple[Difference, ...]
    restarts: Mapping[str, tuple[int, ...]]
    n_restarts: int
    restart_seconds: float
    pools: tuple[PoolToCreate, ...]
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
    """One change that ``reset`` would undo.

    Attributes:
        what: the changed object, as text.
        now: current value; empty if it is not queried.
        then: original value, which is restored.
    """

    what: str
    now: str
    then: str


_TOLD_BY_THE_CLUSTER = frozenset({"config", "restart", "pool", "image", "injected", "ceph.conf"})
_WORDS = 60


def other_undoings(entries: Sequence[Entry]) -> list[Undoing]:
    """Journal entries other than options, pools and images of the cluster, newest first, as they are undone."""
    found = []
    for entry in reversed(entries):
        if entry.kind not in _TOLD_BY_THE_CLUSTER:
            was = "not there" if entry.was is None else str(entry.was)
            found.append(Undoing(f"{entry.kind} {entry.place}", "", was if len(was) < _WORDS else "as it was"))
    return found
