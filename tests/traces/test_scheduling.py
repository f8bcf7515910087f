"""The profile does not depend on where the parts of a trace are counted."""

import gzip
import io
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_maker import mixed_workload, write

from cephfit.core.errors import HostError, InputError
from cephfit.traces import profile_files, stream
from cephfit.traces.counting import counted_recordings, shares


def alibaba(n: int, seed: int = 1) -> bytes:
    rng = random.Random(seed)
    rows = [
        (rng.randrange(5), rng.choice("RW"), 512 * rng.randrange(1 << 20), 512 << rng.randrange(9))
        for _ in range(n)
    ]
    return b"".join(
        f"{d},{op},{at},{size},{10**15 + 37 * i}\n".encode() for i, (d, op, at, size) in enumerate(rows)
    )


@pytest.fixture
def several_files(tmp_path: Path) -> list[Path]:
    """Two recordings of blktrace, each of one disk; they reach the same profile by different code paths."""
    return [write(tmp_path / f"{name}.blktrace.0", mixed_workload(400, seed)) for seed, name in enumerate("ab")]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part_nbytes=st.integers(200, 40_000), n=st.integers(1, 700))
@pytest.mark.slow
def test_any_cut_gives_the_identical_profile(part_nbytes: int, n: int, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(alibaba(n))
    whole = profile_files([trace]).dumps()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares, "PART_NBYTES", part_nbytes)
        assert profile_files([trace]).dumps() == whole
        assert profile_files([trace], full=True).n_accesses == n


def msr(latencies: list[tuple[int, int, int]]) -> bytes:
    """Lines of (disk, time, latency); time and latency are in units of 100 ns."""
    return b"".join(
        b"%d,usr,%d,%s,%d,4096,%d\n"
        % (128166372003061629 + when, disk, b"Write" if latency % 3 else b"Read", 512 * i, latency)
        for i, (disk, when, latency) in enumerate(latencies)
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    part_nbytes=st.integers(60, 3000),
    n_head=st.sampled_from([2, 10, 1 << 15]),
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.integers(-30, 60), st.sampled_from([0, 1, 5, 100, 400, 3000])),
        max_size=120,
    ),
)
def test_accesses_in_flight_at_a_cut_stay_in_flight(
    part_nbytes: int, n_head: int, steps: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    """The parts join, or they keep too few of their accesses and the file is read as a whole."""
    when, rows = 0, [(0, 0, 50)]
    for disk, step, latency in steps:
        when += step
        rows.append((disk, when, latency))
    trace = tmp_path / "msr.csv"
    trace.write_bytes(msr(rows))
    whole = profile_files([trace]).dumps()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares, "PART_NBYTES", part_nbytes)
        patch.setattr(shares, "N_HEAD", n_head)
        assert profile_files([trace]).dumps() == whole


def test_parts_with_latencies_join_without_reading_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "msr.csv"
    trace.write_bytes(msr([(i % 3, 10 * i, 75) for i in range(500)]))
    whole = profile_files([trace]).dumps()
    monkeypatch.setattr(shares, "PART_NBYTES", 2000)
    monkeypatch.setattr(counted_recordings, "_read_here", None)
    assert profile_files([trace]).dumps() == whole


def blkparse(actions: str) -> bytes:
    return b"".join(
        f"  8,{i % 2}    0 {i + 1:8d} {i * 1e-4:14.9f}    99  {action} {'RW'[i % 3 == 0]} ".encode()
        + b"%d + 8 [fio]\n" % (1000 + 8 * (i % 40))
        for i, action in enumerate(actions)
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    part_nbytes=st.integers(100, 5000),
    actions=st.text("QQQQQQGD", min_size=1, max_size=200),
    completion=st.booleans(),
)
def test_any_cut_of_events_gives_the_identical_profile(
    part_nbytes: int, actions: str, completion: bool, tmp_path: Path
) -> None:
    """With a completion the file is read as a whole: the completion may belong to an access before the cut."""
    trace = tmp_path / "trace.txt"
    trace.write_bytes(blkparse("Q" + actions + ("C" if completion else "")))
    whole = profile_files([trace]).dumps()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares, "PART_NBYTES", part_nbytes)
        assert profile_files([trace]).dumps() == whole


