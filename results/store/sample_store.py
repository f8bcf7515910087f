"""The store of runs, samples and conclusions."""

import hashlib
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Table, Text, cast, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from cephfit.core.errors import InputError, StoreError
from cephfit.core.protocols import Applied
from cephfit.core.values.cells import FileCell, stored_cell
from cephfit.core.values.sample import (
    IMPORTED_DOCUMENT,
    MEASURING_DOCUMENT,
    TARGETS_DOCUMENT,
    Run,
    Sample,
    SampleKey,
    State,
    WorkloadSample,
    without_collector,
)
from cephfit.results.store import schema
from cephfit.results.store.measuring_process import measuring_process
from cephfit.results.store.run_copies import Merged, merge_run
from cephfit.results.store.store_connection import StoreConnection

if TYPE_CHECKING:
    from cephfit.core.statistics.sample_columns import SampleColumns

LATEST = "latest"
"""Name of the newest run on the command line."""

_FORMER_KINDS = {TARGETS_DOCUMENT: "beside"}
"""Kinds of documents to their names in stores of version 0.1.0, which are still read."""
_ROWS = 4096
"""Rows that are fetched together, so that a run is never in memory twice."""
_TABLES_OF_A_RUN = (schema.documents, schema.workload_samples, schema.samples, schema.fio_runs, schema.applied)
"""In the order in which rows can be deleted: samples refer to fio runs."""


_KIND_LENGTH = 64
"""Characters of a kind that PostgreSQL takes (``schema.documents``)."""


def kind_of(kind: str, load: str) -> str:
    """Return the kind of a document about one load, workload or profile; a long one ends with a digest.

    The measurement's own load adds no suffix.
    """
    whole = f"{kind}:{load}" if load else kind
    if len(whole) <= _KIND_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: _KIND_LENGTH - 9]}-{digest}"


def _kept_output(connection: Connection, run_id: str, text: str) -> int:
    """Store the output of one run of fio, and return its number."""
    packed = {"run_id": run_id, "json_zlib": zlib.compress(text.encode())}
    key = connection.execute(insert(schema.fio_runs), packed).inserted_primary_key
    assert key is not None, "one row has one key"
    return int(key[0])


def _sample_rows(samples: Iterable[Sample], run_id: str, fio_run: int | None) -> list[dict[str, Any]]:
    return [{**schema.sample_row(sample), "run_id": run_id, "fio_run": fio_run} for sample in samples]


def _are_of_run(connection: Connection, run_id: str) -> ColumnElement[bool]:
    """Return the condition of a run's samples, by their numbers if no other run has one between them.

    SQLite then reads them in the order of the file, without an index.
    """
    table = schema.samples
    of_run = table.c.run_id == run_id
    ends = select(func.min(table.c.id), func.max(table.c.id), func.count()).where(of_run)
    first, last, n = connection.execute(ends).one()
    return table.c.id.between(first, last) if n and last - first + 1 == n else of_run


