"""The lab as a target: configurations are applied to it, read back from it and undone."""

import fcntl
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cephfit.configuration import DEFAULT_CONFIGURATION, Configuration, Partition, Setting
from cephfit.errors import ClusterError, HostError
from cephfit.lab import export
from cephfit.lab.cluster import Lab
from cephfit.lab.target_facts import facts_of
from cephfit.lab.target_room import MAKE_ROOM, require_room
from cephfit.protocols import Applied, Client, Health, Progress
from cephfit.silence import Silence
from cephfit.sweep import catalogue as options
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.admin.rados_admin import RadosAdmin
from cephfit.sweep.ceph_health import CephHealth, is_getting_full
from cephfit.sweep.ceph_settings import CephSettings
from cephfit.sweep.client_conf import (
    drop_client_caches,
    read_back_clients,
    read_back_new_client,
    render_client_conf,
    write_client_conf,
)
from cephfit.sweep.disk_queues import DiskQueues
from cephfit.sweep.filling import fill as fill_volumes
from cephfit.sweep.journal import Journal
from cephfit.sweep.pools import Pools, UnplacedPoolError, pool_name
from cephfit.sweep.target_lock import TargetLock
from cephfit.sweep.volumes import Volume, Volumes, image_name

_DEFAULT = Configuration(DEFAULT_CONFIGURATION)
_HEALTHY_SECONDS = 60.0
"""A lab's PGs are in their places a few seconds after any change; longer means that something is wrong."""
_BLKFLSBUF = 0x1261
"""ioctl of linux/fs.h: write out and drop a block device's page cache."""


