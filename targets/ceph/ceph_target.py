"""A Ceph cluster as a target: apply, read back and undo configurations."""

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from cephfit import __version__
from cephfit.ceph.admin.answers import drop_osd_caches
from cephfit.ceph.admin.daemons import running_daemons
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.ceph_health import CephHealth
from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.ceph.crush.data_placement import LAYOUT, read_layout
from cephfit.ceph.delivery.client_conf import ClientAccess
from cephfit.ceph.host import HostRefusedError
from cephfit.ceph.options import option_catalogue as options
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.ceph.pools.osd_capacity import MCLOCK, MEMORY_TARGET, mclock_facts, memory_targets
from cephfit.ceph.pools.pool_plan import POOL_PREFIX
from cephfit.ceph.pools.pool_readback import PoolDescription, survey
from cephfit.ceph.volumes import Volume, Volumes, image_name
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.journal import Journal
from cephfit.core.protocols import Applied, CephAdmin, Client, Health, NullProgress, Progress, Target
from cephfit.core.values.configuration import Configuration, Preview, Undoing
from cephfit.core.values.measurement import PlannedSweep
from cephfit.core.values.sample import CLUSTER
from cephfit.core.waiting import wait_until_clear
from cephfit.measure.disturbances import ForeignIoInPool, MapWatch, Mark
from cephfit.measure.telemetry.telemetry_collector import ClusterTelemetryCollector
from cephfit.targets import abilities
from cephfit.targets.ceph.change_scopes import OnlyPool, WholeCluster
from cephfit.targets.ceph.cluster_changes import (
    APPLIED_FILE,
    AppliedValues,
    ClusterChanges,
    Forecast,
    FreeCapacity,
)
from cephfit.targets.ceph.permanent_configuration import PermanentConfiguration
from cephfit.targets.ceph.volume_clients import VolumeClients
from cephfit.targets.ceph.volume_clients import fill as fill_volumes

_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_OSD_FACTS = (
    "osd_objectstore",
    "rotational",
    "bluestore_bdev_type",
    "bluestore_min_alloc_size",
    "bluestore_bdev_size",
)


