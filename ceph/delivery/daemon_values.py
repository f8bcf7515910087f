"""The values of running daemons: compared with those of a configuration, and injected.

Options are injected for releases without a config store; a restart discards them.
"""

import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.admin.daemons import AdminSockets, Daemon, concerned, running_daemons, strongest
from cephfit.ceph.delivery.option_delivery import has_store
from cephfit.ceph.options.option import as_ceph_writes, same_value
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import HostError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.values.configuration import Configuration, Partition, Undoing

_PROPAGATION_SECONDS = 5.0
"""The monitors push a changed option to the daemons within milliseconds; this allows for a busy machine."""
_REPORT_SECONDS = 15.0
"""Daemons report their values to the manager every 5 s (option mgr_stats_period)."""

Differences = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""OSD to option to the sources of its value (``mon``, ``file``, ``override`` ...), from ``config diff``."""

WhyNot = Callable[[Daemon, str, Mapping[str, Any]], str]
"""Reason why a daemon runs an option with another value, from its ``config diff``; empty if unknown."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The values that running daemons reported.

    Attributes:
        values: setting (as text) to daemon to value.
        mismatches: one sentence per setting (and value found) that did not take effect.
    """

    values: Mapping[str, Mapping[str, Any]]
    mismatches: tuple[str, ...]


class DaemonValues:
    """Reads the values of daemons.

    Args:
        admin: sends commands.
        catalogue: of the cluster's options.
        sockets: of the daemons, for releases before Mimic.
    """

    def __init__(self, admin: CephAdmin, catalogue: Catalogue, sockets: AdminSockets) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._sockets = sockets
        self._may_tell = True

    @property
    def patience_seconds(self) -> float:
        """Time after which a daemon without the required value counts as not having it."""
        return _PROPAGATION_SECONDS if self._may_tell else _REPORT_SECONDS

    def of(self, daemon: Daemon, key: str) -> Any:
        """Read the value that a daemon runs with, from the daemon itself or from the manager.

        Daemons accept this command only from keys with full access, which OSDs need for dropping caches anyway;
        for monitors and managers the manager's copy is read instead. Before Mimic, daemons answer on their hosts
        only.

        Raises:
            ClusterError: it does not answer.
            HostError: its host is unreachable.
        """
        if self._answers() and daemon.kind != "osd" and not self._may_tell:
            return as_ceph_writes(self._admin.command("config show", who=daemon.name, key=key))
        try:
            return self.from_itself(daemon, key)
        except RefusedError as error:
            if daemon.kind == "osd" or error.code not in (errno.EACCES, errno.EPERM, errno.EOPNOTSUPP):
                raise
            self._may_tell = False
            return self.of(daemon, key)

    def from_itself(self, daemon: Daemon, key: str) -> Any:
        """Read the value that a daemon runs with now; its report to the manager is seconds old.

        Raises:
            RefusedError: it refuses commands of this key.
            ClusterError: it does not answer.
            HostError: its host is unreachable.
        """
        if not self._answers():
            return self._sockets.ask(daemon, "config", "get", key)[key]
        return self._admin.tell(daemon.name, "config get", var=key)[key]

    def differences(self, daemons: Sequence[Daemon]) -> Differences:
        """Return the sources of the values of the OSDs among these daemons."""
        return {d.name: self.sources(d) for d in daemons if d.kind == "osd"}

    def sources(self, daemon: Daemon) -> Mapping[str, Mapping[str, Any]]:
        """Return the sources of one daemon's values by option; empty for releases that do not report them.

        The daemon must accept commands of this key.
        """
        if not self._answers():
            return {}
        try:
            found: Mapping[str, Mapping[str, Any]] = self._admin.tell(daemon.name, "config diff")["diff"]
        except RefusedError as error:
            if error.code != errno.EINVAL:
                raise
            return {}  # before Octopus daemons accepted only some commands this way, and not this one
        return found

    def why_not(self, daemons: Sequence[Daemon]) -> str:
        """Return why the values of these daemons cannot be read; empty if they can. Changes nothing."""
        if not self._answers():
            for daemon in self._sockets.one_of_each_host(daemons):
                try:
                    self._sockets.ask(daemon, "version")
                except HostError as error:
                    return f"before Mimic, {daemon.name} reports its values only on its host: {error}"
        return ""

    def _answers(self) -> bool:
        """Return whether daemons report their values to clients of the cluster."""
        return has_store(self._catalogue.version())

    def compare(
        self, configuration: Configuration, daemons: Sequence[Daemon], differences: Differences, why_not: WhyNot
    ) -> ReadBack:
        """Compare every option of a configuration on every daemon that it applies to.

        Args:
            configuration: with existing options.
            daemons: that run.
            differences: of the OSDs.
            why_not: explains a value that is not the required one.
        """
        settings = [s for s in configuration.within(Partition.CEPH) if s.scope.partition("/")[0] != "client"]
        values: dict[str, dict[str, Any]] = {}
        mismatches: list[str] = []
        for setting in settings:
            option = self._catalogue.option(setting.key)
            rivals = [s.scope for s in settings if s.key == setting.key]
            found = values.setdefault(str(setting), {})
            for daemon in concerned(setting.scope, daemons):
                if daemon.kind != "osd" and not option.acts_at_runtime:
                    continue  # read at their start only, which the catalogue has reported
                got = self.of(daemon, setting.key)
                found[daemon.name] = got
                beaten = strongest(rivals, daemon) != setting.scope
                if not beaten and not same_value(option.type, setting.value, got):
                    why = why_not(daemon, setting.key, differences.get(daemon.name, {}).get(setting.key, {}))
                    mismatches.append(f"{daemon.name} runs {setting.key} = {got}, not {setting.value}{why}")
            if not found and setting.scope.partition("/")[0] != "global":
                mismatches.append(
                    f"no running daemon is in section {setting.scope}, so {setting.key} has no effect"
                )
        return ReadBack(values, tuple(mismatches))


_SOURCES = (
    ("override", "an override (`ceph tell ... config set`)"),
    ("cmdline", "its command line"),
    ("env", "its environment"),
    ("file", "its ceph.conf file, which beats the config store"),
)
"""Sources of a daemon's values, strongest first; the config store is weaker than all of them."""


