"""Free capacity of Cinder's pools, from its schedulers (administrators only), and whether volumes fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.capacity.quotas import Wanted
from cephfit.cloud.cloud_connection import HIDDEN, json_of, persistently
from cephfit.cloud.volume_types import volume_types
from cephfit.core.units import GIB, about, with_margin

_BACKEND_NAMES = ("volume_backend_name", "capabilities:volume_backend_name")
_CEPH = "ceph"


@dataclass(frozen=True, slots=True)
class CinderPool:
    """A pool of a Cinder back end.

    Attributes:
        name: in Cinder: ``host@backend#pool``.
        backend: name by which volume types choose it.
        free_nbytes: bytes that can still be written; None where the driver does not know.
        ceph_pool: the Ceph pool, if the RBD driver reports it.
        fsid: of that Ceph cluster.
    """

    name: str
    backend: str
    free_nbytes: int | None
    ceph_pool: str = ""
    fsid: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """Where the data are: several hosts of Cinder may serve one Ceph pool under different names."""
        return (self.fsid, self.ceph_pool) if self.ceph_pool else ("", self.name)

    def __str__(self) -> str:
        return f"Ceph pool {self.ceph_pool}" if self.ceph_pool else f"Cinder's pool {self.name}"


@dataclass(frozen=True, slots=True)
class Fit:
    """How volumes of one type fit into the pools of that type.

    Attributes:
        volume_type: of the cloud.
        n: volumes to create.
        nbytes: bytes written to each.
        pools: where Cinder may place them.
        n_fitting: volumes that fit together with those of the other types.
    """

    volume_type: str
    n: int
    nbytes: int
    pools: tuple[CinderPool, ...]
    n_fitting: int

    @property
    def is_enough(self) -> bool:
        """Whether all volumes fit."""
        return self.n_fitting >= self.n

    @property
    def sentence(self) -> str:
        """For people."""
        free = " and ".join(f"{pool} has {about(pool.free_nbytes or 0)} free" for pool in self.pools)
        return (
            f"{self.n} volumes of type {self.volume_type} need {about(self.n * with_margin(self.nbytes))} when "
            f"they are written, {free}"
        )


def cinder_pools(cloud: Connection) -> tuple[CinderPool, ...] | None:
    """Return the pools of all back ends; None where Cinder hides them (by default, administrators see them)."""
    path = "/scheduler-stats/get_pools?detail=true"
    found = persistently(json_of, cloud, path, HIDDEN, where="Cinder's pools")
    return None if found is None else tuple(map(_pool, found["pools"]))


def fits(
    cloud: Connection, pools: Sequence[CinderPool], wanted: Sequence[Wanted], *, nbytes: int
) -> tuple[Fit, ...]:
    """Return how the volumes to create fit; omits types with pools of unknown capacity.

    Args:
        cloud: connection of an administrator, who can see a type's back end.
        pools: of all back ends.
        wanted: the guests with these volumes.
        nbytes: bytes written to each volume.
    """
    specs = {str(one.name): dict(one.extra_specs or {}) for one in volume_types(cloud)}
    n_of: dict[str, int] = {}
    for one in wanted:
        n_of[one.volume_type] = n_of.get(one.volume_type, 0) + one.n_more
    homes = {name: _places(pools_of(pools, specs.get(name, {}))) for name, n in n_of.items() if n}
    left = {pool.place: pool.free_nbytes or 0 for pool in _places(pools)}
    found = []
    # Place the types with the fewest pools first.
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


def why_unchecked(wanted: Sequence[Wanted], found: Sequence[Fit]) -> str:
    """Return a sentence on required types without a result of ``fits``; empty if there are none."""
    names = {one.volume_type for one in wanted if one.n_more} - {fit.volume_type for fit in found}
    if not names:
        return ""
    return (
        f"whether volumes of type {' and '.join(sorted(names))} fit is not known before they are created: Cinder "
        "has no pool of their back end, or a pool does not report its free capacity"
    )


def _places(pools: Sequence[CinderPool]) -> tuple[CinderPool, ...]:
    """Return one pool for each place, the one with the least capacity; unknown capacity comes first."""
    found: dict[tuple[str, str], CinderPool] = {}
    for pool in pools:
        known = found.setdefault(pool.place, pool)
        if known.free_nbytes is not None and (pool.free_nbytes is None or pool.free_nbytes < known.free_nbytes):
            found[pool.place] = pool
    return tuple(found.values())


def pools_of(pools: Sequence[CinderPool], extra_specs: Mapping[str, str]) -> tuple[CinderPool, ...]:
    """Return the pools for a type's volumes: those of the back end in its extra specs, otherwise all."""
    named = next((extra_specs[key] for key in _BACKEND_NAMES if key in extra_specs), None)
    return tuple(pool for pool in pools if named is None or pool.backend == named)


def _pool(found: Mapping[str, Any]) -> CinderPool:
    reported = found.get("capabilities") or {}
    # Cinder's RBD driver: name of the cluster, ceph.conf, fsid, user, pool.
    place = str(reported.get("location_info") or "").split(":")
    is_ceph = reported.get("storage_protocol") == _CEPH and len(place) == 5
    return CinderPool(
        str(found["name"]),
        str(reported.get("volume_backend_name") or ""),
        _free(reported),
        ceph_pool=place[4] if is_ceph else "",
        fsid=place[2] if is_ceph else "",
    )


def _free(reported: Mapping[str, Any]) -> int | None:
    """Return a back end's free bytes without its reserve; None for ``unknown`` and ``infinite``."""
    try:
        free, total = float(reported["free_capacity_gb"]), float(reported.get("total_capacity_gb") or 0)
    except (KeyError, TypeError, ValueError):
        return None
    if free == float("inf"):
        return None
    reserve = total * float(reported.get("reserved_percentage") or 0) / 100
    return int(max(0.0, free - reserve) * GIB)
