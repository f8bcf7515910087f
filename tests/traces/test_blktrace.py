"""Raw blktrace records: layouts, CPUs, what counts as an access, and what is wrong with a file."""

import bz2
import gzip
import lzma
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trace_maker as made
import zstandard
from trace_maker import Event, mixed_workload, packed, write

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.profile import Profile
from cephfit.traces import profile_files
from cephfit.traces.readers.blktrace import blktrace_reader
from cephfit.traces.readers.block_events.block_layer import Action


def figures(profile: Profile) -> dict[str, Any]:
    """Return a profile without the names of its files and without lost events."""
    document = profile.to_json()
    for key in ("sources", "lost_events", "lacks"):
        document["description"].pop(key)
    document.pop("name")
    return document


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [7, 8])
def test_both_versions_in_both_byte_orders(tmp_path: Path, version: int, order: str) -> None:
    events = mixed_workload(50)
    found = profile_files([write(tmp_path / "t", events, version=version, order=order)])
    assert found.n_accesses == 50
    assert found.description["nbytes"]["write"] == sum(
        e.nbytes for e in events if e.what == made.Q and e.category == made.WRITE
    )
    assert figures(found) == figures(profile_files([write(tmp_path / "plain", events)]))


def test_the_files_of_all_cpus_are_merged_by_time_whatever_their_numbers(tmp_path: Path) -> None:
    """CPU 0 in a file numbered 3, CPU 1 in one numbered 9, an empty file between: as one file in order."""
    events = mixed_workload(300)
    whole = profile_files([write(tmp_path / "whole", events)])
    write(tmp_path / "sda.blktrace.3", [e for e in events if e.cpu == 0])
    (tmp_path / "sda.blktrace.5").touch()
    write(tmp_path / "sda.blktrace.9", [e for e in events if e.cpu == 1])
    for named in ([tmp_path], [tmp_path / "sda"], sorted(tmp_path.glob("sda.*"), reverse=True)):
        assert figures(profile_files(named)) == figures(whole)


def test_the_size_of_the_blocks_read_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = mixed_workload(400)
    write(tmp_path / "sda.blktrace.0", [e for e in events if e.cpu == 0])
    write(tmp_path / "sda.blktrace.1", [e for e in events if e.cpu == 1])
    whole = figures(profile_files([tmp_path]))
    monkeypatch.setattr(blktrace_reader, "MAX_PAYLOAD", 70)
    for nbytes in (140, 1000, 4096):
        monkeypatch.setattr(blktrace_reader, "BLOCK_NBYTES", nbytes)
        assert figures(profile_files([tmp_path])) == whole


def test_a_missing_cpu_is_reported(tmp_path: Path) -> None:
    for cpu in (0, 1):
        write(tmp_path / f"sda.blktrace.{cpu}", [Event(5, cpu=cpu)])
    found = profile_files([tmp_path / "sda.blktrace.0"])
    assert found.description["notes"] == ["other CPUs of the same recording were not read: sda.blktrace.1"]


def test_missing_cpus_of_recordings_with_the_same_name_are_reported(tmp_path: Path) -> None:
    """From two folders, which are part of the names."""
    for folder in (tmp_path / "monday", tmp_path / "tuesday"):
        folder.mkdir()
        for cpu in (0, 1):
            write(folder / f"sda.blktrace.{cpu}", [Event(5, cpu=cpu)])
    found = profile_files([tmp_path / "monday" / "sda.blktrace.0", tmp_path / "tuesday" / "sda.blktrace.1"])
    missing = [f"other CPUs of the same recording were not read: sda.blktrace.{cpu}" for cpu in (1, 0)]
    assert found.description["notes"] == missing


def test_gzip_gives_the_same(tmp_path: Path) -> None:
    plain = write(tmp_path / "t", mixed_workload(100))
    packed_file = tmp_path / "t.gz"
    packed_file.write_bytes(gzip.compress(plain.read_bytes()))
    assert figures(profile_files([packed_file])) == figures(profile_files([plain]))


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2", "zst"])
def test_compressed_files_of_all_cpus_are_one_recording(tmp_path: Path, suffix: str) -> None:
    compress = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "zst": zstandard.compress}[suffix]
    events = mixed_workload(300)
    whole = profile_files([write(tmp_path / "whole", events)])
    for cpu in (0, 1):
        plain = packed([e for e in events if e.cpu == cpu])
        (tmp_path / f"sda.blktrace.{cpu}.{suffix}").write_bytes(compress(plain))
    for named in ([tmp_path], [tmp_path / "sda"], sorted(tmp_path.glob("sda.*"))):
        found = profile_files(named)
        assert list(found.description["disks"]) == ["8,0"]
        assert figures(found) == figures(whole)


