"""The flag ``noout`` of single OSDs: while one is down for its restart, its data shall not move elsewhere."""

from collections.abc import Mapping
from typing import Any

from cephfit.protocols import CephAdmin
from cephfit.sweep.journal import Journal

_NOOUT = "noout"


def osds_of_map(admin: CephAdmin) -> dict[int, Mapping[str, Any]]:
    """The OSDs that the cluster has, each as ``osd dump`` tells it."""
    return {int(osd["osd"]): osd for osd in admin.command("osd dump")["osds"]}


class NooutFlags:
    """Sets flags and takes them back; each is in the journal before it is set.

    Args:
        admin: sends commands.
        journal: of the target.
    """

    def __init__(self, admin: CephAdmin, journal: Journal) -> None:
        self._admin = admin
        self._journal = journal

    def set(self, osd: int, found: Mapping[str, Any]) -> None:
        """Flag an OSD, unless somebody else has.

        Args:
            osd: number.
            found: it, of ``osds_of_map``.
        """
        if "noout" not in found.get("state", ()):
            self._journal.note(_NOOUT, str(osd), None)
            self._admin.command("osd add-noout", ids=[str(osd)])

    def take_back(self) -> None:
        """Take the flags away, but those of OSDs that are down still: their data would begin to move."""
        entries = self._journal.entries(_NOOUT)
        there = osds_of_map(self._admin) if entries else {}
        for entry in entries:
            found = there.get(int(entry.place))
            if found is not None and not found["up"]:
                continue
            if found is not None:  # one that is no more took its flag with it
                self._admin.command("osd rm-noout", ids=[entry.place])
            self._journal.forget(_NOOUT, entry.place)
