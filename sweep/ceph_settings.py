"""The settings of a configuration's ceph partition: applied through the central config store and read back."""

import errno
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit.configuration import Configuration, Partition
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.catalogue import Catalogue
from cephfit.sweep.daemons import Daemon, concerned, running_daemons, strongest
from cephfit.sweep.journal import Entry, Journal
from cephfit.sweep.option_value import as_ceph_writes, same_value

_CONFIG = "config"
_RESTART = "restart"
_PROPAGATION_SECONDS = 5.0
"""The monitors push a changed option to the daemons within milliseconds; a busy machine gets this long."""
_REPORT_SECONDS = 15.0
"""Daemons report their values to the manager every 5 s (option mgr_stats_period)."""

Place = tuple[str, str]
"""Section (with its mask) and option: one entry of the config store."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What running daemons said.

    Attributes:
        values: setting as text to daemon to value.
        mismatches: one sentence per setting (and value found) that did not take effect.
    """

    values: Mapping[str, Mapping[str, Any]]
    mismatches: tuple[str, ...]


def stored_settings(admin: CephAdmin) -> dict[Place, str]:
    """The central config store as it is."""
    entries = {}
    for entry in admin.command("config dump"):
        mask = entry.get("mask") or ""
        entries[entry["section"] + (f"/{mask}" if mask else ""), entry["name"]] = str(entry["value"])
    return entries


