"""OpenStack's components: the Debian packages, files, databases, migrations, configuration and daemons of each."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from cephfit import templates
from cephfit.core.errors import HostError
from cephfit.core.optional_modules import optional_module
from cephfit.lab.daemons.ceph_daemons import write_secret
from cephfit.lab.machine import find_program
from cephfit.lab.openstack.layout import Layout
from cephfit.lab.openstack.services import Service

_WSGI_SCRIPT = Path(__file__).with_name("wsgi_script.py")
_DRIVERS_SOURCE = Path(__file__).with_name("neutron_drivers.py")
_DRIVERS = "neutron/lib"


@dataclass(frozen=True, slots=True)
class Migration:
    """A program that is run once, when the lab is created.

    Attributes:
        argv: what to run.
        environment: additional variables; secrets go here, where other users cannot read them.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Component:
    """One component: Keystone, Glance, ...

    Attributes:
        name: of the component and of its service user.
        files: template below ``templates/openstack`` to the file below ``etc`` (``Layout.conf``).
        folders: below ``var``.
        databases: names.
        migrations: in order.
        apis: daemons that need only the databases.
        agents: daemons that need the APIs of all components.
    """

    name: str
    files: tuple[str, ...]
    folders: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()
    migrations: tuple[Migration, ...] = ()
    apis: tuple[Service, ...] = ()
    agents: tuple[Service, ...] = ()

    @property
    def services(self) -> tuple[Service, ...]:
        return self.apis + self.agents


def uwsgi(
    layout: Layout,
    name: str,
    *,
    port: int,
    program: str,
    arguments: str = "",
    environment: Mapping[str, str] | None = None,
    for_guests: bool = False,
) -> Service:
    """An API that is served by uWSGI, as Debian does it: one process, some threads.

    Args:
        program: the WSGI script.
        arguments: of its command line.
        for_guests: also listen on this machine's address in the guests' network.
    """
    hosts = ("127.0.0.1", layout.gateway) if for_guests else ("127.0.0.1",)
    return Service(
        name,
        (
            *("uwsgi", "--plugin", "python3", "--wsgi-file", str(_WSGI_SCRIPT), "--need-app", "--lazy-apps"),
            *(word for host in hosts for word in ("--http-socket", f"{host}:{port}")),
            *("--processes", "1", "--threads", "8", "--enable-threads", "--die-on-term"),
            *("--buffer-size", "65535", "--socket-timeout", "30", "--add-header", "Connection: close"),
            *(("--pyargv", arguments) if arguments else ()),
        ),
        {**(environment or {}), "CEPHFIT_WSGI_SCRIPT": program},
        port,
    )


def keystone(layout: Layout) -> Component:
    """Keystone: identities and the addresses of the APIs. Has the project ``admin`` and the user ``admin``."""
    conf = str(layout.conf("keystone"))
    manage = ("keystone-manage", "--config-file", conf)
    as_root = ("--keystone-user", "root", "--keystone-group", "root")
    url = layout.url("keystone")
    return Component(
        "keystone",
        files=("keystone.conf",),
        folders=("keystone/fernet", "keystone/credential"),
        databases=("keystone",),
        migrations=(
            Migration((*manage, "db_sync")),
            Migration((*manage, "fernet_setup", *as_root)),
            Migration((*manage, "credential_setup", *as_root)),
            Migration(
                (*manage, "bootstrap"),
                {
                    "OS_BOOTSTRAP_PASSWORD": layout.secrets["admin"],
                    "OS_BOOTSTRAP_REGION_ID": layout.region,
                    "OS_BOOTSTRAP_ADMIN_URL": url,
                    "OS_BOOTSTRAP_INTERNAL_URL": url,
                    "OS_BOOTSTRAP_PUBLIC_URL": url,
                },
            ),
        ),
        apis=(
            uwsgi(
                layout,
                "keystone",
                port=layout.ports["keystone"],
                program="/usr/bin/keystone-wsgi-public",
                environment={
                    "OS_KEYSTONE_CONFIG_FILES": conf,
                    "OS_KEYSTONE_CONFIG_DIR": str(layout.folder / "etc"),
                },
            ),
        ),
    )


def glance(layout: Layout) -> Component:
    """Glance: the guests' images, as files in the lab's folder."""
    conf = ("--config-file", str(layout.conf("glance-api")))
    return Component(
        "glance",
        files=("glance-api.conf",),
        folders=("glance/lock", "glance/images", "glance/staging", "glance/tasks"),
        databases=("glance",),
        migrations=(Migration(("glance-manage", *conf, "db_sync")),),
        apis=(Service("glance-api", ("glance-api", *conf), port=layout.ports["glance"]),),
    )


def placement(layout: Layout) -> Component:
    """Placement: the free resources of the compute host."""
    environment = {"OS_PLACEMENT_CONFIG_DIR": str(layout.folder / "etc")}
    return Component(
        "placement",
        files=("placement.conf",),
        folders=("placement/lock",),
        databases=("placement",),
        migrations=(
            Migration(
                ("placement-manage", "--config-file", str(layout.conf("placement")), "db", "sync"), environment
            ),
        ),
        apis=(
            uwsgi(
                layout,
                "placement",
                port=layout.ports["placement"],
                program="/usr/bin/placement-api",
                environment=environment,
            ),
        ),
    )


