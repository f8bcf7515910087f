"""What the API and the pages have in common: uploads, questions, the store, and its runs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from starlette.requests import Request

from cephfit.core.errors import RefusedError
from cephfit.core.units import MIB, NS_PER_MS
from cephfit.core.values.cells import Op
from cephfit.core.values.sample import Run, Sample, State
from cephfit.operations.measuring.run_status import run_description, run_summary
from cephfit.results.store.sample_store import Store
from cephfit.server.upload import receive
from cephfit.server.workload_answer import Question
from cephfit.server.workloads import READ_OPTIONS, Workload, Workloads
from cephfit.traces.formats import titles
from cephfit.traces.readers.block_events.block_layer import Action

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
        """Return a run by its id.

        Raises:
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


_CSV_NBYTES = 64 * MIB
CHOICES = {
    "format": tuple(sorted(titles())),
    "assume_op": tuple(op.value for op in Op),
    "action": tuple(event.value for event in Action),
    "describe": ("fast", "full"),
    "parts": ("yes",),
}
"""Fields of an upload that have only these values."""


@dataclass(frozen=True, slots=True)
class Service:
    """One server: the runs of its store, its workloads, and its limit of uploads in bytes."""

    runs: StoredRuns
    workloads: Workloads
    most_nbytes: int

    async def upload(self, request: Request) -> Workload:
        """Receive the files of a workload, and begin to read them.

        Raises:
            RefusedError: see ``receive``; or a field has an unknown value.
        """
        with self.workloads.arriving() as new:
            got = await receive(request, new.files, self.most_nbytes, fields=READ_OPTIONS)
            for key, value in got.fields.items():
                if key in CHOICES and value not in CHOICES[key]:
                    raise RefusedError(
                        400, f"{value[:50]!r} is unknown", where=key, remedy=f"choose of {', '.join(CHOICES[key])}"
                    )
            new.names, new.options, new.nbytes = got.names, got.fields, got.nbytes
        self.workloads.add(new)
        return new

    async def upload_baselines(self, request: Request, workload: Workload) -> None:
        """Receive a CSV file of baselines for a workload; it replaces an earlier one.

        Raises:
            RefusedError: see ``receive``.
        """
        folder = workload.folder / "arriving"
        try:
            folder.mkdir()
        except OSError:
            raise RefusedError(409, "a file of baselines is arriving already", remedy="try again") from None
        try:
            await receive(request, folder, min(_CSV_NBYTES, self.most_nbytes), most_files=1)
            (file,) = folder.iterdir()
            file.rename(workload.baselines)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def answer(
        self,
        workload: Workload,
        *,
        from_csv: bool,
        run_id: str | None,
        load: str,
        model: str,
        confidence: float,
        objectives: tuple[str, ...],
    ) -> dict[str, Any]:
        """Return the document and the HTML of ``workload_answer.answered``.

        Raises:
            RefusedError: it cannot be answered.
        """
        if from_csv and not workload.baselines.is_file():
            raise RefusedError(409, "no CSV file of baselines was uploaded", remedy="upload one, or choose a run")
        location = str(workload.baselines) if from_csv else self.runs.location
        question = Question(location, None if from_csv else run_id, load, model, confidence, objectives)
        return await run_sync(self.workloads.answer, workload, asdict(question))


def store_location(text: str) -> str:
    """Return the location of a store as every process finds it; ``text``: a path or an SQLAlchemy URL."""
    return text if "://" in text else str(Path(text).expanduser().resolve())
