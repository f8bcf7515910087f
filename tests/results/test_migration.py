"""Stores that an earlier cephfit wrote are read and written by this one, whatever happens on the way."""

import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from example_run import FIO_JSON, RUN_ID
from sqlalchemy import create_engine, inspect

from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results.store.sample_store import Store
from cephfit.results.store.schema import SCHEMA_VERSION

GOLDEN = Path(__file__).parent / "golden" / "store_version_1.sql"
"""A store as version 1 wrote it, in SQL."""
PROCESSES = multiprocessing.get_context("spawn")


def old_store(path: Path, *, times: int = 1) -> Path:
    """A store of version 1; with ``times`` its samples are there so often, under further repeats."""
    with sqlite3.connect(path) as database:
        database.executescript(GOLDEN.read_text())
        columns = [row[1] for row in database.execute("PRAGMA table_info(cephfit_samples)")]
        others = ", ".join(c for c in columns if c not in ("id", "repeat"))
        for more in range(1, times):
            database.execute(
                f"INSERT INTO cephfit_samples (repeat, {others}) SELECT repeat + {100 * more}, {others} "
                "FROM cephfit_samples WHERE repeat < 100"
            )
    database.close()
    return path


def rows_of(path: Path) -> list[tuple[object, ...]]:
    """Every sample by the columns of version 1."""
    with sqlite3.connect(path) as database:
        names = "run_id, fio_run, configuration, size, pattern, client, repeat, attempt, state, iops, evidence"
        rows = database.execute(f"SELECT {names} FROM cephfit_samples ORDER BY id").fetchall()
    database.close()
    return rows


def version_of(path: Path) -> int:
    with sqlite3.connect(path) as database:
        (version,) = database.execute("SELECT version FROM cephfit_schema_version").fetchone()
    database.close()
    return int(version)


def a_sample(load: str) -> Sample:
    key = SampleKey("A", Cell.parse("4K-randread"), "c0", 99, load=load)
    return Sample(key, State.OK, Metrics(1.0, 4096.0, 2, 2, 1.0), 1, 2)


def test_a_store_of_version_1_keeps_every_sample_and_takes_loads(tmp_path: Path) -> None:
    path = old_store(tmp_path / "old.sqlite")
    before = rows_of(path)
    with Store.open(path) as store:  # also where it is only to be read
        samples = store.samples(RUN_ID)
        assert {s.key.load for s in samples} == {""}
        assert store.fio_json(RUN_ID, samples[0].key) == FIO_JSON
        store.add_samples(RUN_ID, [a_sample("")], fio_json=None)
        store.add_samples(RUN_ID, [a_sample("deep")], fio_json=None)
        assert [s.key.load for s in store.samples(RUN_ID)[-2:]] == ["", "deep"]
    assert version_of(path) == SCHEMA_VERSION
    assert rows_of(path)[:-2] == before
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    database.close()


def test_a_migrated_store_is_built_like_a_new_one(tmp_path: Path) -> None:
    Store.open(tmp_path / "new.sqlite", create=True).close()
    old = old_store(tmp_path / "old.sqlite")
    Store.open(old).close()

    def build(path: Path) -> object:
        found = inspect(create_engine(f"sqlite:///{path}"))
        return {
            table: (
                [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)],
                [u["column_names"] for u in found.get_unique_constraints(table)],
                sorted(str(i["column_names"]) for i in found.get_indexes(table)),
                sorted(str(k["constrained_columns"]) for k in found.get_foreign_keys(table)),
            )
            for table in found.get_table_names()
        }

    assert build(old) == build(tmp_path / "new.sqlite")


def open_it(path: Path) -> None:
    Store.open(path).close()


def test_several_processes_open_the_same_old_store_at_once(tmp_path: Path) -> None:
    path = old_store(tmp_path / "old.sqlite", times=200)
    before = rows_of(path)
    openers = [PROCESSES.Process(target=open_it, args=(path,)) for _ in range(4)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(60)
        assert opener.exitcode == 0
    assert version_of(path) == SCHEMA_VERSION
    assert rows_of(path) == before


def open_when_told(path: Path, ready: Path) -> None:
    """Imports done, it says so and opens the store: only the migration itself is left to be killed."""
    ready.touch()
    Store.open(path).close()
    ready.with_suffix(".done").touch()


@pytest.mark.slow
def test_sigkill_while_a_store_is_migrated_loses_nothing(tmp_path: Path) -> None:
    original = old_store(tmp_path / "original.sqlite", times=2500)
    before = rows_of(original)
    rng = random.Random(4)
    versions = []
    for attempt in range(12):
        path = tmp_path / f"old{attempt}.sqlite"
        shutil.copy(original, path)
        ready = tmp_path / f"ready{attempt}"
        opener = PROCESSES.Process(target=open_when_told, args=(path, ready))
        opener.start()
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.4))
        assert opener.pid is not None
        os.kill(opener.pid, signal.SIGKILL)
        opener.join(30)
        versions.append((version_of(path), ready.with_suffix(".done").exists()))
        assert rows_of(path) == before
        with Store.open(path) as store:
            assert len(store.samples(RUN_ID)) == len(before)
        assert version_of(path) == SCHEMA_VERSION
        path.unlink()
    assert any(version == 1 and not done for version, done in versions), versions
