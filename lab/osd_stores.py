"""A lab's OSDs made anew with other stores, as a configuration wants them."""

from cephfit.configuration import Configuration, Partition
from cephfit.errors import HostError, InputError
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons import osd_name
from cephfit.lab.osd_layout import filesystem_at, require_store
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.daemons import Daemon
from cephfit.sweep.greater.osd_store import OsdStore, store_of
from cephfit.sweep.greater.scopes import OSD_STORE, base_scope, strongest_for
from cephfit.sweep.journal import Journal
from cephfit.sweep.surroundings import ReadValues

_STORE = "osd store"


class LabStores:
    """Implements ``RemakesOsds``: a lab's OSDs hold nothing but what sweeps put there.

    Args:
        lab: running.
        admin: asks the OSDs what they are.
        journal: keeps what the OSDs were first.
    """

    def __init__(self, lab: Lab, admin: CephAdmin, journal: Journal) -> None:
        self._lab = lab
        self._admin = admin
        self._journal = journal

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        settings = [s for s in configuration.within(Partition.GREATER) if base_scope(s.scope) == OSD_STORE]
        if not settings:
            return ()
        heard = {s for osd in self._lab.osd_ids() for s in strongest_for(settings, self._daemon(osd)).values()}
        reasons = [f"{s} speaks to no OSD of this lab" for s in settings if s not in heard]
        try:
            for store in self._wanted(configuration).values():
                require_store(store)
                for role, place in store.placed().items():
                    if place not in self._lab.spec.limits:
                        reasons.append(
                            f"{role} on {place}: this lab has the classes {', '.join(self._lab.spec.limits)}"
                        )
        except (InputError, HostError) as error:
            reasons.append(" ".join(str(error).split()))
        return tuple(dict.fromkeys(reasons))

    def due(self, configuration: Configuration) -> tuple[int, ...]:
        wanted = self._wanted(configuration)
        return tuple(osd for osd, store in wanted.items() if store != self._lab.osd_store(osd))

    def remake(self, configuration: Configuration) -> None:
        self._remake({osd: s for osd, s in self._wanted(configuration).items() if s != self._lab.osd_store(osd)})

    def objectstores(self, configuration: Configuration) -> frozenset[str]:
        return frozenset(store.objectstore for store in self._wanted(configuration).values())

    def read_back(self, configuration: Configuration) -> ReadValues:
        values: dict[str, dict[str, object]] = {}
        mismatches: list[str] = []
        settings = [s for s in configuration.within(Partition.GREATER) if base_scope(s.scope) == OSD_STORE]
        if not settings:
            return values, mismatches
        said = {int(entry["id"]): entry for entry in self._admin.command("osd metadata")}
        for osd, wanted in self._wanted(configuration).items():
            runs = said.get(osd, {}).get("osd_objectstore", "nothing")
            on = filesystem_at(self._lab.folder / osd_name(osd))
            for key, setting in strongest_for(settings, self._daemon(osd)).items():
                got = {"objectstore": runs, "filesystem": on}.get(key, getattr(self._lab.osd_store(osd), key))
                values.setdefault(str(setting), {})[osd_name(osd)] = got
            if (runs, on) != (wanted.objectstore, wanted.filesystem):
                mismatches.append(f"{osd_name(osd)} runs {runs} on {on or 'no file system'}, not {wanted}")
        return values, mismatches

    def clear_up(self) -> None:
        if self._lab.unmade_osds():
            self._lab.remake_osds({})

    def restore(self) -> None:
        first = {
            int(entry.place.rpartition(".")[2]): OsdStore(**entry.was) for entry in self._journal.entries(_STORE)
        }
        self._remake({osd: store for osd, store in first.items() if store != self._lab.osd_store(osd)})
        for osd in first:
            self._journal.forget(_STORE, osd_name(osd))

    def _remake(self, stores: dict[int, OsdStore]) -> None:
        for osd in stores:
            self._journal.note(_STORE, osd_name(osd), self._lab.osd_store(osd).to_json())
        if stores:
            self._lab.remake_osds(stores)

    def _wanted(self, configuration: Configuration) -> dict[int, OsdStore]:
        """What each OSD is to be.

        Raises:
            InputError: settings do not go together.
        """
        settings = [s for s in configuration.within(Partition.GREATER) if base_scope(s.scope) == OSD_STORE]
        wanted = {}
        for osd in self._lab.osd_ids():
            entry = self._journal.get(_STORE, osd_name(osd))
            first = OsdStore(**entry.was) if entry else self._lab.osd_store(osd)
            chosen = strongest_for(settings, self._daemon(osd))
            wanted[osd] = store_of({key: s.value for key, s in chosen.items()}, first)
        return wanted

    def _daemon(self, osd: int) -> Daemon:
        """As the CRUSH map has it; the lab knows it also while the OSD is down."""
        host, device_class = self._lab.spec.osds[osd]
        return Daemon("osd", str(osd), device_class, {"host": f"host{host}", "root": "default"})
