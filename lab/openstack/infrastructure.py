"""The infrastructure of OpenStack, separate for each lab: MariaDB, RabbitMQ, memcached, libvirt, and a veth pair.

The veth pair is between this machine and the guests' bridge.
"""

import ipaddress
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cephfit.core.errors import HostError
from cephfit.lab.machine import find_program, run
from cephfit.lab.openstack import components
from cephfit.lab.openstack.layout import Layout, interface_names
from cephfit.lab.openstack.services import MountNamespace, Service, Services

_START_SECONDS = 120.0
_POLL_SECONDS = 0.1

MARIADB, RABBITMQ, MEMCACHED, LIBVIRTD = "mariadb", "rabbitmq", "memcached", "libvirtd"


def services(layout: Layout) -> tuple[Service, ...]:
    """Return the four daemons."""
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
    """Return the bare key of ``client.cinder``."""
    return layout.home("ceph") / "client.cinder.key"


_SYS_NET = Path("/sys/class/net")
_CANDIDATES = tuple(f"10.77.{n}" for n in range(256))
PREFIX_LENGTH = 24


_LINKS = """\
link add cephfit0 type veth peer name cephfit1
link add cephfit2 type bridge
tuntap add dev cephfit3 mode tap
"""
"""All kinds of interfaces in guests' networks, for ``ip -batch``."""


def require_links() -> None:
    """Create all kinds of required interfaces in a temporary private namespace, to check that it is possible.

    Raises:
        HostError: the kernel, or the container, does not support one; with its error.
    """
    try:
        run(["unshare", "--mount", "--net", "ip", "-batch", "-"], stdin=_LINKS)
    except HostError as error:
        raise HostError(
            f"no network for guests can be created here: {error.what}",
            where="namespaces, veth, bridges and taps of the kernel",
            remedy="use a machine, not an unprivileged container, whose kernel has veth, bridge and tun",
        ) from None


def pick_network(taken: Iterable[str] = ()) -> str:
    """Return the first three bytes of a /24 without a route on this machine.

    Raises:
        HostError: all of 10.77.0.0/16 is in use.
    """
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]")
    known = [net for route in routes for net in [_network(route.get("dst", ""))] if net is not None]
    for candidate in _CANDIDATES:
        network = ipaddress.ip_network(f"{candidate}.0/{PREFIX_LENGTH}")
        if candidate not in taken and not any(network.overlaps(other) for other in known):
            return candidate
    raise HostError("every network of 10.77.0.0/16 is in use", where="routes of this machine")


def _network(destination: str) -> ipaddress.IPv4Network | None:
    try:
        network = ipaddress.IPv4Network(destination, strict=False)
    except ValueError:
        return None
    return network if network.prefixlen else None


def create_cable(layout: Layout) -> None:
    """Create both ends, set them up, and give this machine's end its address. Safe to call twice."""
    host, bridge = layout.host_end, layout.bridge_end
    if not (_SYS_NET / host).exists():
        run(["ip", "link", "add", host, "type", "veth", "peer", "name", bridge])
    for end in (host, bridge):
        # No automatic address: only this lab may use these ends.
        with suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
        run(["ip", "link", "set", end, "up"])
    run(["ip", "address", "replace", f"{layout.gateway}/{PREFIX_LENGTH}", "dev", host])


def create_bridge(layout: Layout, network_id: str) -> None:
    """Create the bridge of a network, under the name that Nova gives it, and add our end to it immediately.

    The bridge can then always be found from our end. Call this before the network has a subnet: its DHCP server is
    connected to the bridge.
    """
    bridge = f"brq{network_id[:11]}"
    if not (_SYS_NET / bridge).exists():
        run(["ip", "link", "add", bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0"])
    run(["ip", "link", "set", layout.bridge_end, "master", bridge])
    run(["ip", "link", "set", bridge, "up"])


def _links(*words: str) -> list[dict[str, Any]]:
    with suppress(HostError):
        return list(json.loads(run(["ip", "-json", "link", "show", *words]) or "[]"))
    return []


def interfaces_there(lab_folder: Path) -> list[str]:
    """Return the existing interfaces of a lab."""
    return [end for end in interface_names(lab_folder) if (_SYS_NET / end).exists()]


def remove(lab_folder: Path) -> None:
    """Remove the veth pair of a lab, its bridge, and all other interfaces of that bridge.

    Its processes must have ended. Safe to call twice, and without a network.
    """
    host, bridge_end = interface_names(lab_folder)
    bridges = [link["master"] for link in _links("dev", bridge_end) if "master" in link]
    for bridge in bridges:
        for port in _links("master", bridge):
            if port["ifname"] != bridge_end:
                _delete(port["ifname"])
        _delete(bridge)
    for end in (host, bridge_end):
        _delete(end)


def _delete(interface: str) -> None:
    if (_SYS_NET / interface).exists():
        with suppress(HostError):  # the other end of a veth pair is deleted with the first
            run(["ip", "link", "delete", "dev", interface])
