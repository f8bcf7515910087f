"""The lab as a target: a Ceph cluster whose daemons and disks are on this machine."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from cephfit.lab.cluster import Lab
from cephfit.lab.image_devices import ImageDevices
from cephfit.lab.osd_stores import LabStores
from cephfit.lab.room import require_disk_room
from cephfit.protocols import Progress
from cephfit.sweep.admin.rados_admin import RadosAdmin
from cephfit.sweep.greater.host_settings import HostSettings
from cephfit.sweep.greater.osd_places import osd_places
from cephfit.sweep.hosts.access import Hosts
from cephfit.sweep.journal import Journal
from cephfit.sweep.setting_ways import Reach, SettingsWay
from cephfit.sweep.settings.client_conf import ClientAccess
from cephfit.sweep.surroundings import Surroundings
from cephfit.sweep.target_lock import TargetLock
from cephfit.sweep.targets.ceph import CephTarget

_HEALTHY_SECONDS = 60.0
"""A lab's PGs are in their places a few seconds after any change; longer means that something is wrong."""


class LabTarget(CephTarget):
    """A ``CephTarget`` on a lab: OSDs are restarted side by side, and disks are throttled.

    Args:
        lab: running.
        for_change: take the lab's lock; needed by all but ``facts``, ``health`` and ``unsupported``.
        progress: hears what takes long.
        librbd: the clients are images that fio opens by itself (``ioengine=rbd``) instead of block devices.
        way: by which options reach the daemons; None takes the config store.

    Raises:
        ClusterError: the cluster does not answer, or another process changes this lab.
    """

    def __init__(
        self,
        lab: Lab,
        *,
        for_change: bool = True,
        progress: Progress | None = None,
        librbd: bool = False,
        way: SettingsWay | None = None,
    ) -> None:
        name = f"lab:{lab.name}"
        folder = lab.folder / "target"
        folder.mkdir(exist_ok=True)
        self._lab = lab
        self._lock = TargetLock(folder / "lock", name) if for_change else None
        with ExitStack() as opened:
            opened.callback(self._unlock)
            if for_change:
                lab.reassert_limits()  # a process killed while it filled volumes left the disks at full speed
                if lab.unmade_osds():  # another one while it made OSDs anew
                    lab.remake_osds({})
            admin = RadosAdmin(lab.conf)
            opened.callback(admin.close)
            journal = Journal(folder / "journal.jsonl", read_only=not for_change)
            super().__init__(
                name,
                admin=admin,
                images=admin,
                access=ClientAccess("admin", str(lab.keyring)),
                folder=folder,
                journal=journal,
                surroundings=_surroundings(name, lab, admin, journal, librbd=librbd, way=way),
                for_change=for_change,
                progress=progress,
            )
            opened.pop_all()

    def facts(self) -> Mapping[str, Any]:
        return {**super().facts(), "lab": {"name": self._lab.name, "spec": self._lab.spec.to_json()}}

    def close(self) -> None:
        super().close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _surroundings(
    name: str, lab: Lab, admin: RadosAdmin, journal: Journal, *, librbd: bool, way: SettingsWay | None
) -> Surroundings:
    hosts = Hosts(all_local=True)
    stores = LabStores(lab, admin, journal)
    return Surroundings(
        greater=HostSettings(
            hosts,
            journal,
            osds=lambda: osd_places(admin),
            # The clients' disks are loop devices like the OSDs'.
            client_disk_like=None if librbd else lambda: lab.osd_disk(0),
            stores=stores,
            interfaces=("lo",),
            target=name,
        ),
        hosts=hosts,
        stores=stores,
        drop_page_caches=lab.drop_page_caches,
        restarts=_LabRestarts(lab),
        devices=None if librbd else ImageDevices(),
        full_speed=lab.full_speed,
        require_room=partial(require_disk_room, lab.folder),
        pool_defaults={"crush_rule": "hdd", "pg_num": lab.spec.pg_num},
        patience_seconds=_HEALTHY_SECONDS,
        remedy=f"see `cephfit lab status --name {lab.name}`, and the logs in the lab's folder",
        reach=Reach(way, str(lab.conf)),
    )


class _LabRestarts:
    """Implements ``RestartsOsds``: all at once, because nobody uses a lab meanwhile."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def why_not(self, osds: Sequence[int]) -> str:
        return ""

    def restart(self, osds: Sequence[int], done: Callable[[int], None]) -> None:
        self._lab.restart_osds(osds)
        for osd in osds:
            done(osd)
