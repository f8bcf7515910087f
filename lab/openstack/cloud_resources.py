"""The contents of the lab's OpenStack: users, catalogue, quota, flavors, image, network, volume types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import openstack
from openstack.connection import Connection

from cephfit.cloud.image.guest_image import GuestImage
from cephfit.cloud.image.image_upload import upload
from cephfit.cloud.volumes.shared_attachments import MULTIATTACH
from cephfit.lab.openstack import network
from cephfit.lab.openstack.layout import Layout


@dataclass(frozen=True, slots=True)
class _Entry:
    """A service in the catalogue; ``port`` is its name in the layout."""

    kind: str
    name: str
    port: str


_CATALOGUE = (
    _Entry("image", "glance", "glance"),
    _Entry("placement", "placement", "placement"),
    _Entry("compute", "nova", "nova"),
    _Entry("network", "neutron", "neutron"),
    _Entry("volumev3", "cinderv3", "cinder"),
    _Entry("orchestration", "heat", "heat"),
    _Entry("cloudformation", "heat-cfn", "heat_cfn"),
)
_SERVICE_USERS = ("glance", "placement", "nova", "neutron", "cinder", "heat")

COMPUTE_QUOTA: Mapping[str, int] = {
    "instances": 24,
    "cores": 24,
    "ram": 12288,
    "key_pairs": 20,
    "server_group_members": 24,
}
VOLUME_QUOTA: Mapping[str, int] = {"volumes": 48, "gigabytes": 96, "snapshots": 10}
NETWORK_QUOTA: Mapping[str, int] = {"port": 60, "security_group": 20, "security_group_rule": 200}


def connect(layout: Layout, cloud: str | None = None) -> Connection:
    """Connect to the lab's OpenStack as its administrator, or as another cloud of its clouds.yaml."""
    loader = openstack.config.OpenStackConfig(config_files=[str(layout.clouds_yaml)], load_envvars=False)
    return Connection(config=loader.get_one(cloud=cloud or layout.admin_cloud))


def _identity(cloud: Connection) -> Any:
    """Keystone's API; untyped, because the SDK's type includes version 2, which has other calls."""
    return cloud.identity


def register(layout: Layout) -> None:
    """Create users, catalogue and projects in a new Keystone."""
    cloud = connect(layout)
    identity = _identity(cloud)
    role = {known.name: known for known in identity.roles()}
    for name in {"service", "heat_stack_owner", "heat_stack_user"} - set(role):
        role[name] = identity.create_role(name=name)
    service = identity.create_project(name="service", domain_id="default")
    for name in _SERVICE_USERS:
        user = identity.create_user(name=name, password=layout.secrets["service"], domain_id="default")
        for granted in ("admin", "service"):
            identity.assign_project_role_to_user(service, user, role[granted])
    admin_project, admin = next(identity.projects(name="admin")), next(identity.users(name="admin"))
    project = identity.create_project(name="cephfit", domain_id="default", description="for benchmarks")
    user = identity.create_user(name="cephfit", password=layout.secrets["user"], domain_id="default")
    for granted in ("member", "heat_stack_owner"):
        identity.assign_project_role_to_user(project, user, role[granted])
        identity.assign_project_role_to_user(admin_project, admin, role[granted])
    domain = identity.create_domain(name="heat", description="users of stacks")
    keeper = identity.create_user(
        name="heat_domain_admin", password=layout.secrets["heat_domain"], domain_id=domain.id
    )
    identity.assign_domain_role_to_user(domain, keeper, role["admin"])
    for entry in _CATALOGUE:
        made = identity.create_service(type=entry.kind, name=entry.name)
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(
                service_id=made.id, interface=interface, region_id=layout.region, url=layout.url(entry.port)
            )
    cloud.close()


def set_quotas(layout: Layout) -> None:
    """Set the quota of the ordinary project in every service with quotas."""
    cloud = connect(layout)
    project_id: str = next(_identity(cloud).projects(name="cephfit")).id
    compute, volumes, network = dict[str, Any](COMPUTE_QUOTA), dict[str, Any](VOLUME_QUOTA), dict(NETWORK_QUOTA)
    cloud.compute.update_quota_set(project_id, **compute)
    cloud.block_storage.update_quota_set(project_id, **volumes)
    cloud.network.update_quota(project_id, **network)
    cloud.close()


NETWORK = "lab"
SUBNET = "lab-v4"
FLAVOURS: Mapping[str, int] = {"cephfit.tiny": 384, "cephfit.small": 512, "cephfit.medium": 1024}
"""Flavor to memory in MiB; each has one processor and 1 GiB of disk."""


def create(layout: Layout, image: GuestImage) -> None:
    """Create public flavors, image, network and volume types. Safe to call twice."""
    cloud = connect(layout)
    flavors = {flavor.name for flavor in cloud.compute.flavors()}
    for name, ram in FLAVOURS.items():
        if name not in flavors:
            cloud.compute.create_flavor(name=name, ram=ram, vcpus=1, disk=1)
    types = {known.name for known in cloud.block_storage.types()}
    for made in layout.volume_types:
        if made.name not in types:
            shared = ", each for several guests at once" if made.multiattach else ""
            cloud.block_storage.create_type(
                name=made.name,
                description=f"volumes on the lab's {made.backend} OSDs{shared}",
                extra_specs={"volume_backend_name": made.backend, **(MULTIATTACH if made.multiattach else {})},
            )
    upload(cloud, image, visibility="public")
    _create_network(layout, cloud)
    cloud.close()


def network_id(layout: Layout) -> str:
    """Neutron's id of the guests' network."""
    cloud = connect(layout)
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
