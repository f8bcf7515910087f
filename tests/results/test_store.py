"""The store keeps what it was given, once, as a whole, and says clearly when it cannot."""

import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from example_run import FIO_JSON, RUN_ID, example_profile, example_run, example_samples
from sqlalchemy.exc import OperationalError

from cephfit.core.errors import StoreError
from cephfit.core.protocols import Applied
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State, WorkloadSample
from cephfit.results.report.run_notes import FALLING_EVIDENCE
from cephfit.results.store import database
from cephfit.results.store.sample_store import Store
from cephfit.results.store.schema import SCHEMA_VERSION


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with Store.open(tmp_path / "results.db", create=True) as opened:
        opened.add_run(example_run())
        yield opened


def sample(client: str = "c0", repeat: int = 0, attempt: int = 0) -> Sample:
    key = SampleKey("A", Cell.parse("4K-randread"), client, repeat, attempt)
    metrics = Metrics(0.1 + 0.2, 1229.1, 3, 2_000_000_000, 4.5e6, {50.0: 4e6, 99.9: 9e6})
    return Sample(key, State.OK, metrics, 10, 20, "", {"cache": "cold", "health": {"ok": True}})


def test_what_goes_in_comes_out(store: Store) -> None:
    failed = Sample(SampleKey("B", Cell.parse("1M-read"), "c0", 0), State.FAILED, None, 1, 2, "fio was killed")
    applied = Applied(
        "B", False, ("osd.1 still has 5",), {"ceph/osd/x = 4": {"osd.0": "4", "osd.1": "5"}}, ("osd.0",)
    )
    run = WorkloadSample("B", 2, 1, State.OK, "tps", 412.5, 5, 9, "", {"latency_ms": 2.4})

    store.add_samples(RUN_ID, [sample("c0"), sample("c1")], fio_json=FIO_JSON)
    store.add_samples(RUN_ID, [failed], fio_json=None)
    store.add_applied(RUN_ID, applied, repeat=3, at_ns=7)
    store.add_workload_sample(RUN_ID, "pgbench", run)

    assert store.samples(RUN_ID) == [sample("c0"), sample("c1"), failed]
    assert store.applied(RUN_ID) == [(3, applied)]
    assert store.workload_samples(RUN_ID) == [("pgbench", run)]
    assert store.run() == example_run()
    assert store.fio_json(RUN_ID, sample("c1").key) == FIO_JSON
    assert store.fio_json(RUN_ID, failed.key) is None


def test_samples_are_chosen_by_their_evidence(store: Store) -> None:
    """All that ``rates_still_falling`` names must be among those that its patterns choose."""
    steady = {"halves": {"unsteady": False}, "steady": {"attained": True}}
    evidence = [steady, {}, {"halves": {"unsteady": True}}, {"steady": {"attained": False}, "note": "50 % of it"}]
    every = [replace(sample(repeat=i), evidence=one) for i, one in enumerate(evidence)]
    store.add_samples(RUN_ID, every, fio_json=None)
    assert store.samples(RUN_ID, evidence_like=FALLING_EVIDENCE) == every[2:]
    assert store.samples(RUN_ID, evidence_like=()) == every


def test_samples_are_chosen_by_their_latency(store: Store) -> None:
    every = [of_latencies(repeat, mean, 100) for repeat, mean in enumerate((100.0, 149.0, 150.0, 300.0))]
    store.add_samples(RUN_ID, every, fio_json=None)
    assert store.samples(RUN_ID, mean_over_p75=1.5) == every[2:]


def of_latencies(repeat: int, mean_ns: float, p75_ns: float) -> Sample:
    its = sample(repeat=repeat)
    assert its.metrics is not None
    latencies = {50.0: p75_ns / 2, 75.0: p75_ns, 99.0: 9 * p75_ns}
    return replace(its, metrics=replace(its.metrics, latency_mean_ns=mean_ns, latency_percentiles_ns=latencies))


def test_samples_of_runs_that_were_measured_at_the_same_time_stay_apart(store: Store) -> None:
    alone = [sample(repeat=i) for i in range(3)]
    store.add_run(replace(example_run(), run_id="alone"))
    store.add_samples("alone", alone, fio_json=None)
    store.add_run(replace(example_run(), run_id="other"))
    for i in range(3):
        store.add_samples(RUN_ID, [sample("c1", repeat=i)], fio_json=None)
        store.add_samples("other", [sample("c2", repeat=i)], fio_json=None)
    assert list(store.samples("alone")) == alone
    assert list(store.samples(RUN_ID)) == [sample("c1", repeat=i) for i in range(3)]
    assert list(store.samples("other")) == [sample("c2", repeat=i) for i in range(3)]
    assert list(store.samples("other", evidence_like=["%"])) == list(store.samples("other"))
    store.delete_run("other")
    assert list(store.samples(RUN_ID)) == [sample("c1", repeat=i) for i in range(3)], "with gaps in the numbers"


