"""vscsiStats: command traces as CSV and binary, and histograms."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_trace_views import run

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.traces import profile_files
from cephfit.traces.counting import buckets, shares
from cephfit.traces.readers import vscsi_trace

CSV = """\
#Vscsi Cmd Trace. (Trace Format Version 1)
#Serial Number,IO Data Length,Num SG Entries,Command Type,LBN,Time Stamp (microseconds)
2147483692,4096,1,write,24048792,2756778716647
2147483693,65536,16,read,24048800,2756778716700
2147483694,4096,1,write,24048800,2756778717000
"""


@pytest.mark.parametrize("text", [CSV, CSV.replace("#", ""), "\n".join(CSV.splitlines()[2:])])
def test_csv_with_and_without_its_header(tmp_path: Path, text: str) -> None:
    path = tmp_path / "disk.csv"
    path.write_text(text)
    found = profile_files([path])
    assert found.accesses[Op.WRITE]["4K"] == 2
    assert found.accesses[Op.READ]["128K"] == 1
    assert found.random[Op.WRITE] == 0.0
    assert found.description["duration_seconds"] == pytest.approx(353e-6)


def test_csv_without_a_valid_lbn_is_skipped_as_in_binary(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(CSV + f"2147483692,4096,1,write,{(1 << 64) - 1},2756778716647\n")
    found = profile_files([tmp_path / "t"])
    assert found.description["skipped"]["no valid LBN"] == 1


def test_csv_errors_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "disk.csv"
    path.write_text(CSV + "2147483695,4096,1,write,99\n")
    with pytest.raises(InputError, match="not a vscsiStats command") as caught:
        profile_files([path])
    assert caught.value.where == f"{path}, line 6"


def test_csv_cut_off_within_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "disk.csv"
    path.write_text(CSV.rstrip()[:-4])  # the last time has lost three digits
    with pytest.raises(InputError, match="cut off"):
        profile_files([path])


def record_1(opcode: int, lbn: int, nbytes: int = 4096, time_us: int = 5) -> bytes:
    return struct.pack("<IIIHHQQ", 1, nbytes, 1, opcode, 0x0100, lbn, time_us)


def record_2(opcode: int, lbn: int, nbytes: int = 4096, time_us: int = 5, response_us: int = 7) -> bytes:
    return struct.pack("<HHIIIQQQ", opcode, 0x0201, 1, nbytes, 1, lbn, time_us, response_us)


def test_every_read_and_write_opcode_and_the_others_by_reason(tmp_path: Path) -> None:
    reads, writes = (0x08, 0x28, 0xA8, 0x88), (0x0A, 0x2A, 0xAA, 0x8A)
    path = tmp_path / "v1"
    others = record_1(0x35, 0, 0) + record_1(0x42, 0, 24) + record_1(0x12, 0, 36) + record_1(0x28, 0, 0)
    path.write_bytes(b"".join(record_1(code, 8 * i) for i, code in enumerate(reads + writes)) + others)
    found = profile_files([path])
    assert (found.accesses[Op.READ]["4K"], found.accesses[Op.WRITE]["4K"]) == (4, 4)
    assert found.description["skipped"] == {
        "SCSI command 0x12": 1,
        "discard": 1,
        "flush": 1,
        "zero length": 1,
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=40), st.integers(1, 9))
def test_blocks_of_records_do_not_matter(times: list[tuple[int, int]], at_once: int) -> None:
    """Also where times step back: accesses stay in flight from block to block."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "v2"
        path.write_bytes(b"".join(record_2(0x28, 8, time_us=time, response_us=took) for time, took in times))
        whole = profile_files([path])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vscsi_trace, "_RECORDS_AT_ONCE", at_once)
            assert profile_files([path]) == whole


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0, 3, 9, 90])), min_size=1, max_size=200),
    st.integers(40, 3000),
    st.sampled_from([record_1, record_2]),
)
def test_any_cut_gives_the_identical_profile(
    steps: list[tuple[int, int]], part_nbytes: int, record: Callable[..., bytes]
) -> None:
    """Accesses in flight at a cut stay in flight; times sometimes step back."""
    time_us, records = 1000, []
    for step, took in steps:
        time_us += step if step < 38 else -step
        more = {"response_us": took} if record is record_2 else {}
        records.append(record(0x28 + 2 * (took % 2), 8 * step, time_us=time_us, **more))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(b"".join(records))
        whole = profile_files([path]).dumps()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shares, "PART_NBYTES", part_nbytes)
            assert profile_files([path]).dumps() == whole


