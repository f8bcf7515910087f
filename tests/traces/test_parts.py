"""Consecutive files of one trace (``--parts``): the profile equals that of the joined file."""

import gzip
import itertools
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_blktrace_parts import ALL, numbered, recording
from test_formats import WHOLE
from trace_maker import SDA, C, Event, packed

from cephfit.cli.trace.trace_commands import command
from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.profile import Profile
from cephfit.traces import profile_files
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.recordings import ReadOptions


def comparable(profile: Profile) -> dict[str, Any]:
    """A profile without names that derive from files and notes on clocks that step back."""
    document = profile.to_json()
    description = document["description"]
    description["sources"] = [source["format"] for source in description["sources"]]
    description["notes"] = [
        note for note in description["notes"] if "earlier time than the previous one" not in note
    ]
    description["disks"] = list(description["disks"].values())
    return document | {"name": ""}


def cut(folder: Path, content: bytes, places: list[int]) -> list[Path]:
    """Files that ``cat`` would join to the content."""
    ends = sorted({place for place in places if 0 < place < len(content)})
    files = []
    for i, (begin, end) in enumerate(itertools.pairwise([0, *ends, len(content)])):
        files.append(folder / f"part{i}")
        files[-1].write_bytes(content[begin:end])
    return files


def rows(rng: random.Random, n: int) -> list[str]:
    """Rows in MSR's format, of two disks, with latencies up to many gaps; some times step back."""
    lines, time = [], 128166372003061629
    for _ in range(n):
        time += rng.choice([0, 10, 1000, 100_000, -50])
        op, disk, latency = rng.choice(["Read", "Write"]), rng.randrange(2), rng.choice([5, 700, 900_000])
        lines.append(f"{time},src1,{disk},{op},{4096 * rng.randrange(9000)},{rng.choice([512, 4096])},{latency}\n")
    return lines


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    n=st.integers(2, 60),
    n_cuts=st.integers(1, 8),
    full=st.booleans(),
    demands=st.booleans(),
)
def test_any_cut_of_a_text_with_latencies_gives_the_identical_profile(
    seed: int, n: int, n_cuts: int, full: bool, demands: bool
) -> None:
    """Accesses stay in flight across the cuts, which may be within a line."""
    rng = random.Random(seed)
    content = "".join(rows(rng, n)).encode()
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "whole").write_bytes(content)
        whole = profile_files([folder / "whole"], full=full, demands=demands)
        assert (whole.demands is not None) is demands
        files = cut(folder, content, [rng.randrange(len(content)) for _ in range(n_cuts)])
        found = profile_files(files, parts=True, full=full, demands=demands)
        assert comparable(found) == comparable(whole)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    n=st.integers(5, 100),
    n_files=st.integers(1, 3),
    n_parts=st.integers(2, 5),
    action=st.sampled_from(Action),
    full=st.booleans(),
)
def test_any_cut_of_a_blktrace_recording_gives_the_identical_profile(
    seed: int, n: int, n_files: int, n_parts: int, action: Action, full: bool
) -> None:
    """The files of the CPUs are each cut anywhere, and each part is in its own folder; a completion and a
    gap in the numbers may be in another part than the access."""
    rng = np.random.default_rng(seed)
    of_file: list[bytes] = [b""] * n_files
    for record in numbered(recording(n, rng, ALL, 40), rng, 0.05):
        of_file[int(rng.integers(0, n_files))] += record
    with TemporaryDirectory() as name:
        folder = Path(name)
        for i, content in enumerate(of_file):
            (folder / f"sda.blktrace.{i}").write_bytes(content)
            ends = [0, *sorted(rng.integers(0, len(content) + 1, n_parts - 1).tolist()), len(content)]
            for part, (begin, end) in enumerate(itertools.pairwise(ends)):
                (folder / str(part)).mkdir(exist_ok=True)
                (folder / str(part) / f"sda.blktrace.{i}").write_bytes(content[begin:end])
        try:
            whole = comparable(profile_files([folder / "sda"], action=action, full=full))
        except InputError as error:
            assert "no reads and no writes" in error.what or "no read or write" in error.what
            return
        parts = [folder / str(part) for part in range(n_parts)]
        assert comparable(profile_files(parts, parts=True, action=action, full=full)) == whole


