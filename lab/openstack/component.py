"""Declarations of OpenStack's components: files, databases, migrations and daemons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cephfit.lab.openstack.layout import Layout
from cephfit.lab.openstack.services import Service

_WSGI_SCRIPT = Path(__file__).with_name("wsgi_script.py")


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
