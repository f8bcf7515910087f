"""`show`, `plot`, `jobs` and `compare` of workloads in several files; `convert` and `replay` take one recording.

What several files mean is what they mean to `trace profile`.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from test_parts import cut, device_events, rows, write_part
from test_trace_views import run
from trace_maker import SDA

from cephfit.core.values.profile import Profile

COLUMNS = ("--columns", "time:us,op,offset,length")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A trace of two disks, with latencies."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "part0").write_text("".join(rows(random.Random(5), 3000)))
    return tmp_path / "whole" / "part0"


@pytest.fixture
def parts(whole: Path, tmp_path: Path) -> list[Path]:
    """The same trace, cut within lines; the first part has the name of the whole."""
    return cut(tmp_path, whole.read_bytes(), [40_001, 90_003])


@pytest.fixture
def blktrace(tmp_path: Path) -> tuple[Path, list[Path]]:
    """Folders with blktrace files of two CPUs: the whole, and its parts."""
    begins_ns = (0, 2_000_000_000, 4_000_000_000)
    folders = [tmp_path / f"hour{i}" for i in range(len(begins_ns))]
    for folder, begin_ns in zip(folders, begins_ns, strict=True):
        write_part(folder, "sda", device_events(500, SDA, begin_ns))
    (tmp_path / "day").mkdir()
    for file in folders[0].iterdir():
        (tmp_path / "day" / file.name).write_bytes(b"".join((f / file.name).read_bytes() for f in folders))
    return tmp_path / "day", folders


def shown(*arguments: object) -> dict[str, Any]:
    """The output of `show`, without names of files and notes on times that step back."""
    document: dict[str, Any] = json.loads(run("show", *arguments, "--json").stdout)
    about = document["description"]
    about["sources"] = [source | {"files": 0} for source in about["sources"]]
    about["notes"] = [note for note in about["notes"] if "earlier time than the previous one" not in note]
    return document | {"name": ""}


def test_parts_of_a_text_are_shown_as_the_whole(whole: Path, parts: list[Path]) -> None:
    found = shown("--parts", *parts)
    assert found == shown(whole)
    assert found["description"]["behaviour"]["over_time"] is not None
    printed, of_whole = (run("show", *arguments).stdout for arguments in (("--parts", *parts), (whole,)))
    assert f"one recording of 3 files: {parts[0]}, {parts[1]}, {parts[2]}\n" in printed
    body = printed.partition("Size [bytes]")[2]
    assert body
    assert body == of_whole.partition("Size [bytes]")[2]


def test_parts_of_blktrace_folders_are_shown_as_the_whole(blktrace: tuple[Path, list[Path]]) -> None:
    whole, parts = blktrace
    found = shown("--parts", *parts)
    assert found == shown(whole)
    assert sum(found["accesses"]["read"].values()) == 1500
    assert found["description"]["duration_seconds"] == pytest.approx(4.499)


def test_a_plot_of_parts_is_that_of_the_whole(whole: Path, parts: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    only = ("--only", "lbn", "--only", "iops", "--only", "distance")
    for name, files in (("a.svg", (whole,)), ("b.svg", ("--parts", *parts))):
        run("plot", *files, "-o", tmp_path / name, *only)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_files_of_several_disks_are_distinguished_as_in_a_profile(tmp_path: Path) -> None:
    """Sequential reads of each; read as one file, they would jump between the addresses of the disks."""
    for name, place in (("a", 0), ("b", 1 << 30)):
        (tmp_path / name).write_text("".join(f"{1000 * i},R,{place + 4096 * i},4096\n" for i in range(100)))
    files = (tmp_path / "a", tmp_path / "b", *COLUMNS)
    found = json.loads(run("show", *files, "--json").stdout)
    assert found == json.loads(run("profile", *files, "--describe", "full", "--json").stdout)
    assert list(found["description"]["disks"]) == ["a", "b"]
    assert list(found["description"]["behaviour"]["disks"]) == ["a", "b"]
    assert found["random"]["read"] == 0
    printed = run("show", *files).stdout
    assert f"2 recordings, counted together: {tmp_path / 'a'}, {tmp_path / 'b'}\n" in printed
    assert "Heat map of disk b" in printed
    assert json.loads(run("show", *files, "--disk", "b", "--json").stdout)["description"]["disks"].keys() == {"b"}


def test_each_disk_of_parts_gets_its_section_of_a_job(
    whole: Path, parts: list[Path], blktrace: tuple[Path, list[Path]]
) -> None:
    for its_whole, its_parts, disks in ((whole, parts, ["src1/0", "src1/1"]), (*blktrace, ["8,0"])):
        one, joined = (
            json.loads(run("jobs", *files, "--json").stdout) for files in ((its_whole,), ("--parts", *its_parts))
        )
        assert joined["sections"] == one["sections"]
        assert [section["disk"] for section in joined["sections"]] == disks


def test_each_file_of_a_disk_gets_its_section_of_a_job(tmp_path: Path) -> None:
    for name, op in (("a", "R"), ("b", "W")):
        (tmp_path / name).write_text("".join(f"{1000 * i},{op},{4096 * i},4096\n" for i in range(100)))
    found = json.loads(run("jobs", tmp_path / "a", tmp_path / "b", *COLUMNS, "--json").stdout)
    assert [section["disk"] for section in found["sections"]] == ["a", "b"]
    of_a, _, of_b = found["job"].partition("[disk-b]")
    assert ("rw=randread\n" in of_a, "rw=randwrite\n" in of_b) == (True, True)


def test_a_workload_in_parts_is_compared_by_its_profile(whole: Path, parts: list[Path], tmp_path: Path) -> None:
    """As in the help: with everything that a comparison of traces contains."""
    profile = tmp_path / "a.json"
    run("profile", "--parts", *parts, "--describe", "full", "-o", profile)
    for a, b in ((profile, whole), (whole, profile)):
        found = json.loads(run("compare", a, b, "--json").stdout)
        assert found["total_variation"] == 0
        assert "distance_windowed" in {h["name"] for h in found["histograms"]}
        assert {h["total_variation"] for h in found["histograms"]} == {0}
    (tmp_path / "reads").write_text("".join(line for line in whole.read_text().splitlines(True) if "Read" in line))
    found = json.loads(run("compare", profile, tmp_path / "reads", "--json").stdout)
    assert found["total_variation"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("n", [1, 3])
def test_compare_explains_what_to_do_with_more_files(whole: Path, n: int) -> None:
    done = run("compare", *[whole] * n, check=False)
    assert done.returncode == 2
    assert f"exactly two workloads can be compared, and {n} are given" in done.stderr
    assert "cephfit trace profile [--parts] FILE... --describe full -o a.json" in done.stderr


VIEWS = (("show",), ("plot", "-o", "w.png"), ("jobs",))


@pytest.mark.parametrize("view", VIEWS)
def test_a_part_that_is_missing(parts: list[Path], view: tuple[str, ...]) -> None:
    done = run(*view, "--parts", parts[0], parts[2], check=False)
    assert done.returncode == 2
    assert f"{parts[0]} to {parts[2]} as one, line " in done.stderr
    assert "if a part is missing or misplaced, give all parts in their order" in done.stderr
    done = run(*view, "--parts", parts[0], "part9", check=False)
    assert done.returncode == 2
    assert "part9: the trace cannot be read: No such file" in done.stderr


@pytest.mark.parametrize("view", [("profile",), *VIEWS])
def test_parts_without_the_option(parts: list[Path], view: tuple[str, ...]) -> None:
    done = run(*view, *parts, check=False)
    assert done.returncode == 2
    assert "if the files are consecutive parts of one trace, add --parts" in done.stderr
    alone = run(*view, parts[1], check=False)
    assert alone.returncode == 2
    assert "--parts" not in alone.stderr


@pytest.mark.parametrize("view", VIEWS)
def test_formats_that_differ(parts: list[Path], tmp_path: Path, view: tuple[str, ...]) -> None:
    write_part(tmp_path / "0", "sda", device_events(10, SDA, 0))
    for in_a_row in ((), ("--parts",)):
        done = run(*view, *in_a_row, parts[0], tmp_path / "0", check=False)
        assert done.returncode == 2
        assert "files of different formats" in done.stderr
        assert "profile them one at a time" in done.stderr


@pytest.mark.parametrize("view", VIEWS)
def test_a_profile_among_traces(parts: list[Path], tmp_path: Path, view: tuple[str, ...]) -> None:
    run("profile", "--parts", *parts, "-o", tmp_path / "p.json")
    done = run(*view, "--parts", tmp_path / "p.json", parts[2], check=False)
    assert done.returncode == 2
    assert f"{tmp_path / 'p.json'}: a profile cannot be read together with other files" in done.stderr
    assert "give one profile alone" in done.stderr


def test_all_files_of_a_capture_may_be_shown(tmp_path: Path) -> None:
    """`trace/*` also matches the record of the capture, which has a schema version as a profile has."""
    write_part(tmp_path / "t", "sda", device_events(50, SDA, 0))
    (tmp_path / "t" / "sda.capture.json").write_text(
        '{"schema_version": 1, "method": "tracefs", "lost_events": 0}'
    )
    found = Profile.loads(run("show", *sorted((tmp_path / "t").iterdir()), "--json").stdout, where="show")
    assert found.n_accesses == 50


@pytest.mark.parametrize("command", ["convert", "replay"])
def test_commands_for_one_recording_explain_how_to_join_its_parts(
    whole: Path, parts: list[Path], tmp_path: Path, command: str
) -> None:
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    target = {
        "convert": ("-o", tmp_path / "t.iolog"),
        "replay": ("--file", tmp_path / "data", "--i-know-it-writes"),
    }
    done = run(command, *parts, *target[command], check=False)
    assert done.returncode == 2
    assert "one recording is needed, and 3 are given" in done.stderr
    assert f"cat PART... | cephfit trace {command} -" in done.stderr
    assert not (tmp_path / "t.iolog").exists()
