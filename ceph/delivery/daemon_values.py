"""The values of running daemons, compared with those of a configuration."""

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.admin.daemons import AdminSockets, Daemon, concerned, strongest
from cephfit.ceph.delivery.option_delivery import has_store
from cephfit.ceph.options.option import as_ceph_writes, same_value
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.errors import HostError
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.configuration import Configuration, Partition

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
