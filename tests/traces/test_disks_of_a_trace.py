"""Traces of several disks, independent or stacked: which disks are replayed, converted, described."""

import json
import os
import shutil
from pathlib import Path

import pytest
from test_trace_views import needs_fio, run
from trace_maker import DM0, SDA, WRITE, A, Event, Q, remap, write

from cephfit.cli.main import main
from cephfit.core.protocols import NullProgress
from cephfit.traces.access_source import omitted_disks
from cephfit.traces.readers.delimited.delimited_reader import DelimitedReader

LEFT_OUT = "not counted: 4 accesses of disk 8,0: it carries the accesses of 253,0, which are counted there"


class Shown(NullProgress):
    """A progress display that records its values."""

    steps = 0.0
    total: float | None = None

    def start(self, what: str, total: float | None = None) -> None:
        self.total = total

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        self.steps += steps


@pytest.fixture
def stacked(tmp_path: Path) -> Path:
    """Four writes to dm-0; each is passed on to sda and queued there again."""
    events = []
    for i in range(4):
        time, sector = 1_000_000 * i, 8000 * i
        events += [
            Event(time, sector, category=WRITE, device=DM0),
            Event(time + 1, sector + 2048, what=A, category=WRITE, device=SDA, payload=remap(DM0, sector)),
            Event(time + 2, sector + 2048, what=Q, category=WRITE, device=SDA),
        ]
    return write(tmp_path / "dm.blktrace.0", events)