IN_ONE_PIECE = ("parquet", "vscsi-histogram", "oracle-general")


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in IN_ONE_PIECE])
def test_a_cut_of_every_format_gives_the_identical_profile(tmp_path: Path, name: str) -> None:
    """In the middle of a line or record, and one part compressed."""
    (tmp_path / "whole").write_bytes(WHOLE[name])
    whole = profile_files([tmp_path / "whole"])
    files = cut(tmp_path, WHOLE[name], [len(WHOLE[name]) * 2 // 3 + 3])
    files[1].write_bytes(gzip.compress(files[1].read_bytes()))
    assert comparable(profile_files(files, parts=True)) == comparable(whole)


def test_gaps_between_parts_are_part_of_the_duration(tmp_path: Path) -> None:
    """One access per second, each 2.5 s long: three are outstanding, also where a part begins."""
    files = []
    for i in range(3):
        files.append(tmp_path / f"part{i}")
        files[-1].write_text("".join(f"{s},R,{4096 * s},4096,2.5\n" for s in range(10 * i, 10 * i + 10)))
    options = ReadOptions(columns="time:s,op,offset:bytes,length:bytes,latency:s")
    found = profile_files(files, parts=True, options=options).description
    assert found["duration_seconds"] == 29
    assert found["iops"] == pytest.approx(30 / 29)
    outstanding = found["histograms"]["outstanding"]["all"]
    shown = dict(zip(outstanding["limits"], outstanding["counts"], strict=False))
    assert (shown[1], shown[2], shown[4]) == (1, 1, 28)
    assert [len(source["files"]) for source in found["sources"]] == [3]


def test_parts_of_one_access_have_rates(tmp_path: Path) -> None:
    files = []
    for i in range(3):
        files.append(tmp_path / f"part{i}")
        files[-1].write_text(f"{1_000_000 * i},R,0,4096\n")
    found = profile_files(files, parts=True, options=ReadOptions(columns="time:us,op,offset,length"))
    assert found.description["iops"] == pytest.approx(1.5)


LOG = "fio version 3 iolog\n0 f add\n0 f open\n"


def test_parts_with_headers_are_read_separately(tmp_path: Path) -> None:
    """Two of fio's logs are not one log; if the clock continues, the gap between them counts."""
    (tmp_path / "a").write_text(LOG + "1000000 f read 0 4096\n2000000 f read 4096 4096\n")
    (tmp_path / "b").write_text(LOG + "5000000 f read 8192 4096\n6000000 f read 12288 4096\n")
    found = profile_files([tmp_path / "a", tmp_path / "b"], parts=True)
    assert found.n_accesses == 4
    assert found.random[Op.READ] == 0.0
    assert found.description["duration_seconds"] == 5
    assert "each was read separately" in " ".join(found.description["notes"])
    assert [source["accesses"] for source in found.description["sources"]] == [2, 2]


def test_the_durations_between_restarts_of_a_clock_are_added_up(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(LOG + "1000000 f read 0 4096\n3000000 f read 4096 4096\n")
    found = profile_files([tmp_path / "a", tmp_path / "b"], parts=True)
    assert found.description["duration_seconds"] == 4


def test_a_clock_that_restarts_is_noted(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("1000,R,0,4096\n2000,R,4096,4096\n")
    found = profile_files(
        [tmp_path / "a", tmp_path / "b"], parts=True, options=ReadOptions(columns="time:us,op,offset,length")
    )
    assert f"restarts with {tmp_path / 'b'}" in " ".join(found.description["notes"])
    assert found.description["duration_seconds"] == pytest.approx(0.002)


def test_damage_is_named_with_the_file_and_its_line(tmp_path: Path) -> None:
    lines = rows(random.Random(1), 20)
    lines[13] = "no row at all\n"
    for i in (0, 1):
        (tmp_path / f"part{i}").write_text("".join(lines[10 * i : 10 * i + 10]))
    with pytest.raises(InputError) as caught:
        profile_files([tmp_path / "part0", tmp_path / "part1"], parts=True)
    assert caught.value.where == f"{tmp_path / 'part1'}, line 4"


def test_damage_in_parts_that_end_within_a_line_is_named_in_the_joined_files(tmp_path: Path) -> None:
    """The first file alone would be truncated, which is not an error here."""
    lines = rows(random.Random(1), 20)
    lines[13] = "no row at all\n"
    content = "".join(lines).encode()
    files = cut(tmp_path, content, [len("".join(lines[:9])) + 20])
    with pytest.raises(InputError, match="no row at all") as caught:
        profile_files(files, parts=True)
    assert caught.value.where == f"{files[0]} to {files[1]} as one, line 14"


def test_parts_from_a_pipe(tmp_path: Path) -> None:
    content = "".join(rows(random.Random(2), 40)).encode()
    (tmp_path / "whole").write_bytes(content)
    first, second = cut(tmp_path, content, [1000])
    done = CliRunner().invoke(
        command, ["profile", "--parts", "-", str(second), "-o", str(tmp_path / "p.json")], input=first.read_bytes()
    )
    assert done.exit_code == 0, done.output
    piped = Profile.from_json(json.loads((tmp_path / "p.json").read_text()))
    assert comparable(piped) == comparable(profile_files([tmp_path / "whole"], demands=True))


def test_each_part_of_parquet_is_a_complete_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    content = "".join(rows(random.Random(3), 40))
    half = content.index("\n", len(content) // 2) + 1
    names = []
    for name, text in (("whole", content), ("a", content[:half]), ("b", content[half:])):
        (tmp_path / name).write_text(text)
        names.append(tmp_path / f"{name}.parquet")
        assert CliRunner().invoke(command, ["convert", str(tmp_path / name), "-o", str(names[-1])]).exit_code == 0
    whole, parts = profile_files(names[:1]), profile_files(names[1:], parts=True)
    assert parts.accesses == whole.accesses
    assert parts.random == whole.random
    assert not any("separately" in note for note in parts.description["notes"])


def test_the_losses_of_captures_are_added_up(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "t.blktrace.0").write_bytes(packed([Event(1000 * i, 8 * i)]))
        (tmp_path / str(i) / "t.capture.json").write_text('{"method": "blktrace", "lost_events": 3}')
    found = profile_files([tmp_path / "0", tmp_path / "1"], parts=True)
    assert found.description["lost_events"] == 6


def device_events(n: int, device: int, begin_ns: int, n_cpus: int = 2) -> list[list[Event]]:
    """For each CPU: sequential reads, a millisecond apart, each done after 100 us."""
    of_cpu: list[list[Event]] = [[] for _ in range(n_cpus)]
    for i in range(n):
        way = {"sector": 8 * i, "device": device, "cpu": i % n_cpus}
        time = begin_ns + 1_000_000 * i
        of_cpu[i % n_cpus] += [Event(time, **way), Event(time + 100_000, what=C, **way)]
    return of_cpu


def write_part(folder: Path, name: str, of_cpu: list[list[Event]]) -> None:
    folder.mkdir(exist_ok=True)
    for cpu, events in enumerate(of_cpu):
        (folder / f"{name}.blktrace.{cpu}").write_bytes(packed(events))


def n_latencies(profile: Profile) -> int:
    return sum(profile.description["histograms"]["latency_us"]["all"]["counts"])


def test_parts_of_several_devices_join_by_device(tmp_path: Path) -> None:
    """Files of two devices have the same CPU numbers."""
    for part in range(2):
        for name, device in (("sda", SDA), ("sdb", SDA + (1 << 20))):
            events = device_events(1000, device, 2_000_000_000 * part)
            write_part(tmp_path / str(part), name, events)
    found = profile_files([tmp_path / "0", tmp_path / "1"], parts=True)
    assert (found.n_accesses, n_latencies(found)) == (4000, 4000)
    assert found.random[Op.READ] == pytest.approx(2 / 3998)  # where the second part of each device restarts at 0
    assert found.description["duration_seconds"] == pytest.approx(2.999)


def test_devices_with_one_part_are_simultaneous(tmp_path: Path) -> None:
    for name, device in (("sda", SDA), ("sdb", SDA + (1 << 20))):
        write_part(tmp_path / "0", name, device_events(1000, device, 0))
    found, without = (profile_files([tmp_path / "0"], parts=parts) for parts in (True, False))
    assert (found.n_accesses, n_latencies(found), found.random[Op.READ]) == (2000, 2000, 0)
    assert found.description["duration_seconds"] == without.description["duration_seconds"]


def test_a_recording_that_continues_after_a_reboot(tmp_path: Path) -> None:
    """The clock of the kernel counts from its start."""
    for part, begin_ns in enumerate((9_000_000_000, 11_000_000_000, 0)):
        write_part(tmp_path / str(part), "sda", device_events(1000, SDA, begin_ns))
    found = profile_files([tmp_path / str(part) for part in range(3)], parts=True)
    assert (found.n_accesses, n_latencies(found)) == (3000, 3000)
    assert found.random[Op.READ] == pytest.approx(2 / 2999)
    assert found.description["duration_seconds"] == pytest.approx(2.999 + 0.999)
    restarts = [note for note in found.description["notes"] if "clock restarts" in note]
    assert [str(tmp_path / "2" / "sda.blktrace.0") in note for note in restarts] == [True]


def test_parts_of_text_with_a_restarted_clock(tmp_path: Path) -> None:
    for name, begin in (("a", 1_000_000_000), ("b", 0)):
        (tmp_path / name).write_text("".join(f"{begin + 1000 * i},R,{4096 * i},4096\n" for i in range(1000)))
    options = ReadOptions(columns="time:us,op,offset,length")
    found = profile_files([tmp_path / "a", tmp_path / "b"], parts=True, options=options).description
    assert found["duration_seconds"] == pytest.approx(1.998)
    assert found["iops"] == pytest.approx(1001, abs=1)
    assert not any("too high" in note for note in found["notes"])


def test_times_out_of_order_at_a_border_are_not_a_restart(tmp_path: Path) -> None:
    """As in a list sorted by completion that contains the issue times."""
    lines = [f"{1000 * (i ^ 3)},R,{4096 * i},4096\n" for i in range(1000)]
    options = ReadOptions(columns="time:us,op,offset,length")
    (tmp_path / "whole").write_text("".join(lines))
    files = cut(tmp_path, "".join(lines).encode(), [len("".join(lines[:502])), len("".join(lines[:701]))])
    found = profile_files(files, parts=True, options=options)
    assert comparable(found) == comparable(profile_files([tmp_path / "whole"], options=options))
    assert "the clock restarts in no part" in " ".join(found.description["notes"])


def test_parts_of_different_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(rows(random.Random(1), 20)))
    (tmp_path / "b").write_text(LOG + "1000000 f read 0 4096\n")
    with pytest.raises(InputError, match="different formats"):
        profile_files([tmp_path / "a", tmp_path / "b"], parts=True)
