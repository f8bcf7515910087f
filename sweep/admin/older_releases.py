"""Answers whose shape is another one before Nautilus (14.2), as Ceph's sources of then have it."""

from collections.abc import Mapping, Sequence
from typing import Any


def listed_pgs(said: Any) -> Sequence[Mapping[str, Any]] | None:
    """The PGs of an answer to ``pg ls``, ``pg ls-by-pool`` or ``pg ls-by-osd``; None: the manager does not know.

    Before Nautilus the answer is the list itself (``PGMap::dump_filtered_pg_stats``), and nothing at all where
    there is no PG. Since then it says whether the manager knows (``pg_ready``); for some seconds after a change of
    the map it does not.
    """
    if isinstance(said, list) or said is None:
        return said or ()
    return said.get("pg_stats", ()) if said.get("pg_ready", True) else None
