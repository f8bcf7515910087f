"""This machine's address as guests see it: the only one that needs access to their fio servers."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from openstack.connection import Connection

from cephfit.cloud.cloud_connection import persistently

NO_HOST = "127.0.0.1/32"
"""An address that no host has on a network."""
_DISCARD = 9
"""A port. Nothing is sent to it: the kernel only chooses the route."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class From:
    """Addresses that may reach guests.

    Attributes:
        cidr: the addresses.
        note: reason for this choice, for people.
    """

    cidr: str
    note: str


def reached_from(cloud: Connection, network: str) -> From:
    """Return this machine's address towards the guests of a network, by its routes.

    Without a route into that network it is the address towards the cloud. If that is not exactly one address, no
    host gets access. Address translation on the way cannot be detected here; the target has to name
    ``reached_from`` then.

    Args:
        cloud: connection.
        network: name or id.
    """
    sources = {source for there in _guests_addresses(cloud, network) if (source := source_towards(there))}
    if not sources:
        host = urlsplit(str(cloud.config.auth.get("auth_url") or "")).hostname or ""
        sources = {source for there in _resolved(host) if (source := source_towards(there))}
    if len(sources) != 1:
        seen = f"has {len(sources)} addresses towards them" if sources else "has no known address towards them"
        return From(
            NO_HOST,
            f"the guests' ports stay closed, because this machine {seen}, and fio servers accept every client: "
            "results return by other ways, unless reached_from=CIDR in the target names the allowed addresses",
        )
    (source,) = sources
    cidr = f"{source}/{source.max_prefixlen}"
    return From(
        cidr,
        f"guests are reached from {cidr} only, this machine; if they see it under another address, add "
        "reached_from=CIDR to the target",
    )


def source_towards(there: str) -> Address | None:
    """Return this machine's source address towards ``there``; None if other hosts cannot answer to it."""
    family = socket.AF_INET6 if ":" in there else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((there, _DISCARD))
        except OSError:  # no route
            return None
        source = ipaddress.ip_address(asked.getsockname()[0].partition("%")[0])
    return None if source.is_loopback or source.is_unspecified or source.is_link_local else source


def _guests_addresses(cloud: Connection, network: str) -> list[str]:
    """Return a guest's address in each subnet; only IPv4 where there is any, because fio's client prefers it."""

    def ask() -> list[Any]:
        found = cloud.network.find_network(network, ignore_missing=True)
        return list(cloud.network.subnets(network_id=found.id)) if found is not None else []

    subnets = persistently(ask, where=f"subnets of network {network}")
    by_version = {
        version: [_address_in(subnet) for subnet in subnets if subnet.ip_version == version] for version in (4, 6)
    }
    return by_version[4] or by_version[6]


def _address_in(subnet: Any) -> str:
    """Return the first address that Neutron assigns in a subnet, or its first address."""
    pools = subnet.allocation_pools or ()
    return str(pools[0]["start"] if pools else ipaddress.ip_network(subnet.cidr)[1])


def _resolved(host: str) -> Iterable[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, _DISCARD, type=socket.SOCK_DGRAM)][:1]
    except OSError:
        return ()
