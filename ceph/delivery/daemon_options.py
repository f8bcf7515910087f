"""The options of a configuration on running daemons, each by its delivery way."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from cephfit.ceph.admin.daemons import AdminSockets, Daemon, concerned, running_daemons, strongest
from cephfit.ceph.delivery.central_config import CephSettings, Place, place_of, stored_settings
from cephfit.ceph.delivery.conf_files import Change, ConfFiles, escaped
from cephfit.ceph.delivery.daemon_values import (
    DaemonValues,
    InjectedSettings,
    ReadBack,
    fault_of_injection,
    stronger_source,
)
from cephfit.ceph.delivery.daemon_values import Place as InjectedPlace
from cephfit.ceph.delivery.option_delivery import DeliveryWay, OptionDelivery, has_store
from cephfit.ceph.delivery.osd_restarts import RestartsDue
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.values.configuration import Configuration, Partition, Setting, Undoing

_LEVELS = {DeliveryWay.STORE: "mon", DeliveryWay.CONF: "file", DeliveryWay.INJECTARGS: "override"}
"""Names of the ways in `config diff`."""


class DaemonOptions:
    """Brings the options of daemons from any state to that of a configuration.

    An application has three steps: ``apply``, a restart of the OSDs in ``restarts_due``, ``settle``. Every step
    also reverts changes that were delivered in other ways, so that another process can undo all of them without
    knowing the way. After a kill at any point the next process can continue.

    Args:
        admin: sends commands.
        catalogue: of the cluster's options.
        journal: of the target.
        hosts: accessible hosts of the daemons.
        delivery: chosen way.
        progress: reports what others edited meanwhile.
    """

    def __init__(
        self,
        admin: CephAdmin,
        catalogue: Catalogue,
        journal: Journal,
        *,
        hosts: Hosts,
        delivery: OptionDelivery,
        progress: Progress,
    ) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._delivery = delivery
        self._values = DaemonValues(admin, catalogue, AdminSockets(admin, hosts, delivery.conf_path))
        self._restarts = RestartsDue(journal)
        self._store = CephSettings(admin, catalogue, journal)
        self._files = ConfFiles(
            admin, hosts, journal, path=delivery.conf_path, restarts=self._restarts, progress=progress
        )
        self._injected = InjectedSettings(admin, catalogue, self._values, journal, progress)

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        """Return why options cannot be delivered in the chosen way, one sentence each. Changes nothing."""
        reasons = []
        by_conf = self._by(DeliveryWay.CONF, configuration)
        for setting in self._by(DeliveryWay.INJECTARGS, configuration).settings:
            if not self._catalogue.option(setting.key).acts_at_runtime:
                reasons.append(
                    f"{setting.key} acts only when a daemon starts, but injectargs reaches running daemons only: "
                    "it needs settings=conf, or settings=store where the monitors keep options"
                )
            elif fault := fault_of_injection(as_ceph_writes(setting.value)):
                reasons.append(f"the value of {setting.key} {fault}: it needs settings=conf")
        for setting in by_conf.settings:
            escaped(as_ceph_writes(setting.value), setting.key)
        if by_conf.settings and (why := self._files.why_not(by_conf)):
            reasons.append(why)
        if reasons or has_store(self._catalogue.version()):
            return tuple(reasons)
        daemons = running_daemons(self._admin)
        scopes = {s.scope for s in configuration.within(Partition.CEPH)}
        why = self._values.why_not([d for d in daemons if any(concerned(scope, [d]) for scope in scopes)])
        return (why,) if why else ()

    def not_stored(self, configuration: Configuration) -> tuple[str, ...]:
        """Return the options that are not delivered through the config store, which alone is permanent."""
        settings = configuration.within(Partition.CEPH)
        return tuple(dict.fromkeys(s.key for s in settings if self._way(s) is not DeliveryWay.STORE))

    def value_of(self, daemon: Daemon, key: str) -> str:
        """Read the value that a daemon runs with."""
        return as_ceph_writes(self._values.of(daemon, key))

    def apply(self, configuration: Configuration) -> None:
        """Set what needs no running daemon; restore what was changed before and is not part of the configuration.

        Raises:
            InputError: an option does not exist.
            ClusterError: the cluster refuses a value; the message is Ceph's.
            HostError: the file of a host cannot be changed.
        """
        for setting in configuration.within(Partition.CEPH):
            self._catalogue.option(setting.key, where=f"configuration {configuration.name}")
        in_store = self._by(DeliveryWay.STORE, configuration)
        if in_store.settings or self._store.undoings():
            self._store.apply(in_store)
        self._files.apply(self._by(DeliveryWay.CONF, configuration))
        self._injected.take_back(but=self._to_inject(configuration))

    def take_back(self) -> None:
        """Restore every option as far as possible; the error at the end lists the others."""
        tried = ErrorCollector()
        if self._store.undoings():
            tried.make(self._store.take_back)
        tried.make(self._files.take_back)
        tried.make(lambda: self._injected.take_back(but={}))
        tried.end()

    def settle(self, configuration: Configuration) -> None:
        """Inject options into running daemons. Call it after the restarts, which would discard them.

        Raises:
            ClusterError: a daemon refuses a value; the message is Ceph's.
        """
        self._injected.inject(self._to_inject(configuration))

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        """Inject again what daemons lost by an unexpected restart, one sentence each; empty if nothing was lost.

        Args:
            osd_map: returns the present ``osd dump``.
        """
        return self._injected.keep(osd_map)

    def put(self, section: str, key: str, value: str) -> None:
        """Set one option of daemons for cephfit's internal needs, journalled like any other.

        ``take_back_one``, ``apply`` and ``take_back`` revert it.

        Args:
            section: of the config store, if there is one; else the running daemons of this type get the option.
            key: of the option.
            value: to set.
        """
        if has_store(self._catalogue.version()):
            self._store.put(section, key, value)
            return
        daemons = concerned(section, running_daemons(self._admin))
        self._injected.inject({(daemon.name, key): value for daemon in daemons})

    def take_back_one(self, section: str, key: str) -> None:
        """Revert ``put``, also of a process that was killed; no effect without one."""
        self._store.take_back_one(section, key)
        self._injected.take_back_one(key)

    def restarts_due(self) -> tuple[int, ...]:
        """Return the OSDs that run with a value that only a restart changes."""
        return self._restarts.due()

    def restarted(self, osd: int) -> None:
        """Record that the OSD was restarted."""
        self._restarts.restarted(osd)

    def needs_restart(
        self, configuration: Configuration, *, restored: Mapping[Place, str | None] | None = None
    ) -> dict[int, dict[str, str]]:
        """Return the OSDs that need a restart for a configuration, each with the options and values behind it.

        Values that are already in store and files need none. The configuration's options must exist.

        Args:
            configuration: to apply.
            restored: original values in the config store of an earlier configuration, which are restored unless
                this one sets the option.
        """
        needs: dict[int, dict[str, str]] = {}
        in_store = self._by(DeliveryWay.STORE, configuration)
        if in_store.settings or restored:
            needs |= self._store.needs_restart(in_store, restored or {})
        for change in self.file_changes(configuration):
            for osd, options in change.osds.items():
                needs.setdefault(osd, {}).update(options)
        return needs

    def why_restart(self, configuration: Configuration, needs: Mapping[int, Mapping[str, str]]) -> str:
        """Return the beginning of a sentence: the options that need a restart, and why.

        Args:
            configuration: to apply.
            needs: result of ``needs_restart`` for it.
        """
        keys = sorted({key for options in needs.values() for key in options})
        by_conf = self._by(DeliveryWay.CONF, configuration).settings
        if len(keys) == 1:
            what = "is in ceph.conf, which is read" if by_conf else "acts"
        else:
            what = "are in ceph.conf, which is read" if by_conf else "act"
        return f"{', '.join(keys)} {what} only when an OSD starts"

    def file_changes(self, configuration: Configuration) -> tuple[Change, ...]:
        """Return the changes of files on hosts; changes nothing."""
        by_conf = self._by(DeliveryWay.CONF, configuration)
        return self._files.changes(by_conf) if by_conf.settings else ()

    def n_injected(self, configuration: Configuration) -> int:
        """Return the number of values that would be injected into daemons."""
        return len(self._to_inject(configuration))

    def for_clients(self, configuration: Configuration) -> Configuration:
        """Return the configuration for clients, which do not read it from the config store."""
        settings = [s for s in configuration.within(Partition.CEPH) if s.scope == "global"]
        others = {s.key for s in configuration.within(Partition.CEPH) if s.scope == "client"}
        more = [
            Setting(Partition.CEPH, "client", s.key, s.value)
            for s in settings
            if s.key not in others and self._way(s) is not DeliveryWay.STORE
        ]
        return Configuration(configuration.name, (*configuration.settings, *more), configuration.why)

    def read_back(self, configuration: Configuration) -> ReadBack:
        """Read every daemon's values until all match or the time limit for their propagation is over."""
        started = time.monotonic()
        while True:
            found = self._read_back_once(configuration)
            if not found.mismatches or time.monotonic() > started + self._values.patience_seconds:
                return found
            time.sleep(0.1)

    def undoings(self) -> list[Undoing]:
        """Return what ``apply`` of the default and the following restarts would restore."""
        found = [*self._injected.undoings(), *self._files.undoings()]
        entries = self._store.undoings()
        stored = stored_settings(self._admin) if entries else {}
        for entry in entries:
            section, key = place_of(entry)
            now, was = stored.get((section, key)), entry.was
            if not self._catalogue.same(key, was, now):
                found.append(Undoing(f"option {key} of {section}", _or_not_set(now), _or_not_set(was)))
        return found

    def restarts_of_undoing(self) -> list[int]:
        """Return the OSDs that an undo restarts: those already due, and the readers of what is restored."""
        due = set(self._restarts.due())
        for change in self._files.changes(Configuration("")):
            due |= set(change.osds)
        daemons = running_daemons(self._admin)
        for entry in self._store.undoings():
            section, key = place_of(entry)
            if not self._catalogue.acts_at_runtime(key):
                due |= {int(d.id) for d in concerned(section, daemons) if d.kind == "osd"}
        return sorted(due)

    def forget_originals(self) -> None:
        """Remove all originals from the journal: everything is restored."""
        self._store.forget_originals()

    def _way(self, setting: Setting) -> DeliveryWay:
        if self._delivery.way is not None:
            return self._delivery.way
        acts = self._catalogue.option(setting.key).acts_at_runtime
        return self._delivery.way_of(self._catalogue.version(), acts_at_runtime=acts)

    def _by(self, way: DeliveryWay, configuration: Configuration) -> Configuration:
        """Return the part of a configuration that is delivered in one way.

        Options of clients are in the clients' ceph.conf; of the other ways only the store contains them too.
        """
        settings = tuple(
            s
            for s in configuration.within(Partition.CEPH)
            if self._way(s) is way and (way is DeliveryWay.STORE or not _is_of_clients(s))
        )
        return Configuration(configuration.name, settings)

    def _to_inject(self, configuration: Configuration) -> dict[InjectedPlace, str]:
        """Return daemon and option to value: all of injectargs, and of ceph.conf for daemons without restart."""
        found: dict[InjectedPlace, str] = {}
        by_conf = self._by(DeliveryWay.CONF, configuration).settings
        injected = self._by(DeliveryWay.INJECTARGS, configuration).settings
        daemons = running_daemons(self._admin) if by_conf or injected else ()
        for setting in (*injected, *by_conf):
            if not self._catalogue.option(setting.key).acts_at_runtime:
                continue
            rivals = [s.scope for s in configuration.within(Partition.CEPH) if s.key == setting.key]
            for daemon in concerned(setting.scope, daemons):
                restarts = setting in by_conf and daemon.kind == "osd"
                if not restarts and strongest(rivals, daemon) == setting.scope:
                    found[daemon.name, setting.key] = as_ceph_writes(setting.value)
        return found

    def _read_back_once(self, configuration: Configuration) -> ReadBack:
        daemons = running_daemons(self._admin)
        differences = self._values.differences(daemons)
        ways = {s.key: self._way(s) for s in configuration.within(Partition.CEPH)}

        def why_not(daemon: Daemon, key: str, difference: Mapping[str, Any]) -> str:
            why = stronger_source(difference, than=_LEVELS[ways[key]])
            if not why and ways[key] is DeliveryWay.CONF and daemon.kind == "osd":
                why = f": check on the OSD's command line that it reads {self._delivery.conf_path}"
            return why

        found = self._values.compare(configuration, daemons, differences, why_not)
        leftovers: list[str] = []
        if self._store.undoings():
            leftovers = self._store.leftovers(self._by(DeliveryWay.STORE, configuration), daemons, differences)
        return ReadBack(found.values, (*found.mismatches, *leftovers))


def _is_of_clients(setting: Setting) -> bool:
    return setting.scope.partition("/")[0].partition(".")[0] == "client"


def _or_not_set(value: str | None) -> str:
    return "not set" if value is None else value
