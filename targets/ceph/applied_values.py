"""The original values of a permanent configuration, and their moves between two journals.

A move copies entries from one file to the other, then removes them from the first. A marker in the target's
journal precedes both, so that the next process finishes a move that was killed. An entry that stayed in both
journals would be restored twice, the second time over a value that an admin has set since.
"""

from cephfit.core.journal import Entry, Journal

APPLIED_FILE = "applied.jsonl"
"""Name of the journal with the original values of a permanent configuration, in the target's folder."""
_APPLIED = "applied configuration"
_KEEPING = "configuration to keep"
_TAKING_IN = "configuration to undo"


class AppliedValues:
    """The two journals of a target.

    Args:
        journal: of the target; `restore` undoes what is in it.
        applied: of the permanent configuration.
    """

    def __init__(self, journal: Journal, applied: Journal) -> None:
        self._journal = journal
        self._applied = applied

    def in_place(self) -> str:
        """Return the name of the configuration that was applied; empty without one."""
        entries = self._applied.entries()
        named = [e.place for e in (*self._journal.entries(_KEEPING), *self._applied.entries(_APPLIED))]
        return named[0] if named else "an earlier configuration" if entries else ""

    def entries(self) -> tuple[Entry, ...]:
        """Return the original values of the applied configuration, oldest first."""
        moving = self._journal.entries() if self.is_keeping() else ()
        found = {(e.kind, e.place): e for e in (*self._applied.entries(), *moving)}
        return tuple(e for e in found.values() if e.kind not in (_APPLIED, _KEEPING))

    def is_keeping(self) -> bool:
        """Return whether ``keep`` was begun and not finished: what is in the target's journal stays."""
        return bool(self._journal.entries(_KEEPING))

    def keep(self, name: str, settings: list[str]) -> None:
        """Move everything out of the target's journal: the configuration stays."""
        self._journal.note(_KEEPING, name, settings)
        self.finish_move()

    def take_in(self) -> None:
        """Move the original values of the applied configuration to the target's journal, to be undone."""
        if name := self.in_place():
            self._journal.note(_TAKING_IN, name, None)
        self.finish_move()

    def finish_move(self) -> None:
        """Finish a move that was begun, also by a process that was killed. Safe to call at any time."""
        for marker in self._journal.entries(_KEEPING):
            self._keep(marker)
        for marker in self._journal.entries(_TAKING_IN):
            self._take_in(marker)

    def _keep(self, marker: Entry) -> None:
        moved = [e for e in self._journal.entries() if e != marker]
        for entry in moved:
            self._applied.note(entry.kind, entry.place, entry.was)
        for entry in self._applied.entries(_APPLIED):
            if entry.place != marker.place:
                self._applied.forget(_APPLIED, entry.place)
        self._applied.note(_APPLIED, marker.place, marker.was)
        for entry in moved:
            self._journal.forget(entry.kind, entry.place)
        self._journal.forget(marker.kind, marker.place)
        self._journal.finish()

    def _take_in(self, marker: Entry) -> None:
        for entry in self.entries():
            self._journal.note(entry.kind, entry.place, entry.was)
        for entry in self._applied.entries():
            self._applied.forget(entry.kind, entry.place)
        self._applied.finish()
        self._journal.forget(marker.kind, marker.place)
