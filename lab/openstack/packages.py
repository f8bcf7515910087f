"""The Debian packages of OpenStack, and the check that they are installed."""

from collections.abc import Mapping
from pathlib import Path

from cephfit.core.errors import HostError
from cephfit.core.optional_modules import optional_module
from cephfit.lab.machine import find_program

PACKAGE_LIST = "lab/debian-packages-openstack.txt"

_PROGRAMS: Mapping[str, str] = {
    "mariadbd": "mariadb-server",
    "mariadb": "mariadb-client",
    "/usr/lib/rabbitmq/bin/rabbitmq-server": "rabbitmq-server",
    "memcached": "memcached",
    "uwsgi": "uwsgi-core",
    "/usr/lib/uwsgi/plugins/python3_plugin.so": "uwsgi-plugin-python3",
    "keystone-manage": "keystone",
    "glance-api": "glance-api",
    "placement-api": "placement-api",
    "nova-api": "nova-api",
    "nova-conductor": "nova-conductor",
    "nova-scheduler": "nova-scheduler",
    "nova-compute": "nova-compute",
    "neutron-server": "neutron-server",
    "neutron-linuxbridge-agent": "neutron-linuxbridge-agent",
    "neutron-dhcp-agent": "neutron-dhcp-agent",
    "neutron-metadata-agent": "neutron-metadata-agent",
    "cinder-api": "cinder-api",
    "cinder-scheduler": "cinder-scheduler",
    "cinder-volume": "cinder-volume",
    "heat-wsgi-api": "heat-api",
    "heat-wsgi-api-cfn": "heat-api-cfn",
    "heat-engine": "heat-engine",
    "libvirtd": "libvirt-daemon",
    "virsh": "libvirt-clients",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "genisoimage": "genisoimage",
    "dnsmasq": "dnsmasq-base",
    "haproxy": "haproxy",
    "ip": "iproute2",
    "iptables": "iptables",
    "ebtables": "ebtables",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""Program to its Debian package."""


def require_packages() -> None:
    """Check that all packages are installed.

    Raises:
        HostError: names the missing ones and the command that installs all.
    """
    missing = dict.fromkeys(
        package
        for program, package in _PROGRAMS.items()
        if not (Path(program).exists() if program.startswith("/") else find_program(program))
    )
    if missing:
        raise HostError(
            f"Debian packages of OpenStack are missing: {' '.join(missing)}",
            where="programs on this machine",
            remedy=f"install all required packages with `make setup-openstack` (the list is {PACKAGE_LIST})",
        )
    optional_module("openstack")
