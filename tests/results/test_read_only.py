"""Stores that the reader may not write: another user's, in a read-only folder, of an earlier version.

Root may write everywhere, so where the tests run as root, the reader is a process of another user, or one without
root's capabilities where other users cannot enter the installation.
"""

import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_run import RUN_ID, example_profile, example_run, example_samples, fill
from other_user import reading_only

from cephfit.core.errors import StoreError
from cephfit.results.store.sample_store import Store

CEPHFIT = [sys.executable, "-c", "from cephfit.cli.main import main; main()"]
REPORT = ("report", "-o", "-", "--format", "md", "--store")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users can look into; pytest's own folders are private."""
    path = Path(tempfile.mkdtemp(prefix="cephfit-archive-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


@pytest.fixture
def archive(folder: Path) -> Path:
    """A store of two runs that only its owner may write, with its folder."""
    store = folder / "results.sqlite"
    with Store.open(store, create=True) as opened:
        fill(opened)
        opened.add_run(example_run(run_id="second", created_ns=5, target="lab:other"))
        for group in example_samples():
            opened.add_samples("second", group, fio_json=None)
    (folder / "profile.json").write_text(example_profile().dumps())
    close(folder)
    return store


def close(folder: Path) -> None:
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)


def as_reader(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """`cephfit`, run by a user without write permission."""
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        Path(home).chmod(0o777)
        environment = {**os.environ, "HOME": home, "TMPDIR": home, "XDG_CACHE_HOME": home, "XDG_STATE_HOME": home}
        environment |= {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [*reading_only(), *CEPHFIT, *map(str, arguments)]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=60, env=environment, cwd=home, check=False
        )
        assert not list(Path(home).glob("cephfit-store-*")), "copies go with the command"
    return done


@pytest.mark.parametrize(
    "command",
    [
        "map {folder}/profile.json --baselines {store} --no-save",
        "report --store {store} -o - --format md",
        pytest.param("compare --store {store} --run second --run " + RUN_ID, marks=pytest.mark.slow),
    ],
)
def test_what_only_reads_works(archive: Path, command: str) -> None:
    before = sorted(archive.parent.iterdir())
    done = as_reader(*command.format(store=archive, folder=archive.parent).split())
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 3
    assert sorted(archive.parent.iterdir()) == before, "nothing is left next to it"


def test_the_status_of_another_users_run_can_be_seen(folder: Path) -> None:
    store = folder / "results.sqlite"
    subprocess.run(
        [*CEPHFIT, "sweep", "run", "quick", "--target", "sim", "--store", store],
        check=True,
        capture_output=True,
        timeout=120,
    )
    close(folder)
    done = as_reader("sweep", "status", "--store", store)
    assert (done.returncode, done.stderr) == (0, "")
    assert "420 samples planned" in done.stdout


def test_a_prediction_that_cannot_be_saved_is_printed_with_a_line_about_it(archive: Path) -> None:
    done = as_reader("map", archive.parent / "profile.json", "--baselines", archive)
    assert done.returncode == 0
    assert "Best:" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "the prediction is not saved: you have no permission to write" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "map {folder}/profile.json --baselines {store} --save",
        "sweep run quick --target sim --store {store}",
        pytest.param("verify --sweep quick --store {store} --target sim", marks=pytest.mark.slow),
        "runs rm second --store {store} --yes",
    ],
)
def test_what_has_to_write_refuses_with_a_remedy(archive: Path, command: str) -> None:
    done = as_reader(*command.format(store=archive, folder=archive.parent).split())
    assert done.returncode == 2
    assert "this store is read-only: you have no permission to write" in done.stderr
    assert "another store" in done.stderr and "Traceback" not in done.stderr


def test_a_file_of_another_user_in_a_folder_where_all_may_write_gets_no_files_next_to_it(folder: Path) -> None:
    """A log of the reader's would keep the owner from writing."""
    store = folder / "results.sqlite"
    with Store.open(store, create=True) as opened:
        fill(opened)
    store.chmod(0o444)
    folder.chmod(0o777)
    assert as_reader(*REPORT, store).returncode == 0
    assert list(folder.iterdir()) == [store]


def test_a_store_that_is_being_written_is_read_along(folder: Path) -> None:
    store = folder / "results.sqlite"
    with Store.open(store, create=True) as opened:
        fill(opened)
        close(folder)
        done = as_reader(*REPORT, store)
        assert (done.returncode, done.stderr) == (0, "")
        assert RUN_ID in done.stdout


@pytest.mark.parametrize("ends", [("-wal",), ("-wal", "-shm")])
def test_what_a_killed_writer_left_in_the_log_is_read(folder: Path, ends: tuple[str, ...]) -> None:
    writer, store = folder / "writer.sqlite", folder / "results.sqlite"
    with Store.open(writer, create=True) as opened:
        fill(opened)
        shutil.copyfile(writer, store)
        for end in ends:
            shutil.copyfile(f"{writer}{end}", f"{store}{end}")
    assert (folder / "results.sqlite-wal").stat().st_size
    close(folder)
    done = as_reader(*REPORT, store)
    assert (done.returncode, done.stderr) == (0, "")
    assert RUN_ID in done.stdout


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_earlier_version_is_read_and_stays_as_it_is(folder: Path, version: int) -> None:
    golden = Path(__file__).parents[1]
    written = {
        1: (golden / "results" / "golden" / "store_version_1.sql").read_bytes(),
        2: gzip.decompress((golden / "golden" / "version_0_1_0" / "store.sql.gz").read_bytes()),
    }
    store = folder / "results.sqlite"
    with sqlite3.connect(store) as database:
        database.executescript(written[version].decode())
        assert database.execute("SELECT version FROM cephfit_schema_version").fetchone() == (version,)
    database.close()
    close(folder)
    before = store.read_bytes()
    done = as_reader("runs", "list", "--store", store)
    assert (done.returncode, done.stderr) == (0, "")
    assert "quick" in done.stdout
    assert store.read_bytes() == before


def test_a_store_that_is_written_meanwhile_is_not_believed(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a writer there is no log; SQLite then reads the file as if it never changed."""
    monkeypatch.setattr("cephfit.results.store.store_connection.why_file_is_read_only", lambda url: "an archive")
    with Store.open(archive) as store:
        assert store.why_read_only() == "an archive"
        assert store.samples(RUN_ID)
        with pytest.raises(StoreError, match="read-only: an archive"):
            store.finish_run(RUN_ID)
        archive.parent.chmod(0o755)
        os.utime(archive)
        with pytest.raises(StoreError, match=r"(?s)written while it was read.*again"):
            store.samples(RUN_ID)