class Store(StoreConnection):
    """Runs and their samples in SQLite or PostgreSQL.

    Every method is one transaction. When it returns, its data survives SIGKILL and power loss; otherwise nothing
    of it is stored. Several processes and threads may read and write at the same time; a writer waits for
    another one. Every method raises StoreError when the database fails.
    """

    def add_run(self, run: Run) -> None:
        """Add a run.

        Raises:
            StoreError: a run of this id exists.
        """
        try:
            with self._writing() as connection:
                connection.execute(insert(schema.runs), schema.run_row(run))
        except IntegrityError as error:
            raise StoreError(f"there is a run {run.run_id} already", where=self.name) from error

    def add_imported(
        self, run: Run, outputs: Iterable[tuple[str, Sequence[Sample]]], document: Mapping[str, Any]
    ) -> None:
        """Add a finished run with all of its samples, in one transaction.

        Args:
            run: not in the store yet.
            outputs: JSON text with the content of each file, and the samples that it gave.
            document: which files these are; of the kind ``IMPORTED_DOCUMENT``.

        Raises:
            StoreError: a run of this id exists, or a sample occurs twice; nothing was written.
        """
        try:
            with self._writing() as connection:
                connection.execute(insert(schema.runs), schema.run_row(run))
                rows = []
                for text, samples in outputs:
                    fio_run = _kept_output(connection, run.run_id, text)
                    rows += _sample_rows(samples, run.run_id, fio_run)
                if rows:
                    connection.execute(insert(schema.samples), rows)
                kept = {"run_id": run.run_id, "kind": IMPORTED_DOCUMENT, "at_ns": time.time_ns()}
                connection.execute(insert(schema.documents), {**kept, "document": dict(document)})
        except IntegrityError as error:
            raise StoreError(f"there is a run {run.run_id} already", where=self.name) from error

    def finish_run(self, run_id: str) -> None:
        """Record that every sample of the run's plan is in a terminal state."""
        with self._writing() as connection:
            change = update(schema.runs).where(schema.runs.c.run_id == run_id).values(finished=True)
            if connection.execute(change).rowcount == 0:
                raise self._unknown(connection, run_id)

    def runs(self) -> list[Run]:
        """Return all runs, newest first."""
        with self._reading() as connection:
            query = select(schema.runs).order_by(schema.runs.c.created_ns.desc(), schema.runs.c.id.desc())
            return [schema.run_of(row) for row in connection.execute(query).mappings()]

    def run(self, run_id: str | None = None) -> Run:
        """Return the run of this id, or the newest.

        Raises:
            StoreError: there is none; the error names the existing runs.
        """
        query = select(schema.runs).order_by(schema.runs.c.created_ns.desc(), schema.runs.c.id.desc()).limit(1)
        if run_id is not None:
            query = select(schema.runs).where(schema.runs.c.run_id == run_id)
        with self._reading() as connection:
            found = connection.execute(query).mappings().one_or_none()
            if found is not None:
                return schema.run_of(found)
            if run_id is not None:
                raise self._unknown(connection, run_id)
        raise StoreError(
            "the store has no runs yet", where=self.name, remedy="measure something: `cephfit sweep run`"
        )

    def find_run(self, name: str) -> Run:
        """Return the run with this id, with the only id that begins with ``name``, or the ``latest``.

        Raises:
            StoreError: there is none, or there are several; the error names them.
        """
        known = [run.run_id for run in self.runs()]
        if name in known:
            return self.run(name)
        if name == LATEST:
            return self.run()
        found = [run_id for run_id in known if run_id.startswith(name)] if name else []
        if len(found) > 1:
            raise StoreError(
                f"{len(found)} runs have an id that begins with {name!r}",
                where=self.name,
                remedy=f"give more of it: {', '.join(found)}",
            )
        if not found:
            raise self._not_among(name, known)
        return self.run(found[0])

    def counts(self, run_id: str) -> dict[tuple[str, State], int]:
        """Return the number of stored samples of a run by configuration and state; every attempt counts."""
        columns = (schema.samples.c.configuration, schema.samples.c.state)
        query = select(*columns, func.count()).where(schema.samples.c.run_id == run_id).group_by(*columns)
        with self._reading() as connection:
            self._must_know(connection, run_id)
            return {(name, State(state)): n for name, state, n in connection.execute(query)}

    def n_tried(self, run_id: str) -> int:
        """Return the number of planned samples that were tried at least once: those have an attempt 0."""
        table = schema.samples
        query = select(func.count()).select_from(table).where(table.c.run_id == run_id, table.c.attempt == 0)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def documents(self, run_id: str) -> list[tuple[str, int]]:
        """Return (kind, time in ns since the epoch) of a run's documents, oldest first."""
        return [(row["kind"], row["at_ns"]) for row in self._all(schema.documents, run_id)]

    def delete_run(self, run_id: str, *, force: bool = False) -> None:
        """Delete a run with all of its samples and documents, in one transaction.

        Args:
            force: delete it also if a process of another machine may be measuring it.

        Raises:
            StoreError: there is no such run, a running process measures it, or the store is read-only.
        """
        kinds = schema.documents
        query = select(kinds.c.document).where(kinds.c.run_id == run_id, kinds.c.kind == MEASURING_DOCUMENT)
        with self._writing() as connection:
            self._must_know(connection, run_id)
            recorded = connection.execute(query.order_by(kinds.c.id.desc()).limit(1)).scalar_one_or_none()
            process = measuring_process(recorded)
            if process is not None and (process.is_seen or not force):
                raise process.refusal(run_id, self.name)
            for table in (*_TABLES_OF_A_RUN, schema.runs):
                connection.execute(delete(table).where(table.c.run_id == run_id))

    def copy_run(self, run_id: str, into: "Store") -> None:
        """Copy a run with all of its samples and documents into another store, in one transaction.

        Raises:
            StoreError: there is no such run, or the other store has a run of this id.
        """
        with self._reading() as source, into._writing() as target:
            self._must_know(source, run_id)
            if target.execute(select(schema.runs.c.id).where(schema.runs.c.run_id == run_id)).first() is not None:
                raise StoreError(f"there is a run {run_id} already", where=into.name)
            merge_run(source, target, run_id, where=into.name)

    def merge(self, other: "Store") -> list[Merged]:
        """Add all runs, samples and documents of another store that this one lacks, in one transaction.

        A second merge adds nothing. Runs that this store lacks, because they were deleted, are added again.

        Returns:
            What each run of the other store added, newest first.

        Raises:
            StoreError: both stores have a run or a sample of the same key with different content.
        """
        runs = [run.run_id for run in other.runs()]
        try:
            with other._reading() as source, self._writing() as target:
                # PostgreSQL: a second merge waits here, and then finds what the first one added.
                target.execute(select(schema.schema_version).with_for_update())
                # The oldest first, because the number of a run is its order of insertion.
                return [merge_run(source, target, run_id, where=self.name) for run_id in reversed(runs)][::-1]
        except IntegrityError as error:
            raise StoreError(
                "another process wrote some of the same samples during the merge",
                where=self.name,
                remedy="nothing was merged; run the command again",
            ) from error

    def unfinished_run(self, *, sweep_digest: str, target: str) -> Run | None:
        """Return the newest unfinished run of this sweep on this target."""
        for run in self.runs():
            if not run.finished and run.sweep_digest == sweep_digest and run.target == target:
                return run
        return None

    def add_applied(self, run_id: str, applied: Applied, *, repeat: int, at_ns: int) -> None:
        """Store what was read back when a configuration was applied."""
        row = {**schema.applied_row(applied), "run_id": run_id, "repeat": repeat, "at_ns": at_ns}
        with self._writing() as connection:
            self._must_know(connection, run_id)
            connection.execute(insert(schema.applied), row)

    def applied(self, run_id: str) -> list[tuple[int, Applied]]:
        """Return (repeat, applied configuration as read back) in the order of applying."""
        return [(row["repeat"], schema.applied_of(row)) for row in self._all(schema.applied, run_id)]

    def add_samples(self, run_id: str, samples: Sequence[Sample], *, fio_json: str | None) -> None:
        """Store the samples of one fio run (one per client) and fio's own output: all or nothing.

        Raises:
            StoreError: one of them is stored already; nothing was written.
        """
        try:
            with self._writing() as connection:
                self._must_know(connection, run_id)
                fio_run = None
                if fio_json is not None:
                    fio_run = _kept_output(connection, run_id, fio_json)
                if rows := _sample_rows(samples, run_id, fio_run):
                    connection.execute(insert(schema.samples), rows)
        except IntegrityError as error:
            keys = "; ".join(
                f"{k.configuration} {k.cell}{f' under {k.load}' if k.load else ''} on {k.client}, "
                f"repeat {k.repeat}, attempt {k.attempt}"
                for k in (sample.key for sample in samples)
            )
            raise StoreError(
                f"one of these samples is stored already: {keys}",
                where=f"{self.name}, run {run_id}",
                remedy="is another cephfit working on the same run?",
            ) from error

    def samples(
        self, run_id: str, *, evidence_like: Sequence[str] = (), mean_over_p75: float | None = None
    ) -> "SampleColumns":
        """Return the samples of a run in the 20 cells, in the order of measuring, as columns.

        Args:
            run_id: of the run.
            evidence_like: only samples whose evidence, as JSON text, matches one of these patterns of SQL's LIKE;
                empty: all. This takes a fraction of the time of reading all samples.
            mean_over_p75: only samples whose mean latency is at least this many times the 75th percentile;
                None: all.

        Raises:
            InputError: the run measured operations on files, which no prediction uses: see ``file_samples``.
        """
        if self.measures_files(run_id):
            raise InputError(
                f"run {run_id} measured operations on files, not accesses of block devices",
                where=self.name,
                remedy=f"see its rates with `cephfit report --run {run_id} -o FILE`, or choose another run: --run",
            )
        return self.every_sample(run_id, evidence_like=evidence_like, mean_over_p75=mean_over_p75)

    def measures_files(self, run_id: str) -> bool:
        """Return whether a run measured operations on files; a run without samples did not."""
        table = schema.samples
        query = select(table.c.size, table.c.pattern).where(table.c.run_id == run_id).limit(1)
        with self._reading() as connection:
            self._must_know(connection, run_id)
            row = connection.execute(query).one_or_none()
        return row is not None and isinstance(stored_cell(*row, where=self.name), FileCell)

    def file_samples(self, run_id: str) -> Sequence[Sample]:
        """Return the samples of operations on files of a run, in the order of measuring; none of another run."""
        return self.every_sample(run_id) if self.measures_files(run_id) else []

    def every_sample(
        self, run_id: str, *, evidence_like: Sequence[str] = (), mean_over_p75: float | None = None
    ) -> "SampleColumns":
        """Return all samples of a run, in the order of measuring; chosen as by ``samples``."""
        from cephfit.results.store.stored_columns import columns_of

        table = schema.samples
        query = select(*schema.SAMPLE_COLUMNS).order_by(table.c.id)
        if evidence_like:
            query = query.where(or_(*(cast(table.c.evidence, Text).like(pattern) for pattern in evidence_like)))
        if mean_over_p75 is not None:
            from cephfit.core.statistics.sample_columns import P75

            p75 = table.c.latency_percentiles_ns[repr(P75)].as_float()
            query = query.where(table.c.latency_mean_ns >= mean_over_p75 * p75)
        with self._reading() as connection, without_collector():
            self._must_know(connection, run_id)
            query = query.where(_are_of_run(connection, run_id))
            fetched = connection.execute(query.execution_options(yield_per=_ROWS))
            return columns_of(fetched.partitions())

    def latest_samples(self, run_id: str, n: int, *, without_ok: bool = False) -> list[Sample]:
        """Return the last ``n`` samples of a run, the newest first.

        Args:
            run_id: of the run.
            n: the most samples to return.
            without_ok: only those that failed, are invalid, or were skipped.
        """
        from cephfit.results.store.stored_columns import columns_of

        table = schema.samples
        query = select(*schema.SAMPLE_COLUMNS).where(table.c.run_id == run_id)
        if without_ok:
            query = query.where(table.c.state != State.OK.value)
        with self._reading() as connection:
            self._must_know(connection, run_id)
            rows = connection.execute(query.order_by(table.c.id.desc()).limit(n)).all()
        return list(columns_of([rows] if rows else []))

    def fio_json(self, run_id: str, key: SampleKey) -> str | None:
        """Return fio's own output for a sample's fio run; None if there is no such sample or output."""
        query = select(schema.fio_runs.c.json_zlib).join(schema.samples)
        query = query.where(schema.samples.c.run_id == run_id)
        for column, value in schema.key_row(key).items():
            query = query.where(schema.samples.c[column] == value)
        with self._reading() as connection:
            packed = connection.execute(query).scalar_one_or_none()
        return None if packed is None else zlib.decompress(packed).decode()

    def add_workload_sample(self, run_id: str, workload: str, sample: WorkloadSample) -> None:
        """Store one run of the real workload.

        Raises:
            StoreError: it is stored already.
        """
        row = {**schema.workload_row(sample), "run_id": run_id, "workload": workload}
        try:
            with self._writing() as connection:
                self._must_know(connection, run_id)
                connection.execute(insert(schema.workload_samples), row)
        except IntegrityError as error:
            raise StoreError(
                f"repeat {sample.repeat}, attempt {sample.attempt} of {workload} on {sample.configuration} "
                "is stored already",
                where=f"{self.name}, run {run_id}",
            ) from error

    def workload_samples(self, run_id: str) -> list[tuple[str, WorkloadSample]]:
        """Return (workload, sample) in the order of measuring."""
        return [(row["workload"], schema.workload_of(row)) for row in self._all(schema.workload_samples, run_id)]

    def put_document(self, run_id: str, kind: str, document: Mapping[str, Any]) -> None:
        """Store a document ("profile", "predictions", "verification"); earlier ones of its kind are kept."""
        row = {"run_id": run_id, "kind": kind, "at_ns": time.time_ns(), "document": dict(document)}
        with self._writing() as connection:
            self._must_know(connection, run_id)
            connection.execute(insert(schema.documents), row)

    def document(self, run_id: str, kind: str) -> dict[str, Any] | None:
        """Return the latest document of this kind; None if there is none."""
        table = schema.documents
        kinds = (kind, _FORMER_KINDS[kind]) if kind in _FORMER_KINDS else (kind,)
        query = select(table.c.document).where(table.c.run_id == run_id, table.c.kind.in_(kinds))
        with self._reading() as connection:
            found = connection.execute(query.order_by(table.c.id.desc()).limit(1)).scalar_one_or_none()
        return None if found is None else dict(found)

    def _all(self, table: Table, run_id: str) -> list[schema.Row]:
        with self._reading() as connection:
            self._must_know(connection, run_id)
            query = select(table).where(table.c.run_id == run_id).order_by(table.c.id)
            return list(connection.execute(query).mappings())
