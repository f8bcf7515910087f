"""The options of a configuration on running daemons, each by the way in which it reaches them."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from cephfit.ceph.admin.daemons import AdminSockets, Daemon, concerned, running_daemons, strongest
from cephfit.ceph.delivery.central_config import CephSettings, stored_settings
from cephfit.ceph.delivery.conf_files import Change, ConfFiles, escaped
from cephfit.ceph.delivery.daemon_values import DaemonValues, ReadBack, stronger_source
from cephfit.ceph.delivery.injected_options import InjectedSettings, fault_of_injection
from cephfit.ceph.delivery.injected_options import Place as InjectedPlace
from cephfit.ceph.delivery.option_delivery import Reach, SettingsWay, has_store
from cephfit.ceph.delivery.osd_daemons import RestartsDue
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.ceph.options.option import as_ceph_writes, same_value
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.preview import Undoing

_LEVELS = {SettingsWay.STORE: "mon", SettingsWay.CONF: "file", SettingsWay.INJECTARGS: "override"}
"""What `config diff` calls the ways."""


class DaemonOptions:
    """Brings the options of daemons from whatever they are to what a configuration wants.

    An application is three steps: ``apply``, restarts of the OSDs that ``restarts_due`` names, ``settle``. Every
    step also takes back what was changed before by a way that is not the chosen one, so that another process can
    undo all without knowing how it was done. A process killed anywhere leaves a state from which the next goes on.

    Args:
        admin: sends commands.
        catalogue: of the cluster's options.
        journal: of the target.
        hosts: of the daemons, those within reach.
        reach: which way was chosen.
        progress: hears of what others edited meanwhile.
    """

    def __init__(
        self,
        admin: CephAdmin,
        catalogue: Catalogue,
        journal: Journal,
        *,
        hosts: Hosts,
        reach: Reach,
        progress: Progress,
    ) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._reach = reach
        self._values = DaemonValues(admin, catalogue, AdminSockets(admin, hosts, reach.conf_path))
        self._restarts = RestartsDue(journal)
        self._store = CephSettings(admin, catalogue, journal)
        self._files = ConfFiles(
            admin, hosts, journal, path=reach.conf_path, restarts=self._restarts, progress=progress
        )
        self._injected = InjectedSettings(admin, catalogue, self._values, journal, progress)

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        """Why options that exist cannot be made by the chosen way, one sentence each. Changes nothing."""
        reasons = []
        by_conf = self._by(SettingsWay.CONF, configuration)
        for setting in self._by(SettingsWay.INJECTARGS, configuration).settings:
            if not self._catalogue.option(setting.key).acts_at_runtime:
                reasons.append(
                    f"{setting.key} acts only when a daemon starts, and injectargs reaches running ones only: "
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

    def value_of(self, daemon: Daemon, key: str) -> str:
        """What a daemon runs with, from itself."""
        return as_ceph_writes(self._values.of(daemon, key))

    def apply(self, configuration: Configuration) -> None:
        """Set what takes no running daemon; what was changed before and is not wanted now gets its original.

        Raises:
            InputError: an option does not exist.
            ClusterError: the cluster refuses a value, in its own words.
            HostError: the file of a host cannot be changed.
        """
        for setting in configuration.within(Partition.CEPH):
            self._catalogue.option(setting.key, where=f"configuration {configuration.name}")
        in_store = self._by(SettingsWay.STORE, configuration)
        if in_store.settings or self._store.undoings():
            self._store.apply(in_store)
        self._files.apply(self._by(SettingsWay.CONF, configuration))
        self._injected.take_back(but=self._to_inject(configuration))

    def take_back(self) -> None:
        """Every option as it was, as far as it can be; raises at the end, and names each that is not."""
        tried = ErrorCollector()
        if self._store.undoings():
            tried.make(self._store.take_back)
        tried.make(self._files.take_back)
        tried.make(lambda: self._injected.take_back(but={}))
        tried.end()

    def settle(self, configuration: Configuration) -> None:
        """Tell running daemons what no restart has told them; after the restarts, which would make them forget it.

        Raises:
            ClusterError: a daemon refuses a value, in its own words.
        """
        self._injected.inject(self._to_inject(configuration))

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        """Make good what daemons lost that restarted by themselves, one sentence each; empty if nothing was lost.

        Args:
            osd_map: gives ``osd dump`` as it is now.
        """
        return self._injected.keep(osd_map)

    def put(self, section: str, key: str, value: str) -> None:
        """Set one option of daemons for the tool's own needs, journalled like any other.

        ``take_back_one`` undoes it, ``apply`` and ``take_back`` do so, too.

        Args:
            section: in the config store, where there is one; else the running daemons of this type get it.
        """
        if has_store(self._catalogue.version()):
            self._store.put(section, key, value)
            return
        daemons = concerned(section, running_daemons(self._admin))
        self._injected.inject({(daemon.name, key): value for daemon in daemons})

    def take_back_one(self, section: str, key: str) -> None:
        """What was before ``put``, also of a process that was killed; nothing where nothing was put."""
        self._store.take_back_one(section, key)
        self._injected.take_back_one(key)

    def restarts_due(self) -> tuple[int, ...]:
        """OSDs that run with a value that only a restart changes."""
        return self._restarts.due()

    def restarted(self, osd: int) -> None:
        """The OSD has been restarted since."""
        self._restarts.restarted(osd)

    def needs_restart(self, configuration: Configuration) -> dict[int, dict[str, str]]:
        """OSDs that would have to be restarted for a configuration, each with the options why and their values.

        What store and files say already needs none. The configuration's options must exist.
        """
        needs: dict[int, dict[str, str]] = {}
        in_store = self._by(SettingsWay.STORE, configuration)
        if in_store.settings:
            needs |= self._store.needs_restart(in_store)
        for change in self.file_changes(configuration):
            for osd, options in change.osds.items():
                needs.setdefault(osd, {}).update(options)
        return needs

    def why_restart(self, configuration: Configuration, needs: Mapping[int, Mapping[str, str]]) -> str:
        """Which of a configuration's options need a restart, and why, as the begin of a sentence.

        Args:
            configuration: whose.
            needs: what ``needs_restart`` said of it.
        """
        keys = sorted({key for options in needs.values() for key in options})
        by_conf = self._by(SettingsWay.CONF, configuration).settings
        what = "stands in ceph.conf, which is read" if by_conf else "acts"
        return f"{', '.join(keys)} {what} only when an OSD starts"

    def file_changes(self, configuration: Configuration) -> tuple[Change, ...]:
        """What would be done to files of hosts; changes nothing."""
        by_conf = self._by(SettingsWay.CONF, configuration)
        return self._files.changes(by_conf) if by_conf.settings else ()

    def n_injected(self, configuration: Configuration) -> int:
        """How many values would be injected into daemons."""
        return len(self._to_inject(configuration))

    def for_clients(self, configuration: Configuration) -> Configuration:
        """The configuration as clients are to be given it, who read no config store for it."""
        settings = [s for s in configuration.within(Partition.CEPH) if s.scope == "global"]
        others = {s.key for s in configuration.within(Partition.CEPH) if s.scope == "client"}
        more = [
            Setting(Partition.CEPH, "client", s.key, s.value)
            for s in settings
            if s.key not in others and self._way(s) is not SettingsWay.STORE
        ]
        return Configuration(configuration.name, (*configuration.settings, *more), configuration.why)

    def read_back(self, configuration: Configuration) -> ReadBack:
        """Ask every running daemon concerned, until all agree or the time for telling them is over."""
        started = time.monotonic()
        while True:
            found = self._read_back_once(configuration)
            if not found.mismatches or time.monotonic() > started + self._values.patience_seconds:
                return found
            time.sleep(0.1)

    def undoings(self) -> list[Undoing]:
        """What ``apply`` of the default and the restarts after it would put back."""
        found = [*self._injected.undoings(), *self._files.undoings()]
        entries = self._store.undoings()
        stored = stored_settings(self._admin) if entries else {}
        for entry in entries:
            section, _, key = entry.place.rpartition(" ")
            now, was = stored.get((section, key)), entry.was
            if now is None or was is None:
                is_same = now is was
            else:
                is_same = same_value(self._catalogue.option(key).type, was, now)
            if not is_same:
                found.append(Undoing(f"option {key} of {section}", _or_not_set(now), _or_not_set(was)))
        return found

    def restarts_of_undoing(self) -> list[int]:
        """OSDs that are restarted in order to undo all: those due already, and readers of what is put back."""
        due = set(self._restarts.due())
        for change in self._files.changes(Configuration("")):
            due |= set(change.osds)
        daemons = running_daemons(self._admin)
        for entry in self._store.undoings():
            section, _, key = entry.place.rpartition(" ")
            if not self._catalogue.option(key).acts_at_runtime:
                due |= {int(d.id) for d in concerned(section, daemons) if d.kind == "osd"}
        return sorted(due)

    def forget_originals(self) -> None:
        """Everything is as it was; nothing is left to undo."""
        self._store.forget_originals()

    def _way(self, setting: Setting) -> SettingsWay:
        if self._reach.way is not None:
            return self._reach.way
        acts = self._catalogue.option(setting.key).acts_at_runtime
        return self._reach.way_of(self._catalogue.version(), acts_at_runtime=acts)

    def _by(self, way: SettingsWay, configuration: Configuration) -> Configuration:
        """The part of a configuration that goes by one way.

        Options of clients stand in the clients' own ceph.conf; the store alone gets them besides.
        """
        settings = tuple(
            s
            for s in configuration.within(Partition.CEPH)
            if self._way(s) is way and (way is SettingsWay.STORE or not _is_of_clients(s))
        )
        return Configuration(configuration.name, settings)

    def _to_inject(self, configuration: Configuration) -> dict[InjectedPlace, str]:
        """Daemon and option to value: all by injectargs; of ceph.conf those for daemons that nobody restarts."""
        found: dict[InjectedPlace, str] = {}
        by_conf = self._by(SettingsWay.CONF, configuration).settings
        injected = self._by(SettingsWay.INJECTARGS, configuration).settings
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
            if not why and ways[key] is SettingsWay.CONF and daemon.kind == "osd":
                why = f": does it read {self._reach.conf_path}? See the OSD's command line"
            return why

        found = self._values.compare(configuration, daemons, differences, why_not)
        leftovers: list[str] = []
        if self._store.undoings():
            leftovers = self._store.leftovers(self._by(SettingsWay.STORE, configuration), daemons, differences)
        return ReadBack(found.values, (*found.mismatches, *leftovers))


def _is_of_clients(setting: Setting) -> bool:
    return setting.scope.partition("/")[0].partition(".")[0] == "client"


def _or_not_set(value: str | None) -> str:
    return "not set" if value is None else value