def facts_of(admin: CephAdmin) -> dict[str, Any]:
    """Return facts about the cluster and this machine: versions, hardware, OSDs, clock source. No secrets.

    All are JSON values.
    """
    classes = {d.id: d.device_class for d in running_daemons(admin) if d.kind == "osd"}
    memory = memory_targets(admin, [int(osd) for osd in classes])
    metadata = admin.command("osd metadata")
    rotational = {int(osd["id"]): osd.get("rotational") == "1" for osd in metadata}
    mclock = mclock_facts(admin, {int(osd): name for osd, name in classes.items()}, rotational)
    return {
        "versions": {
            "cephfit": __version__,
            "ceph": admin.command("versions")["overall"],
            "fio": _version("fio", "--version"),
            "qemu": _version("qemu-storage-daemon", "--version"),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "machine": {
            "cpu_model": _cpu_model(),
            "n_cpus": os.cpu_count(),
            "memory_nbytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "clock_source": _CLOCK_SOURCE.read_text().strip() if _CLOCK_SOURCE.exists() else "unknown",
        },
        "osds": [
            {"id": osd["id"], "device_class": classes.get(str(osd["id"]), "")}
            | {key: osd[key] for key in _OSD_FACTS if key in osd}
            | ({MEMORY_TARGET: memory[osd["id"]]} if osd["id"] in memory else {})
            for osd in metadata
        ],
        "crush_rules": admin.command("osd crush rule ls"),
        CLUSTER: admin.command("status")["fsid"],
        **({MCLOCK: mclock} if mclock else {}),
    }


def _version(*argv: str) -> str:
    try:
        output = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "not installed"
    return output.splitlines()[0].strip() if output else "unknown"


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


class CephTarget(
    Target,
    abilities.MayKeepCaches,
    abilities.JudgesConfigurations,
    abilities.HasCatalogue,
    abilities.Previews,
    abilities.KeepsToImages,
    abilities.WarnsOfSettings,
    abilities.HasTelemetry,
    abilities.CountsTraffic,
    abilities.ChecksClients,
    abilities.ReportsDisturbances,
    abilities.KeepsNotes,
):
    """A Ceph cluster.

    It creates pools named ``cephfit-*`` with images, block devices for these, and a folder with the journal and
    the clients' ceph.conf. A kill at any moment is safe: the next process finishes the work (``apply``) or undoes
    it (``reset``).

    Args:
        name: for reports.
        admin: sends commands.
        images: a librados connection for the images; may be the same object as ``admin``.
        access: the clients' access to the cluster.
        folder: existing folder for state that must survive the process.
        journal: of this target; read-only where nothing may change.
        adapters: for hosts, clients and OSDs around this cluster.
        for_change: the caller holds the target's lock; all methods except ``facts``, ``health`` and
            ``unsupported`` require it.
        progress: shows long steps.
        only_pool: name of the only pool that may be changed; empty for own pools and the whole cluster.
    """

    def __init__(
        self,
        name: str,
        *,
        admin: CephAdmin,
        images: RadosAdmin,
        access: ClientAccess,
        folder: Path,
        journal: Journal,
        adapters: ClusterAdapters,
        for_change: bool,
        progress: Progress | None = None,
        only_pool: str = "",
    ) -> None:
        self.name = name
        self._admin = admin
        self._images = images
        self._around = adapters
        self._for_change = for_change
        self._progress = progress or NullProgress()
        self._folder = folder
        self.only_pool = only_pool
        self._journal = journal
        self._applied = Journal(folder / APPLIED_FILE, read_only=not for_change)
        self._applied_values = AppliedValues(journal, self._applied)
        if for_change:
            self._applied_values.finish_move()
        self._catalogue = options.Catalogue(admin)
        self._volumes = Volumes(images)
        self._clients = VolumeClients(name, access=access, folder=folder, volumes=self._volumes, adapters=adapters)
        self._health = CephHealth(admin)
        self._changes: ClusterChanges
        foreign_io: ForeignIoInPool | None = None
        if only_pool:
            self._changes = within = OnlyPool(only_pool, admin, journal, self._volumes)
            self.in_other_pools = within.images
            foreign_io = ForeignIoInPool(images, only_pool, within.has_made, note=self._progress.note)
        else:
            self._changes = whole = WholeCluster(
                admin,
                self._catalogue,
                journal,
                volumes=self._volumes,
                health=self._health,
                adapters=adapters,
                progress=self._progress,
            )
            self.in_other_pools = whole.images
        self.capacity = FreeCapacity(
            name, health=self._health, changes=self._changes, below=adapters.require_capacity
        )
        self._map_watch = MapWatch(
            admin, lambda pool: pool == only_pool or pool.startswith(POOL_PREFIX), foreign_io=foreign_io
        )
        self._forecast = Forecast(
            admin,
            self._catalogue,
            health=self._health,
            changes=self._changes,
            adapters=adapters,
            journal=journal,
        )

    def facts(self) -> Mapping[str, Any]:
        way = self._around.delivery.way
        layout = read_layout(self._admin, self._around.pool_defaults, self.only_pool).to_json()
        by = {"options_by": way.value} if way is not None else {}
        return {**facts_of(self._admin), LAYOUT: layout, **by}

    def declared_pools(self) -> DeclaredPools:
        """Return the pools declared for this cluster; they have their own journal and remain after ``reset``.

        Raises:
            InputError: the target is restricted to one pool.
        """
        return self._changes.declared_pools(Journal(self._folder / "pools.jsonl", read_only=not self._for_change))

    def permanent(self) -> PermanentConfiguration:
        """Return what applies a configuration that stays after this process, and undoes it.

        Raises:
            InputError: the target is restricted to one pool.
        """
        if not isinstance(self._changes, WholeCluster):
            raise InputError(
                f"only images in pool {self.only_pool} may be changed, so no configuration is applied",
                where="--only-pool",
                remedy="remove this option",
            )
        return PermanentConfiguration(
            self,
            self._admin,
            self._catalogue,
            self._journal,
            self._applied,
            changes=self._changes,
            greater=self._around.greater,
        )

    def expect_new_pgs(self) -> None:
        """Accept a change of the number of PGs at the next check of the health."""
        self._health.expect_new_pools()

    def pool_descriptions(self) -> tuple[PoolDescription, ...]:
        """Return all pools of the cluster with the placement of their data."""
        return survey(self._admin)

    def catalogue(self) -> options.Catalogue:
        """Return the options of this cluster."""
        return self._catalogue

    def telemetry(self) -> ClusterTelemetryCollector:
        """Return the collector of telemetry from accessible hosts and OSDs."""
        classes = {int(d.id): d.device_class for d in running_daemons(self._admin) if d.kind == "osd"}
        around = self._around
        return ClusterTelemetryCollector(self._admin, around.hosts, classes, around.is_own_process)

    def traffic_counter(self) -> abilities.TrafficCounter:
        """Return what reads the bytes of all hosts' interfaces and OSDs' disks."""
        return self.telemetry().traffic

    def require_served(self) -> None:
        self._clients.require_served()

    def mark(self) -> Mark:
        for sentence in self._changes.keep(self._map_watch.osd_map):
            self._progress.note(sentence)
        return self._map_watch.mark()

    def disturbances_since(self, mark: Mark) -> tuple[str, ...]:
        return (*self._map_watch.disturbances_since(mark), *self._changes.keep(self._map_watch.osd_map))

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        return self._forecast.unsupported(configurations)

    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return warnings by configuration: settings that exist but that these OSDs never read."""
        return self._forecast.without_effect(configurations)

    def preview(self, sweep: PlannedSweep) -> Preview:
        """Return what a sweep would change, before anything changes."""
        return self._forecast.preview(sweep)

    def undoings(self) -> Sequence[Undoing]:
        """Return what ``reset`` would restore now."""
        return () if self._applied_values.is_keeping() else self._forecast.undoings()

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        self._must_be_for_change()

        def outcome(
            mismatches: Sequence[str], values: Mapping[str, Any], restarted: Sequence[int] = ()
        ) -> Applied:
            names = [f"osd.{osd}" for osd in restarted]
            seconds = time.monotonic() - started
            return Applied.as_read(configuration, values, mismatches, seconds=seconds, restarted=names)

        if against := self.unsupported([configuration]).get(configuration.name):
            return outcome(against, {})
        self._clean_up()
        self._await_health(f"before configuration {configuration.name} is applied")
        self._clients.detach()
        self._recreate_osds(configuration)
        change = self._changes.apply_configuration(configuration)
        if change.refused:
            return outcome([change.refused], {}, change.restarted)
        clients = [f"c{number}" for number in range(n_clients)]
        volumes = tuple(
            Volume(change.pool, image_name(configuration, client, volume_nbytes, filled=fill), volume_nbytes)
            for client in clients
        )
        for volume in volumes:
            self._changes.before_creating(volume)
            self._volumes.ensure(configuration, volume)
        for_clients = self._changes.for_clients(configuration)
        self._clients.write_conf(for_clients, self._admin)
        if fill:
            self._fill(volumes)
        self._clients.attach(dict(zip(clients, volumes, strict=True)))
        try:
            self._around.greater.apply(configuration, self._clients.attached)
        except HostRefusedError as refused:
            return outcome([f"{refused.where}: {refused.what}"], {}, change.restarted)
        self._await_health(f"after configuration {configuration.name} was applied")
        parts = [
            *self._changes.read_back(configuration),
            self._clients.read_back(for_clients, self._catalogue),
            self._volumes.read_back(configuration, volumes),
            self._around.greater.read_back(configuration, self._clients.attached),
        ]
        values: dict[str, Any] = {}
        for found, _ in parts:
            values.update(found)
        return outcome([sentence for _, sentences in parts for sentence in sentences], values, change.restarted)

    def _clean_up(self) -> None:
        if self._around.stores is not None:
            self._around.stores.clean_up()
        self._changes.clean_up()

    def _recreate_osds(self, configuration: Configuration) -> None:
        """Recreate OSDs that need another store. Their data is lost; volumes are created again when needed."""
        stores = self._around.stores
        if stores is not None and (due := stores.due(configuration)):
            self._progress.note(f"recreating {', '.join(f'osd.{osd}' for osd in due)}")
            self._changes.delete_pools()
            stores.remake(configuration)
            self._health.expect_new_pools()

    def clients(self) -> Sequence[Client]:
        return self._clients.attached

    def drop_caches(self) -> None:
        # In order from client to disk, because data that one cache writes enters the next one.
        self._clients.drop_caches()
        drop_osd_caches(self._admin)
        self._around.drop_page_caches()

    def why_caches_stay(self) -> str:
        if not self.only_pool:
            return self._around.why_page_caches_stay()
        return f"only pool {self.only_pool} may be changed, while all clients share the caches of OSDs"

    def health(self) -> Health:
        self._map_watch.poll()  # this method is called repeatedly while a sample is taken
        return self._health.check()

    def note_on(self, client: Client, key: str) -> str | None:
        """Return a note that is kept with the client's volume for the volume's lifetime."""
        return self._clients.note_on(client, key)

    def set_note(self, client: Client, key: str, text: str | None) -> None:
        self._clients.set_note(client, key, text)

    def reset(self) -> None:
        self._must_be_for_change()
        tried = ErrorCollector()
        is_free = tried.make(self._clients.detach)
        tried.make(self._around.greater.restore)
        tried.make(self._clean_up)
        are_back = tried.make(partial(self._changes.take_back, pools=is_free))
        if is_free and are_back and self._around.stores is not None:  # remaining pools need their OSDs
            tried.make(self._around.stores.restore)
            self._health.expect_new_pools()
        tried.end()
        self._clients.remove_conf()
        self._journal.finish()

    def close(self) -> None:
        self._admin.close()
        if self._images is not self._admin:
            self._images.close()

    def full_speed(self) -> AbstractContextManager[None]:
        """Suspend limits on the cluster's disks inside the block, for unmeasured I/O."""
        return self._around.full_speed()

    def _fill(self, volumes: Sequence[Volume]) -> None:
        empty = [v for v in volumes if not self._volumes.is_filled(v)]
        if not empty:
            return
        self.capacity.require(empty[0].pool, sum(v.nbytes for v in empty))  # all volumes are in one pool
        self._progress.note(f"filling {', '.join(v.image for v in empty)}")
        with self._around.full_speed():
            fill_volumes(empty, conf=self._clients.conf, client_id=self._clients.client_id)
        for volume in empty:
            self._volumes.mark_filled(volume)
        self._await_health("after the volumes were filled")

    def _await_health(self, when: str) -> None:
        seconds = self._around.patience_seconds
        why = wait_until_clear(lambda: "; ".join(self._health.check().reasons), seconds=seconds, poll_seconds=0.1)
        if why:
            raise ClusterError(
                f"not healthy {when}, for {seconds:.0f} s: {why}", where=self.name, remedy=self._around.remedy
            )

    def _must_be_for_change(self) -> None:
        if not self._for_change:
            raise ClusterError("this target was opened for reading only", where=self.name)
