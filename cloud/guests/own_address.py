"""From where guests see this machine: the only place from which their fio servers need to be reached."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from openstack.connection import Connection

from cephfit.cloud.cloud_connection import persistently

NOBODY = "127.0.0.1/32"
"""An address that nobody has on a network."""
_DISCARD = 9
"""A port: nothing is sent there, the kernel only says which way it would go."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class From:
    """Who may reach guests.

    Attributes:
        cidr: addresses.
        note: for people: why these.
    """

    cidr: str
    note: str


def reached_from(cloud: Connection, network: str) -> From:
    """This machine's own address towards the guests of a network, by its routes.

    Where it has no route of its own into that network, that is its address towards the cloud. Where that is
    not one address, nobody is let in. Whether addresses are translated on the way nobody can see here; then
    the target has to say ``reached_from``.

    Args:
        cloud: connection.
        network: name or id.
    """
    sources = {source for there in _guests_addresses(cloud, network) if (source := source_towards(there))}
    if not sources:
        host = urlsplit(str(cloud.config.auth.get("auth_url") or "")).hostname or ""
        sources = {source for there in _resolved(host) if (source := source_towards(there))}
    if len(sources) != 1:
        seen = f"has {len(sources)} addresses towards them" if sources else "cannot tell its address towards them"
        return From(
            NOBODY,
            f"the guests' ports stay closed, because this machine {seen}, and fio servers accept anybody: results "
            "come by other ways, unless reached_from=CIDR in the target says from where they may be reached",
        )
    (source,) = sources
    cidr = f"{source}/{source.max_prefixlen}"
    return From(
        cidr,
        f"guests are reached from {cidr} only, this machine; if they see it under another address, say "
        "reached_from=CIDR in the target",
    )


def source_towards(there: str) -> Address | None:
    """The address that this machine's kernel would send from; None if nobody else could answer to it."""
    family = socket.AF_INET6 if ":" in there else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((there, _DISCARD))
        except OSError:  # no way there
            return None
        source = ipaddress.ip_address(asked.getsockname()[0].partition("%")[0])
    return None if source.is_loopback or source.is_unspecified or source.is_link_local else source


def _guests_addresses(cloud: Connection, network: str) -> list[str]:
    """An address of a guest in each subnet; of those with IPv4 if there are such, as fio's client speaks it."""

    def ask() -> list[Any]:
        found = cloud.network.find_network(network, ignore_missing=True)
        return list(cloud.network.subnets(network_id=found.id)) if found is not None else []

    subnets = persistently(ask, where=f"subnets of network {network}")
    by_version = {
        version: [_address_in(subnet) for subnet in subnets if subnet.ip_version == version] for version in (4, 6)
    }
    return by_version[4] or by_version[6]


def _address_in(subnet: Any) -> str:
    """Of a guest: the first that Neutron gives out there, or the first of all."""
    pools = subnet.allocation_pools or ()
    return str(pools[0]["start"] if pools else ipaddress.ip_network(subnet.cidr)[1])


def _resolved(host: str) -> Iterable[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, _DISCARD, type=socket.SOCK_DGRAM)][:1]
    except OSError:
        return ()
