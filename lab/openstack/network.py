"""The cable between this machine and the guests' bridge, and clearing away both."""

import ipaddress
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cephfit.core.errors import HostError
from cephfit.lab.machine import run
from cephfit.lab.openstack.layout import Layout, interface_names

_SYS_NET = Path("/sys/class/net")
_CANDIDATES = tuple(f"10.77.{n}" for n in range(256))
PREFIX_LENGTH = 24


_LINKS = """\
link add cephfit0 type veth peer name cephfit1
link add cephfit2 type bridge
tuntap add dev cephfit3 mode tap
"""
"""All kinds that guests' networks are made of, for ``ip -batch``."""


def require_links() -> None:
    """Try all that a network of guests is made of, in namespaces that nobody else sees and that are gone at once.

    Raises:
        HostError: this machine's kernel, or the container this runs in, has no such thing; with its words.
    """
    try:
        run(["unshare", "--mount", "--net", "ip", "-batch", "-"], stdin=_LINKS)
    except HostError as error:
        raise HostError(
            f"no network for guests can be made here: {error.what}",
            where="namespaces, cables, bridges and taps of the kernel",
            remedy="take a machine, not an unprivileged container, whose kernel has veth, bridge and tun",
        ) from None


def pick_network(taken: Iterable[str] = ()) -> str:
    """The first three bytes of a /24 that no route of this machine goes into.

    Raises:
        HostError: all of 10.77.0.0/16 is taken.
    """
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]")
    known = [net for route in routes for net in [_network(route.get("dst", ""))] if net is not None]
    for candidate in _CANDIDATES:
        network = ipaddress.ip_network(f"{candidate}.0/{PREFIX_LENGTH}")
        if candidate not in taken and not any(network.overlaps(other) for other in known):
            return candidate
    raise HostError("every network of 10.77.0.0/16 is in use", where="routes of this machine")


def _network(destination: str) -> ipaddress.IPv4Network | None:
    try:
        network = ipaddress.IPv4Network(destination, strict=False)
    except ValueError:
        return None
    return network if network.prefixlen else None


def create_cable(layout: Layout) -> None:
    """Make both ends, up, this machine's with its address. Safe to call twice."""
    host, bridge = layout.host_end, layout.bridge_end
    if not (_SYS_NET / host).exists():
        run(["ip", "link", "add", host, "type", "veth", "peer", "name", bridge])
    for end in (host, bridge):
        # No address of its own accord: nothing but this lab may hear of these ends.
        with suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
        run(["ip", "link", "set", end, "up"])
    run(["ip", "address", "replace", f"{layout.gateway}/{PREFIX_LENGTH}", "dev", host])


def create_bridge(layout: Layout, network_id: str) -> None:
    """Make the bridge that neutron's agent would make for a network, and put our end into it at once.

    Whoever finds our end finds the bridge, whenever what happens; the agent takes a bridge that is there. Call it
    before the network has a subnet, because until then the agent has no reason to make one.
    """
    bridge = f"brq{network_id[:11]}"
    if not (_SYS_NET / bridge).exists():
        run(["ip", "link", "add", bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0"])
    run(["ip", "link", "set", layout.bridge_end, "master", bridge])
    run(["ip", "link", "set", bridge, "up"])


def _links(*words: str) -> list[dict[str, Any]]:
    with suppress(HostError):
        return list(json.loads(run(["ip", "-json", "link", "show", *words]) or "[]"))
    return []


def interfaces_there(lab_folder: Path) -> list[str]:
    """The interfaces of a lab that still exist."""
    return [end for end in interface_names(lab_folder) if (_SYS_NET / end).exists()]


def remove(lab_folder: Path) -> None:
    """Take away the cable of a lab, the bridge it is plugged into, and what else is plugged in there.

    Its processes are gone. Safe to call twice, and where there never was a network.
    """
    host, bridge_end = interface_names(lab_folder)
    bridges = [link["master"] for link in _links("dev", bridge_end) if "master" in link]
    for bridge in bridges:
        for port in _links("master", bridge):
            if port["ifname"] != bridge_end:
                _delete(port["ifname"])
        _delete(bridge)
    for end in (host, bridge_end):
        _delete(end)


def _delete(interface: str) -> None:
    if (_SYS_NET / interface).exists():
        with suppress(HostError):  # the other end of a cable goes with the first
            run(["ip", "link", "delete", "dev", interface])