@pytest.fixture
def three_disks(tmp_path: Path) -> Path:
    """One second of three disks in MSR's format: 10, 20 and 30 reads, each of one address."""
    rows = [
        (128166372000000000 + i * 10_000_000 // n, disk, 8192 * (disk + 1))
        for disk, n in enumerate((10, 20, 30))
        for i in range(n)
    ]
    file = tmp_path / "three.csv"
    file.write_text("".join(f"{time},h,{disk},Read,{place},4096,10\n" for time, disk, place in sorted(rows)))
    return file


@pytest.mark.parametrize("ending", ["iolog", "parquet"])
def test_of_a_disk_and_the_one_below_it_one_is_converted(stacked: Path, tmp_path: Path, ending: str) -> None:
    """The same disk that a profile counts, with the same message."""
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / f"t.{ending}"
    assert LEFT_OUT in run("profile", stacked).stdout.splitlines()
    assert LEFT_OUT in run("convert", stacked, "-o", out).stdout.splitlines()
    found = json.loads(run("profile", out, "--json").stdout)
    assert list(found["description"]["disks"]) == ["253,0" if ending == "parquet" else "disk-253_0"]
    assert found["accesses"]["write"]["4K"] == 4
    shown = json.loads(run("convert", stacked, "-o", out, "--json").stdout)
    assert (shown["accesses"], list(shown["left_out"])) == (4, ["8,0"])


def test_a_trace_that_cannot_show_levels_is_not_read_for_them(
    three_disks: Path, stacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a trace that can, memory holds a number per disk instead of a profile, and progress is shown."""
    assert omitted_disks([stacked]).keys() == {"8,0"}

    def read(*_: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr("cephfit.traces.description.recording.Counting.add", read)
    shown = Shown()
    assert omitted_disks([stacked], progress=shown) == {
        "8,0": {"accesses": 4, "why": "it carries the accesses of 253,0, which are counted there"}
    }
    assert shown.steps == shown.total == stacked.stat().st_size
    monkeypatch.setattr(DelimitedReader, "read", read)
    assert omitted_disks([three_disks]) == {}


def test_the_lower_disk_is_converted_on_request(stacked: Path, tmp_path: Path) -> None:
    run("convert", stacked, "-o", tmp_path / "t.iolog", "--disk", "8,0")
    assert "disk-8_0 write 1048576 4096" in (tmp_path / "t.iolog").read_text()


def test_a_pipe_that_cannot_be_read_twice_requires_a_choice_of_disk(
    stacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stacked.open(encoding="latin-1") as file:
        monkeypatch.setattr("sys.stdin", file)
        done = run("convert", "-", "-o", tmp_path / "t.iolog", check=False)
    assert done.returncode == 2
    assert "--disk 253,0 or --disk 8,0" in done.stderr
    assert not (tmp_path / "t.iolog").exists()


@pytest.mark.fio
@needs_fio
def test_of_a_disk_and_the_one_below_it_one_is_replayed(stacked: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(32 << 20))
    done = run("replay", stacked, "--file", data, "--i-know-it-writes").stdout
    assert LEFT_OUT in done.splitlines()
    assert "4 of 4 accesses replayed" in done
    content = data.read_bytes()
    written = [any(content[4096000 * i + at :][:4096]) for at in (0, 2048 * 512) for i in range(4)]
    assert written == [True] * 4 + [False] * 4


@pytest.mark.fio
@needs_fio
@pytest.mark.parametrize(
    "name",
    ["t.img", "my disk image.img", os.fsdecode(b"t\xff.img"), f"{'long' * 30}/{'path' * 30}/{'name' * 30}"],
    ids=["plain", "blanks", "not UTF-8", "longer than a word of fio's"],
)
def test_a_target_is_written_with_any_path(
    stacked: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fio runs in its own folder, and a line of its log is UTF-8 words of up to 256 bytes between blanks."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    with (tmp_path / name).open("wb") as file:
        file.truncate(32 << 20)
    monkeypatch.chdir(tmp_path)
    run("replay", stacked, "--file", name, "--i-know-it-writes")
    assert any((tmp_path / name).read_bytes()[:4096])
    assert (tmp_path / name).stat().st_size == 32 << 20


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_several_disks_are_not_replayed_onto_one_target(three_disks: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    refused = run("replay", three_disks, "--file", data, "--i-know-it-writes", check=False)
    assert refused.returncode == 2
    assert "several disks, h/0 and h/1, h/2" in refused.stderr
    assert "--disk h/0" in refused.stderr
    one = run("replay", three_disks, "--file", data, "--disk", "h/1", "--full-speed", "--i-know-it-writes")
    assert "20 of 20 accesses replayed" in one.stdout


@pytest.mark.parametrize(
    "command", ["show", *(pytest.param(name, marks=pytest.mark.slow) for name in ("compare", "jobs", "plot"))]
)
def test_disks_can_be_chosen_from_more_than_32(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "many.csv"
    trace.write_text("".join(f"{i % 40},R,{4096 * i},4096,{1000 * i}\n" for i in range(400)))
    arguments = [trace, trace] if command == "compare" else [trace]
    if command == "plot":
        pytest.importorskip("matplotlib")
        arguments += ["-o", tmp_path / "x.svg"]
    refused = run(command, *arguments, *([] if command == "jobs" else ["--describe", "full"]), check=False)
    assert refused.returncode == 2
    assert "--disk 0, or omit the behaviour: --describe fast" in refused.stderr
    for way in (["--disk", "7", "--disk", "0"], ["--describe", "fast"]):
        run(command, *arguments, *way)
    if command == "show":  # its note is tested with the aggregate's
        assert "--describe full" not in run(command, *arguments).stdout
    elif command != "jobs":
        run(command, *arguments)
    with pytest.raises(SystemExit) as wrong:
        main(["trace", command, *map(str, arguments), "--disk", "77"])
    assert wrong.value.code == 2
    assert "the trace has no disk '77'" in capsys.readouterr().err


def test_the_full_description_of_some_disks_is_that_of_a_trace_of_them(tmp_path: Path) -> None:
    rows = [f"{i % 3},{'RW'[i % 2]},{4096 * (i * 7 % 50)},4096,{1000 * i}\n" for i in range(300)]
    (tmp_path / "all.csv").write_text("".join(rows))
    (tmp_path / "some.csv").write_text("".join(row for row in rows if row[0] != "1"))
    disks = ("--disk", "0", "--disk", "2")
    chosen, alone = (
        json.loads(run("profile", tmp_path / name, "--describe", "full", *disks, "--json").stdout)
        for name in ("all.csv", "some.csv")
    )
    assert chosen["description"]["behaviour"] == alone["description"]["behaviour"]


def test_a_profile_file_is_of_all_its_disks(three_disks: Path, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    run("profile", three_disks, "-o", file)
    refused = run("show", file, "--disk", "h/1", check=False)
    assert refused.returncode == 2
    assert "trace profile TRACE --disk h/1" in refused.stderr
    run("profile", three_disks, "-o", file, "--disk", "h/1")
    assert "20 accesses" in run("show", file, "--disk", "h/1").stdout
