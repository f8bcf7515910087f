"""Stores that an earlier cephfit wrote are read and written by this one, whatever happens on the way."""

import gzip
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from example_run import FIO_JSON, RUN_ID
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import OperationalError

from cephfit.cli.main import main
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.results.store import migrations
from cephfit.results.store.sample_store import Store
from cephfit.results.store.schema import FIRST_VERSION, SCHEMA_VERSION, TABLES

GOLDEN = Path(__file__).parent / "golden" / "store_version_1.sql"
"""A store as version 1 wrote it, in SQL."""
GOLDEN_0_1_0 = Path(__file__).parents[1] / "golden" / "version_0_1_0" / "store.sql.gz"
"""A store as cephfit 0.1.0 wrote it: version 2."""
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


def store_of_0_1_0(path: Path) -> Path:
    with sqlite3.connect(path) as database:
        database.executescript(gzip.decompress(GOLDEN_0_1_0.read_bytes()).decode())
    database.close()
    return path


OLD_STORES = pytest.mark.parametrize("old", [old_store, store_of_0_1_0])


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


@OLD_STORES
def test_a_migrated_store_is_built_like_a_new_one(tmp_path: Path, old: Callable[[Path], Path]) -> None:
    Store.open(tmp_path / "new.sqlite", create=True).close()
    upgraded = old(tmp_path / "old.sqlite")
    Store.open(upgraded).close()

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

    assert build(upgraded) == build(tmp_path / "new.sqlite")


def differences(path: Path) -> list[object]:
    """What Alembic would still change in a store to bring it to today's tables."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), TABLES)
    engine.dispose()
    return list(found)


@OLD_STORES
def test_every_change_of_a_table_has_a_step(tmp_path: Path, old: Callable[[Path], Path]) -> None:
    path = old(tmp_path / "old.sqlite")
    assert differences(path)
    before = rows_of(path)
    Store.open(path).close()
    assert differences(path) == []
    assert rows_of(path) == before


def test_each_version_after_the_first_has_one_step() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    steps = [int(step.revision) for step in scripts.walk_revisions()]
    assert steps == list(range(SCHEMA_VERSION, FIRST_VERSION, -1))


def test_alembic_is_imported_only_for_an_upgrade(tmp_path: Path) -> None:
    """It takes longer to import than a store takes to open."""
    path = store_of_0_1_0(tmp_path / "old.sqlite")
    script = (
        "import sys; from cephfit.results.store.sample_store import Store\n"
        "with Store.open(sys.argv[1], create=True): print('alembic' in sys.modules)"
    )
    opened = [
        subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True)
        for file in (path, path, tmp_path / "new.sqlite")
    ]
    assert [done.stdout for done in opened] == ["True\n", "False\n", "False\n"]


def test_a_store_that_lacks_only_indexes_is_used_without_them_where_they_cannot_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store_of_0_1_0(tmp_path / "old.sqlite")

    def full(connection: object) -> int:
        raise OperationalError("CREATE INDEX", {}, Exception("database or disk is full"))

    monkeypatch.setattr(migrations, "bring_up_to_date", full)
    with Store.open(path) as store:
        assert store.samples(store.run().run_id)
    assert version_of(path) == 2
    monkeypatch.undo()
    Store.open(path).close()
    assert version_of(path) == SCHEMA_VERSION


def test_a_read_only_store_that_lacks_only_indexes_is_read_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store_of_0_1_0(tmp_path / "old.sqlite")
    before = path.read_bytes()
    monkeypatch.setattr("cephfit.results.store.store_connection.why_file_is_read_only", lambda url: "an archive")
    monkeypatch.setattr("tempfile.TemporaryDirectory", None)  # no copy is made
    with Store.open(path) as store:
        assert store.samples(store.run().run_id)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_newer_store_is_refused_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "newer.sqlite"
    Store.open(path, create=True).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE cephfit_schema_version SET version = 99")
    database.close()
    with pytest.raises(SystemExit) as ended:
        main(["runs", "list", "--store", str(path)])
    assert ended.value.code == 2
    assert "use the newer cephfit that wrote it" in capsys.readouterr().err
    assert version_of(path) == 99


def open_it(path: Path) -> None:
    Store.open(path).close()


@pytest.mark.parametrize("version", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_several_processes_open_the_same_old_store_at_once(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.sqlite"
    old_store(path, times=200) if version == 1 else store_of_0_1_0(path)
    before = rows_of(path)
    openers = [PROCESSES.Process(target=open_it, args=(path,)) for _ in range(4)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(300)
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
