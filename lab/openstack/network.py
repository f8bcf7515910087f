"""The veth pair between this machine and the guests' bridge: creation and removal of both."""

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
"""All kinds of interfaces in guests' networks, for ``ip -batch``."""


def require_links() -> None:
    """Create all kinds of required interfaces in a temporary private namespace, to check that it is possible.

    Raises:
        HostError: the kernel, or the container, does not support one; with its error.
    """
    try:
        run(["unshare", "--mount", "--net", "ip", "-batch", "-"], stdin=_LINKS)
    except HostError as error:
        raise HostError(
            f"no network for guests can be created here: {error.what}",
            where="namespaces, veth, bridges and taps of the kernel",
            remedy="use a machine, not an unprivileged container, whose kernel has veth, bridge and tun",
        ) from None


def pick_network(taken: Iterable[str] = ()) -> str:
    """Return the first three bytes of a /24 without a route on this machine.

    Raises:
        HostError: all of 10.77.0.0/16 is in use.
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
    """Create both ends, set them up, and give this machine's end its address. Safe to call twice."""
    host, bridge = layout.host_end, layout.bridge_end
    if not (_SYS_NET / host).exists():
        run(["ip", "link", "add", host, "type", "veth", "peer", "name", bridge])
    for end in (host, bridge):
        # No automatic address: only this lab may use these ends.
        with suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
        run(["ip", "link", "set", end, "up"])
    run(["ip", "address", "replace", f"{layout.gateway}/{PREFIX_LENGTH}", "dev", host])


def create_bridge(layout: Layout, network_id: str) -> None:
    """Create the bridge that neutron's agent would create for a network, and add our end to it immediately.

    The bridge can then always be found from our end; the agent uses an existing bridge. Call this before the
    network has a subnet, because until then the agent creates none.
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
    """Return the existing interfaces of a lab."""
    return [end for end in interface_names(lab_folder) if (_SYS_NET / end).exists()]


def remove(lab_folder: Path) -> None:
    """Remove the veth pair of a lab, its bridge, and all other interfaces of that bridge.

    Its processes must have ended. Safe to call twice, and without a network.
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
        with suppress(HostError):  # the other end of a veth pair is deleted with the first
            run(["ip", "link", "delete", "dev", interface])
