"""Neutron's two drivers for a flat network on one Linux bridge. Neutron itself has none since 2025.1.

``OneBridge`` binds every port to the bridge of its network. Libvirt adds a guest's tap to it: no agent is needed.
``BridgeInterface`` connects the namespace of the DHCP server.

The system's Python runs this, without cephfit: ``components`` copies the file to where Neutron's programs find it.
"""

import subprocess
from collections.abc import Iterable
from typing import Any

from neutron.agent.linux import interface, ip_lib
from neutron_lib.plugins.ml2 import api


def bridge_of(network_id: str) -> str:
    """Return the name of a network's bridge."""
    return f"brq{network_id[:11]}"


class OneBridge(api.MechanismDriver):  # type: ignore[misc]
    """Binds ports on flat networks. They are ready at once, because nothing else has to be configured for them."""

    def initialize(self) -> None:
        """Nothing is needed."""

    def bind_port(self, context: Any) -> None:
        """Bind a port to the first flat segment that it can have."""
        details = {
            "port_filter": True,
            "connectivity": "l2",
            "bridge_name": bridge_of(context.current["network_id"]),
        }
        for segment in context.segments_to_bind:
            if segment[api.NETWORK_TYPE] == "flat":
                context.set_binding(segment[api.ID], "bridge", details, status="ACTIVE")
                return

    def filter_hosts_with_segment_access(
        self, context: Any, segments: Any, candidate_hosts: Iterable[str], agent_getter: Any
    ) -> set[str]:
        """Return all hosts: there is only this machine."""
        return set(candidate_hosts)


class BridgeInterface(interface.LinuxInterfaceDriver):  # type: ignore[misc]
    """A veth pair from a namespace to the bridge."""

    DEV_NAME_PREFIX = "ns-"

    def plug_new(
        self,
        network_id: str,
        port_id: str,
        device_name: str,
        mac_address: str,
        bridge: str | None = None,
        namespace: str | None = None,
        prefix: str | None = None,
        mtu: int | None = None,
        link_up: bool = True,
    ) -> None:
        """Create the pair, and add its outer end to the bridge."""
        outer, inner = ip_lib.IPWrapper().add_veth(_outer_end(device_name), device_name, namespace2=namespace)
        inner.link.set_address(mac_address)
        for end in (outer, inner):
            if mtu:
                end.link.set_mtu(mtu)
            end.link.set_up()
        subprocess.run(["ip", "link", "set", outer.name, "master", bridge_of(network_id)], check=True)

    def unplug(
        self, device_name: str, bridge: str | None = None, namespace: str | None = None, prefix: str | None = None
    ) -> None:
        """Delete the pair, unless it is gone."""
        if ip_lib.device_exists(device_name, namespace=namespace):
            ip_lib.IPDevice(device_name, namespace=namespace).link.delete()


def _outer_end(device_name: str) -> str:
    return "tap" + device_name.removeprefix(BridgeInterface.DEV_NAME_PREFIX)
