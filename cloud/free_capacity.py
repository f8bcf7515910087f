"""The capacity that a cloud has left: the quotas of the project, and the space in Cinder's pools."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import ForbiddenException, NotFoundException

from cephfit.cloud.cloud_connection import HIDDEN, json_of, persistently
from cephfit.cloud.volumes.volume_types import volume_types
from cephfit.core.units import GIB, about, with_margin

_UNLIMITED = -1
_RULES = 5
"""Rules of a stack's security group: Neutron's two for outgoing, and the template's for incoming traffic."""
_TYPES_UNSEEN = (
    "Cinder does not show this user the quotas of volume types and of single volumes: whether they are sufficient "
    "was not checked"
)
_NETWORK_UNSEEN = (
    "Neutron does not show this user the use of its quotas: whether those of ports, security groups and rules are "
    "sufficient was not checked"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The required guests of one stack, which form one server group and have volumes of one type.

    Attributes:
        volume_type: of the cloud.
        n: required guests.
        n_there: existing guests.
        has_own_type: whether the run creates a copy of that type for their volumes.
        shares_volume: whether all guests of the stack use one volume, instead of one each.
    """

    volume_type: str
    n: int
    n_there: int = 0
    has_own_type: bool = False
    shares_volume: bool = False

    @property
    def n_more(self) -> int:
        """Guests to create."""
        return max(0, self.n - self.n_there)

    @property
    def n_more_volumes(self) -> int:
        """Volumes to create; the first guests of a stack bring the shared one."""
        return min(self.n_more, int(not self.n_there)) if self.shares_volume else self.n_more


@dataclass(frozen=True, slots=True)
class Need:
    """A need on one quota of a project.

    Attributes:
        what: for people: ``instances``, ``GiB of volumes`` ...
        more: additional amount.
        used: amount in use.
        limit: -1 for none.
        quota: its name for administrators: ``Nova's quota cores`` ...
    """

    what: str
    more: int
    used: int
    limit: int
    quota: str

    @property
    def sentence(self) -> str:
        """Why the quota is insufficient; empty if it is sufficient."""
        if self.limit == _UNLIMITED or self.used + self.more <= self.limit:
            return ""
        free = max(0, self.limit - self.used)
        return f"{self.more} more {self.what} are needed, {free} of {self.limit} are free ({self.quota})"


@dataclass(frozen=True, slots=True)
class Asked:
    """Needs on a project's quotas.

    Attributes:
        needs: on each quota that this user may see.
        unseen: hidden quotas that could not be checked, one sentence each.
    """

    needs: tuple[Need, ...]
    unseen: tuple[str, ...]


def asked_of(cloud: Connection, flavor: Any, wanted: Sequence[Wanted], *, gib: int, has_network: bool) -> Asked:
    """Return the guests' needs on the project's quotas.

    Args:
        cloud: connection.
        flavor: of all guests.
        wanted: the guests, by stack.
        gib: size of each volume.
        has_network: whether each guest has a port.
    """
    found = [*_of_nova(cloud, flavor, wanted), *_of_cinder(cloud, wanted, gib)]
    unseen = []
    for more, sentence in (
        (_of_types(cloud, wanted, gib), _TYPES_UNSEEN),
        (_of_neutron(cloud, wanted) if has_network else (), _NETWORK_UNSEEN),
    ):
        if more is None:
            unseen.append(sentence)
        found += more or ()
    return Asked(tuple(found), tuple(unseen))


def _of_nova(cloud: Connection, flavor: Any, wanted: Sequence[Wanted]) -> Iterator[Need]:
    limits = persistently(lambda: cloud.compute.get_limits().absolute, where="quota of compute")
    n_more = _n_more(wanted)
    largest = max(wanted, key=lambda one: one.n, default=Wanted("", 0))
    for what, more, used, limit, quota in (
        ("instances", n_more, limits.instances_used, limits.instances, "instances"),
        ("cores", n_more * flavor.vcpus, limits.total_cores_used, limits.total_cores, "cores"),
        ("MiB of memory", n_more * flavor.ram, limits.total_ram_used, limits.total_ram, "ram"),
        (
            "server groups",
            _n_stacks(wanted),
            limits.server_groups_used,
            limits.server_groups,
            "server_groups",
        ),
        (
            "servers in one server group",
            largest.n_more,
            min(largest.n, largest.n_there),
            limits.server_group_members,
            "server_group_members",
        ),
    ):
        yield _need(what, more, used, limit, f"Nova's quota {quota}")


def _of_cinder(cloud: Connection, wanted: Sequence[Wanted], gib: int) -> Iterator[Need]:
    limits = persistently(lambda: cloud.block_storage.get_limits().absolute, where="quota of volumes")
    n_more = _n_more_volumes(wanted)
    yield _need("volumes", n_more, limits.total_volumes_used, limits.max_total_volumes, "Cinder's quota volumes")
    yield _need(
        "GiB of volumes",
        n_more * gib,
        limits.total_gigabytes_used,
        limits.max_total_volume_gigabytes,
        "Cinder's quota gigabytes",
    )


def _of_types(cloud: Connection, wanted: Sequence[Wanted], gib: int) -> Sequence[Need] | None:
    """Return the needs on Cinder's quotas of each volume type and of one volume; None where Cinder hides them."""
    path = f"/os-quota-sets/{cloud.current_project_id}?usage=True"
    shown = persistently(json_of, cloud, path, HIDDEN, where="quota of volumes")
    if shown is None:
        return None
    quotas: Mapping[str, Any] = shown["quota_set"]
    found = []
    if _n_more_volumes(wanted) and "per_volume_gigabytes" in quotas:
        # Use by other volumes does not count: the quota limits each volume separately.
        limit = quotas["per_volume_gigabytes"]["limit"]
        found.append(_need("GiB in one volume", gib, 0, limit, "Cinder's quota per_volume_gigabytes"))
    # A type that the run creates does not exist yet, and has default quotas.
    for name in dict.fromkeys(one.volume_type for one in wanted if not one.has_own_type):
        n = _n_more_volumes([one for one in wanted if one.volume_type == name and not one.has_own_type])
        for quota, more, what in (
            (f"volumes_{name}", n, f"volumes of type {name}"),
            (f"gigabytes_{name}", n * gib, f"GiB of type {name}"),
        ):
            if quota in quotas:
                used = int(quotas[quota]["in_use"]) + int(quotas[quota].get("reserved") or 0)
                found.append(_need(what, more, used, quotas[quota]["limit"], f"Cinder's quota {quota}"))
    return found


def _of_neutron(cloud: Connection, wanted: Sequence[Wanted]) -> Sequence[Need] | None:
    """Return the needs on Neutron's quotas; None where Neutron does not show their use."""

    def ask() -> Any:
        try:
            return cloud.network.get_quota(str(cloud.current_project_id), details=True)
        except (ForbiddenException, NotFoundException):  # not every Neutron has this extension
            return None

    details = persistently(ask, where="quota of the network")
    if details is None:
        return None
    n_stacks = _n_stacks(wanted)
    found = []
    for what, more, quota, shown in (
        ("ports", _n_more(wanted), "port", details.ports),
        ("security groups", n_stacks, "security_group", details.security_groups),
        ("rules of security groups", n_stacks * _RULES, "security_group_rule", details.security_group_rules),
    ):
        if shown:
            used = int(shown["used"]) + int(shown.get("reserved") or 0)
            found.append(_need(what, more, used, shown["limit"], f"Neutron's quota {quota}"))
    return found


def _n_more(wanted: Sequence[Wanted]) -> int:
    return sum(one.n_more for one in wanted)


def _n_more_volumes(wanted: Sequence[Wanted]) -> int:
    return sum(one.n_more_volumes for one in wanted)


def _n_stacks(wanted: Sequence[Wanted]) -> int:
    """Return the number of stacks to create, each with a server group and a security group."""
    return sum(one.n_more > 0 and one.n_there == 0 for one in wanted)


def _need(what: str, more: int, used: int | None, limit: int | None, quota: str) -> Need:
    return Need(what, more, int(used or 0), _UNLIMITED if limit is None else int(limit), quota)


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
        n_of[one.volume_type] = n_of.get(one.volume_type, 0) + one.n_more_volumes
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
    names = {one.volume_type for one in wanted if one.n_more_volumes} - {fit.volume_type for fit in found}
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
