"""Copies of runs between stores, inside the transactions of the caller."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update

from cephfit.core.errors import StoreError
from cephfit.core.values.sample import MEASURING_DOCUMENT
from cephfit.results.store import schema

_BATCH = 500
"""Rows per INSERT."""

_KEYS: Mapping[str, tuple[str, ...]] = {
    schema.applied.name: ("configuration", "repeat", "at_ns"),
    schema.samples.name: ("configuration", "size", "pattern", "client", "repeat", "attempt", "load"),
    schema.workload_samples.name: ("workload", "configuration", "repeat", "attempt"),
    schema.documents.name: ("kind", "at_ns"),
}
"""Columns that identify a row within its run."""

_IDENTITY = ("sweep_digest", "target", "seed", "created_ns")
"""Columns in which two copies of one run agree; facts and ``finished`` change while it is measured."""

_OWN = ("id", "run_id", "fio_run")
"""Columns whose values belong to one store, or are the same for all rows."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What one run brought into another store.

    Attributes:
        run_id: of the run.
        is_new: whether the store did not have the run.
        n_samples: added samples of cells.
        n_others: other added rows: applied configurations, runs of workloads, documents.
    """

    run_id: str
    is_new: bool
    n_samples: int
    n_others: int

    @property
    def is_change(self) -> bool:
        """Whether anything was added."""
        return self.is_new or bool(self.n_samples or self.n_others)


def merge_run(source: Connection, target: Connection, run_id: str, *, where: str) -> Merged:
    """Add to ``target`` what it lacks of a run; a second call adds nothing.

    Args:
        source: reads the store that has the run.
        target: a writing transaction; the caller commits or rolls it back.
        run_id: of the run.
        where: name of the target's store, for errors.

    Raises:
        StoreError: both have a run of this id, or a row of this key, with different content.
    """
    is_new = _merge_row_of_run(source, target, run_id, where)
    added = {
        table.name: _merge_rows(source, target, table, run_id, where, is_new=is_new)
        for table in (schema.applied, schema.samples, schema.workload_samples, schema.documents)
    }
    n_samples = added.pop(schema.samples.name)
    return Merged(run_id, is_new, n_samples, sum(added.values()))


def _merge_row_of_run(source: Connection, target: Connection, run_id: str, where: str) -> bool:
    """Add the run itself, or mark it finished if the source's copy is; return whether it was added."""
    query = select(schema.runs).where(schema.runs.c.run_id == run_id)
    theirs = source.execute(query).mappings().one()
    own = target.execute(query).mappings().one_or_none()
    if own is None:
        target.execute(insert(schema.runs), {k: v for k, v in theirs.items() if k != "id"})
        return True
    if any(own[column] != theirs[column] for column in _IDENTITY):
        raise StoreError(
            f"there is a run {run_id} already, and it is another one",
            where=where,
            remedy="nothing was written; `cephfit runs rm` deletes the one that you do not need",
        )
    if theirs["finished"] and not own["finished"]:
        target.execute(update(schema.runs).where(schema.runs.c.run_id == run_id).values(finished=True))
    return False


def _merge_rows(
    source: Connection, target: Connection, table: Table, run_id: str, where: str, *, is_new: bool
) -> int:
    """Add the rows that the target lacks, in the source's order; return their number."""
    known = {} if is_new else {_key(table, row): _content(row) for row in _rows(target, table, run_id)}
    lacking = _lacking(_rows(source, table, run_id), table, known, where)
    numbers: dict[int | None, int] = {}  # each store numbers its fio runs
    n = 0
    while batch := list(islice(lacking, _BATCH)):
        if table is schema.samples:
            numbers |= _copy_fio_runs(source, target, {row["fio_run"] for row in batch} - set(numbers))
            batch = [{**row, "fio_run": numbers.get(row["fio_run"])} for row in batch]
        target.execute(insert(table), batch)
        n += len(batch)
    return n


def _rows(connection: Connection, table: Table, run_id: str) -> Iterator[Mapping[str, Any]]:
    query = select(table).where(table.c.run_id == run_id).order_by(table.c.id)
    for row in connection.execute(query.execution_options(yield_per=_BATCH)).mappings():
        yield dict(row)


def _lacking(
    rows: Iterable[Mapping[str, Any]], table: Table, known: Mapping[tuple[Any, ...], int], where: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows whose keys are not known, without their numbers."""
    for row in rows:
        if row.get("kind") == MEASURING_DOCUMENT:
            continue  # a process of one store, not of the other
        key = _key(table, row)
        if key not in known:
            yield {name: value for name, value in row.items() if name != "id"}
        elif known[key] != _content(row):
            raise StoreError(
                f"run {row['run_id']}: {', '.join(map(str, key))} is in both stores with different content",
                where=where,
                remedy="nothing was written; the run was continued in both stores: keep one, `cephfit runs rm` "
                "deletes the other",
            )


def _key(table: Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEYS[table.name])


def _content(row: Mapping[str, Any]) -> int:
    """Hash what a row says, so that a run of a million samples fits into memory."""
    return hash(repr(sorted((name, value) for name, value in row.items() if name not in _OWN)))


def _copy_fio_runs(source: Connection, target: Connection, asked: Iterable[int | None]) -> dict[int | None, int]:
    """Copy outputs of fio; return the source's number to the target's."""
    wanted = sorted({number for number in asked if number is not None})
    table = schema.fio_runs
    query = select(table).where(table.c.id.in_(wanted)).order_by(table.c.id)
    rows = [dict(row) for row in source.execute(query).mappings()]
    if not rows:
        return {}
    new = insert(table).returning(table.c.id, sort_by_parameter_order=True)
    numbers = target.execute(new, [{k: v for k, v in row.items() if k != "id"} for row in rows]).scalars()
    return {row["id"]: number for row, number in zip(rows, numbers, strict=True)}