def nova(layout: Layout) -> Component:
    """Nova with one cell and one compute host: this machine, with libvirt and QEMU."""
    conf = ("--config-file", str(layout.conf("nova")))
    manage = ("nova-manage", *conf)
    cell0 = layout.database_url("nova_cell0")
    return Component(
        "nova",
        files=("nova.conf",),
        folders=("nova/lock", "nova/instances"),
        databases=("nova_api", "nova_cell0", "nova"),
        migrations=(
            Migration((*manage, "api_db", "sync")),
            Migration((*manage, "cell_v2", "map_cell0", "--database_connection", cell0)),
            Migration((*manage, "db", "sync")),
            Migration((*manage, "cell_v2", "create_cell", "--name", "cell1")),
        ),
        apis=(
            Service("nova-api", ("nova-api", *conf), port=layout.ports["nova"]),
            Service("nova-conductor", ("nova-conductor", *conf)),
            Service("nova-scheduler", ("nova-scheduler", *conf)),
        ),
        agents=(Service("nova-compute", ("nova-compute", *conf)),),
    )


def neutron(layout: Layout) -> Component:
    """Neutron: a flat network on a Linux bridge, with DHCP and the metadata service."""
    conf = ("--config-file", str(layout.conf("neutron")))
    ml2 = (*conf, "--config-file", str(layout.conf("ml2.ini")))
    dhcp = (*conf, "--config-file", str(layout.conf("dhcp_agent.ini")))
    drivers = {"PYTHONPATH": str(layout.home(_DRIVERS))}
    metadata = (*conf, "--config-file", str(layout.conf("metadata_agent.ini")))
    return Component(
        "neutron",
        files=("neutron.conf", "ml2.ini", "dhcp_agent.ini", "dnsmasq.conf", "metadata_agent.ini"),
        folders=("neutron/lock", _DRIVERS),
        databases=("neutron",),
        migrations=(Migration(("neutron-db-manage", *ml2, "upgrade", "heads"), drivers),),
        apis=(Service("neutron-server", ("neutron-server", *ml2), drivers, layout.ports["neutron"]),),
        agents=(
            Service("neutron-dhcp-agent", ("neutron-dhcp-agent", *dhcp), drivers),
            Service("neutron-metadata-agent", ("neutron-metadata-agent", *metadata)),
        ),
    )


def install_drivers(layout: Layout) -> None:
    """Put Neutron's drivers where its programs import them, as an installed distribution with an entry point."""
    home = layout.home(_DRIVERS)
    shutil.copyfile(_DRIVERS_SOURCE, home / "cephfit_neutron.py")
    distribution = home / "cephfit_neutron-1.dist-info"
    distribution.mkdir(exist_ok=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: cephfit-neutron\nVersion: 1\n")
    entry = "[neutron.ml2.mechanism_drivers]\ncephfit_one_bridge = cephfit_neutron:OneBridge\n"
    (distribution / "entry_points.txt").write_text(entry)


def cinder(layout: Layout) -> Component:
    """Cinder: an RBD back end for each of ``layout.pools``."""
    conf = ("--config-file", str(layout.conf("cinder")))
    return Component(
        "cinder",
        files=("cinder.conf",),
        folders=("cinder/lock", "cinder/conversion", "cinder/coordination"),
        databases=("cinder",),
        migrations=(Migration(("cinder-manage", *conf, "db", "sync")),),
        apis=(
            Service("cinder-api", ("cinder-api", *conf), port=layout.ports["cinder"]),
            Service("cinder-scheduler", ("cinder-scheduler", *conf)),
        ),
        agents=(Service("cinder-volume", ("cinder-volume", *conf)),),
    )


def heat(layout: Layout) -> Component:
    """Heat, with its CloudFormation API for the older kind of signal.

    Both APIs also listen on the guests' network, where guests signal that they have finished.
    """
    arguments = f"--config-file {layout.conf('heat')}"
    return Component(
        "heat",
        files=("heat.conf",),
        folders=("heat/lock",),
        databases=("heat",),
        migrations=(Migration(("heat-manage", *arguments.split(), "db_sync")),),
        apis=(
            uwsgi(
                layout,
                "heat-api",
                port=layout.ports["heat"],
                program="/usr/bin/heat-wsgi-api",
                arguments=arguments,
                for_guests=True,
            ),
            uwsgi(
                layout,
                "heat-api-cfn",
                port=layout.ports["heat_cfn"],
                program="/usr/bin/heat-wsgi-api-cfn",
                arguments=arguments,
                for_guests=True,
            ),
            Service("heat-engine", ("heat-engine", *arguments.split())),
        ),
    )


COMPONENTS = (keystone, glance, placement, nova, neutron, cinder, heat)
"""All components, in the order in which their databases are created."""


def _environment() -> jinja2.Environment:
    def source(name: str) -> str:
        return resources.files(templates).joinpath(name).read_text()

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )


def render(template: str, **values: Any) -> str:
    """Render a template below ``templates/openstack``; a missing value is an error."""
    return _environment().get_template(f"openstack/{template}.j2").render(**values)


def write(layout: Layout, file: Path, template: str, **values: Any) -> None:
    """Render into a file that only root can read: most of these hold passwords."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_secret(file, render(template, cloud=layout, **values))


def write_all(layout: Layout, components: Iterable[Component]) -> None:
    """Create the folders of all components; write their files and the clouds.yaml."""
    for folder in ("etc", "log", "run"):
        (layout.folder / folder).mkdir(exist_ok=True)
    (layout.folder / "etc").chmod(0o700)
    for component in components:
        for folder in component.folders:
            layout.home(folder).mkdir(parents=True, exist_ok=True)
        for name in component.files:
            write(layout, layout.conf(name), name)
    clouds = (
        {"name": layout.admin_cloud, "user": "admin", "project": "admin", "password": layout.secrets["admin"]},
        {"name": layout.user_cloud, "user": "cephfit", "project": "cephfit", "password": layout.secrets["user"]},
    )
    write(layout, layout.clouds_yaml, "clouds.yaml", clouds=clouds)


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
