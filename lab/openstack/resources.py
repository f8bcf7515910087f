"""What people find in the lab's OpenStack when it is up: flavours, an image, a network, volume types."""

from collections.abc import Mapping

from openstack.connection import Connection

from cephfit.lab.openstack import network, registration
from cephfit.lab.openstack.layout import Layout
from cephfit.sweep.guest.image import GuestImage
from cephfit.sweep.guest.upload import upload

NETWORK = "lab"
SUBNET = "lab-v4"
FLAVOURS: Mapping[str, int] = {"cephfit.tiny": 384, "cephfit.small": 512, "cephfit.medium": 1024}
"""Name to MiB of memory; one processor and 1 GiB of disk each."""


def create(layout: Layout, image: GuestImage) -> None:
    """Make them, for everybody. Safe to call twice."""
    cloud = registration.connect(layout)
    for name, ram in FLAVOURS.items():
        if cloud.compute.find_flavor(name) is None:
            cloud.compute.create_flavor(name=name, ram=ram, vcpus=1, disk=1)
    for device_class in layout.pools:
        if cloud.block_storage.find_type(device_class) is None:
            cloud.block_storage.create_type(
                name=device_class,
                description=f"volumes on the lab's {device_class} OSDs",
                extra_specs={"volume_backend_name": device_class},
            )
    upload(cloud, image, visibility="public")
    _create_network(layout, cloud)
    cloud.close()


def network_id(layout: Layout) -> str:
    """Neutron's id of the guests' network."""
    cloud = registration.connect(layout)
    found = cloud.network.find_network(NETWORK, ignore_missing=False)
    cloud.close()
    return str(found.id)


def _create_network(layout: Layout, cloud: Connection) -> None:
    net = cloud.network.find_network(NETWORK) or cloud.network.create_network(
        name=NETWORK, provider_network_type="flat", provider_physical_network="lab", shared=True
    )
    network.create_bridge(layout, net.id)
    if cloud.network.find_subnet(SUBNET) is None:
        cloud.network.create_subnet(
            name=SUBNET,
            network_id=net.id,
            ip_version=4,
            cidr=f"{layout.network}.0/{network.PREFIX_LENGTH}",
            gateway_ip=layout.gateway,
            allocation_pools=[{"start": f"{layout.network}.20", "end": f"{layout.network}.250"}],
        )
