"""Options injected into running daemons, for releases without a config store; a restart discards them."""

import errno
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.admin.daemons import Daemon, running_daemons
from cephfit.ceph.delivery.daemon_values import DaemonValues
from cephfit.ceph.options.option import as_ceph_writes, same_value
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.values.preview import Undoing

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
        self._born: dict[str, int] = {}

    def inject(self, required: Mapping[Place, str]) -> None:
        """Inject these values, in addition to those that were injected before and not reverted.

        Raises:
            ClusterError: a daemon refuses; the message is Ceph's.
        """
        self._required |= required
        # Read first: an OSD that restarts from now on has a later epoch.
        self._born |= _born(self._admin.command("osd dump")) if required else {}
        for name in dict.fromkeys(name for name, _ in required):
            self._bring(name)

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        """Inject again what restarted daemons lost, one sentence each; empty if none did.

        Args:
            osd_map: returns the present ``osd dump``.
        """
        if not self._required:
            return ()
        born = _born(osd_map())
        lost = []
        for name in dict.fromkeys(name for name, _ in self._required):
            if name.startswith("osd.") and (name not in born or born[name] == self._born.get(name)):
                continue  # it did not restart, or is down
            for key in self._bring(name):
                value = self._required[name, key]
                lost.append(f"{name} lost {key} = {value} by a restart; it was injected again")
            self._born |= {name: born[name]} if name in born else {}
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


def _born(osd_map: Mapping[str, Any]) -> dict[str, int]:
    """Return the OSDs that are up, each with the epoch in which it came up."""
    return {f"osd.{osd['osd']}": int(osd["up_from"]) for osd in osd_map["osds"] if osd["up"]}


def _place(entry: Entry) -> Place:
    name, _, key = entry.place.partition(" ")
    return name, key


def _daemon(name: str) -> Daemon:
    kind, _, number = name.partition(".")
    return Daemon(kind, number)
