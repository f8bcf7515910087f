"""A Ceph cluster that cephfit did not make, as a target: locked, and changed by the rules of its people."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_state_path

from cephfit.ceph.admin.binary_admin import BinaryAdmin
from cephfit.ceph.admin.cluster_lock import ClusterLock
from cephfit.ceph.admin.older_releases import require_luminous, why_no_cache_drop
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.cluster_adapters import ExportsDevices, RestartsOsds, Surroundings
from cephfit.ceph.delivery.client_conf import ClientAccess
from cephfit.ceph.delivery.conf_files import text_without_block
from cephfit.ceph.delivery.option_delivery import Reach
from cephfit.ceph.delivery.osd_daemons import CephadmOsds, OsdDaemons, ProgramOsds, SystemdOsds
from cephfit.ceph.delivery.osd_restarts import OneByOne
from cephfit.ceph.environment.host_settings import HostSettings
from cephfit.ceph.environment.osd_hosts import OsdPlace, drop_page_caches, osd_places, why_page_caches_stay
from cephfit.ceph.hosts.host_access import Hosts, SshAccess
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.journal import Journal
from cephfit.core.protocols import Applied, CephAdmin, Health, NullProgress, Progress
from cephfit.core.target_lock import TargetLock
from cephfit.core.values.configuration import Configuration
from cephfit.targets.ceph.ceph_target import CephTarget

RESTARTS = ("none", "cephadm", "ssh")


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which cluster, and what may be done there.

    Attributes:
        conf: its ceph.conf.
        client_id: such as ``admin`` for ``client.admin``.
        keyring: of this client; None for the one that ceph.conf or Ceph's defaults name.
        admin: how commands are sent, ``rados``, ``ceph`` or ``rest``.
        rest_url: of ceph-rest-api, for ``rest``.
        only_pool: the one pool that may be touched; empty for pools of cephfit's own and the config store.
        restarts: who restarts OSDs: one of ``RESTARTS``, or the absolute path of a program.
        ssh: how the OSD hosts are reached; None: not at all.
        pool_defaults: settings of every pool that a configuration does not set otherwise.
        patience_seconds: how long PGs may take to be active+clean after a change.
        reach: by which way options reach the daemons.
        take_over: take the lock of somebody whose end cannot be seen from here.
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
    reach: Reach = field(default_factory=Reach)
    take_over: bool = False


def state_folder(fsid: str) -> Path:
    """Where journal, lock and the clients' ceph.conf of a cluster are kept, by the cluster's own identifier."""
    return user_state_path("cephfit") / "clusters" / fsid


def open_admin(choice: ClusterChoice) -> CephAdmin:
    """The way of sending commands that was chosen.

    Raises:
        ClusterError: the cluster does not answer.
        HostError: this machine lacks what the way needs.
    """
    if choice.admin == "ceph":
        return BinaryAdmin(choice.conf, client_id=choice.client_id, keyring=choice.keyring)
    if choice.admin == "rest":
        from cephfit.ceph.admin.rest_admin import RestAdmin

        return RestAdmin(choice.rest_url)
    return RadosAdmin(choice.conf, client_id=choice.client_id, keyring=choice.keyring)


class ForeignTarget(CephTarget):
    """A ``CephTarget`` on a cluster of other people.

    Args:
        name: as reports show it.
        choice: which cluster, and what may be done there.
        devices: makes block devices of images; None where fio opens them by itself (``ioengine=rbd``).
        for_change: take the locks, on this machine and on the cluster.
        progress: hears what takes long.

    Raises:
        ClusterError: the cluster does not answer, or somebody else is at work on it.
    """

    def __init__(
        self,
        name: str,
        choice: ClusterChoice,
        *,
        devices: ExportsDevices | None = None,
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
            self._open(name, choice, admin, images, devices, for_change=for_change, progress=progress)
        except BaseException:
            self._let_go()
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
            surroundings=Surroundings(
                greater=HostSettings(
                    self._hosts,
                    journal,
                    osds=places,
                    client_disk_like=None if devices is None else _some_disk_of_clients,
                    target=name,
                ),
                drop_page_caches=lambda: drop_page_caches(places(), self._hosts),
                why_page_caches_stay=lambda: (
                    why_no_cache_drop(admin) or why_page_caches_stay(places(), self._hosts)
                ),
                restarts=_restarts(choice, admin, journal, self._hosts, progress),
                devices=devices,
                pool_defaults=choice.pool_defaults,
                patience_seconds=choice.patience_seconds,
                hosts=self._hosts,
                reach=choice.reach,
            ),
            for_change=for_change,
            progress=progress,
            only_pool=choice.only_pool,
        )
        if for_change:
            self._changes.clear_up()  # a flag that a killed process left would look like an unhealthy cluster

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
            self._let_go()
        finally:
            super().close()

    def _must_be_ours(self) -> None:
        if self._cluster_lock is not None:
            self._cluster_lock.renew(at_once=True)

    def _let_go(self) -> None:
        """The cluster's lock first: whoever gets this machine's would find it of a living process."""
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
    """A device of this machine like those that images become; all of one kernel have the same queue values."""
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
    """The program that people have for restarting OSDs.

    Raises:
        InputError: it cannot be run.
    """
    if not (Path(path).is_file() and os.access(path, os.X_OK)):
        raise InputError(
            "this is not an executable file",
            where=f"--restarts {path}",
            remedy="give the absolute path of a program that takes an OSD's number and host, and restarts it",
        )
    return Path(path)


def _require_one_cluster(fsid: str, images_fsid: str, choice: ClusterChoice) -> None:
    if fsid != images_fsid:
        from cephfit.ceph.admin.rest_admin import shown

        raise ClusterError(
            f"commands go to cluster {fsid}, but the images would be on cluster {images_fsid}",
            where=shown(choice.rest_url) or str(choice.conf),
            remedy="give the ceph.conf and the REST address of the same cluster",
        )