def test_a_file_and_its_compressed_copy_are_not_both_counted(tmp_path: Path) -> None:
    """As ``gzip -k`` leaves them. Every access was counted twice."""
    plain = write(tmp_path / "sda.blktrace.0", mixed_workload(50))
    copy = tmp_path / "sda.blktrace.0.gz"
    copy.write_bytes(gzip.compress(plain.read_bytes()))
    for named in ([tmp_path], [tmp_path / "sda"], [plain, copy]):
        with pytest.raises(InputError, match="events of CPU 0 of one recording") as caught:
            profile_files(named)
        assert caught.value.where == f"{plain}, {copy}"
    found = profile_files([copy])
    assert (found.n_accesses, found.description["notes"]) == (50, [])


def test_only_reads_and_writes_are_accesses_and_the_rest_is_counted_by_reason(tmp_path: Path) -> None:
    trace = write(
        tmp_path / "t",
        [
            Event(0, what=0, category=made.NOTIFY, nbytes=0, payload=b"fio".ljust(16, b"\0")),
            Event(1, 0),
            Event(2, 8, category=made.WRITE | made.SYNC, what=made.Q | made.CGROUP, payload=b"\7" * 8),
            Event(3, 8, category=made.WRITE | made.DISCARD),
            Event(4, 0, 0, category=made.WRITE | made.FLUSH),
            Event(5, 0, 0, category=made.WRITE),
            Event(6, 0, 36, category=made.PASSTHROUGH | made.READ),
            Event(7, (1 << 64) - 1, 4096),
            Event(8, 16, category=made.WRITE, what=made.M),
            Event(9, what=2, category=made.NOTIFY, nbytes=0, payload=b"a message of odd length"),
        ],
    )
    found = profile_files([trace])
    assert found.accesses[Op.READ]["4K"] == 1
    assert found.accesses[Op.WRITE]["4K"] == 1
    assert found.description["skipped"] == {
        "discard": 1,
        "flush": 1,
        "no valid sector": 1,
        "passthrough": 1,
        "zero length": 1,
    }
    assert found.description["events"] == {"M": 1, "Q": 7}


def test_one_action_counts(tmp_path: Path) -> None:
    """Two adjacent writes are queued, merged, and go to the device as one of 8 KiB."""
    trace = write(
        tmp_path / "t",
        [
            Event(10, 0, category=made.WRITE),
            Event(11, 8, category=made.WRITE),
            Event(12, 8, category=made.WRITE, what=made.M),
            Event(20, 0, 8192, category=made.WRITE, what=made.D),
            Event(1020, 0, 8192, category=made.WRITE, what=made.C),
        ],
    )
    queued, issued = profile_files([trace]), profile_files([trace], action=Action.ISSUE)
    assert (queued.n_accesses, queued.description["nbytes"]["write"]) == (2, 8192)
    assert (issued.n_accesses, issued.description["nbytes"]["write"]) == (1, 8192)
    assert queued.description["percentiles"]["latency_us"]["all"]["n"] == 2  # the merged one completes as well
    assert issued.description["percentiles"]["latency_us"]["all"]["p50"] == pytest.approx(1.0, rel=0.04)


def test_an_action_missing_from_the_trace_is_named(tmp_path: Path) -> None:
    trace = write(tmp_path / "t", [Event(1, what=made.Q)])
    with pytest.raises(InputError, match="use --action Q"):
        profile_files([trace], action=Action.ISSUE)


def test_dm_and_its_disk_are_never_counted_together(tmp_path: Path) -> None:
    """A read of dm-0 is remapped to sda and queued there again."""
    trace = write(
        tmp_path / "t",
        [
            Event(1, 0, device=made.DM0),
            Event(2, 2048, what=made.A, device=made.SDA, payload=made.remap(made.DM0, 0)),
            Event(3, 2048, device=made.SDA),
            Event(4, 2048, device=made.SDA, what=made.D),
            Event(9, 2048, device=made.SDA, what=made.C),
            Event(10, 0, device=made.DM0, what=made.C),
        ],
    )
    found = profile_files([trace])
    assert found.n_accesses == 1
    assert list(found.description["disks"]) == ["253,0"]
    assert found.description["left_out"]["8,0"]["accesses"] == 1
    issued = profile_files([trace], action=Action.ISSUE)
    assert list(issued.description["disks"]) == ["8,0"]
    assert profile_files([trace], disks=["8,0"]).n_accesses == 1


