"""The columns of an exported CSV that say where its figures were measured, so that a file goes by itself."""

import csv
from collections.abc import Sequence
from pathlib import Path

from cephfit.run import Run

ORIGIN_COLUMNS = ("target", "simulated")
"""The target's name; ``true`` where a model made the figures and no disk did, else ``false``."""


def origin_of(run: Run | None) -> Sequence[str]:
    """The cells of ``ORIGIN_COLUMNS``; empty ones where no run is known."""
    return ("", "") if run is None else (run.target, str(run.is_simulated).lower())


def says_simulated(path: Path) -> bool | None:
    """Whether any figure of a CSV file is marked as simulated; None where the file does not tell of one.

    A file that is no CSV does not tell either: reading its figures says what is wrong with it.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = [name.strip().lower() for name in next(reader, [])]
            if "simulated" not in names:
                return None
            at = names.index("simulated")
            told = {row[at].strip().lower() for row in reader if at < len(row)} & {"true", "false"}
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    return "true" in told if told else None
