"""Open a target by its name.

Names are `lab`, `lab:NAME`, `ceph`, `ceph:NAME`, `sim`, `local:/path`, `iscsi:...`, `nfs:...`, `swift:...`, and
`openstack:CLOUD`.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from cephfit.ceph.environment.scopes import ISCSI, NFS, PROTOCOL_OPTIONS, SWIFT
from cephfit.core.errors import HostError, InputError
from cephfit.core.optional_modules import install_command, optional_module
from cephfit.core.protocols import Progress, Target
from cephfit.operations.measuring.cluster_options import ClusterOptions, is_existing_cluster

if TYPE_CHECKING:
    from cephfit.ceph.host_access import SshAccess
    from cephfit.cloud.cloud_choice import CloudChoice
    from cephfit.targets.ceph.existing_cluster import ClusterChoice


def open_target(
    text: str,
    *,
    for_change: bool,
    progress: Progress | None = None,
    ioengine: str = "",
    cluster: ClusterOptions | None = None,
    leave: bool = False,
) -> Target:
    """Open a target by its name.

    Args:
        text: ``lab`` (the lab called default), ``lab:NAME``, ``lab:/its/folder``, ``ceph`` (the cluster of
            /etc/ceph/ceph.conf), ``ceph:NAME`` (of /etc/ceph/NAME.conf), all of these also with
            ``,settings=store|conf|injectargs`` and those of ``ceph`` with ``,osd_conf=/path``; ``sim``,
            ``sim:noise=0.05,...``, ``local:/path/of/file``, ``iscsi://HOST:PORT/IQN/LUN``, ``nfs://HOST/EXPORT``,
            ``iscsi:lab`` or ``nfs:lab:NAME`` (the server of a lab), ``swift://ACCOUNT:USER@HOST:PORT/CONTAINER``,
            ``swift:lab``, ``openstack:CLOUD,flavor=NAME,volume_type=NAME,...``.
        for_change: whether the caller will apply configurations or reset; takes the target's lock.
        progress: shows long operations.
        ioengine: fio's engine, if fio will run: ``rbd`` opens images itself, all others need block devices.
        cluster: connection options; for existing clusters only.
        leave: ``--apply`` was given: an existing cluster may be changed.

    Raises:
        InputError: no such kind of target, or no such lab; or no permission to change this one.
        HostError: a lab without root; or Ceph's Python bindings are not installed.
        ClusterError: it does not answer, or another process changes it.
    """
    kind, _, which = text.partition(":")
    cluster = (cluster or ClusterOptions()).for_target(text)
    _require_permitted(text, cluster, for_change=for_change, leave=leave)
    if kind == "lab":
        return _open_lab(text, which, for_change=for_change, progress=progress, ioengine=ioengine)
    if kind == "ceph":
        from cephfit.lab.devices.image_export import ImageDevices
        from cephfit.targets.ceph.existing_cluster import ExistingClusterTarget

        optional_module("rados", where=f"--target {text}")  # checked before ceph.conf, which is useless without it
        return ExistingClusterTarget(
            text,
            cluster_choice(which, cluster),
            devices=ImageDevices(),
            librbd=ioengine == "rbd",
            for_change=for_change,
            progress=progress,
        )
    if kind == "sim":
        from cephfit.targets.simulated import simulated_target

        return simulated_target(text)
    if kind == "local":
        from cephfit.targets.local import local_target

        return local_target(text, for_change=for_change)
    if kind in BACKENDS:
        return backend_target(text, for_change=for_change)
    if kind == "openstack":
        return _cloud_target(text, cluster, for_change=for_change, progress=progress)
    raise InputError(
        f"there is no target {text!r}",
        remedy="targets are lab, lab:NAME, lab:/its/folder, ceph, ceph:NAME, sim, local:/path/of/file, "
        "iscsi://HOST/IQN/LUN, nfs://HOST/EXPORT, iscsi:lab, nfs:lab, "
        "swift://ACCOUNT:USER@HOST:PORT/CONTAINER, swift:lab, openstack:CLOUD",
    )


def _require_permitted(text: str, cluster: ClusterOptions, *, for_change: bool, leave: bool) -> None:
    """Refuse connection options that the target does not take, and changes without ``--apply``."""
    if not is_existing_cluster(text) and cluster.given():
        raise InputError(
            f"{', '.join(cluster.given())}: only for --target ceph, or openstack with ceph=",
            where=f"--target {text}",
            remedy="omit it",
        )
    if for_change and is_existing_cluster(text) and not leave:
        raise InputError(
            "cephfit did not create this cluster, and changes nothing on it without --apply",
            where=f"--target {text}",
            remedy="see what would be done with `cephfit sweep plan`; then add --apply",
        )


def _open_lab(text: str, which: str, *, for_change: bool, progress: Progress | None, ioengine: str) -> Target:
    from cephfit.ceph.delivery.option_delivery import parse_delivery
    from cephfit.lab.cluster import Lab
    from cephfit.lab.lab_target import LabTarget
    from cephfit.lab.machine import require_root

    place, _, words = which.partition(",")
    way = parse_delivery(words, where=f"--target {text}", own_conf=True).way
    lab = Lab.open(folder=Path(place)) if place.startswith("/") else Lab.open(place or "default")
    require_root("a lab")
    return LabTarget(lab, for_change=for_change, progress=progress, librbd=ioengine == "rbd", way=way)


def require_openstack(where: str) -> None:
    """Check that the OpenStack libraries are installed.

    Raises:
        HostError: one is missing or too old.
    """
    fault = ""
    for package, least in (("openstacksdk", 4), ("python-novaclient", 18), ("tenacity", 8)):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            fault = f"the Python package {package} is not installed"
            break
        # A virtual environment with system packages may see an old version from the distribution.
        if int(version.partition(".")[0]) < least:
            fault = f"the Python package {package} is too old: {version}; {least} or later is required"
            break
    if fault:
        raise HostError(
            fault,
            where=where,
            remedy=f"install it: {install_command('openstack')}",
        )


def _cloud_target(text: str, cluster: ClusterOptions, *, for_change: bool, progress: Progress | None) -> Target:
    require_openstack(f"--target {text}")
    from cephfit.cloud.cloud_choice import parse_choice
    from cephfit.targets.openstack_target import OpenStackTarget

    choice = parse_choice(text)
    if choice.ceph or choice.lab:
        return _cloud_with_ceph(choice, cluster, for_change=for_change, progress=progress)
    return OpenStackTarget(choice, for_change=for_change, progress=progress)


def _cloud_with_ceph(
    choice: "CloudChoice", cluster: ClusterOptions, *, for_change: bool, progress: Progress | None
) -> Target:
    from cephfit.ceph.admin.rados_admin import RadosAdmin
    from cephfit.ceph.delivery.option_delivery import parse_delivery
    from cephfit.targets.ceph.ceph_target import CephTarget
    from cephfit.targets.openstack_ceph import OpenStackWithCeph

    def with_connection(target: CephTarget, connect: Callable[[], RadosAdmin]) -> tuple[CephTarget, RadosAdmin]:
        try:
            return target, connect()
        except BaseException:
            target.close()  # with its lock
            raise

    where = f"--target openstack:{choice.cloud},...,{choice.delivery}"
    way = parse_delivery(choice.delivery, where=where, own_conf=bool(choice.lab)).way

    def open_lab() -> tuple[CephTarget, RadosAdmin]:
        from cephfit.lab.cluster import Lab
        from cephfit.lab.lab_target import LabTarget
        from cephfit.lab.machine import require_root

        require_root("a lab")
        lab = Lab.open(folder=Path(choice.lab)) if choice.lab.startswith("/") else Lab.open(choice.lab)
        below = LabTarget(lab, for_change=for_change, progress=progress, librbd=True, way=way)
        return with_connection(below, lambda: RadosAdmin(lab.conf))

    def open_existing_cluster() -> tuple[CephTarget, RadosAdmin]:
        from cephfit.targets.ceph.existing_cluster import ExistingClusterTarget

        is_path = "/" in choice.ceph
        options = replace(cluster, conf=Path(choice.ceph)) if is_path else cluster
        below = cluster_choice(f"{'' if is_path else choice.ceph},{choice.delivery}", options)
        if below.only_pool:
            raise InputError(
                "--only-pool allows no settings of Ceph, but ceph= is for such settings",
                remedy="omit --only-pool, or ceph= in the target",
            )
        target = ExistingClusterTarget(f"ceph:{choice.ceph}", below, for_change=for_change, progress=progress)
        return with_connection(
            target, lambda: RadosAdmin(below.conf, client_id=below.client_id, keyring=below.keyring)
        )

    return OpenStackWithCeph(
        choice, open_lab if choice.lab else open_existing_cluster, for_change=for_change, progress=progress
    )


def cluster_choice(name: str, options: ClusterOptions) -> "ClusterChoice":
    """Combine the name and the options of an existing cluster.

    Args:
        name: of its ceph.conf in /etc/ceph; empty for $CEPH_CONF, or ceph. The delivery of settings to daemons may
            follow: ``NAME,settings=conf,osd_conf=/path``.
        options: from the command line, the environment and the configuration file.

    Raises:
        InputError: the options contradict each other.
    """
    from cephfit.ceph.delivery.option_delivery import parse_delivery
    from cephfit.targets.ceph.existing_cluster import ClusterChoice

    name, _, words = name.partition(",")
    delivery = parse_delivery(words, where=f"--target ceph:{name},{words}")
    conf = options.conf
    if conf is None:
        known = os.environ.get("CEPH_CONF") if not name else None
        conf = Path(known) if known else Path("/etc/ceph") / f"{name or 'ceph'}.conf"
    if not conf.is_file():
        raise InputError(
            "this ceph.conf does not exist",
            where=str(conf),
            remedy="give its path with --conf, or the cluster's name as ceph:NAME",
        )
    if options.keyring is not None and not options.keyring.is_file():
        raise InputError(
            "this keyring does not exist",
            where=str(options.keyring),
            remedy=f"save the output of `ceph auth get client.{options.client_id or 'admin'}` there",
        )
    if options.admin == "rest" and not options.rest_url:
        raise InputError("--admin rest needs the address of ceph-rest-api", remedy="give it with --rest-url")
    if options.only_pool and (options.restarts or options.crush_rule or options.pg_num):
        raise InputError(
            "--only-pool allows neither restarts nor new pools",
            remedy="omit --restarts, --crush-rule and --pg-num, or --only-pool",
        )
    if options.only_pool and words:
        raise InputError(
            "--only-pool changes no daemon, so settings= and osd_conf= have no effect",
            where=f"--target ceph:{name},{words}",
            remedy="omit one of them",
        )
    defaults: dict[str, str | int] = {}
    if options.crush_rule:
        defaults["crush_rule"] = options.crush_rule
    if options.pg_num:
        defaults["pg_num"] = options.pg_num
    return ClusterChoice(
        conf=conf.absolute(),
        client_id=options.client_id or "admin",
        keyring=options.keyring.absolute() if options.keyring else None,
        admin=options.admin,
        rest_url=options.rest_url or "",
        only_pool=options.only_pool or "",
        restarts=options.restarts or ("ssh" if options.ssh else "none"),
        ssh=_ssh(options),
        pool_defaults=defaults,
        delivery=delivery,
        take_over=options.take_over,
    )


def _ssh(options: ClusterOptions) -> "SshAccess | None":
    from cephfit.ceph.host_access import SshAccess

    if not options.ssh:
        if options.ssh_user or options.ssh_config or options.ssh_hosts or options.restarts == "ssh":
            raise InputError("SSH to the hosts must be allowed explicitly", remedy="add --ssh")
        return None
    destinations = {}
    for text in options.ssh_hosts:
        host, is_pair, destination = text.partition("=")
        if not (host and is_pair and destination):
            raise InputError(
                f"{text!r} is not NAME=HOST", where="--ssh-host", remedy="write it like osd-1=192.0.2.7"
            )
        destinations[host] = destination
    return SshAccess(user=options.ssh_user or "", config=options.ssh_config, destinations=destinations)


BACKENDS = tuple(PROTOCOL_OPTIONS)


def backend_target(text: str, *, for_change: bool) -> Target:
    """Open a storage server as a target.

    Raises:
        InputError: the address is not valid, or there is no such lab or back end.
        HostError: not root.
        ClusterError: another process uses it, or the lab's server does not run.
    """
    from platformdirs import user_state_path

    from cephfit.lab.cluster import Lab
    from cephfit.lab.devices.fuse_devices import NbdDevices
    from cephfit.lab.lab_backend import SwiftServer
    from cephfit.lab.machine import require_root
    from cephfit.targets.backends.backend_target import ExistingServer, ServerPlace
    from cephfit.targets.backends.iscsi_target import IscsiTarget, parse_iscsi
    from cephfit.targets.backends.nfs_target import NfsTarget, parse_nfs
    from cephfit.targets.backends.swift_target import SwiftTarget, key_from_environment, parse_swift

    parse = {ISCSI: parse_iscsi, NFS: parse_nfs, SWIFT: parse_swift}

    kind, _, which = text.partition(":")
    word, _, lab = which.partition(":")
    require_root(f"a target {kind}")
    if word == "lab":
        # The lock is that of the lab: two sweeps on its disks would disturb each other.
        opened = Lab.open(lab or "default")
        server, folder = opened.backend(kind), opened.folder / "target" / kind
        place = ServerPlace(
            server.address, server, folder, opened.folder / "target" / "lock", f"lab:{opened.name}"
        )
    else:
        address = str(parse[kind](which))
        folder = user_state_path("cephfit") / kind / hashlib.sha256(address.encode()).hexdigest()[:16]
        place = ServerPlace(address, ExistingServer(kind), folder, folder / "lock", text)
    place.folder.mkdir(parents=True, exist_ok=True)
    at = place.address.partition(":")[2]
    if kind == ISCSI:
        return IscsiTarget(text, parse_iscsi(at), place, NbdDevices(), for_change=for_change)
    if kind == NFS:
        return NfsTarget(text, parse_nfs(at), place, NbdDevices(), for_change=for_change)
    key = place.server.key if isinstance(place.server, SwiftServer) else key_from_environment()
    return SwiftTarget(text, parse_swift(at), key, place, NbdDevices(), for_change=for_change)
