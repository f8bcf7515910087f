"""Keystone's contents: service users, the catalogue, a project with a quota, Heat's domain."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import openstack
from openstack.connection import Connection

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
    """A connection to the lab's OpenStack, as its admin unless another cloud of its clouds.yaml is named."""
    loader = openstack.config.OpenStackConfig(config_files=[str(layout.clouds_yaml)], load_envvars=False)
    return Connection(config=loader.get_one(cloud=cloud or layout.admin_cloud))


def _identity(cloud: Connection) -> Any:
    """Keystone's API; untyped, because to the SDK it may be version 2, which has other calls."""
    return cloud.identity


def register(layout: Layout) -> None:
    """Fill a Keystone that was just bootstrapped."""
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
    """Give the ordinary project its quota, in every service that keeps one."""
    cloud = connect(layout)
    project_id: str = next(_identity(cloud).projects(name="cephfit")).id
    compute, volumes, network = dict[str, Any](COMPUTE_QUOTA), dict[str, Any](VOLUME_QUOTA), dict(NETWORK_QUOTA)
    cloud.compute.update_quota_set(project_id, **compute)
    cloud.block_storage.update_quota_set(project_id, **volumes)
    cloud.network.update_quota(project_id, **network)
    cloud.close()