class LabTarget:
    """Implements ``protocols.Target`` and ``protocols.JudgesConfigurations`` on a lab.

    What it creates: pools named ``cephfit-*`` with its images, block devices on them, and the folder ``target``
    in the lab's folder with journal, lock and the clients' ceph.conf. Any method may be cut off by a kill at any
    instant; the next process finishes the work (``apply``) or takes it back (``reset``).

    Args:
        lab: running.
        for_change: take the lab's lock; needed by all but ``facts``, ``health`` and ``unsupported``.
        progress: hears what takes long.
        librbd: the clients are images that fio opens by itself (``ioengine=rbd``) instead of block devices.

    Raises:
        ClusterError: the cluster does not answer, or another process changes this lab.
    """

    def __init__(
        self, lab: Lab, *, for_change: bool = True, progress: Progress | None = None, librbd: bool = False
    ) -> None:
        self.name = f"lab:{lab.name}"
        self._lab = lab
        self._librbd = librbd
        self._progress = progress or Silence()
        self._folder = lab.folder / "target"
        self._folder.mkdir(exist_ok=True)
        self._sockets = self._folder / "sockets"
        self._sockets.mkdir(exist_ok=True)
        self._client_conf = self._folder / "client.conf"
        self._lock = TargetLock(self._folder / "lock", self.name) if for_change else None
        try:
            self._admin = RadosAdmin(lab.conf)
        except BaseException:
            self._unlock()
            raise
        if for_change:
            lab.reassert_limits()  # a process killed while it filled volumes left the disks at full speed
        self._journal = Journal(self._folder / "journal.jsonl", read_only=not for_change)
        self._catalogue = options.Catalogue(self._admin)
        self._settings = CephSettings(self._admin, self._catalogue, self._journal)
        self._pools = Pools(self._admin, self._journal, {"crush_rule": "hdd", "pg_num": lab.spec.pg_num})
        self._volumes = Volumes(self._admin)
        self._queues = DiskQueues(self._journal)
        self._health = CephHealth(self._admin)
        self._clients: tuple[Client, ...] = ()
        self._volume_of: dict[str, Volume] = {}

    def facts(self) -> Mapping[str, Any]:
        return facts_of(self._lab, self._admin)

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        configurations = tuple(configurations)
        reasons = {n: list(why) for n, why in options.unsupported(configurations, self._catalogue).items()}
        rules = self._admin.command("osd crush rule ls")
        disk = self._lab.osd_disk(self._lab.osd_ids()[0])  # the clients' disks are loop devices like the OSDs'
        for configuration in configurations:
            for setting in configuration.settings:
                if setting.key == "crush_rule" and setting.value not in rules:
                    why = f"this cluster has no CRUSH rule {setting.value}; it has {', '.join(rules)}"
                elif setting.partition is Partition.GREATER and not self._queues.has(disk, setting.key):
                    why = f"this kernel has no queue value {setting.key} on {disk.name}"
                else:
                    continue
                reasons.setdefault(configuration.name, []).append(why)
        return {name: tuple(why) for name, why in reasons.items()}

    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Warnings by configuration: settings that exist here but that these OSDs never read."""
        stores = {osd.get("osd_objectstore", "") for osd in self._admin.command("osd metadata")}
        return options.without_effect(configurations, stores)

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        self._must_hold_lock()

        def outcome(
            mismatches: Sequence[str], values: Mapping[str, Any], restarted: Sequence[int] = ()
        ) -> Applied:
            names = tuple(f"osd.{osd}" for osd in restarted)
            seconds = time.monotonic() - started
            return Applied(configuration.name, not mismatches, tuple(mismatches), values, names, seconds)

        if against := self.unsupported([configuration]).get(configuration.name):
            return outcome(against, {})
        self._await_health(f"before configuration {configuration.name} is applied")
        self._detach()
        try:
            restarted = self._apply_ceph(configuration)
            pool = self._ensure_pool(configuration)
        except (RefusedError, UnplacedPoolError) as refused:
            return outcome([str(refused)], {}, self._restart_due())
        clients = [f"c{number}" for number in range(n_clients)]
        volumes = tuple(
            Volume(pool, image_name(configuration, client, volume_nbytes, filled=fill), volume_nbytes)
            for client in clients
        )
        for volume in volumes:
            self._volumes.ensure(configuration, volume)
        text = render_client_conf(
            configuration, self._admin, keyring=self._lab.keyring, socket_folder=self._sockets
        )
        write_client_conf(self._client_conf, text)
        if fill:
            self._fill(volumes)
        self._attach(dict(zip(clients, volumes, strict=True)))
        queue_settings = self._queue_settings(configuration)
        self._queues.apply(queue_settings)
        self._await_health(f"after configuration {configuration.name} was applied")
        ceph = self._settings.read_back(configuration)
        parts = [
            (ceph.values, ceph.mismatches),
            self._read_back_clients(configuration),
            self._pools.read_back(configuration),
            self._volumes.read_back(configuration, volumes),
            self._queues.read_back(queue_settings),
        ]
        values: dict[str, Any] = {}
        for found, _ in parts:
            values.update(found)
        return outcome([sentence for _, sentences in parts for sentence in sentences], values, restarted)

    def _read_back_clients(self, configuration: Configuration) -> tuple[dict[str, dict[str, Any]], list[str]]:
        if self._librbd:  # nobody has the images open between the runs of fio
            return read_back_new_client(configuration, self._catalogue, self._client_conf)
        return read_back_clients(configuration, self._catalogue, self._sockets)

    def clients(self) -> Sequence[Client]:
        return self._clients

    def drop_caches(self) -> None:
        # From the client down: what one cache writes out goes into the next one.
        for client in self._clients:
            if client.device is not None:
                self._require_served(client)
                _drop_page_cache(client.device)
        drop_client_caches(self._sockets)
        for osd in self._lab.osd_ids():
            self._admin.tell(f"osd.{osd}", "cache drop")

    def health(self) -> Health:
        return self._health.check()

    def note_on(self, client: Client, key: str) -> str | None:
        """A note kept with the client's volume for as long as the volume lives."""
        return self._volumes.note_on(self._volume_of[client.name], f"cephfit.{key}")

    def set_note(self, client: Client, key: str, text: str | None) -> None:
        self._volumes.set_note(self._volume_of[client.name], f"cephfit.{key}", text)

    def reset(self) -> None:
        self._must_hold_lock()
        self._detach()
        self._queues.restore()
        if pools := self._pools.made():
            self._allow_pool_deletion()
            for pool in reversed(pools):
                self._pools.delete(pool)
            self._pools.await_counted()
        self._health.expect_new_pools()
        self._settings.apply(_DEFAULT)
        self._restart_due()
        self._settings.forget_originals()
        self._client_conf.unlink(missing_ok=True)
        self._journal.finish()

    def close(self) -> None:
        self._admin.close()
        self._unlock()

    def full_speed(self) -> AbstractContextManager[None]:
        """Without limits on the lab's disks inside the block, for what is not measured."""
        return self._lab.full_speed()

    def _apply_ceph(self, configuration: Configuration) -> tuple[int, ...]:
        try:
            self._settings.apply(configuration)
        except RefusedError:
            self._settings.apply(_DEFAULT)
            raise
        return self._restart_due()

    def _restart_due(self) -> tuple[int, ...]:
        due = self._settings.restarts_due()
        if due:
            self._progress.note(f"restarting {', '.join(f'osd.{osd}' for osd in due)}")
            self._lab.restart_osds(due)
            self._settings.restarted(due)
        return due

    def _ensure_pool(self, configuration: Configuration) -> str:
        self._health.expect_new_pools()
        try:
            return self._pools.ensure(configuration)
        except (RefusedError, UnplacedPoolError):
            # Left in place, a pool without places would keep every later configuration waiting.
            self._discard_pool(pool_name(configuration))
            raise

    def _discard_pool(self, name: str) -> None:
        self._allow_pool_deletion()
        self._pools.delete(name)
        self._pools.await_counted()
        self._health.expect_new_pools()

    def _allow_pool_deletion(self) -> None:
        self._settings.put("mon", "mon_allow_pool_delete", "true")

    def _fill(self, volumes: Sequence[Volume]) -> None:
        empty = [v for v in volumes if not self._volumes.is_filled(v)]
        if not empty:
            return
        if full := is_getting_full(self._health.check()):
            raise ClusterError(f"the cluster is filling up: {'; '.join(full)}", where=self.name, remedy=MAKE_ROOM)
        require_room(empty, self._pools, self._lab.folder)
        self._progress.note(f"filling {', '.join(v.image for v in empty)}")
        with self._lab.full_speed():
            fill_volumes(empty, conf=self._client_conf)
        for volume in empty:
            self._volumes.mark_filled(volume)
        self._await_health("after the volumes were filled")

    def _attach(self, volumes: Mapping[str, Volume]) -> None:
        clients = []
        for name, volume in volumes.items():
            if self._librbd:
                clients.append(Client(name, self._librbd_options(volume), volume.nbytes))
                continue
            device = export.attach(
                volume.image,
                pool=volume.pool,
                conf=self._client_conf,
                folder=self._folder,
                nbytes=volume.nbytes,
                # All configurations are measured through one path, and it must be one that each of them can use.
                path=export.export_path(librbd=True),
            )
            clients.append(Client(name, {"filename": str(device)}, volume.nbytes, device))
        self._clients = tuple(clients)
        self._volume_of = dict(volumes)

    def _librbd_options(self, volume: Volume) -> dict[str, str]:
        image = {"pool": volume.pool, "rbdname": volume.image, "clientname": "admin"}
        return {"ioengine": "rbd", **image, "conf": str(self._client_conf)}

    def _detach(self) -> None:
        for client in self._clients:
            if client.device is not None:
                self._queues.restore(client.device)
        self._clients, self._volume_of = (), {}
        export.detach_all(self._folder)

    def _queue_settings(self, configuration: Configuration) -> list[tuple[Setting, Path]]:
        disks = {
            "osd_disk": [self._lab.osd_disk(osd) for osd in self._lab.osd_ids()],
            "client_disk": [c.device for c in self._clients if c.device is not None],
        }
        return [(s, disk) for s in configuration.within(Partition.GREATER) for disk in disks[s.scope]]

    def _await_health(self, when: str) -> None:
        deadline = time.monotonic() + _HEALTHY_SECONDS
        while not (health := self._health.check()).ok:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"not healthy {when}, for {_HEALTHY_SECONDS:.0f} s: {'; '.join(health.reasons)}",
                    where=self.name,
                    remedy=f"see `cephfit lab status --name {self._lab.name}`, and the logs in the lab's folder",
                )
            time.sleep(0.1)

    def _require_served(self, client: Client) -> None:
        volume = self._volume_of[client.name]
        if export.device_of(volume.image, pool=volume.pool, folder=self._folder) is None:
            raise HostError(
                f"the program behind {client.device} of client {client.name} has died",
                where=self.name,
                remedy="run the same command again: the volume is attached anew and the run goes on",
            )

    def _must_hold_lock(self) -> None:
        if self._lock is None:
            raise ClusterError("this target was opened for reading only", where=self.name)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _drop_page_cache(device: Path) -> None:
    descriptor = os.open(device, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _BLKFLSBUF, 0)
    finally:
        os.close(descriptor)
