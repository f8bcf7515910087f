"""Whether volumes fit into the pools that Cinder would put them in, as its schedulers tell administrators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.capacity.quotas import Wanted
from cephfit.cloud.cloud_connection import HIDDEN, json_of, persistently
from cephfit.cloud.volumes.created_types import volume_types
from cephfit.core.units import GIB, about, with_margin

_BACKEND_NAMES = ("volume_backend_name", "capabilities:volume_backend_name")
_CEPH = "ceph"


@dataclass(frozen=True, slots=True)
class CinderPool:
    """A pool of a back end of Cinder's.

    Attributes:
        name: as Cinder calls it: ``host@backend#pool``.
        backend: by which name volume types choose it.
        free_nbytes: that can still be written into it; None where the driver does not know.
        ceph_pool: where that is, if the driver is the one of RBD and says so.
        fsid: of that Ceph cluster.
    """

    name: str
    backend: str
    free_nbytes: int | None
    ceph_pool: str = ""
    fsid: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Where the bytes lie: several hosts of Cinder's may serve one Ceph pool, each by a name of its own."""
        return (self.fsid, self.ceph_pool) if self.ceph_pool else ("", self.name)

    def __str__(self) -> str:
        return f"Ceph pool {self.ceph_pool}" if self.ceph_pool else f"Cinder's pool {self.name}"


@dataclass(frozen=True, slots=True)
class Fit:
    """How volumes of one type fit into the pools of that type.

    Attributes:
        volume_type: of the cloud.
        n: volumes that are not there yet.
        nbytes: written into each.
        pools: in which they may lie.
        n_fitting: of the volumes, beside those of the other types.
    """

    volume_type: str
    n: int
    nbytes: int
    pools: tuple[CinderPool, ...]
    n_fitting: int

    @property
    def is_enough(self) -> bool:
        """Whether all of them fit."""
        return self.n_fitting >= self.n

    @property
    def sentence(self) -> str:
        """For people."""
        free = " and ".join(f"{pool} has room for {about(pool.free_nbytes or 0)}" for pool in self.pools)
        return (
            f"{self.n} volumes of type {self.volume_type} need {about(self.n * with_margin(self.nbytes))} when "
            f"they are written, {free}"
        )


def cinder_pools(cloud: Connection) -> tuple[CinderPool, ...] | None:
    """The pools of all back ends; None where Cinder does not show them, by default to administrators only."""
    path = "/scheduler-stats/get_pools?detail=true"
    found = persistently(json_of, cloud, path, HIDDEN, where="Cinder's pools")
    return None if found is None else tuple(map(_pool, found["pools"]))


def fits(
    cloud: Connection, pools: Sequence[CinderPool], wanted: Sequence[Wanted], *, nbytes: int
) -> tuple[Fit, ...]:
    """How volumes that are not there yet fit; nothing of types in whose pools nobody knows the room.

    Args:
        cloud: connection of an administrator, who sees which back end a type names.
        pools: of all back ends.
        wanted: whose volumes.
        nbytes: written into each.
    """
    specs = {str(one.name): dict(one.extra_specs or {}) for one in volume_types(cloud)}
    n_of: dict[str, int] = {}
    for one in wanted:
        n_of[one.volume_type] = n_of.get(one.volume_type, 0) + one.n_more
    homes = {name: _places(pools_of(pools, specs.get(name, {}))) for name, n in n_of.items() if n}
    left = {pool.place: pool.free_nbytes or 0 for pool in _places(pools)}
    found = []
    # Who has the least choice chooses first.
    for name, within in sorted(homes.items(), key=lambda home: len(home[1])):
        if not within or any(pool.free_nbytes is None for pool in within):
            continue
        n_fitting = 0
        for pool in within:
            n = min(n_of[name] - n_fitting, left[pool.place] // with_margin(nbytes))
            left[pool.place] -= n * with_margin(nbytes)
            n_fitting += n
        found.append(Fit(name, n_of[name], nbytes, within, n_fitting))
    return tuple(found)


def not_looked_at(wanted: Sequence[Wanted], found: Sequence[Fit]) -> str:
    """A sentence on wanted types of which ``fits`` found nothing; empty if there are none."""
    names = {one.volume_type for one in wanted if one.n_more} - {fit.volume_type for fit in found}
    if not names:
        return ""
    return (
        f"whether volumes of type {' and '.join(sorted(names))} fit is not known before they are made: no pool of "
        "Cinder's is of their back end, or one does not say what it has free"
    )


def _places(pools: Sequence[CinderPool]) -> tuple[CinderPool, ...]:
    """One pool for each place, the one that says the least room; one that does not know comes before all."""
    found: dict[tuple[str, str], CinderPool] = {}
    for pool in pools:
        known = found.setdefault(pool.place, pool)
        if known.free_nbytes is not None and (pool.free_nbytes is None or pool.free_nbytes < known.free_nbytes):
            found[pool.place] = pool
    return tuple(found.values())


def pools_of(pools: Sequence[CinderPool], extra_specs: Mapping[str, str]) -> tuple[CinderPool, ...]:
    """Where the volumes of a type may lie: in the back end that its extra specs name, anywhere if they do not."""
    named = next((extra_specs[key] for key in _BACKEND_NAMES if key in extra_specs), None)
    return tuple(pool for pool in pools if named is None or pool.backend == named)


def _pool(found: Mapping[str, Any]) -> CinderPool:
    said = found.get("capabilities") or {}
    # Cinder's RBD driver: name of the cluster, ceph.conf, fsid, user, pool.
    place = str(said.get("location_info") or "").split(":")
    is_ceph = said.get("storage_protocol") == _CEPH and len(place) == 5
    return CinderPool(
        str(found["name"]),
        str(said.get("volume_backend_name") or ""),
        _free(said),
        ceph_pool=place[4] if is_ceph else "",
        fsid=place[2] if is_ceph else "",
    )


def _free(said: Mapping[str, Any]) -> int | None:
    """Bytes that a back end has free, without those it keeps back; ``unknown`` and ``infinite`` are None."""
    try:
        free, total = float(said["free_capacity_gb"]), float(said.get("total_capacity_gb") or 0)
    except (KeyError, TypeError, ValueError):
        return None
    if free == float("inf"):
        return None
    kept = total * float(said.get("reserved_percentage") or 0) / 100
    return int(max(0.0, free - kept) * GIB)
