"""Notes on a run that readers must know before they trust figures from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.run import IMPORTED, SIMULATED, STOPPING_DOCUMENT


def run_document(location: str, run_id: str | None) -> dict[str, Any]:
    """Return the origin of figures; None for what a CSV file does not state.

    Exported CSV files state whether the figures are simulated. ``stopping`` means that repeats were taken only
    until a question was decided. ``continuations`` are sentences on other program versions. ``falling`` is a
    sentence on rates that were not steady; empty without any.

    Args:
        location: of a store or a CSV file.
        run_id: of the run in the store; the newest if None.
    """
    from cephfit.results.statistics.run_caveats import FALLING_EVIDENCE, continuations_of, rates_still_falling
    from cephfit.results.store.sample_store import Store
    from cephfit.results.tables.baseline_csv import is_marked_simulated, is_store

    if not is_store(location):
        simulated = is_marked_simulated(Path(location))
        return {
            "run": None,
            "simulated": simulated,
            "imported": None,
            "finished": None,
            "stopping": None,
            "continuations": [],
            "falling": None,
        }
    with Store.open(location) as store:
        run = store.run(run_id)
        stopping = store.document(run.run_id, STOPPING_DOCUMENT) is not None
        continuations = list(continuations_of(store, run.run_id))
        falling = rates_still_falling(store.samples(run.run_id, evidence_like=FALLING_EVIDENCE))
    return {
        "run": run.run_id,
        "simulated": run.is_simulated,
        "imported": run.is_imported,
        "finished": run.finished,
        "stopping": stopping,
        "continuations": continuations,
        "falling": falling,
    }


def run_notes(document: dict[str, Any]) -> list[str]:
    """Return the same as notes for the reader; empty if there is nothing to note."""
    notes = []
    if document["simulated"]:
        notes.append(SIMULATED)
    if document.get("imported"):
        notes.append(IMPORTED)
    if document["run"] is None and document["simulated"] is None:
        notes.append(
            "This file does not state how it was measured. Rows of the same run are read as one round in which "
            "all configurations took turns. If they were measured one after the other, changes over time appear "
            "as differences between configurations"
        )
    if document["finished"] is False:
        notes.append("UNFINISHED: the sweep is not finished; the missing samples may change the answer")
    if document["stopping"]:
        from cephfit.results.report.summary import STOPPED_EARLY

        notes.append(f"STOPPED EARLY: {STOPPED_EARLY[0].lower()}{STOPPED_EARLY[1:]}")
    notes += [f"OTHER VERSIONS: {sentence}" for sentence in document.get("continuations", ())]
    if document.get("falling"):
        notes.append(f"NOT STEADY: {document['falling']}")
    return notes


@contextmanager
def may_be_unfinished(document: dict[str, Any]) -> Iterator[None]:
    """Replace the remedy of an error about missing figures if the sweep is unfinished.

    Raises:
        InputError: as raised in the block, with that remedy.
    """
    try:
        yield
    except InputError as error:
        if document["finished"] is not False:
            raise
        remedy = (
            "the run is not finished: continue it with the same `cephfit sweep run`, then run this command again"
        )
        raise InputError(error.what, where=error.where, remedy=remedy) from None
