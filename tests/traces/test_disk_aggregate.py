"""Thousands of disks: the profile equals that of disks counted individually, and memory is bounded."""

import itertools
import pickle
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_maker import batch

from cephfit.core.errors import InputError
from cephfit.core.values.profile import Profile
from cephfit.traces import profile_files
from cephfit.traces.columns import AccessBatch
from cephfit.traces.counting import shares
from cephfit.traces.counting.tally_loop import N_PLACES
from cephfit.traces.description.describe import profile_of
from cephfit.traces.description.recording import Counting, PartialProfile
from cephfit.traces.lines import plain_lines

N_LISTED = 64

ROWS_OF_ONE = b"".join(b"%d,4096,1,read,%d,%d\n" % (i, 8 * i, 2756778716647 + i) for i in range(20))
"""Commands of vscsiStats, which do not name their disk."""


def of_many_disks(n: int, n_disks: int, seed: int) -> AccessBatch:
    """Accesses with latencies and steps back in time, on disks with names in any order."""
    rng = random.Random(seed)
    rows = [
        (
            1000 * i + rng.randrange(-5000, 5000),
            rng.choice("rw"),
            rng.randrange(1 << rng.randrange(1, 20)),
            512 << rng.randrange(9),
        )
        for i in range(n)
    ]
    names = [f"d{i}" for i in range(n_disks)]
    rng.shuffle(names)
    made = batch(rows, disk=[rng.randrange(n_disks) for _ in range(n)])
    return replace(
        made,
        disks=tuple(names),
        latency_ns=np.array([rng.randrange(-1, 10**7) for _ in range(n)], np.int64),
        outstanding=np.array([rng.randrange(-1, 90) for _ in range(n)], np.int32),
    )


def stretch(whole: AccessBatch, begin: int, end: int) -> AccessBatch:
    """The reader of a part has found only some of the disks, in another order."""
    assert whole.latency_ns is not None and whole.outstanding is not None
    part = slice(begin, end)
    there, disk = np.unique(whole.disk[part], return_inverse=True)
    return AccessBatch(
        whole.time_ns[part],
        whole.op[part],
        whole.lbn[part],
        whole.nbytes[part],
        disk.astype(np.int32),
        tuple(whole.disks[number] for number in there),
        whole.latency_ns[part],
        whole.outstanding[part],
    )


def counted(whole: AccessBatch, n_batches: int, *, each_disk: bool, asked: tuple[str, ...] = ()) -> PartialProfile:
    counting = Counting(None, asked, each_disk=each_disk)
    for rows in np.array_split(np.arange(len(whole)), n_batches):
        counting.add(replace(stretch(whole, rows[0], rows[-1] + 1), disk=whole.disk[rows], disks=whole.disks))
    return counting.partial()


def profile(partial: PartialProfile, asked: tuple[str, ...] = ()) -> Profile:
    return profile_of(
        partial,
        name="made",
        action="",
        sources=[{"files": ["made"]}],
        duration_ns=partial.duration_ns,
        disks=asked,
    )


@settings(max_examples=40, deadline=None)
@given(
    n_disks=st.sampled_from([3, N_LISTED, N_LISTED + 1, 90, 300]),
    n_batches=st.integers(1, 5),
    borders=st.lists(st.integers(0, 600), max_size=4),
    seed=st.integers(0, 1000),
    asks=st.booleans(),
)
def test_disks_counted_as_one_sum_give_the_profile_of_individual_counts(
    n_disks: int, n_batches: int, borders: list[int], seed: int, asks: bool
) -> None:
    whole = of_many_disks(600, n_disks, seed)
    asked = tuple(whole.disks[i] for i in set(whole.disk[:3].tolist())) if asks else ()
    each = profile(counted(whole, n_batches, each_disk=True), asked).dumps()
    assert profile(counted(whole, n_batches, each_disk=False, asked=asked), asked).dumps() == each
    joined = PartialProfile()
    for begin, end in itertools.pairwise(sorted({0, 600, *borders})):
        joined = joined.followed_by(counted(stretch(whole, begin, end), 1, each_disk=False, asked=asked))
    assert profile(joined, asked).dumps() == each


def test_stacked_disks_are_counted_individually() -> None:
    """Parquet lists them with its first rows; only the end shows which of two disks counts."""
    whole = replace(of_many_disks(2000, 200, 5), stacked=tuple((f"d{i}", f"d{199 - i}") for i in range(30)))
    found = []
    for each_disk in (True, False):
        counting = Counting(None, each_disk=each_disk)
        counting.add(whole)
        found.append(profile(counting.partial()))
    assert found[0].dumps() == found[1].dumps()
    assert len(found[1].description["left_out"]) == 30


def test_simultaneous_recordings_of_many_disks() -> None:
    first, second = (of_many_disks(500, 100, seed) for seed in (1, 2))
    found = [
        profile(
            PartialProfile()
            .with_recording(counted(first, 2, each_disk=each_disk), prefix="a/")
            .with_recording(counted(second, 2, each_disk=each_disk), prefix="b/")
        )
        for each_disk in (True, False)
    ]
    assert found[0].dumps() == found[1].dumps()
    assert next(iter(found[1].description["disks"])).startswith("a/")


def test_a_part_of_a_trace_of_thousands_of_disks_takes_little_memory() -> None:
    """Parts are passed between processes, so their packed size matters."""
    n_disks = 5000
    partial = counted(of_many_disks(20_000, n_disks, 1), 3, each_disk=False)
    assert len(partial.names) > 4500
    nbytes = len(pickle.dumps(partial))
    assert nbytes < (N_LISTED + 1) * 8 * N_PLACES + 250 * n_disks + 100_000
    assert nbytes < 8 << 20  # individually: 360 MiB
    joined = partial.followed_by(counted(of_many_disks(20_000, n_disks, 2), 3, each_disk=False))
    assert len(pickle.dumps(joined)) < 8 << 20


