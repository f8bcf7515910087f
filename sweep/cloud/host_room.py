"""How many guests fit on the compute hosts without sharing processors, as Nova tells administrators."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from openstack.connection import Connection

from cephfit.sweep.cloud.connection import HIDDEN, json_of, persistently

_HYPERVISORS = "/os-hypervisors/detail"
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

    def ask() -> tuple[Sequence[Mapping[str, Any]], Collection[str] | None] | None:
        shown = json_of(cloud, _HYPERVISORS, HIDDEN, service="compute", microversion=_HYPERVISORS_WITH_USE)
        return None if shown is None else (shown["hypervisors"], _hosts_of(cloud, zone))

    found = persistently(ask, where="compute hosts")
    if found is None:
        return None
    hypervisors, within = found
    return sum(
        max(0, int(host["vcpus"]) - int(host["vcpus_used"])) // vcpus
        for host in hypervisors
        if host["state"] == "up"
        and host["status"] == "enabled"
        and (within is None or host["service"]["host"] in within)
    )


def _hosts_of(cloud: Connection, zone: str) -> Collection[str] | None:
    """Names of the compute hosts of a zone, or the one that is named after it; None for all."""
    name, _, rest = zone.partition(":")
    if host := rest.partition(":")[0]:
        return (host,)
    if not name:
        return None
    return {
        host for one in cloud.compute.availability_zones(details=True) if one.name == name for host in one.hosts
    }
