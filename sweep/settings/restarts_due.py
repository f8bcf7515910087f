"""Which OSDs run with a value that only a restart changes: in the journal before the value is changed."""

from collections.abc import Iterable

from cephfit.sweep.journal import Journal

_RESTART = "restart"


class RestartsDue:
    """A list of OSDs that outlives this process.

    Args:
        journal: of the target.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def note(self, osds: Iterable[int]) -> None:
        """These will have to be restarted; returns after it is on the disk."""
        for osd in osds:
            self._journal.note(_RESTART, str(osd), None)

    def due(self) -> tuple[int, ...]:
        """OSDs that have to be restarted still."""
        return tuple(sorted(int(e.place) for e in self._journal.entries(_RESTART)))

    def restarted(self, osd: int) -> None:
        """It has been restarted since."""
        self._journal.forget(_RESTART, str(osd))
