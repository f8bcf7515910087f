"""Settings of the partition ``ceph``, applied through the central config store."""

from collections.abc import Mapping, Sequence
from functools import partial

from cephfit.ceph.admin.daemons import Daemon, concerned, running_daemons, strongest
from cephfit.ceph.delivery.daemon_values import Differences
from cephfit.ceph.delivery.osd_restarts import RestartsDue
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.configuration import Configuration, Partition

CONFIG = "config"

Place = tuple[str, str]
"""Section (with its mask) and option: one entry of the config store."""


def place_of(entry: Entry) -> Place:
    """Return the place of a journal's entry of the kind ``CONFIG``."""
    section, _, key = entry.place.rpartition(" ")
    return section, key


def stored_settings(admin: CephAdmin) -> dict[Place, str]:
    """Read the central config store."""
    entries = {}
    for entry in admin.command("config dump"):
        mask = entry.get("mask") or ""
        entries[entry["section"] + (f"/{mask}" if mask else ""), entry["name"]] = str(entry["value"])
    return entries


class CephSettings:
    """Brings the config store from any state to that of a configuration.

    It reads its state from the journal and the store, never from memory, so that the next process can continue
    after a kill at any point. The journal also lists the OSDs that still need a restart.
    """

    def __init__(self, admin: CephAdmin, catalogue: Catalogue, journal: Journal) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._journal = journal
        self._restarts = RestartsDue(journal)

    def apply(self, configuration: Configuration) -> None:
        """Set the configuration's settings; restore every other setting that was changed before.

        Raises:
            InputError: an option does not exist.
            ClusterError: the cluster refuses a value; the message is Ceph's.
        """
        daemons = running_daemons(self._admin)
        required = self._places(configuration, daemons)
        stored = stored_settings(self._admin)
        for place, value in {**self._originals(), **required}.items():
            self._bring(place, stored.get(place), value, daemons)

    def take_back(self) -> None:
        """Restore every setting that was changed.

        Raises:
            CephfitError: lists every setting that cannot be restored.
        """
        daemons = running_daemons(self._admin)
        stored = stored_settings(self._admin)
        tried = ErrorCollector()
        for place, value in self._originals().items():
            tried.make(partial(self._bring, place, stored.get(place), value, daemons))
        tried.end()

    def put(self, section: str, key: str, value: str) -> None:
        """Set one entry for cephfit's internal needs, journalled like any other; ``apply`` reverts it."""
        place = (section, key)
        stored = stored_settings(self._admin).get(place)
        if not self._catalogue.same(key, value, stored):
            self._change(place, stored, value, ())

    def take_back_one(self, section: str, key: str) -> None:
        """Restore one entry if it was changed, and remove it from the journal."""
        entry = self._journal.get(CONFIG, f"{section} {key}")
        if entry is not None:
            self._bring((section, key), stored_settings(self._admin).get((section, key)), entry.was, ())
            self._journal.forget(CONFIG, entry.place)

    def needs_restart(
        self, configuration: Configuration, restored: Mapping[Place, str | None]
    ) -> dict[int, dict[str, str]]:
        """Return the OSDs that need a restart for a configuration, each with the options and values behind it.

        Values that are already in the config store need none. The configuration's options must exist.

        Args:
            configuration: to apply.
            restored: original values that are restored where the configuration does not set the option.
        """
        keys = [*(s.key for s in configuration.within(Partition.CEPH)), *(key for _, key in restored)]
        if all(map(self._catalogue.acts_at_runtime, keys)):
            return {}
        daemons = running_daemons(self._admin)
        stored = stored_settings(self._admin)
        needs: dict[int, dict[str, str]] = {}
        for (section, key), value in {**restored, **self._places(configuration, daemons)}.items():
            now = stored.get((section, key))
            if self._catalogue.acts_at_runtime(key) or self._catalogue.same(key, value, now):
                continue
            for daemon in concerned(section, daemons):
                if daemon.kind == "osd":
                    needs.setdefault(int(daemon.id), {})[key] = "" if value is None else value
        return needs

    def undoings(self) -> tuple[Entry, ...]:
        """Return the options that ``apply`` of the default restores; the place is section and option."""
        return self._journal.entries(CONFIG)

    def forget_originals(self) -> None:
        """Remove all originals from the journal: everything is restored."""
        for entry in self._journal.entries(CONFIG):
            self._journal.forget(CONFIG, entry.place)

    def _places(self, configuration: Configuration, daemons: Sequence[Daemon]) -> dict[Place, str]:
        """Return the config store's entries for a configuration.

        A starting OSD requests its options before it reports its device class and location. A masked section comes
        too late for options that are read once at the start: the value looks right afterwards but has no effect.
        Such settings are therefore set for each OSD by name.
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
        return {place_of(entry): entry.was for entry in self._journal.entries(CONFIG)}

    def _bring(self, place: Place, now: str | None, value: str | None, daemons: Sequence[Daemon]) -> None:
        if not self._catalogue.same(place[1], value, now):
            self._change(place, now, value, daemons)

    def _change(self, place: Place, was: str | None, value: str | None, daemons: Sequence[Daemon]) -> None:
        section, key = place
        if not self._catalogue.acts_at_runtime(key):
            self._restarts.note(int(d.id) for d in concerned(section, daemons) if d.kind == "osd")
        self._journal.note(CONFIG, f"{section} {key}", was)
        if value is None:
            self._admin.command("config rm", who=section, name=key)
        else:
            # The store keeps values of options that an upgrade removed, and takes them only by force.
            force = {"force": True} if self._catalogue.find(key) is None else {}
            self._admin.command("config set", who=section, name=key, value=value, **force)

    def leftovers(
        self, configuration: Configuration, daemons: Sequence[Daemon], differences: Differences
    ) -> list[str]:
        """Return the settings of earlier configurations that a daemon still runs with, one sentence each."""
        required = self._places(configuration, daemons)
        gone = [place for place in self._originals() if place not in required]
        stored = stored_settings(self._admin) if gone else {}
        sentences = []
        for section, key in gone:
            for daemon in concerned(section, daemons):
                if daemon.kind != "osd" or not differences[daemon.name]:
                    continue  # it does not report the sources of its values
                takes = strongest([s for s, k in stored if k == key], daemon)
                expected = None if takes is None else stored[takes, key]
                runs = differences[daemon.name].get(key, {}).get("mon")
                if not self._catalogue.same(key, expected, runs):
                    sentences.append(f"{daemon.name} still runs {key} = {runs} of an earlier configuration")
        return sentences