@pytest.mark.parametrize("folders", [("", ""), ("one", "other")])
def test_dm_and_its_disk_in_separate_recordings_are_not_counted_together(
    tmp_path: Path, folders: tuple[str, str]
) -> None:
    """As ``blktrace -d /dev/dm-0 -d /dev/sda`` writes them: sda's file shows what came from dm-0."""
    for folder in folders:
        (tmp_path / folder).mkdir(exist_ok=True)
    write(tmp_path / folders[0] / "dm-0.blktrace.0", [Event(10 * i, 8 * i, device=made.DM0) for i in range(50)])
    below: list[Event] = []
    for i in range(50):
        remap = made.remap(made.DM0, 8 * i)
        below.append(Event(10 * i + 1, 2048 + 8 * i, what=made.A, payload=remap))
        below += [Event(10 * i + 2, 2048 + 8 * i), Event(10 * i + 3, 2048 + 8 * i, what=made.D)]
    write(tmp_path / folders[1] / "sda.blktrace.0", below)
    write(tmp_path / "sdb.blktrace.0", [Event(5, device=made.SDA + 16)])
    named = [tmp_path / folder / name for folder, name in zip(folders, ("dm-0", "sda"), strict=True)]
    found = profile_files([*named, tmp_path / "sdb"])
    assert found.n_accesses == 51
    assert list(found.description["disks"]) == ["dm-0/253,0", "sdb/8,16"]
    assert found.description["left_out"]["sda/8,0"]["accesses"] == 50
    assert profile_files([*named, tmp_path / "sdb"], disks=["sda/8,0"]).n_accesses == 50


def test_disks_of_two_hosts_with_the_same_number_stay_separate(tmp_path: Path) -> None:
    """On the first host, dm-0 and its disk were traced; on the second one, a disk without a device above it."""
    remap = Event(2, 2048, what=made.A, payload=made.remap(made.DM0, 0))
    write(tmp_path / "host1.blktrace.0", [Event(1, device=made.DM0), remap, Event(3, 2048)])
    write(tmp_path / "host2.blktrace.0", [Event(1, 8), Event(2, 16)])
    found = profile_files([tmp_path])
    assert list(found.description["disks"]) == ["host1/253,0", "host2/8,0"]
    assert list(found.description["left_out"]) == ["host1/8,0"]


def test_latency_and_accesses_in_flight(tmp_path: Path) -> None:
    """Three reads overlap; the second one's completion comes last."""
    trace = write(
        tmp_path / "t",
        [
            Event(0, 0),
            Event(1_000_000, 800),
            Event(2_000_000, 1600),
            Event(3_000_000, 0, what=made.C),
            Event(4_000_000, 1600, what=made.C),
            Event(5_000_000, 2400),
            Event(9_000_000, 800, what=made.C),
            Event(9_500_000, 2400, what=made.C),
        ],
    )
    histograms = profile_files([trace]).description["histograms"]
    outstanding = histograms["outstanding"]["all"]
    # itself counted: 1, 2, 3, and 2 at the fourth
    assert dict(zip(outstanding["limits"], outstanding["counts"], strict=False))[1] == 1
    assert dict(zip(outstanding["limits"], outstanding["counts"], strict=False))[2] == 2
    assert dict(zip(outstanding["limits"], outstanding["counts"], strict=False))[4] == 1
    latency = histograms["latency_us"]["all"]
    assert dict(zip(latency["limits"], latency["counts"], strict=False)) | {5000: 3, 15000: 1} == dict(
        zip(latency["limits"], latency["counts"], strict=False)
    )


def test_missing_sequence_numbers_are_lost_events(tmp_path: Path) -> None:
    """Numbers 1 2 5 6 on one CPU: two events are missing."""
    content = b"".join(Event(i, 8 * i).packed(i) for i in (1, 2, 5, 6))
    (tmp_path / "t").write_bytes(content)
    found = profile_files([tmp_path / "t"])
    assert found.description["lost_events"] == 2
    assert "lost 2 events" in found.description["notes"][0]


