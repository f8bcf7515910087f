"""Preflight of a cloud before any resource is created: image, flavor, network, volume types, quotas, capacity.

The free processors of compute hosts are checked where Nova shows them, by default to administrators only.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection

from cephfit.cloud.cloud_choice import CloudChoice, require_whole
from cephfit.cloud.cloud_connection import HIDDEN, json_of, persistently
from cephfit.cloud.free_capacity import CinderPool, Fit, Need, Wanted, asked_of, fits, why_unchecked
from cephfit.cloud.stacks import LARGEST_STACK
from cephfit.cloud.volumes.cinder_volumes import require_types, size_gib
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.yaml_lines import nearest

_HYPERVISORS = "/os-hypervisors/detail"
_ZONES = "/os-availability-zone/detail"
_COMPUTE = "nova-compute"
_HYPERVISORS_WITH_USE = "2.1"
"""Supported by every Nova. From 2.88 on a hypervisor does not show its processors and their allocation."""


def guests_that_fit(cloud: Connection, *, vcpus: int, zone: str) -> int | None:
    """Return the number of guests for which hosts have free processors; None where this user may not see it.

    Each host is counted separately: an overcommitted host takes nothing from the others, and no guest spans two.

    Args:
        cloud: connection.
        vcpus: of each guest.
        zone: availability zone, for administrators also ``ZONE:HOST``; empty for all hosts.
    """

    def ask() -> Sequence[Mapping[str, Any]] | None:
        shown = json_of(cloud, _HYPERVISORS, HIDDEN, service="compute", microversion=_HYPERVISORS_WITH_USE)
        return None if shown is None else list(shown["hypervisors"])

    hypervisors = persistently(ask, where="compute hosts")
    if hypervisors is None:
        return None
    name, host_name = parts_of(zone)
    within: Collection[str] | None = (host_name,) if host_name else None
    if name and not host_name:
        by_zone = hosts_of_zones(cloud)
        if by_zone is None:
            return None
        within = by_zone.get(name, ())
    return sum(
        max(0, int(host["vcpus"]) - int(host["vcpus_used"])) // vcpus
        for host in hypervisors
        if host["state"] == "up"
        and host["status"] == "enabled"
        and (within is None or host["service"]["host"] in within)
    )


def parts_of(zone: str) -> tuple[str, str]:
    """Return zone and host of ``ZONE``, ``ZONE:HOST`` or ``ZONE:HOST:NODE``; empty where missing."""
    name, _, rest = zone.partition(":")
    return name, rest.partition(":")[0]


def hosts_of_zones(cloud: Connection) -> Mapping[str, tuple[str, ...]] | None:
    """Return the names of the enabled compute hosts by availability zone; None where this user may not see them.

    ``ZONE:HOST`` uses these names; the hypervisors may have other names.
    """

    def ask() -> Mapping[str, tuple[str, ...]] | None:
        shown = json_of(cloud, _ZONES, HIDDEN, service="compute")
        if shown is None:
            return None
        # Nova lists no hosts of an unavailable zone.
        return {
            str(zone["zoneName"]): tuple(sorted(n for n, ran in (zone["hosts"] or {}).items() if _COMPUTE in ran))
            for zone in shown["availabilityZoneInfo"]
        }

    return persistently(ask, where="availability zones")


_OVERCOMMIT = "or add overcommit=yes to the target to allow this"


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings on a cloud's capacity for the required guests, as far as this user may see it.

    Attributes:
        needs: on the project's quotas, which are sufficient.
        n_fitting: guests for which compute hosts have unallocated processors; None where it was not checked.
        capacity: how volumes fit into the pools; without types that were not checked.
        scarce: insufficient resources, one sentence each; only where the target allows overcommit.
        unseen: what could not be checked, one sentence each.
    """

    needs: tuple[Need, ...] = ()
    n_fitting: int | None = None
    capacity: tuple[Fit, ...] = ()
    scarce: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    def verdict(self, cloud: str, what: str) -> str:
        """Return whether a cloud meets the needs, and how far that is known.

        Args:
            cloud: its name.
            what: the needs in words, such as ``what 3 clients need``.
        """
        text = f"{cloud} has {what}"
        if self.scarce:
            text = f"{cloud} has less than {what}, and overcommit=yes allows that: {'; '.join(self.scarce)}"
        if self.unseen:
            text += ". Not everything could be checked" if self.scarce else ", as far as it could be checked"
            text += f": {'; '.join(self.unseen)}"
        return text


