"""Operations on files of a temporary folder: their number, their bytes, and what they leave, are known."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cephfit.core.units import KIB, MIB
from cephfit.core.values.cells import FileOperation, FileSet
from cephfit.measure.micro.file_access import LocalFiles
from cephfit.measure.micro.file_places import Traffic, traffic_of
from cephfit.measure.micro.file_program import figures
from cephfit.measure.micro.file_work import Done, Work, ensure, folders_of, path_of, timed, walk

FILES = FileSet(n_files=10, file_nbytes=16 * KIB, per_folder=4, filesystem="ext4")
CONTENTS = {path_of(FILES, number): 16 * KIB for number in range(10)}
WITH_DATA = [operation for operation in FileOperation if operation.has_data]


class Counted(LocalFiles):
    """Counts the calls of each method."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls: dict[str, int] = {}

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def counted(*arguments: Any, **words: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            return found(*arguments, **words)

        return counted


@pytest.fixture
def access(tmp_path: Path) -> Counted:
    access = Counted(tmp_path)
    assert ensure(access, FILES) == 10
    access.calls.clear()
    return access


def work(operation: FileOperation, **other: object) -> Work:
    nbytes = 4 * KIB if operation.has_data else 0
    usual = Work(operation, nbytes, FILES, 0, 1, seconds=10.0, every=0, direct=False, seed=1)
    return replace(usual, **other)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, int]:
    """Path to size of all files."""
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


def test_the_files_have_their_number_sizes_and_folders(access: Counted, tmp_path: Path) -> None:
    assert contents(tmp_path) == CONTENTS
    assert folders_of(FILES) == ["d00000", "d00001", "d00002"]
    whole = (tmp_path / path_of(FILES, 3)).read_bytes()
    assert len(set(whole)) == 256, "incompressible"


@pytest.mark.parametrize("nbytes", [4 * KIB, 1024 * KIB, 1536 * KIB])
def test_a_file_has_its_size_also_if_it_is_not_whole_mebibytes(tmp_path: Path, nbytes: int) -> None:
    files = FileSet(n_files=2, file_nbytes=nbytes, per_folder=2, filesystem="ext4")
    assert ensure(LocalFiles(tmp_path), files) == 2
    assert set(contents(tmp_path).values()) == {nbytes}
    assert ensure(LocalFiles(tmp_path), files) == 0, "none is written again"


@pytest.mark.parametrize(
    ("operation", "n"), [("create", 10), ("stat", 10), ("list", 3), ("rename", 10), ("delete", 10)]
)
def test_operations_on_names_are_done_once_on_each(
    access: Counted, tmp_path: Path, operation: str, n: int
) -> None:
    done = timed(access, work(FileOperation(operation)))
    assert len(done.latencies_ns) == n
    assert done.nbytes == 0
    assert sum(done.latencies_ns) <= done.end_ns - done.begin_ns
    expected = {
        "create": {**CONTENTS, **{f"new/{path}": 0 for path in CONTENTS}},
        "rename": {f"{path}.r": size for path, size in CONTENTS.items()},
        "delete": {},
    }.get(operation, CONTENTS)
    assert contents(tmp_path) == expected
    n_written = {"delete": 10}.get(operation, 0)
    assert ensure(access, FILES) == n_written, "only what is missing is written again"
    assert contents(tmp_path) == CONTENTS


@pytest.mark.parametrize("operation", WITH_DATA)
def test_operations_on_data_move_whole_accesses_until_the_time_is_over(
    access: Counted, operation: FileOperation
) -> None:
    done = timed(access, work(operation, seconds=0.05))
    n = len(done.latencies_ns)
    assert n > 0
    assert done.nbytes == n * 4 * KIB
    assert access.calls["read" if operation.op == "read" else "write"] == n
    kept = operation in (FileOperation.KEEP_READ, FileOperation.KEEP_WRITE)
    assert access.calls["open"] == access.calls["close"] == (10 if kept else n)


def test_appending_ends_when_the_files_have_doubled(access: Counted, tmp_path: Path) -> None:
    done = timed(access, work(FileOperation.APPEND))
    assert len(done.latencies_ns) == 10 * 4
    assert sum(contents(tmp_path).values()) == 2 * FILES.nbytes
    assert ensure(access, FILES) > 0
    assert contents(tmp_path) == CONTENTS


