"""The same store in PostgreSQL: nothing in it may be SQLite's own."""

import multiprocessing
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from example_run import RUN_ID, example_assessment, example_run, example_samples, fill
from sqlalchemy import create_engine

from cephfit.core.errors import StoreError
from cephfit.results.report.report_build import read_findings
from cephfit.results.report.run_notes import FALLING_EVIDENCE
from cephfit.results.store.sample_store import Store, kind_of
from cephfit.results.store.schema import TABLES


def _program(name: str) -> str | None:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(versions[-1]) if versions else None)


pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(_program("initdb") is None, reason="there is no PostgreSQL on this machine"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of a database in a fresh server on loopback; PostgreSQL does not run as root."""
    pytest.importorskip("psycopg", reason="the driver is not installed: pip install 'cephfit[postgres]'")
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="cephfit-pg-") as folder:
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        data = f"{folder}/data"
        run = {"check": True, "user": user, "stdout": subprocess.DEVNULL, "cwd": folder}
        initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
        assert initdb is not None and pg_ctl is not None
        subprocess.run([initdb, "-D", data, "-U", "cephfit", "-A", "trust", "-N"], **run)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        subprocess.run([pg_ctl, "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start"], **run)
        try:
            yield f"postgresql+psycopg://cephfit:hunter2@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([pg_ctl, "-D", data, "-m", "immediate", "stop"], **run)


def test_the_whole_run_goes_in_and_comes_out(server: str) -> None:
    with Store.open(server, create=True) as store:
        fill(store)
        expected = [s for group in example_samples() for s in group]
        assert store.samples(RUN_ID) == expected
        falling = replace(
            expected[0], key=replace(expected[0].key, attempt=7), evidence={"halves": {"unsteady": True}}
        )
        store.add_samples(RUN_ID, [falling], fio_json="{}")
        assert store.samples(RUN_ID, evidence_like=FALLING_EVIDENCE) == [falling]
        latencies = {"latency_mean_ns": 300.0, "latency_percentiles_ns": {75.0: 100.0}}
        stalled = replace(
            falling, key=replace(falling.key, attempt=8), metrics=replace(falling.metrics, **latencies)
        )
        store.add_samples(RUN_ID, [stalled], fio_json="{}")
        assert stalled in list(store.samples(RUN_ID, mean_over_p75=3))
        assert stalled not in list(store.samples(RUN_ID, mean_over_p75=3.1))
        with pytest.raises(StoreError, match="stored already"):
            store.add_samples(RUN_ID, expected[:2], fio_json=None)
        with pytest.raises(StoreError, match="there is a run"):
            store.add_run(example_run())
        with pytest.raises(StoreError, match="cannot be stored"):
            store.put_document(RUN_ID, "profile", {"share": float("nan")})
        kinds = [kind_of("probe", "a-long-name-of-a-profile" * n) for n in (1, 5, 6)]
        for kind in kinds:  # such as the probe of a profile with a long name
            store.put_document(RUN_ID, kind, {"of": kind})
        assert [store.document(RUN_ID, kind) for kind in kinds] == [{"of": kind} for kind in kinds]
    with Store.open(server) as store:
        findings = read_findings(store)
    assert findings.assessment == example_assessment()
    assert findings.run.finished and findings.fio is not None
    assert "hunter2" not in findings.store


def test_a_database_without_a_store_or_without_a_server_is_said(server: str) -> None:
    with pytest.raises(StoreError, match="not a store of results"):
        Store.open(server.replace("/postgres", "/template1"))
    with pytest.raises(StoreError) as caught:
        Store.open("postgresql+psycopg://me:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(caught.value)


def _open(url: str) -> None:
    Store.open(url).close()


def _differences(url: str) -> list[object]:
    """What Alembic would still change in a store to bring it to today's tables."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), TABLES)
    engine.dispose()
    return list(found)


def test_a_writer_that_does_not_own_the_tables_uses_a_store_without_the_newest_index(server: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("CREATE DATABASE team")
        admin.execute("CREATE ROLE member LOGIN")
    url = server.replace("/postgres", "/team")
    with Store.open(url, create=True) as store:
        fill(store)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("DROP INDEX ix_cephfit_samples_progress")
        admin.execute("UPDATE cephfit_schema_version SET version = 2")
        admin.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO member")
        admin.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO member")
    with Store.open(url.replace("cephfit:hunter2@", "member@"), writing=True) as store:
        store.add_run(example_run(run_id="a-member's"))
    assert _differences(url)
    with Store.open(url) as store:  # the owner
        assert len(store.runs()) == 2
    assert _differences(url) == []


@pytest.mark.slow
def test_a_store_of_version_1_is_brought_up_to_date_with_its_samples(server: str) -> None:
    """Version 1 is made here by taking away what version 2 brought."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("CREATE DATABASE older")
    url = server.replace("/postgres", "/older")
    with Store.open(url, create=True) as store:
        fill(store)
        before = store.samples(RUN_ID)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("ALTER TABLE cephfit_samples DROP COLUMN load")  # and with it the constraint that names it
        admin.execute(
            "ALTER TABLE cephfit_samples ADD CONSTRAINT cephfit_each_sample_once UNIQUE "
            "(run_id, configuration, size, pattern, client, repeat, attempt)"
        )
        admin.execute("DROP INDEX ix_cephfit_samples_progress")
        admin.execute("UPDATE cephfit_schema_version SET version = 1")
    openers = [multiprocessing.get_context("spawn").Process(target=_open, args=(url,)) for _ in range(3)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(120)
    assert [opener.exitcode for opener in openers] == [0] * 3
    assert _differences(url) == []
    with Store.open(url) as store:
        assert store.samples(RUN_ID) == before
        loaded = [replace(s, key=replace(s.key, load="deep")) for s in before[:2]]
        store.add_samples(RUN_ID, loaded, fio_json=None)
        with pytest.raises(StoreError, match="under deep"):
            store.add_samples(RUN_ID, loaded, fio_json=None)


def test_a_user_without_write_rights_reads_and_is_refused_when_writing(server: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("CREATE DATABASE archive")
        admin.execute("CREATE ROLE reader LOGIN")
    url = server.replace("/postgres", "/archive")
    with Store.open(url, create=True) as store:
        fill(store)
        assert store.why_read_only() == ""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    reading = url.replace("cephfit:hunter2@", "reader@")
    with Store.open(reading) as store:
        assert store.samples(RUN_ID)
        assert read_findings(store).assessment == example_assessment()
        assert "no permission to write to cephfit_" in store.why_read_only()
        with pytest.raises(StoreError, match="read-only"):
            store.put_document(RUN_ID, "profile", {})
        with pytest.raises(StoreError, match="read-only"):
            store.delete_run(RUN_ID)
    with pytest.raises(StoreError, match=r"(?s)read-only: the database user has no permission.*another store"):
        Store.open(reading, writing=True)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("UPDATE cephfit_schema_version SET version = 1")
    with pytest.raises(StoreError, match=r"(?s)schema version 1.*no permission to write.*upgrades it"):
        Store.open(reading)


def test_a_run_is_found_counted_copied_and_deleted_as_a_whole(server: str, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("CREATE DATABASE runs")
    url = server.replace("/postgres", "/runs")
    with Store.open(url, create=True) as store, Store.open(tmp_path / "copy.sqlite", create=True) as copy:
        fill(store)
        store.add_run(example_run(run_id="other"))
        samples = store.samples(RUN_ID)
        assert store.find_run(RUN_ID[:-2]).run_id == RUN_ID and store.find_run("latest").run_id == "other"
        assert sum(store.counts(RUN_ID).values()) == len(samples)
        assert store.n_tried(RUN_ID) == len({replace(s.key, attempt=0) for s in samples})
        store.copy_run(RUN_ID, copy)
        assert copy.samples(RUN_ID) == samples and copy.run() == store.run(RUN_ID)
        assert copy.fio_json(RUN_ID, samples[0].key) == store.fio_json(RUN_ID, samples[0].key)
        assert [kind for kind, _ in copy.documents(RUN_ID)] == [kind for kind, _ in store.documents(RUN_ID)]
        with pytest.raises(StoreError, match="there is a run"):
            store.copy_run(RUN_ID, copy)
        store.delete_run(RUN_ID)
        assert [run.run_id for run in store.runs()] == ["other"]
        copy.copy_run(RUN_ID, store)
        assert store.samples(RUN_ID) == samples


def _write_and_merge(url: str, number: int, folder: Path, together: Barrier) -> None:
    """Add a run with samples, one group at a time; then all writers merge the same store at once."""
    with Store.open(url) as store, Store.open(folder / "shared.sqlite") as shared:
        store.add_run(replace(example_run(), run_id=f"own-{number}"))
        for group in example_samples():
            store.add_samples(f"own-{number}", group, fio_json="{}")
        together.wait(120)
        store.merge(shared)


def test_concurrent_writers_and_mergers_lose_and_double_nothing(server: str, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("CREATE DATABASE busy")
    url = server.replace("/postgres", "/busy")
    Store.open(url, create=True).close()
    with Store.open(tmp_path / "shared.sqlite", create=True) as shared:
        fill(shared)
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(4)
    writers = [context.Process(target=_write_and_merge, args=(url, i, tmp_path, together)) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(300)
    assert [writer.exitcode for writer in writers] == [0] * 4
    expected = [s for group in example_samples() for s in group]
    with Store.open(url) as store:
        assert {run.run_id for run in store.runs()} == {RUN_ID, *(f"own-{i}" for i in range(4))}
        for run in store.runs():
            assert store.samples(run.run_id) == expected