def require(
    cloud: Connection,
    choice: CloudChoice,
    wanted: Sequence[Wanted],
    *,
    nbytes: int,
    pools: Sequence[CinderPool] | None,
    checks_all: bool = False,
) -> Findings:
    """Require everything that these guests need, before the first of them is created.

    Args:
        cloud: connection.
        choice: flavor, image, volume type and more of the guests.
        wanted: the guests, by stack.
        nbytes: bytes that are written to each volume.
        pools: of Cinder, with their free capacity; None where unknown.
        checks_all: whether hosts and pools are checked also where they may be insufficient (``overcommit``).

    Returns:
        The findings; empty if no more guests are required.

    Raises:
        InputError: a named resource does not exist.
        ClusterError: the project's quota, the hosts' processors or the pools' capacity are insufficient.
    """
    require_whole(choice)
    require_image(cloud, choice.image)
    flavor = require_flavor(cloud, choice.flavor)
    if choice.network:
        require_network(cloud, choice.network)
    unseen_host = require_zone(cloud, choice.zone) if choice.zone else ""
    if choice.key_name:
        require_key_pair(cloud, choice.key_name)
    require_types(cloud, list(dict.fromkeys(one.volume_type for one in wanted)))
    n_more = sum(one.n_more for one in wanted)
    if not n_more:
        return Findings()
    if (most := max(one.n for one in wanted)) > LARGEST_STACK:
        raise InputError(
            f"{most} guests at once are more than one Heat stack can have, {LARGEST_STACK}",
            remedy="measure with fewer clients",
        )
    asked = asked_of(cloud, flavor, wanted, gib=size_gib(nbytes), has_network=bool(choice.network))
    if over := [need.sentence for need in asked.needs if need.sentence]:
        raise ClusterError(
            f"the project's quota is not enough: {'; '.join(over)}",
            where=f"cloud {cloud.name}",
            remedy="measure with fewer clients or smaller volumes, delete what is not needed (see `cephfit cloud "
            "list`), or have the quota raised",
        )
    if choice.overcommit and not checks_all:
        return Findings(asked.needs, unseen=tuple(filter(None, (*asked.unseen, unseen_host))))
    n_fitting = guests_that_fit(cloud, vcpus=int(flavor.vcpus), zone=choice.zone)
    scarce, unseen = _judged_processors(choice, int(flavor.vcpus), n_more, n_fitting)
    if scarce and not choice.overcommit:
        raise ClusterError(
            scarce, where=f"cloud {cloud.name}", remedy=f"measure with fewer clients, {_OVERCOMMIT}"
        )
    capacity = fits(cloud, pools, wanted, nbytes=nbytes) if pools is not None else ()
    too_little, unknown = _judged_capacity(wanted, pools, capacity)
    if too_little and not choice.overcommit:
        raise ClusterError(
            too_little,
            where=f"cloud {cloud.name}",
            remedy=f"measure with fewer clients or smaller volumes, {_OVERCOMMIT}",
        )
    return Findings(
        asked.needs,
        n_fitting,
        capacity,
        tuple(filter(None, (scarce, too_little))),
        tuple(filter(None, (*asked.unseen, unseen_host, unseen, unknown))),
    )


def _judged_processors(choice: CloudChoice, vcpus: int, n_more: int, n_fitting: int | None) -> tuple[str, str]:
    """Return why the compute hosts' processors are too few, and why they were not checked; each may be empty."""
    if n_fitting is None:
        return "", (
            "Nova shows only administrators which processors of the compute hosts are free: it was not checked "
            "whether guests wait for each other's"
        )
    if n_fitting >= n_more:
        return "", ""
    within = f" of zone {choice.zone}" if choice.zone else ""
    return (
        f"{n_more} more guests are needed, and the compute hosts{within} have processors free for {n_fitting} "
        f"(each needs {vcpus}): guests would wait for each other"
    ), ""