def test_version_2_has_response_times(tmp_path: Path) -> None:
    path = tmp_path / "v2"
    path.write_bytes(gzip.compress(record_2(0x28, 0) + record_2(0x2A, 800, time_us=9)))
    found = profile_files([path])
    assert found.n_accesses == 2
    assert found.description["percentiles"]["latency_us"]["all"]["p50"] == pytest.approx(7, rel=0.04)


def test_binary_errors_name_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "v1"
    path.write_bytes(record_1(0x28, 0) * 5 + record_1(0x28, 0)[:10])
    with pytest.raises(InputError, match="cut off") as caught:
        profile_files([path])
    assert caught.value.where == f"{path}, byte 160"
    path.write_bytes(record_1(0x28, 0) * 5 + b"x" * 32)
    with pytest.raises(InputError, match="no vscsiStats record") as caught:
        profile_files([path])
    assert caught.value.where == f"{path}, byte 160"


TITLES = {
    "size": ("IO lengths of {}commands", buckets.SIZE_NBYTES),
    "distance": ("distance (in LBNs) between successive {}commands", buckets.DISTANCE_LBN),
}


def histogram_csv(rows: list[tuple[str, int, int]], *, disk: str = "8194 (scsi0:0)") -> str:
    """Return what ``vscsiStats -p all -c`` prints for sizes and distances of accesses (op, LBN, bytes)."""
    text = []
    for quantity, (title, bounds) in TITLES.items():
        for kind, ops in (("", "rw"), ("Read ", "r"), ("Write ", "w")):
            mine = [(lbn, n) for op, lbn, n in rows if op in ops]
            if quantity == "size":
                values = [n for _, n in mine]
            else:
                ends = [lbn + -(-n // 512) - 1 for lbn, n in mine]
                values = [lbn - end for (lbn, _), end in zip(mine[1:], ends, strict=False)]
            counts = np.bincount(np.searchsorted(bounds, values), minlength=len(bounds) + 1)
            text.append(
                f"Histogram: {title.format(kind)},virtual machine worldGroupID,7,virtual disk handleID,{disk}\n"
                f"min,{min(values, default=0)}\nmax,{max(values, default=0)}\n"
                f"mean,{sum(values) // max(len(values), 1)}\ncount,{len(values)}\n"
                "Frequency,Histogram Bucket Limit\n"
            )
            text += [f"{n},{b}\n" for n, b in zip(counts, [*bounds, bounds[-1]], strict=True)]
    return "".join(text)


accesses = st.lists(
    st.tuples(
        st.sampled_from("rw"),
        st.integers(0, 500).map(lambda i: 8 * i),
        st.sampled_from([4096, 8192, 12288, 49152, 65536, 262144, 524288]),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(accesses)
def test_accesses_and_their_histogram_give_the_same_profile(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, int]]
) -> None:
    """Sizes and shares agree; a histogram lacks the share in a size bin."""
    folder = tmp_path_factory.mktemp("agree")
    names = {"r": "read", "w": "write"}
    lines = [f"{i},{n},1,{names[op]},{lbn},{i}" for i, (op, lbn, n) in enumerate(rows)]
    (folder / "commands.csv").write_text("\n".join(lines) + "\n")
    (folder / "histogram.csv").write_text(histogram_csv(rows))
    from_accesses = profile_files([folder / "commands.csv"])
    from_histogram = profile_files([folder / "histogram.csv"])
    assert from_histogram.accesses == from_accesses.accesses
    assert from_histogram.random == pytest.approx(from_accesses.random)
    assert from_histogram.random_by_bin is None
    for quantity in TITLES:
        assert from_histogram.description["histograms"][quantity] == from_accesses.description["histograms"].get(
            quantity, from_histogram.description["histograms"][quantity]
        )


@pytest.mark.parametrize("threshold", [0, 16, 1000, 500_000])
def test_histograms_give_random_shares_at_their_own_limits(tmp_path: Path, threshold: int) -> None:
    rng = np.random.default_rng(threshold)
    # No distance is exactly the negative of a limit: its bucket would not be unique.
    rows = [("rw"[i % 2], 8 * int(rng.integers(1 << rng.integers(3, 18))) + 3 * i % 7, 4096) for i in range(400)]
    lines = [f"{i},{n},1,{'read' if op == 'r' else 'write'},{lbn},{i}" for i, (op, lbn, n) in enumerate(rows)]
    (tmp_path / "commands.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "histogram.csv").write_text(histogram_csv(rows))
    exact = profile_files([tmp_path / "commands.csv"], threshold=threshold)
    found = profile_files([tmp_path / "histogram.csv"], threshold=threshold)
    assert found.description["random_threshold_lbn"] == threshold
    assert found.random == pytest.approx(exact.random, abs=0.011)
    assert any(f"more than {threshold} LBN away" in note for note in found.description["notes"])
    table = profile_files([tmp_path / "histogram.csv"]).description["random_by_threshold"]
    for op in Op if threshold else ():
        assert table[op.value][str(threshold)] == found.random[op]


def test_histograms_reject_a_threshold_that_is_not_a_limit(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(histogram_csv(ONE))
    with pytest.raises(InputError, match="only at their own limits") as caught:
        profile_files([tmp_path / "h.csv"], threshold=129)
    assert "128, 500, 1000" in caught.value.remedy


ONE = [("r", 0, 4096), ("w", 800, 8192), ("w", 816, 8192)]
TWO = [*ONE, ("r", 9000, 65536)]


def test_a_later_sample_of_running_counters_contains_the_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(histogram_csv(ONE) + histogram_csv(TWO))
    found = profile_files([tmp_path / "h.csv"])
    assert found.n_accesses == 4
    assert found.description["disks"]["7/8194/scsi0:0"]["samples"] == 2
    assert any(note.startswith("a disk has several samples") for note in found.description["notes"])
    (tmp_path / "h.csv").write_text(histogram_csv(TWO))
    assert not any("samples" in note for note in profile_files([tmp_path / "h.csv"]).description["notes"])


def test_a_sample_after_a_reset_adds_to_the_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(histogram_csv(TWO) + histogram_csv(ONE))
    assert profile_files([tmp_path / "h.csv"]).n_accesses == 7


def test_several_disks_are_added(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(histogram_csv(ONE) + histogram_csv(TWO, disk="8195 (scsi0:1)"))
    found = profile_files([tmp_path / "h.csv"])
    assert found.n_accesses == 7
    assert list(found.description["disks"]) == ["7/8194/scsi0:0", "7/8195/scsi0:1"]


def test_a_size_that_may_belong_to_two_bins_is_noted(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(histogram_csv([("w", 0, 8 << 20), ("w", 0, 1 << 20)]))
    found = profile_files([tmp_path / "h.csv"])
    assert found.accesses[Op.WRITE]["1M"] == 2
    assert any("8388608 bytes, so some belong to 32M" in note for note in found.description["notes"])


def test_a_damaged_histogram_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    lines = histogram_csv(TWO).splitlines()
    path.write_text("\n".join(lines[:70]))
    with pytest.raises(InputError, match="bucket limits") as caught:
        profile_files([path])
    assert caught.value.where == f"{path}, line 49"
    path.write_text("\n".join([*lines[:8], "99999" + lines[8], *lines[9:]]))
    with pytest.raises(InputError, match="sum up to"):
        profile_files([path])
    path.write_text("\n".join(lines[:24]))
    with pytest.raises(InputError, match="is missing"):
        profile_files([path])


def test_one_disk_of_several_in_histograms(tmp_path: Path) -> None:
    """The same profile as of a file with only this disk. Every command rejects an unknown disk name."""
    both, alone = tmp_path / "both.csv", tmp_path / "alone.csv"
    both.write_text(histogram_csv(TWO) + histogram_csv(ONE, disk="8195 (scsi0:1)"))
    alone.write_text(histogram_csv(ONE, disk="8195 (scsi0:1)"))
    name = "7/8195/scsi0:1"
    chosen, expected = profile_files([both], name="x", disks=[name]), profile_files([alone], name="x")
    assert (chosen.accesses, chosen.random) == (expected.accesses, expected.random)
    assert list(chosen.description["disks"]) == [name]
    assert chosen.description["left_out"] == {
        "7/8194/scsi0:0": {"accesses": len(TWO), "why": "another disk was requested"}
    }
    assert profile_files([both]).n_accesses == len(ONE) + len(TWO)
    for command in ("show", "profile", "jobs"):
        refused = run(command, both, "--disk", "nonsense", check=False)
        assert refused.returncode == 2
        assert "the trace has no disk 'nonsense'" in refused.stderr
        assert name in refused.stderr


def test_the_assumed_unit_of_response_times_is_noted(tmp_path: Path) -> None:
    for record, n_notes in ((record_1, 0), (record_2, 1)):
        (tmp_path / "t").write_bytes(b"".join(record(0x28, 8 * i) for i in range(20)))
        assert len(profile_files([tmp_path / "t"]).description["notes"]) == n_notes