@pytest.mark.parametrize(("every", "n_flushes"), [(0, 0), (1, 10), (4, 3), (100, 1)])
def test_a_flush_follows_each_batch_and_the_rest(access: Counted, every: int, n_flushes: int) -> None:
    done = timed(access, work(FileOperation.CREATE, every=every))
    assert len(done.flush_ns) == n_flushes
    # Files 0 to 3 are in the first folder, 4 to 7 in the second, 8 and 9 in the third.
    assert access.calls.get("flush_folder", 0) == {0: 0, 1: 10, 4: 3, 100: 3}[every]


def test_a_flush_after_each_write_is_of_its_file_and_of_all_after_several(access: Counted) -> None:
    one = timed(access, work(FileOperation.KEEP_WRITE, seconds=0.05, every=1))
    assert access.calls["flush"] == len(one.latencies_ns) == len(one.flush_ns)
    several = timed(access, work(FileOperation.KEEP_WRITE, seconds=0.05, every=2))
    assert access.calls["flush_all"] == len(several.flush_ns) == -(-len(several.latencies_ns) // 2)


def test_threads_divide_the_files(tmp_path: Path, access: Counted) -> None:
    done = [timed(access, work(FileOperation.DELETE, thread=n, n_threads=3)) for n in range(3)]
    assert [len(one.latencies_ns) for one in done] == [4, 3, 3]
    assert contents(tmp_path) == {}


def test_everything_is_read_once_before_a_warm_run(access: Counted) -> None:
    walk(access, FILES)
    assert access.calls["read"] == 10
    assert access.calls["names"] == 3


def test_a_missing_file_is_an_error(access: Counted, tmp_path: Path) -> None:
    (tmp_path / path_of(FILES, 7)).unlink()
    with pytest.raises(FileNotFoundError):
        timed(access, work(FileOperation.STAT))


def test_operations_begin_only_when_all_are_ready(access: Counted) -> None:
    opened: list[int] = []

    def until() -> None:
        opened.append(access.calls.get("open", 0))

    timed(access, work(FileOperation.KEEP_READ, seconds=0.01), until)
    assert opened == [10]


def test_figures_are_of_all_threads_together(make_done: Callable[[int, int, list[int]], Done]) -> None:
    found = figures([make_done(1000, 2000, [10, 30]), make_done(1500, 3000, [20])])
    assert found["n"] == 3
    assert found["elapsed_ns"] == 2000
    assert found["latency_mean_ns"] == 20
    assert found["percentiles_ns"]["50.0"] == 20
    assert found["percentiles_ns"]["99.0"] == 30


@pytest.mark.root
def test_a_loop_device_ends_with_a_killed_process(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.write_bytes(bytes(MIB))
    program = (
        "import os, signal; from cephfit.measure.micro.file_places import VOLUME, FilePlace; "
        "from cephfit.measure.micro.file_program import _device; "
        f"attached = _device(FilePlace(VOLUME, {str(volume)!r}, nbytes={MIB})); "
        "print(attached.__enter__(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    assert ended.stdout.startswith("/dev/loop")
    left = subprocess.run(("losetup", "--associated", str(volume)), capture_output=True, text=True, check=True)
    assert not left.stdout


def test_interfaces_are_counted_once_or_in_both_directions(tmp_path: Path) -> None:
    table = tmp_path / "dev"
    head = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n"
    table.write_text(
        head + "    lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  tun0: 7 1 0 0 0 0 0 0 11 1 0 0 0 0 0 0\n"
    )
    assert traffic_of(None, table).wire_nbytes == 111
    assert traffic_of(None, table, both_ways=True).wire_nbytes == 218
    assert traffic_of(None, table).since(Traffic(11, 5, 5)) == Traffic(100, None, None)


@pytest.fixture
def make_done() -> Callable[[int, int, list[int]], Done]:
    def made(begin: int, end: int, latencies: list[int]) -> Done:
        done = Done(begin, end)
        done.latencies_ns.extend(latencies)
        return done

    return made
