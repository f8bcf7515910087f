"""The read-only results store of the public API: runs, samples, verified runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cephfit.core.tabular import Table, Tabular, TabularSequence
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import (
    OWN_LOAD,
    PREDICTIONS_DOCUMENT,
    PROFILE_DOCUMENT,
    RUN_COLUMNS,
    Run,
    Sample,
    WorkloadSample,
)
from cephfit.results.store.sample_store import Store as ResultsStore
from cephfit.results.store.sample_store import kind_of

if TYPE_CHECKING:
    from cephfit.core.values.baseline import Baselines


class Runs(TabularSequence[Run]):
    """The runs of a store, newest first. A sequence of ``Run``.

    ``to_frame()``: one row per run: run (its id), sweep, target, created (UTC), finished, simulated.
    """

    def __init__(self, items: Sequence[Run], *, where: str) -> None:
        super().__init__(items)
        self._where = where

    def _table(self) -> Table:
        rows = tuple((r.run_id, r.sweep_name, r.target, r.created, r.finished, r.is_simulated) for r in self)
        return Table(f"{len(self)} runs in {self._where}", RUN_COLUMNS, rows)


class Samples(TabularSequence[Sample]):
    """The samples of one run, in the order of measuring: one fio run of one cell on one client each.

    ``to_frame()``: one row per sample: configuration, size, pattern, load, client, repeat, attempt, state (ok,
    failed, invalid or skipped), reason, iops, nbytes_per_s, latency_mean_ns, latency_p99_ns (None where fio gave
    no result), started (UTC), seconds.
    """

    def __init__(self, items: Sequence[Sample], *, run: Run) -> None:
        super().__init__(items)
        self._run = run

    def _table(self) -> Table:
        columns = (
            *("configuration", "size", "pattern", "load", "client", "repeat", "attempt", "state", "reason"),
            *("iops", "nbytes_per_s", "latency_mean_ns", "latency_p99_ns", "started", "seconds"),
        )
        return Table(
            f"{len(self)} samples of run {self._run.run_id}",
            columns,
            tuple(map(_row, self)),
            self._run.origin_notes,
        )


def _row(sample: Sample) -> tuple[object, ...]:
    key, m = sample.key, sample.metrics
    figures = (
        (None,) * 4
        if m is None
        else (m.iops, m.nbytes_per_s, m.latency_mean_ns, m.latency_percentiles_ns.get(99.0))
    )
    return (
        *(key.configuration, key.cell.size.name, key.cell.pattern.value, key.load, key.client),
        *(key.repeat, key.attempt, sample.state.value, sample.reason),
        *figures,
        *(_utc(sample.started_ns), (sample.finished_ns - sample.started_ns) / 1e9),
    )


class WorkloadRuns(TabularSequence[tuple[str, WorkloadSample]]):
    """The runs of real workloads on the configurations of one run (``cephfit verify``), in the order of measuring.

    A sequence of (workload, sample). ``to_frame()``: one row per run: workload, configuration, repeat, attempt,
    state, metric, value (more is better), reason, started (UTC), seconds.
    """

    def __init__(self, items: Sequence[tuple[str, WorkloadSample]], *, run: Run) -> None:
        super().__init__(items)
        self._run = run

    def _table(self) -> Table:
        columns = (
            *("workload", "configuration", "repeat", "attempt", "state", "metric", "value", "reason"),
            *("started", "seconds"),
        )
        rows = tuple(
            (
                *(workload, s.configuration, s.repeat, s.attempt, s.state.value, s.metric, s.value, s.reason),
                *(_utc(s.started_ns), (s.finished_ns - s.started_ns) / 1e9),
            )
            for workload, s in self
        )
        return Table(f"{len(self)} workload runs of run {self._run.run_id}", columns, rows, self._run.origin_notes)


class Store(Tabular):
    """A results store, open for reading. ``cephfit.open_store`` returns it; use it in a ``with`` statement.

    Threads and processes may share one store: each method is one transaction or more, and waits for a writer. A
    ``Store`` object may be used by several threads. It must not be used in a process that was forked after it was
    opened: open the store there again.

    Every argument ``run`` is a run's id or a ``Run``; None is the newest run. All methods raise StoreError if
    there is no such run, or the database does not answer.

    ``to_frame()`` is that of ``runs()``.

    Attributes:
        name: location of the store, without passwords.
    """

    def __init__(self, results: ResultsStore, location: str) -> None:
        """Use ``cephfit.open_store``."""
        self._results = results
        self._location = location
        self.name = results.name

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store: {self.name}>"

    def close(self) -> None:
        """Close the connection to the database. Safe to call twice."""
        self._results.close()

    def runs(self) -> Runs:
        """All runs, newest first."""
        return Runs(self._results.runs(), where=self.name)

    def run(self, run: str | Run | None = None) -> Run:
        """One run."""
        return self._results.run(run_id_of(run))

    def samples(self, run: str | Run | None = None) -> Samples:
        """All samples of a run, including failed, invalid and skipped ones."""
        found = self.run(run)
        return Samples(self._results.samples(found.run_id), run=found)

    def workload_runs(self, run: str | Run | None = None) -> WorkloadRuns:
        """Runs of real workloads on the configurations of a run; empty without ``cephfit verify``."""
        found = self.run(run)
        return WorkloadRuns(self._results.workload_samples(found.run_id), run=found)

    def baselines(self, run: str | Run | None = None, *, load: str = OWN_LOAD) -> Baselines:
        """Return the rates of a run: as ``cephfit.read_baselines``.

        Raises:
            InputError: the run has no such load.
        """
        from cephfit._api.functions import read_baselines

        return read_baselines(self, run, load=load)

    def profile(self, run: str | Run | None = None, *, load: str = OWN_LOAD) -> Profile | None:
        """Return the profile that ``cephfit map`` or ``cephfit verify`` stored with a run; None if there is none.

        Raises:
            InputError: the stored profile cannot be read.
        """
        found = self.run(run).run_id
        document = self._results.document(found, kind_of(PROFILE_DOCUMENT, load))
        return None if document is None else Profile.from_json(document, where=f"profile of run {found}")

    def predictions(self, run: str | Run | None = None, *, load: str = OWN_LOAD) -> PredictionSet | None:
        """The predictions that ``cephfit map`` or ``cephfit verify`` stored with a run; None if there are none.

        Raises:
            InputError: the stored predictions cannot be read.
        """
        found = self.run(run).run_id
        document = self._results.document(found, kind_of(PREDICTIONS_DOCUMENT, load))
        return (
            None
            if document is None
            else PredictionSet.from_json(document, where=f"run {found}: stored predictions")
        )

    def _table(self) -> Table:
        return self.runs()._table()


def run_id_of(run: str | Run | None) -> str | None:
    """Return the id of a run given as id or ``Run``; None for the newest."""
    return run.run_id if isinstance(run, Run) else run


def location_of(store: str | os.PathLike[str] | Store) -> str:
    """Return the path or URL of a store given as location or ``Store``."""
    return store._location if isinstance(store, Store) else os.fspath(store)


def _utc(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)