def test_losses_are_unknown_for_records_without_numbers(tmp_path: Path) -> None:
    """The kernel's blk tracer omits the number. Without the report of a capture, losses are unknown."""
    (tmp_path / "t.blktrace.0").write_bytes(b"".join(Event(i, 8 * i).packed(0) for i in range(3)))
    assert profile_files([tmp_path]).description["lost_events"] is None
    (tmp_path / "t.capture.json").write_text('{"method": "tracefs", "lost_events": 5}')
    found = profile_files([tmp_path])
    assert found.description["lost_events"] == 5
    assert found.description["events"] == {"Q": 3}


def test_the_kernels_note_on_lost_events_between_records_is_counted(tmp_path: Path) -> None:
    events = [Event(i, 8 * i) for i in range(4)]
    content = packed(events[:2]) + b"CPU:1 [LOST 37 EVENTS]\n" + b"".join(e.packed(3) for e in events[2:])
    (tmp_path / "t").write_bytes(content)
    found = profile_files([tmp_path / "t"])
    assert found.n_accesses == 4
    assert found.description["lost_events"] == 37


def test_parts_join_and_recordings_stay_separate(tmp_path: Path) -> None:
    events = mixed_workload(100)
    first, second = write(tmp_path / "1", events[:200]), write(tmp_path / "2", events[200:])
    whole = profile_files([write(tmp_path / "0", events)])
    joined = profile_files([first, second], parts=True)
    assert joined.accesses == whole.accesses
    assert joined.random == whole.random
    separate = profile_files([first, second])
    assert list(separate.description["disks"]) == ["1/8,0", "2/8,0"]
    assert separate.n_accesses == 100


def test_a_trace_cut_off_within_a_record_is_named_with_the_byte(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(packed([Event(i) for i in range(10)])[:-7])
    with pytest.raises(InputError, match="cut off") as caught:
        profile_files([trace])
    assert caught.value.where == f"{trace}, byte {9 * 48}"


def test_garbage_after_records_is_named_with_the_byte(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(packed([Event(i) for i in range(10)]) + b"GIF89a" * 20)
    with pytest.raises(InputError) as caught:
        profile_files([trace])
    assert caught.value.where == f"{trace}, byte {10 * 48}"


def test_records_of_the_other_byte_order_in_the_middle_are_named(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(packed([Event(1)]) + packed([Event(2)], order=">"))
    with pytest.raises(InputError) as caught:
        profile_files([trace])
    assert caught.value.where.endswith("byte 48")


def test_an_unknown_version_is_named(tmp_path: Path) -> None:
    trace = write(tmp_path / "t", [Event(1)], version=9)
    with pytest.raises(InputError, match="version 9; versions 7 and 8 are supported"):
        profile_files([trace])


def test_a_magic_number_within_a_payload_is_not_a_record(tmp_path: Path) -> None:
    decoy = Event(5, 123).packed(1)
    trace = write(
        tmp_path / "t",
        [
            Event(1, 0),
            Event(2, what=2, category=made.NOTIFY, nbytes=0, payload=decoy + b"x"),
            Event(3, 8),
        ],
    )
    assert profile_files([trace]).n_accesses == 2


needs_blkparse = pytest.mark.skipif(shutil.which("blkparse") is None, reason="blkparse is not installed")


@needs_blkparse
def test_blkparse_gives_the_same_profile_for_the_same_bytes(tmp_path: Path) -> None:
    """Its text, its dump and the raw file are one profile."""
    # blkparse counts time from the first event and expects a process notification
    events = mixed_workload(200)
    write(tmp_path / "sda.blktrace.0", [e for e in events if e.cpu == 0])
    write(tmp_path / "sda.blktrace.1", [e for e in events if e.cpu == 1])
    done = subprocess.run(
        ["blkparse", "-i", "sda", "-d", "dump"], cwd=tmp_path, capture_output=True, check=True, timeout=60
    )
    (tmp_path / "text").write_bytes(done.stdout)
    raw = profile_files([tmp_path / "sda"])
    assert raw.n_accesses == 200
    assert figures(profile_files([tmp_path / "dump"])) == figures(raw)
    assert figures(profile_files([tmp_path / "text"])) == figures(raw)


@needs_blkparse
@pytest.mark.parametrize("action", list(Action))
def test_blkparse_reading_standard_input_gives_the_same_profile(tmp_path: Path, action: Action) -> None:
    raw = write(tmp_path / "raw", mixed_workload(200, seed=4))
    done = subprocess.run(
        ["blkparse", "-i", "-"], input=raw.read_bytes(), capture_output=True, check=True, timeout=60
    )
    (tmp_path / "text").write_bytes(done.stdout)
    assert figures(profile_files([tmp_path / "text"], action=action)) == figures(
        profile_files([raw], action=action)
    )
