"""Runs of the store as the page shows them, also of a sweep that another process is measuring."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cephfit.core.units import NS_PER_MS
from cephfit.core.values.run import Run
from cephfit.core.values.sample import Sample, State
from cephfit.operations.run_status import run_description, run_summary
from cephfit.results.store.sample_store import Store
from cephfit.server.refused_error import RefusedError

LATEST_SAMPLES = 20
_PATIENCE_SECONDS = 5.0


class StoredRuns:
    """Reads the store again for every question, so that it sees what other processes write.

    Args:
        location: of the store, which may not exist yet.
    """

    def __init__(self, location: str) -> None:
        self.location = location

    @contextmanager
    def _open(self) -> Iterator[Store]:
        with Store.open(self.location, patience_seconds=_PATIENCE_SECONDS) as store:
            yield store

    def _run(self, store: Store, run_id: str) -> Run:
        """Raises:
        RefusedError: there is no such run.
        """
        for run in store.runs():
            if run.run_id == run_id:
                return run
        raise RefusedError(
            404, f"there is no run {run_id!r}", where=store.name, remedy="choose one of the list of runs"
        )

    def summaries(self) -> list[dict[str, Any]]:
        """Return the summary of every run, newest first.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._open() as store:
            return [run_summary(store, run) for run in store.runs()]

    def names(self) -> list[str]:
        """Return the ids of all runs, newest first. Raises as ``summaries``."""
        with self._open() as store:
            return [run.run_id for run in store.runs()]

    def description(self, run_id: str) -> dict[str, Any]:
        """Return what a run was: versions, settings of its configurations, samples, saved documents.

        Raises:
            StoreError: the store cannot be read.
            RefusedError: there is no such run.
        """
        with self._open() as store:
            return run_description(store, self._run(store, run_id))

    def progress(self, run_id: str) -> dict[str, Any]:
        """Return the summary of a run with its latest samples, and the latest of those that do not count.

        Raises as ``description``.
        """
        with self._open() as store:
            run = self._run(store, run_id)
            latest = store.latest_samples(run_id, LATEST_SAMPLES)
            voided = store.latest_samples(run_id, LATEST_SAMPLES, without_ok=True)
            by_configuration: dict[str, dict[str, int]] = {}
            for (name, state), n in store.counts(run_id).items():
                by_configuration.setdefault(name, {state.value: 0 for state in State})[state.value] = n
            return {
                **run_summary(store, run),
                "by_configuration": [{"name": name, **n} for name, n in by_configuration.items()],
                "latest": [_sample(sample) for sample in latest],
                "voided": [_sample(sample) for sample in voided],
            }


def _sample(sample: Sample) -> dict[str, Any]:
    key, metrics = sample.key, sample.metrics
    return {
        "configuration": key.configuration,
        "cell": str(key.cell),
        "client": key.client,
        "repeat": key.repeat,
        "attempt": key.attempt,
        "load": key.load,
        "state": sample.state.value,
        "reason": sample.reason,
        "iops": None if metrics is None else metrics.iops,
        "latency_ms": None if metrics is None else metrics.latency_mean_ns / NS_PER_MS,
        "finished_ns": sample.finished_ns,
    }
