"""Neutron: a flat network on a bridge, with DHCP and the metadata service."""

from cephfit.lab.openstack.component import Component, Migration
from cephfit.lab.openstack.layout import Layout
from cephfit.lab.openstack.services import Service


def component(layout: Layout) -> Component:
    """Neutron with Linux bridges."""
    conf = ("--config-file", str(layout.conf("neutron")))
    ml2 = (*conf, "--config-file", str(layout.conf("ml2.ini")))
    dhcp = (*conf, "--config-file", str(layout.conf("dhcp_agent.ini")))
    metadata = (*conf, "--config-file", str(layout.conf("metadata_agent.ini")))
    return Component(
        "neutron",
        files=("neutron.conf", "ml2.ini", "dhcp_agent.ini", "dnsmasq.conf", "metadata_agent.ini"),
        folders=("neutron/lock", "neutron/bin"),
        databases=("neutron",),
        migrations=(Migration(("neutron-db-manage", *ml2, "upgrade", "heads")),),
        apis=(Service("neutron-server", ("neutron-server", *ml2), port=layout.ports["neutron"]),),
        agents=(
            Service(
                "neutron-linuxbridge-agent",
                ("neutron-linuxbridge-agent", *ml2),
                # Its rules against ARP spoofing would be in this machine's tables; see `shadow_programs`.
                {"PATH": f"{layout.home('neutron/bin')}:/usr/sbin:/usr/bin:/sbin:/bin"},
            ),
            Service("neutron-dhcp-agent", ("neutron-dhcp-agent", *dhcp)),
            Service("neutron-metadata-agent", ("neutron-metadata-agent", *metadata)),
        ),
    )


def shadow_programs(layout: Layout) -> None:
    """Give the bridge agent an ``ebtables`` that has no rules and sets none."""
    link = layout.home("neutron/bin") / "ebtables"
    if not link.is_symlink():
        link.symlink_to("/bin/true")
