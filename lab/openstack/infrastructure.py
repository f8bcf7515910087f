"""The infrastructure of OpenStack: MariaDB, RabbitMQ, memcached and libvirt, separate for each lab."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cephfit.core.errors import HostError
from cephfit.lab.machine import find_program
from cephfit.lab.openstack import components
from cephfit.lab.openstack.layout import Layout
from cephfit.lab.openstack.services import MountNamespace, Service, Services

_START_SECONDS = 120.0
_POLL_SECONDS = 0.1

MARIADB, RABBITMQ, MEMCACHED, LIBVIRTD = "mariadb", "rabbitmq", "memcached", "libvirtd"


def services(layout: Layout) -> tuple[Service, ...]:
    """The four daemons."""
    return (_mariadb(layout), _rabbitmq(layout), _memcached(layout), _libvirtd(layout))


def _mariadb(layout: Layout) -> Service:
    return Service(
        MARIADB,
        (
            *("mariadbd", "--no-defaults", "--user=root", f"--datadir={layout.home(MARIADB)}"),
            *(f"--socket={layout.database_socket}", "--pid-file=/run/mariadb.pid", "--skip-networking"),
            # A lab is created again after a power failure: no need to wait for the disk.
            *("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin"),
            *("--innodb-buffer-pool-size=64M", "--key-buffer-size=1M", "--aria-pagecache-buffer-size=1M"),
            *("--performance-schema=0", "--max-connections=400", "--character-set-server=utf8mb3"),
        ),
    )


def _rabbitmq(layout: Layout) -> Service:
    home = layout.home(RABBITMQ)
    return Service(
        RABBITMQ,
        ("/usr/lib/rabbitmq/bin/rabbitmq-server",),
        {
            "HOME": str(home),
            "RABBITMQ_NODENAME": "cephfit@localhost",
            "RABBITMQ_MNESIA_BASE": str(home),
            "RABBITMQ_LOG_BASE": str(layout.folder / "log"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(layout.conf("rabbitmq.conf")),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_PID_FILE": "/run/rabbitmq.pid",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(layout.ports["epmd"]),
            "RABBITMQ_DIST_PORT": str(layout.ports["rabbitmq_distribution"]),
            # One scheduler without busy waiting, so that few messages do not disturb measurements.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +A 8 +sbwt none"
            ),
        },
        layout.ports["rabbitmq"],
    )


def _memcached(layout: Layout) -> Service:
    port = layout.ports["memcached"]
    return Service(
        MEMCACHED,
        ("memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-m", "32", "-t", "1"),
        port=port,
    )


def _libvirtd(layout: Layout) -> Service:
    # libvirtd queries every QEMU on its PATH for capabilities; all of Debian's take a minute.
    path = f"{layout.home('libvirt/bin')}:/usr/sbin:/sbin"
    return Service(LIBVIRTD, ("libvirtd", "-f", str(layout.conf("libvirtd.conf"))), {"PATH": path})


def prepare(layout: Layout) -> None:
    """Write the files of the four daemons, before the namespace is set up."""
    for folder in (MARIADB, RABBITMQ, "libvirt/bin", "libvirt/etc"):
        layout.home(folder).mkdir(parents=True, exist_ok=True)
    layout.home(MARIADB).chmod(0o700)
    components.write(layout, layout.conf("rabbitmq.conf"), "rabbitmq.conf")
    (layout.home(RABBITMQ) / "enabled_plugins").write_text("[].\n")
    components.write(layout, layout.conf("libvirtd.conf"), "libvirtd.conf")
    components.write(layout, layout.home("libvirt/etc") / "qemu.conf", "qemu.conf")
    for program in ("qemu-system-x86_64", "qemu-img"):
        link = layout.home("libvirt/bin") / program
        if not link.is_symlink():
            link.symlink_to(find_program(program) or f"/usr/bin/{program}")


def install_database(layout: Layout, namespace: MountNamespace) -> None:
    """Create an empty MariaDB that authenticates root by the kernel's user id."""
    if (layout.home(MARIADB) / "mysql").is_dir():
        return
    namespace.call(
        [
            *("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={layout.home(MARIADB)}"),
            *("--auth-root-authentication-method=socket", "--auth-root-socket-user=root", "--skip-test-db"),
        ],
        seconds=300,
    )


def sql(layout: Layout, namespace: MountNamespace, statement: str) -> str:
    """Run a statement as root."""
    at = ("--no-defaults", f"--socket={layout.database_socket}", "--user=root")
    return namespace.call(["mariadb", *at, "--execute", statement])


def create_databases(layout: Layout, namespace: MountNamespace, names: Iterable[str]) -> None:
    """Create empty databases."""
    sql(layout, namespace, "".join(f"CREATE DATABASE IF NOT EXISTS {name};" for name in names))


def start(layout: Layout, running: Services, namespace: MountNamespace) -> None:
    """Start the four daemons concurrently; return when all of them answer.

    Raises:
        ClusterError: one does not answer; with the end of its log.
    """
    mariadb, rabbitmq, memcached, libvirtd = services(layout)
    for service in (rabbitmq, libvirtd, memcached):
        running.start(service, namespace)
    install_database(layout, namespace)
    running.start(mariadb, namespace)
    _wait(running, MARIADB, lambda: sql(layout, namespace, "SELECT 1"))
    _wait(running, LIBVIRTD, lambda: namespace.call(["virsh", "-c", "qemu:///system", "version"]))
    for service in (memcached, rabbitmq):
        running.wait_listening(service, seconds=_START_SECONDS)


def _wait(running: Services, name: str, ask: Callable[[], str]) -> None:
    """Wait until a daemon without a port answers."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            ask()
            return
        except HostError as error:
            if running.pid(name) is None:
                raise running.failure(name, "ended at its start") from None
            if time.monotonic() > until:
                raise running.failure(name, f"does not answer ({error.what})") from None
        time.sleep(_POLL_SECONDS)


def keep_ceph_key(layout: Layout, namespace: MountNamespace) -> None:
    """Give libvirt the key of ``client.cinder``, with which QEMU opens volumes."""
    definition = layout.home("libvirt") / "secret.xml"
    definition.write_text(
        f"<secret ephemeral='no' private='yes'><uuid>{layout.rbd_secret_uuid}</uuid>"
        "<usage type='ceph'><name>client.cinder</name></usage></secret>\n"
    )
    virsh = ("virsh", "--quiet", "-c", "qemu:///system")
    namespace.call([*virsh, "secret-define", str(definition)])
    namespace.call([*virsh, "secret-set-value", layout.rbd_secret_uuid, "--file", str(ceph_key_file(layout))])


def ceph_key_file(layout: Layout) -> Path:
    """The bare key of ``client.cinder``."""
    return layout.home("ceph") / "client.cinder.key"
