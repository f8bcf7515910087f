"""How many guests fit on the compute hosts without sharing processors, as Nova tells administrators."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from openstack.connection import Connection

from cephfit.sweep.cloud.connection import HIDDEN, json_of, persistently

_HYPERVISORS = "/os-hypervisors/detail"
_ZONES = "/os-availability-zone/detail"
_COMPUTE = "nova-compute"
_HYPERVISORS_WITH_USE = "2.1"
"""Every Nova has it; from 2.88 on a hypervisor no longer tells its processors and how many are promised."""


def guests_that_fit(cloud: Connection, *, vcpus: int, zone: str) -> int | None:
    """Guests for which hosts have processors that are not promised; None where this user may not see that.

    Each host is looked at by itself: one that has promised too much takes nothing from the others, and no guest
    lies on two.

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
    """Zone and host of ``ZONE``, ``ZONE:HOST`` or ``ZONE:HOST:NODE``; empty what is not said."""
    name, _, rest = zone.partition(":")
    return name, rest.partition(":")[0]


def hosts_of_zones(cloud: Connection) -> Mapping[str, tuple[str, ...]] | None:
    """Names of the enabled compute hosts by availability zone; None where this user may not see them.

    By these ``ZONE:HOST`` names them; their hypervisors may have other names.
    """

    def ask() -> Mapping[str, tuple[str, ...]] | None:
        shown = json_of(cloud, _ZONES, HIDDEN, service="compute")
        if shown is None:
            return None
        # Of a zone that is not available, Nova tells no hosts.
        return {
            str(zone["zoneName"]): tuple(sorted(n for n, ran in (zone["hosts"] or {}).items() if _COMPUTE in ran))
            for zone in shown["availabilityZoneInfo"]
        }

    return persistently(ask, where="availability zones")
