"""An existing Ceph cluster, which cephfit did not create, as a target: locked, and changed within given limits."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_state_path

from cephfit.ceph.admin.answers import require_luminous, why_no_cache_drop
from cephfit.ceph.admin.cluster_lock import ClusterLock
from cephfit.ceph.admin.fallback_admins import BinaryAdmin
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.cluster_adapters import ClusterAdapters, ExportsDevices, RestartsOsds
from cephfit.ceph.delivery.client_conf import ClientAccess
from cephfit.ceph.delivery.conf_files import text_without_block
from cephfit.ceph.delivery.option_delivery import OptionDelivery
from cephfit.ceph.delivery.osd_restarts import CephadmOsds, OneByOne, OsdDaemons, ProgramOsds, SystemdOsds
from cephfit.ceph.environment.host_settings import (
    HostSettings,
    OsdPlace,
    drop_page_caches,
    osd_places,
    why_page_caches_stay,
)
from cephfit.ceph.host_access import Hosts, SshAccess
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.journal import Journal, TargetLock
from cephfit.core.protocols import Applied, CephAdmin, Health, NullProgress, Progress
from cephfit.core.values.configuration import Configuration
from cephfit.targets.ceph.ceph_target import CephTarget

RESTARTS = ("none", "cephadm", "ssh")


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which cluster to use, and what may be changed on it.

    Attributes:
        conf: its ceph.conf.
        client_id: such as ``admin`` for ``client.admin``.
        keyring: of this client; None for the one that ceph.conf or Ceph's defaults name.
        admin: how commands are sent, ``rados``, ``ceph`` or ``rest``.
        rest_url: of ceph-rest-api, for ``rest``.
        only_pool: the only pool that may be changed; empty for cephfit's own pools and the config store.
        restarts: how OSDs are restarted: one of ``RESTARTS``, or the absolute path of a program.
        ssh: access to the OSD hosts; None without access.
        pool_defaults: settings of pools where a configuration does not set them.
        patience_seconds: how long PGs may take to be active+clean after a change.
        delivery: how options are delivered to the daemons.
        take_over: take the lock of a process whose end is not visible from this machine.
    """

    conf: Path
    client_id: str = "admin"
    keyring: Path | None = None
    admin: str = "rados"
    rest_url: str = ""
    only_pool: str = ""
    restarts: str = "none"
    ssh: SshAccess | None = None
    pool_defaults: Mapping[str, str | int] = field(default_factory=dict)
    patience_seconds: float = 600.0
    delivery: OptionDelivery = field(default_factory=OptionDelivery)
    take_over: bool = False


def state_folder(fsid: str) -> Path:
    """Return the folder of a cluster's journal, lock and client ceph.conf, named by the cluster's fsid."""
    return user_state_path("cephfit") / "clusters" / fsid


def open_admin(choice: ClusterChoice) -> CephAdmin:
    """Open the chosen connection for commands.

    Raises:
        ClusterError: the cluster does not answer.
        HostError: this machine lacks what the connection needs.
    """
    if choice.admin == "ceph":
        return BinaryAdmin(choice.conf, client_id=choice.client_id, keyring=choice.keyring)
    if choice.admin == "rest":
        from cephfit.ceph.admin.fallback_admins import RestAdmin

        return RestAdmin(choice.rest_url)
    return RadosAdmin(choice.conf, client_id=choice.client_id, keyring=choice.keyring)