class CephSettings:
    """Brings the config store from whatever it holds to what a configuration wants.

    Works from the journal and the store themselves, never from memory of what was applied last, so that a
    process killed anywhere in between leaves a state from which the next one goes on. Which OSDs still have to
    be restarted is in the journal too.
    """

    def __init__(self, admin: CephAdmin, catalogue: Catalogue, journal: Journal) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._journal = journal
        self._may_tell = True

    def apply(self, configuration: Configuration) -> None:
        """Set what the configuration sets; give every other setting that was changed before its original value.

        Raises:
            InputError: an option does not exist.
            ClusterError: the cluster refuses a value, in its own words.
        """
        daemons = running_daemons(self._admin)
        wanted = self._places(configuration, daemons)
        stored = stored_settings(self._admin)
        for place, value in {**self._originals(), **wanted}.items():
            if not self._same(place[1], stored.get(place), value):
                self._change(place, stored.get(place), value, daemons)

    def put(self, section: str, key: str, value: str) -> None:
        """Set one entry for the tool's own needs, journalled like any other; ``apply`` takes it back."""
        place = (section, key)
        stored = stored_settings(self._admin).get(place)
        if not self._same(key, stored, value):
            self._change(place, stored, value, ())

    def restarts_due(self) -> tuple[int, ...]:
        """OSDs that run with a value that only a restart changes."""
        return tuple(sorted(int(e.place) for e in self._journal.entries(_RESTART)))

    def restarted(self, osds: Sequence[int]) -> None:
        """The OSDs have been restarted since."""
        for osd in osds:
            self._journal.forget(_RESTART, str(osd))

    def needs_restart(self, configuration: Configuration) -> dict[int, dict[str, str]]:
        """OSDs that would have to be restarted for a configuration, each with the options why and their values.

        What the config store says already needs none. The configuration's options must exist.
        """
        settings = [
            s for s in configuration.within(Partition.CEPH) if not self._catalogue.option(s.key).acts_at_runtime
        ]
        if not settings:
            return {}
        daemons = running_daemons(self._admin)
        stored = stored_settings(self._admin)
        needs: dict[int, dict[str, str]] = {}
        for (section, key), value in self._places(configuration, daemons).items():
            if self._catalogue.option(key).acts_at_runtime or self._same(key, stored.get((section, key)), value):
                continue
            for daemon in concerned(section, daemons):
                if daemon.kind == "osd":
                    needs.setdefault(int(daemon.id), {})[key] = value
        return needs

    def read_back(self, configuration: Configuration) -> ReadBack:
        """Ask every running daemon concerned, until all agree or the time for telling them is over."""
        started = time.monotonic()
        while True:
            found = self._read_back_once(configuration)
            limit = _PROPAGATION_SECONDS if self._may_tell else _REPORT_SECONDS
            if not found.mismatches or time.monotonic() > started + limit:
                return found
            time.sleep(0.1)

    def undoings(self) -> tuple[Entry, ...]:
        """Options that ``apply`` of the default puts back; section and option are the place."""
        return self._journal.entries(_CONFIG)

    def forget_originals(self) -> None:
        """Everything is as it was; nothing is left to undo."""
        for entry in self._journal.entries(_CONFIG):
            self._journal.forget(_CONFIG, entry.place)

    def _places(self, configuration: Configuration, daemons: Sequence[Daemon]) -> dict[Place, str]:
        """What is to stand in the config store for a configuration.

        A starting OSD asks the monitors for its options before it has said its device class and place, so a
        masked section reaches it too late for what is read once at the start: the value looks right afterwards
        and has no effect. Such settings are given to each OSD concerned by its name.
        """
        settings = tuple(configuration.within(Partition.CEPH))
        where = f"configuration {configuration.name}"
        places: dict[Place, str] = {}
        for setting in settings:
            if "/" not in setting.scope or self._catalogue.option(setting.key, where=where).acts_at_runtime:
                self._catalogue.option(setting.key, where=where)
                places[setting.scope, setting.key] = as_ceph_writes(setting.value)
                continue
            rivals = [s.scope for s in settings if s.key == setting.key]
            for daemon in concerned(setting.scope, daemons):
                if daemon.kind == "osd" and strongest(rivals, daemon) == setting.scope:
                    places[daemon.name, setting.key] = as_ceph_writes(setting.value)
        return places

    def _originals(self) -> dict[Place, str | None]:
        originals: dict[Place, str | None] = {}
        for entry in self._journal.entries(_CONFIG):
            section, _, key = entry.place.rpartition(" ")
            originals[section, key] = entry.was
        return originals

    def _same(self, key: str, stored: str | None, value: str | None) -> bool:
        if stored is None or value is None:
            return stored is value
        return same_value(self._catalogue.option(key).type, value, stored)

    def _change(self, place: Place, was: str | None, value: str | None, daemons: Sequence[Daemon]) -> None:
        section, key = place
        if not self._catalogue.option(key).acts_at_runtime:
            for daemon in concerned(section, daemons):
                if daemon.kind == "osd":
                    self._journal.note(_RESTART, daemon.id, None)
        self._journal.note(_CONFIG, f"{section} {key}", was)
        if value is None:
            self._admin.command("config rm", who=section, name=key)
        else:
            self._admin.command("config set", who=section, name=key, value=value)

    def _read_back_once(self, configuration: Configuration) -> ReadBack:
        settings = [s for s in configuration.within(Partition.CEPH) if s.scope.partition("/")[0] != "client"]
        daemons = running_daemons(self._admin)
        differences = {d.name: self._admin.tell(d.name, "config diff")["diff"] for d in daemons if d.kind == "osd"}
        values: dict[str, dict[str, Any]] = {}
        mismatches: list[str] = []
        for setting in settings:
            option = self._catalogue.option(setting.key)
            rivals = [s.scope for s in settings if s.key == setting.key]
            found = values.setdefault(str(setting), {})
            for daemon in concerned(setting.scope, daemons):
                if daemon.kind != "osd" and not option.acts_at_runtime:
                    continue  # read at their start, which is not ours to repeat; said by the catalogue beforehand
                got = self._value_of(daemon, setting.key)
                found[daemon.name] = got
                beaten = strongest(rivals, daemon) != setting.scope
                if not beaten and not same_value(option.type, setting.value, got):
                    source = _overriding_source(differences.get(daemon.name, {}).get(setting.key, {}))
                    mismatches.append(f"{daemon.name} runs {setting.key} = {got}, not {setting.value}{source}")
            if not found and setting.scope.partition("/")[0] != "global":
                mismatches.append(
                    f"no running daemon is in section {setting.scope}, so {setting.key} has no effect"
                )
        mismatches += self._leftovers(set(self._places(configuration, daemons)), daemons, differences)
        return ReadBack(values, tuple(mismatches))

    def _value_of(self, daemon: Daemon, key: str) -> Any:
        """The value that a daemon runs with: from itself, or from the manager, whom it reports to.

        Monitors and managers take questions only from keys that may do everything; OSDs take no others at all,
        and caches of theirs must be dropped by such a key anyway.
        """
        if daemon.kind != "osd" and not self._may_tell:
            return as_ceph_writes(self._admin.command("config show", who=daemon.name, key=key))
        try:
            return self._admin.tell(daemon.name, "config get", var=key)[key]
        except RefusedError as error:
            if daemon.kind == "osd" or error.code not in (errno.EACCES, errno.EPERM, errno.EOPNOTSUPP):
                raise
            self._may_tell = False
            return self._value_of(daemon, key)

    def _leftovers(
        self, wanted: set[Place], daemons: Sequence[Daemon], differences: Mapping[str, Mapping[str, Any]]
    ) -> list[str]:
        """Settings of earlier configurations that a daemon still runs with."""
        gone = [place for place in self._originals() if place not in wanted]
        stored = stored_settings(self._admin) if gone else {}
        sentences = []
        for section, key in gone:
            option = self._catalogue.option(key)
            for daemon in concerned(section, daemons):
                if daemon.kind != "osd":
                    continue
                takes = strongest([s for s, k in stored if k == key], daemon)
                expected = None if takes is None else stored[takes, key]
                runs = differences[daemon.name].get(key, {}).get("mon")
                if (expected is None) != (runs is None) or (
                    expected is not None and not same_value(option.type, expected, runs)
                ):
                    sentences.append(f"{daemon.name} still runs {key} = {runs} of an earlier configuration")
        return sentences


def _overriding_source(difference: Mapping[str, Any]) -> str:
    """What beats the config store, from one entry of ``config diff``."""
    for level, place in (
        ("override", "an override (`ceph tell ... config set`)"),
        ("cmdline", "its command line"),
        ("env", "its environment"),
        ("file", "its ceph.conf file, which beats the config store"),
    ):
        if level in difference:
            return f": {place} says {difference[level]}"
    return ""
