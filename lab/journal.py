"""A lab's journal while a process works with it: a change is on the disk before anything is done by it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from cephfit.lab.registry import Record


class LabJournal:
    """The record of one lab, as this process last wrote or read it.

    Args:
        folder: the lab's.
        record: what lies there.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        self._folder = folder
        self.record = record

    def change(self, **fields: Any) -> None:
        """Write down other values of fields of ``Record``."""
        self.record = replace(self.record, **fields)
        self.record.write(self._folder)

    def read_again(self) -> Record:
        """What another process may have written since; what was known before where the journal is gone."""
        self.record = Record.read(self._folder) or self.record
        return self.record