def test_fio_json_is_kept_once_for_all_clients(store: Store) -> None:
    store.add_samples(RUN_ID, [sample("c0"), sample("c1")], fio_json=FIO_JSON)
    with sqlite3.connect(store.name) as database:
        assert database.execute("SELECT count(*) FROM cephfit_fio_runs").fetchone() == (1,)


def test_a_sample_is_stored_once_and_a_conflict_writes_nothing(store: Store) -> None:
    store.add_samples(RUN_ID, [sample("c1")], fio_json=None)
    with pytest.raises(StoreError, match="A 4K-randread on c1, repeat 0, attempt 0"):
        store.add_samples(RUN_ID, [sample("c0"), sample("c1")], fio_json=FIO_JSON)
    assert store.samples(RUN_ID) == [sample("c1")]
    assert store.fio_json(RUN_ID, sample("c0").key) is None


def test_a_workload_sample_and_a_run_are_stored_once(store: Store) -> None:
    run = WorkloadSample("A", 0, 0, State.OK, "tps", 1.0, 5, 9)
    store.add_workload_sample(RUN_ID, "pgbench", run)
    with pytest.raises(StoreError, match="stored already"):
        store.add_workload_sample(RUN_ID, "pgbench", run)
    with pytest.raises(StoreError, match="there is a run"):
        store.add_run(example_run())


def test_the_latest_document_wins_and_the_earlier_ones_are_kept(store: Store) -> None:
    assert store.document(RUN_ID, "profile") is None
    store.put_document(RUN_ID, "profile", {"name": "first"})
    store.put_document(RUN_ID, "profile", example_profile().to_json())
    assert store.document(RUN_ID, "profile") == example_profile().to_json()
    with sqlite3.connect(store.name) as database:
        assert database.execute("SELECT count(*) FROM cephfit_documents").fetchone() == (2,)


def test_runs_come_newest_first_and_an_unknown_one_names_the_known(store: Store) -> None:
    older = example_run(run_id="older", created_ns=5)
    store.add_run(older)
    assert [run.run_id for run in store.runs()] == [RUN_ID, "older"]
    assert store.run("older") == older
    for ask in (store.run, store.samples, store.applied, store.finish_run):
        with pytest.raises(StoreError, match=f"(?s)there is no run 'nope'.*{RUN_ID}, older"):
            ask("nope")


def test_the_unfinished_run_is_found_by_sweep_and_target(store: Store) -> None:
    digest = example_run().sweep_digest
    assert store.unfinished_run(sweep_digest=digest, target="lab:default") == example_run()
    assert store.unfinished_run(sweep_digest=digest, target="lab:other") is None
    assert store.unfinished_run(sweep_digest="00", target="lab:default") is None
    store.finish_run(RUN_ID)
    assert store.unfinished_run(sweep_digest=digest, target="lab:default") is None
    assert store.run().finished


def test_a_value_that_json_cannot_carry_is_refused_and_writes_nothing(store: Store) -> None:
    with pytest.raises(StoreError, match="cannot be stored"):
        store.put_document(RUN_ID, "profile", {"share": float("nan")})
    assert store.document(RUN_ID, "profile") is None


def test_a_document_comes_back_as_it_was(store: Store) -> None:
    odd = {"file": "b\udcfcro", "text": "ü\U0001f4be\x00", "n": [2**63, -(2**63), 0, 1e300, 0.1, -0.0, None, True]}
    store.put_document(RUN_ID, "odd", odd)
    assert repr(store.document(RUN_ID, "odd")) == repr(odd)


def test_a_new_store_has_no_runs(tmp_path: Path) -> None:
    with Store.open(tmp_path / "deep" / "er" / "new.db", create=True) as store:
        assert store.runs() == []
        with pytest.raises(StoreError, match="no runs yet"):
            store.run()


