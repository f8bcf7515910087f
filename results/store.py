"""The store of runs, samples and what was concluded from them."""

import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, insert, select, update
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError

from cephfit.errors import StoreError
from cephfit.protocols import Applied
from cephfit.results import database, rows, schema
from cephfit.run import Run
from cephfit.sample import Sample, SampleKey, WorkloadSample


def kind_of(kind: str, load: str) -> str:
    """The kind of a document that was concluded from one load: those of the measurement's own have none in it."""
    return f"{kind}:{load}" if load else kind


class Store:
    """Runs and their samples in SQLite or PostgreSQL.

    Every method is one transaction. What a method has written when it returns survives SIGKILL and power loss;
    what it has not is not there at all. Several processes and threads may read and write at the same time; a
    writer waits for another one. Every method raises StoreError when the database does not do its part.
    """

    def __init__(self, engine: Engine, url: URL) -> None:
        """Use ``Store.open``."""
        self._engine = engine
        self.name = database.name_of(url)
        """Where the store is, for people: no password in it."""

    @classmethod
    def open(cls, location: str | Path, *, create: bool = False, patience_seconds: float = 30.0) -> "Store":
        """Open a store.

        Args:
            location: path of an SQLite file, or an SQLAlchemy URL.
            create: make it if it is not there.
            patience_seconds: how long to wait for another process's transaction (SQLite).

        Raises:
            StoreError: there is none, it is not a store, of another schema version, or locked.
        """
        url = database.location_of(location)
        engine = database.engine_for(url, patience_seconds=patience_seconds)
        try:
            try:
                database.prepare(engine, url, create=create)
            except (IntegrityError, StoreError) as refused:
                if not create:
                    raise
                # Another process may have made the tables in this very moment; then they are there now.
                try:
                    database.prepare(engine, url, create=False)
                except StoreError:
                    if isinstance(refused, StoreError):
                        raise refused from None
                    raise
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, url)

    def close(self) -> None:
        """Let go of the database. Safe to call twice."""
        self._engine.dispose()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_run(self, run: Run) -> None:
        """Begin a run.

        Raises:
            StoreError: there is a run of this id.
        """
        try:
            with self._writing() as connection:
                connection.execute(insert(schema.runs).values(rows.run_row(run)))
        except IntegrityError as error:
            raise StoreError(f"there is a run {run.run_id} already", where=self.name) from error

    def finish_run(self, run_id: str) -> None:
        """Say that every sample of the run's plan is in a terminal state."""
        with self._writing() as connection:
            change = update(schema.runs).where(schema.runs.c.run_id == run_id).values(finished=True)
            if connection.execute(change).rowcount == 0:
                raise self._unknown(connection, run_id)

    def runs(self) -> list[Run]:
        """All runs, newest first."""
        with self._reading() as connection:
            query = select(schema.runs).order_by(schema.runs.c.created_ns.desc(), schema.runs.c.id.desc())
            return [rows.run_of(row) for row in connection.execute(query).mappings()]

    def run(self, run_id: str | None = None) -> Run:
        """The run of this id, or the newest.

        Raises:
            StoreError: there is none; the error names those there are.
        """
        query = select(schema.runs).order_by(schema.runs.c.created_ns.desc(), schema.runs.c.id.desc()).limit(1)
        if run_id is not None:
            query = select(schema.runs).where(schema.runs.c.run_id == run_id)
        with self._reading() as connection:
            found = connection.execute(query).mappings().one_or_none()
            if found is not None:
                return rows.run_of(found)
            if run_id is not None:
                raise self._unknown(connection, run_id)
        raise StoreError(
            "the store has no runs yet", where=self.name, remedy="measure something: `cephfit sweep run`"
        )

    def unfinished_run(self, *, sweep_digest: str, target: str) -> Run | None:
        """The newest run of this sweep on this target that was not finished."""
        for run in self.runs():
            if not run.finished and run.sweep_digest == sweep_digest and run.target == target:
                return run
        return None

    def add_applied(self, run_id: str, applied: Applied, *, repeat: int, at_ns: int) -> None:
        """Keep what was read back when a configuration was applied."""
        row = {**rows.applied_row(applied), "run_id": run_id, "repeat": repeat, "at_ns": at_ns}
        with self._writing() as connection:
            self._must_know(connection, run_id)
            connection.execute(insert(schema.applied).values(row))

    def applied(self, run_id: str) -> list[tuple[int, Applied]]:
        """(repeat, what was read back) in the order of applying."""
        return [(row["repeat"], rows.applied_of(row)) for row in self._all(schema.applied, run_id)]

    def add_samples(self, run_id: str, samples: Sequence[Sample], *, fio_json: str | None) -> None:
        """Keep the samples of one fio run (one per client) and fio's own output: all of it or nothing.

        Raises:
            StoreError: one of them is there already; nothing was written.
        """
        try:
            with self._writing() as connection:
                self._must_know(connection, run_id)
                fio_run = None
                if fio_json is not None:
                    packed = {"run_id": run_id, "json_zlib": zlib.compress(fio_json.encode())}
                    key = connection.execute(insert(schema.fio_runs).values(packed)).inserted_primary_key
                    assert key is not None, "one row has one key"
                    fio_run = key[0]
                for sample in samples:
                    row = {**rows.sample_row(sample), "run_id": run_id, "fio_run": fio_run}
                    connection.execute(insert(schema.samples).values(row))
        except IntegrityError as error:
            keys = "; ".join(
                f"{k.configuration} {k.cell}{f' under {k.load}' if k.load else ''} on {k.client}, "
                f"repeat {k.repeat}, attempt {k.attempt}"
                for k in (sample.key for sample in samples)
            )
            raise StoreError(
                f"a sample is stored once, and one of these is there already: {keys}",
                where=f"{self.name}, run {run_id}",
                remedy="is another cephfit working on the same run?",
            ) from error

    def samples(self, run_id: str) -> list[Sample]:
        """All samples of a run, in the order of measuring."""
        return [rows.sample_of(row) for row in self._all(schema.samples, run_id)]

    def fio_json(self, run_id: str, key: SampleKey) -> str | None:
        """What fio itself wrote for the run that this sample is of; None if there is no such sample or output."""
        query = select(schema.fio_runs.c.json_zlib).join(schema.samples)
        query = query.where(schema.samples.c.run_id == run_id)
        for column, value in rows.key_row(key).items():
            query = query.where(schema.samples.c[column] == value)
        with self._reading() as connection:
            packed = connection.execute(query).scalar_one_or_none()
        return None if packed is None else zlib.decompress(packed).decode()

    def add_workload_sample(self, run_id: str, workload: str, sample: WorkloadSample) -> None:
        """Keep one run of the real workload.

        Raises:
            StoreError: it is there already.
        """
        row = {**rows.workload_row(sample), "run_id": run_id, "workload": workload}
        try:
            with self._writing() as connection:
                self._must_know(connection, run_id)
                connection.execute(insert(schema.workload_samples).values(row))
        except IntegrityError as error:
            raise StoreError(
                f"repeat {sample.repeat}, attempt {sample.attempt} of {workload} on {sample.configuration} "
                "is stored already",
                where=f"{self.name}, run {run_id}",
            ) from error

    def workload_samples(self, run_id: str) -> list[tuple[str, WorkloadSample]]:
        """(workload, sample) in the order of measuring."""
        return [(row["workload"], rows.workload_of(row)) for row in self._all(schema.workload_samples, run_id)]

    def put_document(self, run_id: str, kind: str, document: Mapping[str, Any]) -> None:
        """Keep a conclusion ("profile", "predictions", "verification"); earlier ones stay beneath it."""
        row = {"run_id": run_id, "kind": kind, "at_ns": time.time_ns(), "document": dict(document)}
        with self._writing() as connection:
            self._must_know(connection, run_id)
            connection.execute(insert(schema.documents).values(row))

    def document(self, run_id: str, kind: str) -> dict[str, Any] | None:
        """The latest conclusion of this kind; None if there is none."""
        table = schema.documents
        query = select(table.c.document).where(table.c.run_id == run_id, table.c.kind == kind)
        with self._reading() as connection:
            found = connection.execute(query.order_by(table.c.id.desc()).limit(1)).scalar_one_or_none()
        return None if found is None else dict(found)

    def _writing(self) -> Any:
        return database.transaction(self._engine, self.name, writing=True)

    def _reading(self) -> Any:
        return database.transaction(self._engine, self.name, writing=False)

    def _all(self, table: Table, run_id: str) -> list[rows.Row]:
        with self._reading() as connection:
            self._must_know(connection, run_id)
            query = select(table).where(table.c.run_id == run_id).order_by(table.c.id)
            return list(connection.execute(query).mappings())

    def _must_know(self, connection: Connection, run_id: str) -> None:
        query = select(schema.runs.c.id).where(schema.runs.c.run_id == run_id)
        if connection.execute(query).scalar_one_or_none() is None:
            raise self._unknown(connection, run_id)

    def _unknown(self, connection: Connection, run_id: str) -> StoreError:
        query = select(schema.runs.c.run_id).order_by(schema.runs.c.created_ns.desc())
        return self._not_among(run_id, list(connection.execute(query).scalars()))

    def _not_among(self, run_id: str, known: Sequence[str]) -> StoreError:
        remedy = f"there are: {', '.join(known)}" if known else "the store has no runs yet"
        return StoreError(f"there is no run {run_id!r}", where=self.name, remedy=remedy)