class ExistingClusterTarget(CephTarget):
    """A ``CephTarget`` on an existing cluster.

    Args:
        name: for reports.
        choice: which cluster to use, and what may be changed on it.
        devices: exports images as block devices; None: as with ``librbd``, and nothing is detached.
        librbd: fio opens images directly (``ioengine=rbd``).
        for_change: take the locks, on this machine and on the cluster.
        progress: shows long steps.

    Raises:
        ClusterError: the cluster does not answer, or another process has locked it.
    """

    def __init__(
        self,
        name: str,
        choice: ClusterChoice,
        *,
        devices: ExportsDevices | None = None,
        librbd: bool = False,
        for_change: bool = True,
        progress: Progress | None = None,
    ) -> None:
        progress = progress or NullProgress()
        self._local_lock: TargetLock | None = None
        self._cluster_lock: ClusterLock | None = None
        self._hosts = Hosts(choice.ssh)
        images = RadosAdmin(choice.conf, client_id=choice.client_id, keyring=choice.keyring)
        opened: list[CephAdmin] = [images]
        try:
            admin: CephAdmin = images
            if choice.admin != "rados":
                admin = open_admin(choice)
                opened.append(admin)
            self._open(
                name, choice, admin, images, devices, librbd=librbd, for_change=for_change, progress=progress
            )
        except BaseException:
            self._release()
            for connection in opened:
                connection.close()
            raise

    def _open(
        self,
        name: str,
        choice: ClusterChoice,
        admin: CephAdmin,
        images: RadosAdmin,
        devices: ExportsDevices | None,
        *,
        librbd: bool,
        for_change: bool,
        progress: Progress,
    ) -> None:
        require_luminous(Catalogue(admin).version(), where=name)
        fsid = str(admin.command("status")["fsid"])
        _require_one_cluster(fsid, str(images.cluster.get_fsid()), choice)
        folder = state_folder(fsid)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if for_change:
            self._local_lock = TargetLock(folder / "lock", name)
        journal = Journal(folder / "journal.jsonl", read_only=not for_change)
        if for_change:
            self._cluster_lock = ClusterLock(
                admin,
                folder,
                target=name,
                n_left=lambda: len(journal.entries()),
                note=progress.note,
                take_over=choice.take_over,
            )

        def places() -> Sequence[OsdPlace]:
            return osd_places(admin)

        super().__init__(
            name,
            admin=admin,
            images=images,
            access=_access(choice, images),
            folder=folder,
            journal=journal,
            adapters=ClusterAdapters(
                greater=HostSettings(
                    self._hosts,
                    journal,
                    osds=places,
                    client_disk_like=None if librbd or devices is None else _some_disk_of_clients,
                    target=name,
                ),
                drop_page_caches=lambda: drop_page_caches(places(), self._hosts),
                why_page_caches_stay=lambda: (
                    why_no_cache_drop(admin) or why_page_caches_stay(places(), self._hosts)
                ),
                restarts=_restarts(choice, admin, journal, self._hosts, progress),
                devices=devices,
                librbd=librbd,
                pool_defaults=choice.pool_defaults,
                patience_seconds=choice.patience_seconds,
                hosts=self._hosts,
                delivery=choice.delivery,
            ),
            for_change=for_change,
            progress=progress,
            only_pool=choice.only_pool,
        )
        if for_change:
            self._changes.clean_up()  # a flag of a killed process would look like an unhealthy cluster

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        self._must_be_ours()
        return super().apply(configuration, n_clients=n_clients, volume_nbytes=volume_nbytes, fill=fill)

    def health(self) -> Health:
        if self._cluster_lock is not None:
            self._cluster_lock.renew()
        return super().health()

    def reset(self) -> None:
        self._must_be_ours()
        super().reset()

    def close(self) -> None:
        try:
            self._release()
        finally:
            super().close()

    def _must_be_ours(self) -> None:
        if self._cluster_lock is not None:
            self._cluster_lock.renew(at_once=True)

    def _release(self) -> None:
        """Release the locks, the cluster's lock first.

        Otherwise the next owner of this machine's lock would find the cluster locked by a running process.
        """
        try:
            if self._cluster_lock is not None:
                self._cluster_lock.release()
        finally:
            self._cluster_lock = None
            self._hosts.close()
            if self._local_lock is not None:
                self._local_lock.release()
                self._local_lock = None


def _some_disk_of_clients() -> Path:
    """Return a device like those of exported images; all devices of one kernel have the same queue values."""
    kinds = ("rbd", "nbd", "loop")
    names = sorted(path.name for path in Path("/sys/block").iterdir() if path.name.startswith(kinds))
    return Path("/dev") / (names[0] if names else "loop0")


def _access(choice: ClusterChoice, images: RadosAdmin) -> ClientAccess:
    keyring = str(choice.keyring) if choice.keyring else str(images.cluster.conf_get("keyring"))
    return ClientAccess(choice.client_id, keyring, base=text_without_block(choice.conf))


def _restarts(
    choice: ClusterChoice, admin: CephAdmin, journal: Journal, hosts: Hosts, progress: Progress
) -> RestartsOsds | None:
    daemons: OsdDaemons
    if choice.only_pool or choice.restarts == "none":
        return None
    if choice.restarts == "cephadm":
        daemons = CephadmOsds(admin)
    elif choice.restarts == "ssh":
        daemons = SystemdOsds(admin, hosts)
    elif choice.restarts.startswith("/"):
        daemons = ProgramOsds(admin, restarting_program(choice.restarts))
    else:
        raise InputError(
            f"{choice.restarts!r} is not a known way to restart OSDs",
            where="--restarts",
            remedy=f"choose from: {', '.join(RESTARTS)}, or the absolute path of a program",
        )
    return OneByOne(admin, journal, daemons, progress=progress, patience_seconds=choice.patience_seconds)


def restarting_program(path: str) -> Path:
    """Return the path of a program that restarts OSDs.

    Raises:
        InputError: the file is not executable.
    """
    if not (Path(path).is_file() and os.access(path, os.X_OK)):
        raise InputError(
            "this is not an executable file",
            where=f"--restarts {path}",
            remedy="name the absolute path of a program that restarts an OSD; its arguments are number and host",
        )
    return Path(path)


def _require_one_cluster(fsid: str, images_fsid: str, choice: ClusterChoice) -> None:
    if fsid != images_fsid:
        from cephfit.ceph.admin.fallback_admins import shown

        raise ClusterError(
            f"commands are sent to cluster {fsid}, but the images would be on cluster {images_fsid}",
            where=shown(choice.rest_url) or str(choice.conf),
            remedy="give the ceph.conf and the REST address of the same cluster",
        )