def test_a_commit_is_on_the_disk_before_the_method_returns(store: Store) -> None:
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_no_store_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"(?s)no store of results here.*sweep run"):
        Store.open(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(StoreError, match="this is a folder"):
        Store.open(tmp_path, create=True)


@pytest.mark.parametrize(
    "location",
    ["", ":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"],
)
@pytest.mark.parametrize("create", [False, True])
def test_a_location_that_keeps_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, create: bool
) -> None:
    """Hours of measuring would be gone at the end of the command."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r"is empty|in memory") as caught:
        Store.open(location, create=create)
    assert "give the path of a file" in caught.value.remedy
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("create", [False, True])
def test_a_device_or_a_pipe_is_no_store(tmp_path: Path, create: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/null"), tmp_path / "pipe"):
        with pytest.raises(StoreError, match="a device or a pipe, not a file"):
            Store.open(path, create=create)


def test_a_store_whose_writer_was_killed_before_its_first_transaction(tmp_path: Path) -> None:
    path = tmp_path / "begun.db"
    path.touch()
    with pytest.raises(StoreError, match=r"(?s)is empty.*sweep run"):
        Store.open(path)
    Store.open(path, create=True).close()
    with Store.open(path) as store:
        assert store.runs() == []


@pytest.mark.parametrize("create", [False, True])
def test_a_file_that_is_no_database_is_refused_untouched(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("configuration,size,pattern\n" * 100)
    with pytest.raises(StoreError, match="not a store of results"):
        Store.open(path, create=create)
    assert path.read_text() == "configuration,size,pattern\n" * 100


def test_somebody_elses_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a store of results"):
        Store.open(path, create=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("version", "remedy"), [(SCHEMA_VERSION + 1, "newer cephfit"), (0, "not written by")])
def test_another_schema_version_is_refused(tmp_path: Path, version: int, remedy: str) -> None:
    Store.open(tmp_path / "results.db", create=True).close()
    with sqlite3.connect(tmp_path / "results.db") as database:
        database.execute("UPDATE cephfit_schema_version SET version = ?", [version])
    with pytest.raises(StoreError, match=f"(?s)schema version {version}, this cephfit reads.*{remedy}"):
        Store.open(tmp_path / "results.db")


def test_a_locked_store_says_so_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Store.open(path, create=True, patience_seconds=0.2) as store:
        store.add_run(example_run())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has locked the store"):
            store.add_samples(RUN_ID, [sample()], fio_json=None)
        assert store.samples(RUN_ID) == []  # readers do not wait for a writer
        other.execute("ROLLBACK")
        other.close()
        store.add_samples(RUN_ID, [sample()], fio_json=None)
        assert store.samples(RUN_ID) == [sample()]


def test_a_password_reaches_no_message() -> None:
    with pytest.raises(StoreError) as caught:
        Store.open("mysql+nosuchdriver://me:hunter2@127.0.0.1/results")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreError) as caught:
        Store.open("post gres://me:hunter2@[")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreError) as caught:
        Store.open("postgresql+psycopg://me:hunter2@host:hunter2/db")  # the port is no number
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:hunter2@db.example/cluster",
        "postgresql+psycopg://db.example/cluster?user=me&password=hunter2",
        "postgresql+psycopg://me@db.example/cluster?sslpassword=hunter2&application_name=a",
    ],
)
def test_a_store_is_called_by_no_password(url: str) -> None:
    name = database.name_of(database.location_of(url))
    assert "hunter2" not in name
    assert "db.example/cluster" in name


def test_a_number_that_is_none_is_named_with_its_place(store: Store) -> None:
    with pytest.raises(StoreError, match=r"histograms\.size\.counts\[1\] is nan") as caught:
        store.put_document(RUN_ID, "profile", {"histograms": {"size": {"counts": [1, float("nan")]}}})
    assert caught.value.where.endswith("results.db") and "profile" in caught.value.remedy
    assert store.document(RUN_ID, "profile") is None


def test_a_run_is_found_among_many_without_reading_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add_run(example_run(run_id="later", created_ns=2**62))
    monkeypatch.setattr(Store, "runs", None)
    assert (store.run().run_id, store.run(RUN_ID).run_id) == ("later", RUN_ID)
    with pytest.raises(StoreError, match="there is no run 'x'") as caught:
        store.run("x")
    assert f"there are: later, {RUN_ID}" in caught.value.remedy


def test_the_example_run_is_whole(finished_store: Path) -> None:
    with Store.open(finished_store) as store:
        expected = [s for group in example_samples() for s in group]
        assert store.samples(RUN_ID) == expected


def test_a_store_that_cannot_be_made_says_why_not_that_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened or written"):
        Store.open("/proc/none.sqlite", create=True)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="folder of the store cannot be created"):
        Store.open(tmp_path / "file" / "none.sqlite", create=True)


def test_an_io_error_on_a_full_disk_is_called_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.sqlite"
    Store.open(path, create=True).close()
    engine = database.engine_for(database.location_of(path), patience_seconds=1)

    def fail() -> None:
        with database.transaction(engine, str(path), writing=False):
            raise OperationalError("SELECT 1", {}, sqlite3.OperationalError("disk I/O error"))

    with pytest.raises(StoreError, match="disk I/O error"):
        fail()
    full = SimpleNamespace(f_bavail=3, f_frsize=4096)
    monkeypatch.setattr(database.os, "statvfs", lambda _: full)
    with pytest.raises(StoreError, match="no space left"):
        fail()