def rows_of_volumes(n: int, n_disks: int, *, latency: bool) -> bytes:
    """Lines of Alibaba's form, or of MSR's with latencies so long that some are in flight at any cut."""
    rng = random.Random(3)
    if latency:
        return b"".join(
            b"%d,vm%d,0,%s,%d,4096,%d\n"
            % (128166372003061629 + 10 * i, rng.randrange(n_disks), b"Write" if i % 3 else b"Read", 4096 * i, 900)
            for i in range(n)
        )
    return b"".join(b"%d,R,%d,4096,%d\n" % (rng.randrange(n_disks), 4096 * i, 10**15 + i) for i in range(n))


@pytest.mark.parametrize("latency", [False, True])
def test_files_of_many_volumes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, latency: bool) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(rows_of_volumes(6000, 400, latency=latency))
    whole = profile_files([trace])
    assert whole.description["n_disks"] == 400
    assert len(whole.description["disks"]) == N_LISTED
    monkeypatch.setattr(shares, "PART_NBYTES", 20_000)
    assert profile_files([trace]).dumps() == whole.dumps()
    volume = list(whole.description["disks"])[5]
    alone = profile_files([trace], disks=[volume])
    assert alone.n_accesses == sum(
        sum(n.values()) for n in whole.description["disks"][volume]["accesses"].values()
    )
    assert sum(left["accesses"] for left in alone.description["left_out"].values()) == 6000 - alone.n_accesses


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part_nbytes=st.integers(3000, 60_000))
def test_what_is_in_flight_on_many_disks_at_any_cut(part_nbytes: int, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(rows_of_volumes(1500, 150, latency=True))
    with pytest.MonkeyPatch.context() as patch:
        whole = profile_files([trace]).dumps()
        patch.setattr(shares, "PART_NBYTES", part_nbytes)
        assert profile_files([trace]).dumps() == whole


def damaged_after_many_disks(path: Path) -> Path:
    path.write_bytes(rows_of_volumes(3000, 40, latency=False) * 80 + b"no line of it\n" * 3)
    return path


def test_a_full_description_of_too_many_disks_is_refused_before_all_is_read(tmp_path: Path) -> None:
    """Nothing after the 33rd disk is read, which would take hours in a trace of a cloud."""
    trace = damaged_after_many_disks(tmp_path / "trace.csv")
    for how in ({"full": True}, {"threshold": 500}):
        with pytest.raises(InputError, match="at most 32 disks; the trace has more") as caught:
            profile_files([trace], **how)  # type: ignore[arg-type]
        assert "--disk" in caught.value.remedy
    with pytest.raises(InputError, match="no line of it"):
        profile_files([trace])
    files = [tmp_path / f"{i}.csv" for i in range(40)]
    for file in files:
        file.write_bytes(ROWS_OF_ONE)
    files[-1].write_bytes(ROWS_OF_ONE + b"no line of it\n")
    with pytest.raises(InputError, match="at most 32 disks"):
        profile_files(files, full=True)


def test_parts_with_few_disks_can_have_too_many_in_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(b"".join(b"%d,R,%d,4096,%d\n" % (i // 50, 4096 * i, 10**15 + i) for i in range(2000)))
    monkeypatch.setattr(shares, "PART_NBYTES", 5000)
    with pytest.raises(InputError, match="at most 32 disks"):
        profile_files([trace], full=True)
    found = profile_files([trace], full=None)
    assert found.n_accesses == 2000


@pytest.mark.slow
def test_views_of_a_workload_omit_the_behaviour_of_too_many_disks(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(rows_of_volumes(3000, 40, latency=False))
    program = [sys.executable, "-m", "cephfit.cli.main", "trace"]
    shown = subprocess.run([*program, "show", trace], capture_output=True, text=True, timeout=240, check=True)
    assert "note: behaviour over time and over the disk is omitted: it is kept for at most 32" in shown.stdout
    asked = subprocess.run(
        [*program, "show", trace, "--describe", "full"], capture_output=True, text=True, timeout=240
    )
    assert asked.returncode == 2
    assert "at most 32 disks" in asked.stderr
    few = profile_files([trace], full=None, disks=["7"])
    assert "behaviour" in few.description


def test_one_of_many_files_of_a_disk_each_is_described(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.csv" for i in range(40)]
    for file in files:
        file.write_bytes(ROWS_OF_ONE)
    found = profile_files(files, full=True, disks=["7.csv"])
    assert list(found.description["behaviour"]["disks"]) == ["7.csv"]
    assert found.n_accesses == 20
    assert len(found.description["left_out"]) == 39


def test_few_rows_of_a_block_do_not_keep_the_memory_of_all_rows() -> None:
    """The loop stops at each unknown disk: thousands of disks give thousands of stretches."""
    from cephfit.traces.lines.plain_lines import DiskTable
    from cephfit.traces.readers.delimited.delimited_formats import FORMATS

    layout = next(layout for layout in FORMATS if layout.name == "alibaba")
    assert layout.plain is not None
    fields = layout.fields(len(layout.plain.fields))
    assert fields is not None
    disks = DiskTable()
    disks.add([b"7"], 0)
    text = np.frombuffer(b"7,R,4096,4096,1000000\n" * 3 + b"8,R,4096,4096,1000000\n" * 90_000, np.uint8).copy()
    n, _, rows = plain_lines.parse(fields, disks, text, 0, len(text))
    assert n == len(rows) == 3
    assert rows.time_ns.base is None or rows.time_ns.base.nbytes < 1000
