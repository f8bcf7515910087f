"""The lab's OpenStack in use: users, catalogue, quota, flavors, image, network, volume types; its readiness."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keystoneauth1.exceptions
import openstack
import openstack.exceptions
from openstack.connection import Connection

from cephfit.cloud.guests.guest_image import GuestImage
from cephfit.cloud.guests.image_upload import upload
from cephfit.cloud.volumes.shared_attachments import MULTIATTACH
from cephfit.core.errors import ClusterError
from cephfit.lab.openstack import infrastructure
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
    """Create catalogue, users and projects in a new Keystone."""
    cloud = connect(layout)
    identity = _identity(cloud)
    # First: services start meanwhile, and keep the catalogue that comes with their first token.
    for entry in _CATALOGUE:
        made = identity.create_service(type=entry.kind, name=entry.name)
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(
                service_id=made.id, interface=interface, region_id=layout.region, url=layout.url(entry.port)
            )
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
    infrastructure.create_bridge(layout, net.id)
    if next(cloud.network.subnets(name=SUBNET), None) is None:
        cloud.network.create_subnet(
            name=SUBNET,
            network_id=net.id,
            ip_version=4,
            cidr=f"{layout.network}.0/{infrastructure.PREFIX_LENGTH}",
            gateway_ip=layout.gateway,
            allocation_pools=[{"start": f"{layout.network}.20", "end": f"{layout.network}.250"}],
        )


_POLL_SECONDS = 0.5
_READY_SECONDS = 300.0
_NEUTRON_AGENTS = {"neutron-dhcp-agent", "neutron-metadata-agent"}


def _nova(cloud: Connection, layout: Layout) -> str:
    up = {service.binary for service in cloud.compute.services() if service.state == "up"}
    missing = {"nova-conductor", "nova-scheduler", "nova-compute"} - up
    if missing:
        return f"{', '.join(sorted(missing))} not up"
    return "" if list(cloud.compute.hypervisors()) else "no compute host in a cell yet"


def _placement(cloud: Connection, layout: Layout) -> str:
    answer = cloud.placement.get("/resource_providers")
    return "" if answer.json()["resource_providers"] else "no compute host in placement yet"


def _neutron(cloud: Connection, layout: Layout) -> str:
    missing = _NEUTRON_AGENTS - {agent.binary for agent in cloud.network.agents() if agent.is_alive}
    return f"{', '.join(sorted(missing))} not alive" if missing else ""


def _cinder(cloud: Connection, layout: Layout) -> str:
    # Until the scheduler has a report from a back end that is "up", it sets the first volume to `error`.
    pools = cloud.block_storage.get("/scheduler-stats/get_pools?detail=true").json().get("pools", [])
    known = {pool["capabilities"].get("volume_backend_name") for pool in pools}
    missing = set(layout.pools) - known
    if missing:
        return f"the scheduler has no report from the back ends {', '.join(sorted(missing))}"
    down = [s.binary for s in cloud.block_storage.services() if s.state != "up"]
    return f"{', '.join(down)} not up" if down else ""


def _heat(cloud: Connection, layout: Layout) -> str:
    engines = cloud.orchestration.get("/services").json().get("services", [])
    return "" if any(engine["status"] == "up" for engine in engines) else "no heat-engine is up"


def _glance(cloud: Connection, layout: Layout) -> str:
    list(cloud.image.images())
    return ""


_CHECKS: Mapping[str, Callable[[Connection, Layout], str]] = {
    "glance": _glance,
    "nova": _nova,
    "placement": _placement,
    "neutron": _neutron,
    "cinder": _cinder,
    "heat": _heat,
}


def why_not_ready(cloud: Connection, layout: Layout) -> dict[str, str]:
    """Return why each component is not ready; empty if all are ready."""
    reasons = {}
    for name, check in _CHECKS.items():
        try:
            reason = check(cloud, layout)
        except (
            openstack.exceptions.SDKException,
            keystoneauth1.exceptions.ClientException,
            ValueError,
            KeyError,
        ) as error:
            reason = str(error) or type(error).__name__
        if reason:
            reasons[name] = reason
    return reasons


def wait_ready(
    layout: Layout,
    *,
    alive: Callable[[], None] = lambda: None,
    on_ready: Callable[[str], None] = lambda name: None,
) -> None:
    """Wait until every component is ready.

    Args:
        alive: called between polls; raises if a daemon died.
        on_ready: called once with the name of each component that became ready.

    Raises:
        ClusterError: it takes too long; states the remaining reasons.
    """
    until = time.monotonic() + _READY_SECONDS
    waiting = set(_CHECKS)
    while True:
        alive()
        cloud = connect(layout)
        reasons = why_not_ready(cloud, layout)
        cloud.close()
        for name in sorted(waiting - set(reasons)):
            on_ready(name)
        waiting = set(reasons)
        if not reasons:
            return
        if time.monotonic() > until:
            faults = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise ClusterError(
                f"not ready within {_READY_SECONDS:g} s: {faults}",
                where=f"OpenStack of lab {layout.name}",
                remedy=f"the logs are in {layout.folder / 'log'}",
            )
        time.sleep(_POLL_SECONDS)