def test_several_files_are_read_concurrently(
    tmp_path: Path, several_files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also compressed ones, which cannot be cut: two are counted at the same time."""
    files = [tmp_path / f"{name}.csv.gz" for name in "abcd"]
    for seed, file in enumerate(files):
        file.write_bytes(gzip.compress(alibaba(400, seed)))
    with monkeypatch.context() as patch:
        patch.setattr(stream, "n_cores", lambda: 1)
        patch.setattr(counted_recordings, "n_cores", lambda: 1)
        alone = profile_files(files).dumps(), profile_files(several_files).dumps()
    both_there = threading.Barrier(2, timeout=60)

    def count(share: shares.Share, *, concurrent: bool) -> shares.Counted:
        both_there.wait()
        return shares.count(share, concurrent=concurrent)

    monkeypatch.setattr(counted_recordings, "n_cores", lambda: 2)
    monkeypatch.setattr(counted_recordings, "count", count)
    assert (profile_files(files).dumps(), profile_files(several_files).dumps()) == alone


def test_one_large_file_and_a_small_one_are_read_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, the large one would use only one core; here other threads read its lines ahead."""
    files = [tmp_path / "large.csv.gz", tmp_path / "small.csv.gz"]
    for file, n in zip(files, (5000, 5), strict=True):
        file.write_bytes(gzip.compress(alibaba(n)))
    monkeypatch.setattr(counted_recordings, "n_cores", lambda: 2)
    monkeypatch.setattr(counted_recordings, "counted_shares", None)
    assert profile_files(files).n_accesses == 5005


def test_a_header_within_a_file_of_parts_and_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two joined downloads: only the whole file shows that the second header is a header."""
    header = b"device_id,opcode,offset,length,timestamp\n"
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    files[0].write_bytes(header + alibaba(300, 1) + header + alibaba(300, 2))
    files[1].write_bytes(alibaba(300, 3))
    whole = profile_files(files).dumps()
    monkeypatch.setattr(shares, "PART_NBYTES", 3000)
    assert profile_files(files).dumps() == whole


def test_an_error_in_a_part_names_the_line_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = alibaba(500).splitlines(keepends=True)
    lines[400] = b"nonsense\n"
    trace = tmp_path / "trace.csv"
    trace.write_bytes(b"".join(lines))
    monkeypatch.setattr(shares, "PART_NBYTES", 1000)
    with pytest.raises(InputError, match="line 401"):
        profile_files([trace])


def test_a_time_that_is_cut_off_in_a_part_without_another_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing digits are recognised by the time of the previous access, which is in another part."""
    rows = b"".join(b"%d,4096,1,read,%d,%d\n" % (i, 8 * i, 2756778716647 + i) for i in range(50))
    trace = tmp_path / "vscsi.csv"
    trace.write_bytes(rows + b"# no access\n" * 300 + b"51,4096,1,read,408,2756")
    monkeypatch.setattr(shares, "PART_NBYTES", 1000)
    with pytest.raises(InputError, match="cut off within its last line") as caught:
        profile_files([trace])
    assert "line 351 " in caught.value.where


def test_local_processes(several_files: list[Path]) -> None:
    found = profile_files(several_files, scheduler=counted_recordings.PROCESSES)
    assert found.dumps() == profile_files(several_files).dumps()


@pytest.mark.slow
def test_a_dask_cluster_of_two_workers(
    several_files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    # Also for its lock files; the processes of the workers read the variable when they start.
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", str(tmp_path))
    dask = pytest.importorskip("dask")
    text = tmp_path / "trace.csv"
    text.write_bytes(alibaba(2000))
    here = [profile_files(several_files).dumps(), profile_files([text]).dumps()]
    monkeypatch.setattr(shares, "PART_NBYTES", 10_000)
    with (
        dask.config.set({"temporary-directory": str(tmp_path)}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        address = cluster.scheduler_address
        there = [profile_files(f, scheduler=address).dumps() for f in (several_files, [text])]
    assert there == here


def ends_the_process(share: shares.Share) -> None:
    os._exit(9)


def test_a_local_process_that_is_lost(several_files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_recordings, "count", ends_the_process)
    with pytest.raises(HostError, match="ended early") as caught:
        profile_files(several_files, scheduler=counted_recordings.PROCESSES)
    assert caught.value.where == "--scheduler processes"


@pytest.mark.slow
def test_a_dask_worker_that_is_lost(
    several_files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(counted_recordings, "count", ends_the_process)
    with (
        dask.config.set({"temporary-directory": str(tmp_path), "distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        pytest.raises(HostError, match="lost a part of the work: KilledWorker") as caught,
    ):
        profile_files(several_files, scheduler=cluster.scheduler_address)
    assert cluster.scheduler_address in caught.value.where


def test_an_address_without_a_scheduler(several_files: list[Path]) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        profile_files(several_files, scheduler="tcp://127.0.0.1:1")


def test_standard_input_is_read_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(alibaba(5))))
    with pytest.raises(InputError, match="standard input cannot be read by other processes"):
        profile_files([Path("-")], scheduler=counted_recordings.PROCESSES)


def test_batches_read_ahead_and_errors_come_in_order() -> None:
    def items() -> Iterator[int]:
        yield from range(20)
        raise InputError("the file ends here")

    seen = []
    with pytest.raises(InputError, match="ends here"):
        seen += [0]
        for item in stream._from_thread(items()):
            seen.append(item)
    assert seen == [0, *range(20)]


def test_a_reader_that_is_abandoned_leaves_no_thread() -> None:
    before = threading.active_count()
    items = stream._from_thread(iter(range(10**9)))
    assert next(items) == 0
    items.close()
    time.sleep(0.01)
    assert threading.active_count() == before
