"""What people find in the lab's OpenStack when it is up: flavors, an image, a network, volume types."""

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
    flavors = {flavor.name for flavor in cloud.compute.flavors()}
    for name, ram in FLAVOURS.items():
        if name not in flavors:
            cloud.compute.create_flavor(name=name, ram=ram, vcpus=1, disk=1)
    types = {known.name for known in cloud.block_storage.types()}
    for device_class in layout.pools:
        if device_class not in types:
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
    found = str(next(cloud.network.networks(name=NETWORK)).id)
    cloud.close()
    return found


def _create_network(layout: Layout, cloud: Connection) -> None:
    net = next(cloud.network.networks(name=NETWORK), None) or cloud.network.create_network(
        name=NETWORK, provider_network_type="flat", provider_physical_network="lab", shared=True
    )
    network.create_bridge(layout, net.id)
    if next(cloud.network.subnets(name=SUBNET), None) is None:
        cloud.network.create_subnet(
            name=SUBNET,
            network_id=net.id,
            ip_version=4,
            cidr=f"{layout.network}.0/{network.PREFIX_LENGTH}",
            gateway_ip=layout.gateway,
            allocation_pools=[{"start": f"{layout.network}.20", "end": f"{layout.network}.250"}],
        )
