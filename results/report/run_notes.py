"""Notes on a run: what limits its figures, which readers must know before they trust them.

- Continuations: the run was continued with other program versions than it was started with.
- Different rounds: not all configurations were measured in the same rounds.
- A/A controls: configurations that are the default under another name. They measure the noise floor.
- Falling rates: runs whose second half was slower than the first.
- Stalls: cells in which few accesses took most of the time.
- Bottlenecks: the resource that limited a run, from the telemetry of hosts and daemons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.protocols import Applied
from cephfit.core.statistics.sample_columns import OK, P75, Rows, SampleColumns
from cephfit.core.statistics.variance import Table
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Pattern
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.sample import CONTINUATIONS_DOCUMENT, IMPORTED, SIMULATED, STOPPING_DOCUMENT, Sample
from cephfit.results.report import formatting
from cephfit.results.statistics.summary_statistics import AgainstDefault
from cephfit.results.store.sample_store import Store


def run_document(location: str, run_id: str | None) -> dict[str, Any]:
    """Return the origin of figures; None for what a CSV file does not state.

    Exported CSV files state whether the figures are simulated. ``stopping`` means that repeats were taken only
    until a question was decided. ``continuations`` are sentences on other program versions. ``falling`` is a
    sentence on rates that were not steady, ``stalls`` one on cells in which few accesses took most of the time;
    both are empty without any.

    Args:
        location: of a store or a CSV file.
        run_id: of the run in the store; the newest if None.
    """
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
            "stalls": None,
        }
    with Store.open(location) as store:
        run = store.run(run_id)
        stopping = store.document(run.run_id, STOPPING_DOCUMENT) is not None
        continuations = list(continuations_of(store, run.run_id))
        falling = rates_still_falling(store.samples(run.run_id, evidence_like=FALLING_EVIDENCE))
        stalls = stalls_note(store.samples(run.run_id, mean_over_p75=STALL))
    return {
        "run": run.run_id,
        "simulated": run.is_simulated,
        "imported": run.is_imported,
        "finished": run.finished,
        "stopping": stopping,
        "continuations": continuations,
        "falling": falling,
        "stalls": stalls,
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
    if document.get("stalls"):
        notes.append(f"STALLS: {document['stalls']}")
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


def keep_continuation(store: Store, run_id: str, changes: Sequence[str], *, at_ns: int) -> None:
    """Store what has changed since a run began; a change that is stored already is not stored again.

    Args:
        changes: as text, such as ``versions.ceph changed from 16.2.15 to 17.2.7``.
        at_ns: wall clock, ns since the epoch.
    """
    kept = _kept(store, run_id)
    known = {change for entry in kept for change in entry["changes"]}
    if new := [change for change in changes if change not in known]:
        document = {"continued": [*kept, {"at_ns": at_ns, "changes": new}]}
        store.put_document(run_id, CONTINUATIONS_DOCUMENT, document)


def continuations_of(store: Store, run_id: str) -> tuple[str, ...]:
    """Return a sentence for each continuation of a run with other program versions, in order."""
    return tuple(
        f"The run was continued at {formatting.moment(entry['at_ns'])} with other program versions than it began "
        f"with: {'; '.join(entry['changes'])}. Its figures are from both, so differences between them may come "
        "from the versions."
        for entry in _kept(store, run_id)
    )


def _kept(store: Store, run_id: str) -> list[Mapping[str, Any]]:
    return list((store.document(run_id, CONTINUATIONS_DOCUMENT) or {}).get("continued", ()))


ROUNDS_OF_CELLS = (
    "Not all configurations were measured in the same rounds. Rates and latencies are means over all rounds of a "
    "configuration. A ratio to the default uses the rounds that both have, or that a third configuration "
    "connects, so it may differ from the quotient of the two rates. Without such rounds the ratio is that "
    "quotient and has no interval."
)
LATENCY_OF_MIX = (
    "Latency is the mean and the 99th percentile over all clients, each with an interval by itself, of the mix "
    "rounded to the 20 cells, under the load of the measurement. Predictions and what is served use the profile's "
    "sizes and depths where it has them, so their times per access may differ from it."
)
ROUNDS_OF_WORKLOADS = (
    "Not all configurations were measured in the same rounds. The default's rate is the mean over all of its "
    "rounds. The rate of another configuration is the default's rate times its ratio to the default in the rounds "
    "that both have, or that a third configuration connects."
)


def same_rounds(baselines: Baselines) -> bool:
    """Return whether, in each cell, all configurations with figures were measured in the same rounds."""
    return all(blocks.whole for blocks in Table.of(baselines, baselines.configurations).blocks)


@dataclass(frozen=True, slots=True)
class Controls:
    """The difference of the default from itself, as the A/A controls show it.

    Attributes:
        names: of the controls.
        points: largest distance of a control's prediction from 100; None without a prediction.
        cell_points: per cell of the baselines, the largest distance of a control's rate from the default's = 100,
            within the rounds that both have, as in the heat map.
    """

    names: tuple[str, ...]
    points: float | None
    cell_points: Mapping[str, float]

    @property
    def worst_cell(self) -> tuple[str, float] | None:
        """The cell in which the default differed most from itself."""
        return max(self.cell_points.items(), key=lambda item: item[1], default=None)


def names_of_controls(applied: Iterable[tuple[int, Applied]]) -> tuple[str, ...]:
    """Return the applied configurations without settings, except the default."""
    found = {a.configuration for _, a in applied if a.ok and not a.read_back}
    return tuple(sorted(found - {DEFAULT_CONFIGURATION}))


def controls_of(
    applied: Iterable[tuple[int, Applied]], baselines: Baselines, predictions: PredictionSet | None
) -> Controls | None:
    """Return the A/A controls of a run; None where it has none."""
    names = names_of_controls(applied)
    if not names:
        return None
    against, cells = AgainstDefault.of(baselines), dict[str, float]()
    for configuration, cell in baselines.cells:
        if configuration in names and (ratio := against.ratio(configuration, cell)) is not None:
            cells[str(cell)] = max(cells.get(str(cell), 0.0), abs(100 * ratio - 100))
    predicted = {p.configuration: p.relative for p in predictions.predictions} if predictions else {}
    distances = [abs(predicted[name] - 100) for name in names if name in predicted]
    return Controls(names, max(distances, default=None), cells)


_CAUSES_NAMED = 3


@dataclass(frozen=True, slots=True)
class BottleneckRow:
    """One configuration.

    Attributes:
        configuration: name.
        causes: per pattern of ``Bottlenecks.patterns``, the causes and their shares of the runs.
        example: the finding on a run with the most frequent cause.
    """

    configuration: str
    causes: tuple[str, ...]
    example: str


@dataclass(frozen=True, slots=True)
class Bottlenecks:
    """Configurations x patterns.

    Attributes:
        patterns: fio's names.
        rows: in the order of first appearance.
        n_runs: runs with telemetry.
        n_unsteady: samples whose rate was recorded over time and was not steady.
        n_followed: samples whose rate was recorded over time.
    """

    patterns: tuple[str, ...]
    rows: tuple[BottleneckRow, ...]
    n_runs: int
    n_unsteady: int
    n_followed: int


def bottlenecks_of(samples: Iterable[Sample], *, load: str) -> Bottlenecks | None:
    """Return what limited the ok runs of a load; None without telemetry."""
    findings: dict[str, dict[Pattern, list[Mapping[str, Any]]]] = {}
    followed = []
    columns = SampleColumns.of(samples)
    ok = columns.rows_under(load)
    for row, evidence in columns.evidence_with("steadiness", "used", rows=ok[columns.state[ok] == OK]):
        if (steadiness := evidence.get("steadiness")) is not None:
            followed.append(bool(steadiness["steady"]))
        if (used := evidence.get("used")) and (found := used.get("bottleneck")):
            patterns = findings.setdefault(columns.configurations[columns.configuration[row]], {})
            patterns.setdefault(columns.cells[columns.cell[row]].pattern, []).append(found)
    seen = [p for p in Pattern if any(p in patterns for patterns in findings.values())]
    if not seen:
        return None
    rows = [_row(name, [patterns.get(p, []) for p in seen]) for name, patterns in findings.items()]
    n_runs = sum(len(found) for patterns in findings.values() for found in patterns.values())
    return Bottlenecks(tuple(p.value for p in seen), tuple(rows), n_runs, followed.count(False), len(followed))


FALLING_EVIDENCE = ('%"unsteady": true%', '%"unsteady":true%', '%"attained": false%', '%"attained":false%')
"""Patterns of ``Store.samples`` for all samples that ``rates_still_falling`` may name, in JSON with and without
spaces."""


def rates_still_falling(samples: Iterable[Sample], rows: Rows | None = None) -> str:
    """Return a sentence on the ok samples whose rate was not steady; empty if there are none.

    Args:
        rows: of the samples to look at; None: all.
    """
    columns = SampleColumns.of(samples)
    rows = np.arange(len(columns)) if rows is None else rows
    places = []
    for row, evidence in columns.evidence_with("halves", "steady", rows=rows[columns.state[rows] == OK]):
        halves, steady = evidence.get("halves"), evidence.get("steady")
        # A measurement with `steady` has a limit of its own.
        if not steady["attained"] if steady else bool(halves and halves["unsteady"]):
            places.append(_place(columns, row))
    if not places:
        return ""
    return (
        f"Rates that were still falling: {_first_of(places)}. The second half of these runs was slower "
        "than the first, as where a cache fills up. The storage behind it is slower than these rates. Measure "
        "longer, or add `steady` to the measurement."
    )


STALL = 1.5
"""Mean latency over its 75th percentile from which at most a quarter of the accesses took most of the time: the
others took at most 0.75 / 1.5 of it."""

_STALLED_SAMPLES = 2
"""Stalls that only one sample of a cell shows may be chance."""


def stalls_note(samples: Iterable[Sample], rows: Rows | None = None) -> str:
    """Return a sentence on the cells in which few accesses took most of the time; empty if there are none.

    On disks that are slow only at a limit of I/Os per second, cells at full speed stall, and real workloads waited
    less than such cells say (docs/evidence.md).

    Args:
        rows: of the samples to look at; None: all.
    """
    columns = SampleColumns.of(samples)
    rows = np.arange(len(columns)) if rows is None else rows
    p75_ns = columns.percentile_ns(P75)[rows]
    stalled = rows[(columns.state[rows] == OK) & (columns.latency_mean_ns[rows] >= STALL * p75_ns)]
    count = Counter(_place(columns, row) for row in stalled)
    often = [place for place, n in count.items() if n >= _STALLED_SAMPLES]
    if not often:
        return ""
    return (
        f"A quarter of the accesses, or fewer, took most of the time: {_first_of(often)}. So does storage "
        "that stalls only at a limit, such as a quota of I/Os per second, or a cache that serves the other "
        "accesses. A workload that leaves pauses, or uses more disks at the same time than a cell, may wait less "
        "than these cells say. Verify the prediction on a few configurations."
    )


_PLACES_SHOWN = 6


def _first_of(places: Iterable[str]) -> str:
    """Return the first few places, each once, and the number of the others."""
    different = list(dict.fromkeys(places))
    more = f" and {len(different) - _PLACES_SHOWN} more" if len(different) > _PLACES_SHOWN else ""
    return f"{', '.join(different[:_PLACES_SHOWN])}{more}"


def _place(columns: SampleColumns, row: int) -> str:
    load = columns.loads[columns.load[row]]
    name, cell = columns.configurations[columns.configuration[row]], columns.cells[columns.cell[row]]
    return f"{name} {cell}{f' under {load}' if load else ''}"


def _row(name: str, by_pattern: list[list[Mapping[str, Any]]]) -> BottleneckRow:
    every = [found for some in by_pattern for found in some]
    most = Counter(found["what"] for found in every).most_common(1)[0][0]
    example = next(found["sentence"] for found in every if found["what"] == most)
    return BottleneckRow(name, tuple(map(_causes, by_pattern)), example)


def _causes(found: list[Mapping[str, Any]]) -> str:
    counts = Counter(one["what"] for one in found).most_common(_CAUSES_NAMED)
    return ", ".join(f"{what} {100 * n / len(found):.0f} %" for what, n in counts)
