"""Runs that were continued with other versions of programs than they were begun with."""

from collections.abc import Mapping, Sequence
from typing import Any

from cephfit.documents import CONTINUATIONS_DOCUMENT
from cephfit.results import words
from cephfit.results.store import Store


def keep_continuation(store: Store, run_id: str, changes: Sequence[str], *, at_ns: int) -> None:
    """Keep what has changed since a run began; what was kept before already is not kept again.

    Args:
        changes: in words, such as ``versions.ceph changed from 16.2.15 to 17.2.7``.
        at_ns: wall clock, ns since the epoch.
    """
    kept = _kept(store, run_id)
    known = {change for entry in kept for change in entry["changes"]}
    if new := [change for change in changes if change not in known]:
        document = {"continued": [*kept, {"at_ns": at_ns, "changes": new}]}
        store.put_document(run_id, CONTINUATIONS_DOCUMENT, document)


def continuations_of(store: Store, run_id: str) -> tuple[str, ...]:
    """A sentence for each time that a run went on with other programs, in order."""
    return tuple(
        f"The run was continued at {words.moment(entry['at_ns'])} with other programs than it was begun with: "
        f"{'; '.join(entry['changes'])}. Its figures are of both, and differences between them may be differences "
        "between the programs."
        for entry in _kept(store, run_id)
    )


def _kept(store: Store, run_id: str) -> list[Mapping[str, Any]]:
    return list((store.document(run_id, CONTINUATIONS_DOCUMENT) or {}).get("continued", ()))