def stronger_source(difference: Mapping[str, Any], than: str = "mon") -> str:
    """Return the source that overrides the place where a value was set, as the end of a sentence.

    Args:
        difference: one option of ``config diff``.
        than: that place: ``mon`` for the config store, ``file``, ``override``.
    """
    for level, place in _SOURCES:
        if level == than:
            return ""
        if level in difference:
            return f": {place} sets {difference[level]}"
    return ""


_INJECTED = "injected"

Place = tuple[str, str]
"""Daemon and option."""


class InjectedSettings:
    """Injects options and reverts them.

    The journal has each daemon's earlier value before an injection, and an override that another client had set
    there. To revert an option, the override is removed if the release supports that (``config unset``): the daemon
    then uses store, file and default again. Otherwise the earlier value is injected.

    Args:
        admin: sends commands.
        catalogue: of the cluster's options.
        values: reads the daemons' values.
        journal: of the target.
        progress: reports daemons that did not answer.
    """

    def __init__(
        self, admin: CephAdmin, catalogue: Catalogue, values: DaemonValues, journal: Journal, progress: Progress
    ) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._values = values
        self._journal = journal
        self._progress = progress
        self._required: dict[Place, str] = {}
        self._up_epochs: dict[str, int] = {}

    def inject(self, required: Mapping[Place, str]) -> None:
        """Inject these values, in addition to those that were injected before and not reverted.

        Raises:
            ClusterError: a daemon refuses; the message is Ceph's.
        """
        self._required |= required
        # Read first: an OSD that restarts from now on has a later epoch.
        self._up_epochs |= _up_epochs(self._admin.command("osd dump")) if required else {}
        for name in dict.fromkeys(name for name, _ in required):
            self._bring(name)

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        """Inject again what restarted daemons lost, one sentence each; empty if none did.

        Args:
            osd_map: returns the present ``osd dump``.
        """
        if not self._required:
            return ()
        born = _up_epochs(osd_map())
        lost = []
        for name in dict.fromkeys(name for name, _ in self._required):
            if name.startswith("osd.") and (name not in born or born[name] == self._up_epochs.get(name)):
                continue  # it did not restart, or is down
            for key in self._bring(name):
                value = self._required[name, key]
                lost.append(f"{name} lost {key} = {value} by a restart; it was injected again")
            self._up_epochs |= {name: born[name]} if name in born else {}
        return tuple(lost)

    def take_back(self, *, but: Mapping[Place, str]) -> None:
        """Revert every injected option, except some.

        Args:
            but: options that stay, possibly with other values.

        Raises:
            CephfitError: lists every daemon and option that was not restored.
        """
        self._take_back(lambda place: place not in but)

    def take_back_one(self, key: str) -> None:
        """Revert one option on all daemons."""
        self._take_back(lambda place: place[1] == key)

    def _take_back(self, is_meant: Callable[[Place], bool]) -> None:
        self._required = {place: value for place, value in self._required.items() if not is_meant(place)}
        entries = [e for e in self._journal.entries(_INJECTED) if is_meant(_place(e))]
        running = {d.name for d in running_daemons(self._admin)} if entries else set()
        tried = ErrorCollector()
        for entry in entries:
            tried.make(partial(self._forget, entry, running))
        tried.end()

    def undoings(self) -> list[Undoing]:
        """Return what ``take_back`` of all would do."""
        found = []
        for entry in self._journal.entries(_INJECTED):
            name, key = _place(entry)
            found.append(Undoing(f"option {key} injected into {name}", "", str(entry.was["value"])))
        return found

    def _bring(self, name: str) -> list[str]:
        """Inject into one daemon what it does not run with; return the injected options."""
        daemon = _daemon(name)
        keys = [
            key
            for (whose, key), value in self._required.items()
            if whose == name and not self._same(key, value, self._values.from_itself(daemon, key))
        ]
        new = [key for key in keys if self._journal.get(_INJECTED, f"{name} {key}") is None]
        overrides = self._overrides(daemon) if new else {}
        for key in keys:
            was = {"value": as_ceph_writes(self._values.from_itself(daemon, key)), "override": overrides.get(key)}
            self._journal.note(_INJECTED, f"{name} {key}", was)
            self._tell(name, key, self._required[name, key])
        return keys

    def _forget(self, entry: Entry, running: Collection[str]) -> None:
        name, key = _place(entry)
        if name in running:
            self._undo(name, key, entry.was)
        else:
            self._progress.note(f"{name} does not run: its restart will discard the injected {key}")
        self._journal.forget(_INJECTED, entry.place)

    def _undo(self, name: str, key: str, was: Mapping[str, Any]) -> None:
        if was["override"] is not None:
            self._tell(name, key, was["override"])
            return
        try:
            self._admin.tell(name, "config unset", var=key)
        except RefusedError as error:
            if error.code != errno.EINVAL:  # which means that the release does not have the command
                raise
            self._tell(name, key, was["value"])

    def _tell(self, name: str, key: str, value: str) -> None:
        self._admin.tell(name, "injectargs", injected_args=[f"--{key}={value}"])

    def _overrides(self, daemon: Daemon) -> dict[str, str]:
        """Return another client's override there; empty where the release does not report it."""
        sources = self._values.sources(daemon)
        return {key: as_ceph_writes(source["override"]) for key, source in sources.items() if "override" in source}

    def _same(self, key: str, required: str, found: Any) -> bool:
        return same_value(self._catalogue.option(key).type, required, found)


def fault_of_injection(value: str) -> str:
    """Return why a value cannot be injected; empty if it can."""
    # Daemons split the arguments at white space, ignoring quotes.
    return "has white space, at which injectargs splits" if value.split() != [value] and value else ""


def _up_epochs(osd_map: Mapping[str, Any]) -> dict[str, int]:
    """Return the OSDs that are up, each with the epoch in which it came up."""
    return {f"osd.{osd['osd']}": int(osd["up_from"]) for osd in osd_map["osds"] if osd["up"]}


def _place(entry: Entry) -> Place:
    name, _, key = entry.place.partition(" ")
    return name, key


def _daemon(name: str) -> Daemon:
    kind, _, number = name.partition(".")
    return Daemon(kind, number)