def _judged_capacity(
    wanted: Sequence[Wanted], pools: Sequence[CinderPool] | None, found: Sequence[Fit]
) -> tuple[str, str]:
    """Return why the pools' capacity is too small, and why some of it was not checked; each may be empty."""
    if pools is None:
        return "", (
            "Cinder shows only administrators the capacity of its pools: whether the volumes fit is not known "
            "before they are created"
        )
    lacking = [fit.sentence for fit in found if not fit.is_enough]
    return f"there is too little capacity: {'; '.join(lacking)}" if lacking else "", why_unchecked(wanted, found)


def require_image(cloud: Connection, name: str) -> Any:
    """Return the image.

    Raises:
        InputError: no image has this name.
        ClusterError: it cannot be used now.
    """
    bring = "upload cephfit's image: `cephfit image build DIR`, then `cephfit image upload DIR --cloud "
    image = _require(
        cloud,
        "image",
        lambda: cloud.image.find_image(name, ignore_missing=True),
        lambda: cloud.image.images(),
        name=name,
        may="see",
        remedy=f"{bring}{cloud.name}`",
    )
    if image.status != "active":
        raise ClusterError(f"image {name} is {image.status}, not active", where=f"cloud {cloud.name}")
    return image


def require_flavor(cloud: Connection, name: str) -> Any:
    """Return the flavor.

    Raises:
        InputError: no flavor has this name.
    """
    return _require(
        cloud,
        "flavor",
        lambda: cloud.compute.find_flavor(name, ignore_missing=True),
        lambda: cloud.compute.flavors(),
        name=name,
    )


def require_network(cloud: Connection, name: str) -> Any:
    """Return the network.

    Raises:
        InputError: no network has this name.
    """
    return _require(
        cloud,
        "network",
        lambda: cloud.network.find_network(name, ignore_missing=True),
        lambda: cloud.network.networks(),
        name=name,
    )


def require_zone(cloud: Connection, name: str) -> str:
    """Require the availability zone, and the host in the administrators' form ``ZONE:HOST``.

    Returns:
        The reason why the host was not checked; empty if it exists, or none is named.

    Raises:
        InputError: no zone has this name, or the host is not in it.
    """
    zone, host = parts_of(name)
    known = persistently(
        lambda: [str(one.name) for one in cloud.compute.availability_zones()], where="availability zones"
    )
    if zone and zone not in known:
        raise InputError(
            f"the cloud has no availability zone {zone}",
            where=f"cloud {cloud.name}",
            remedy=nearest(zone, known) if known else "omit zone= in the target",
        )
    if not host:
        return ""
    if (by_zone := hosts_of_zones(cloud)) is None:
        return f"Nova shows only administrators its compute hosts: whether host {host} exists was not checked"
    hosts = by_zone.get(zone, ()) if zone else sorted(one for some in by_zone.values() for one in some)
    if host in hosts:
        return ""
    elsewhere = next((other for other, some in by_zone.items() if host in some), "")
    remedy = f"zone={elsewhere}:{host}, where this host is" if elsewhere else "name one of these"
    raise InputError(
        f"{f'availability zone {zone}' if zone else 'the cloud'} has no enabled compute host {host}; it has "
        f"{', '.join(hosts) or 'none'}",
        where=f"cloud {cloud.name}",
        remedy=remedy if hosts or elsewhere else "name another zone, or omit zone= in the target",
    )


def require_key_pair(cloud: Connection, name: str) -> Any:
    """Return the key pair of this user.

    Raises:
        InputError: no key pair has this name.
    """
    return _require(
        cloud,
        "key pair",
        lambda: cloud.compute.find_keypair(name, ignore_missing=True),
        lambda: cloud.compute.keypairs(),
        name=name,
    )


def _require(
    cloud: Connection,
    kind: str,
    find: Callable[[], Any],
    everything: Callable[[], Iterable[Any]],
    *,
    name: str,
    may: str = "use",
    remedy: str = "",
) -> Any:
    """Return the resource with this name or id; otherwise raise InputError with similar names.

    The calls access the service inside the retries: the SDK queries Keystone for it on the first access.
    """
    found = persistently(find, where=f"{kind}s")
    if found is None:
        known = persistently(lambda: [one.name for one in everything()], where=f"{kind}s")
        hint = nearest(name, known) if known else f"there is no {kind} at all"
        raise InputError(
            f"the cloud has no {kind} {name}, or this project may not {may} it",
            where=f"cloud {cloud.name}",
            remedy="; or ".join(filter(None, (hint, remedy))),
        )
    return found
