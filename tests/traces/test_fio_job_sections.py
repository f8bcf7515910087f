"""A fio job file of several disks: one section for each, which follows the profile of the disk."""

import json
import subprocess
from pathlib import Path

import pytest
from test_trace_views import needs_fio, run
from test_vscsi import ONE, TWO, histogram_csv

from cephfit.traces import profile_files, profiles_by_disk


def rows_of(disk: int, *, n: int, op: str, nbytes: int, step: int, gap: int, took: int) -> list[str]:
    """Accesses of a disk in MSR's format, every ``gap`` of 100 ns; they are adjacent if the step is
    their length."""
    start = 128166372000000000
    return [f"{start + gap * i},h,{disk},{op},{step * i % (1 << 26)},{nbytes},{took}" for i in range(n)]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """For 10 seconds: 20 random reads of 4K per second (one at a time, each takes 10 ms), 10 sequential writes of
    64K per second (each takes 0.35 s: four at a time), and one single write."""
    rows = rows_of(0, n=200, op="Read", nbytes=4096, step=(13 << 20) + 4096, gap=500_000, took=100_000)
    rows += rows_of(1, n=100, op="Write", nbytes=65536, step=65536, gap=1_000_000, took=3_500_000)
    rows += rows_of(2, n=1, op="Write", nbytes=8192, step=8192, gap=0, took=1000)
    file = tmp_path / "three.csv"
    file.write_text("\n".join(sorted(rows)) + "\n")
    return file


def sections(text: str) -> dict[str, list[str]]:
    """The options of each section."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            found[name] = []
        elif line and not line.startswith("#"):
            found[name].append(line)
    return found


def thinktime_us(section: list[str]) -> int:
    (line,) = (line for line in section if line.startswith("thinktime="))
    return int(line[len("thinktime=") : -len("us")])


def test_each_disk_is_a_section_with_its_own_sizes_mix_randomness_depth_and_pace(three: Path) -> None:
    found = sections(run("jobs", three, "--seconds", "60").stdout)
    assert list(found) == ["global", "disk-h_0", "disk-h_1", "disk-h_2"]
    read, write, once = (found[f"disk-h_{i}"] for i in range(3))
    for line in ("rw=randread", "bssplit=4096/100,4096/100", "percentage_random=100,0", "iodepth=1"):
        assert line in read
    assert thinktime_us(read) == pytest.approx(
        40_000, rel=0.01
    )  # 50 ms from issue to issue, less the 10 ms that each takes
    for line in ("rw=randwrite", "bssplit=65536/100,65536/100", "percentage_random=0,0", "iodepth=4"):
        assert line in write
    assert thinktime_us(once) == pytest.approx(9_950_000, rel=0.01)  # once in the 9.95 s from first to last


@pytest.mark.parametrize("describe", ["full", "fast"])
def test_a_section_equals_the_job_of_its_disk_alone(three: Path, describe: str) -> None:
    together = sections(run("jobs", three, "--describe", describe).stdout)
    for disk in ("h/0", "h/1", "h/2"):
        alone = sections(run("jobs", three, "--disk", disk, "--describe", describe).stdout)["workload"]
        mine = together[f"disk-{disk.replace('/', '_')}"]
        assert [line for line in mine if "filename=" not in line] == [
            line for line in alone if "filename=" not in line
        ]


def test_a_disk_that_is_hardly_used_does_not_prolong_the_run(three: Path) -> None:
    """fio never ends a pause early: a pause of an hour would take an hour, whatever the run time."""
    text = run("jobs", three, "--seconds", "3").stdout
    assert thinktime_us(sections(text)["disk-h_2"]) == 3_000_000
    assert "# the workload has less than one access in 3 s; the job begins with one" in text.splitlines()


def test_some_of_the_disks(three: Path) -> None:
    assert list(sections(run("jobs", three, "--disk", "h/2", "--disk", "h/0").stdout)) == [
        *("global", "disk-h_0", "disk-h_2")
    ]
    assert list(sections(run("jobs", three, "--disk", "h/1").stdout)) == ["global", "workload"]


def test_the_comments_explain_how_the_sections_run(three: Path) -> None:
    text = run("jobs", three).stdout
    comments = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    assert "fio runs all sections at the same time, each on its own file" in comments
    assert "and at the recorded pace of its disk." in comments
    assert "and as fast as possible." in run("jobs", three, "--pace", "full-speed").stdout
    assert "fio --section=disk-h_0 THIS_FILE" in comments
    assert "Disk h/0: 66.4 % of the accesses" in comments  # 200 of 301
    assert "group_reporting" not in text  # it would sum up the disks
    assert "stonewall" not in "".join(line for line in text.splitlines() if not line.startswith("#"))


def test_a_disk_that_was_used_for_a_part_of_the_recording_is_noted(tmp_path: Path) -> None:
    rows = rows_of(0, n=100, op="Read", nbytes=4096, step=1 << 20, gap=1_000_000, took=50_000)
    rows += rows_of(1, n=100, op="Read", nbytes=4096, step=1 << 20, gap=200_000, took=50_000)
    (tmp_path / "t.csv").write_text("\n".join(sorted(rows)) + "\n")
    found = json.loads(run("jobs", tmp_path / "t.csv", "--json").stdout)
    first, second = found["sections"]
    assert not any("occurred within" in note for note in first["notes"])
    assert any("occurred within 1.98 s of the 9.9 s that were recorded" in note for note in second["notes"])
    # Ten per second over the whole recording, 5 ms each: the latency is not stretched with the rate.
    for section in ("disk-h_0", "disk-h_1"):
        assert thinktime_us(sections(found["job"])[section]) == pytest.approx(94_000, rel=0.01)


def test_json_lists_the_disk_and_file_of_each_section(three: Path, tmp_path: Path) -> None:
    arguments = ("--file", tmp_path / "x.data", "--disk-file", "h/1", "/dev/some:disk", "--size", "64M")
    found = json.loads(run("jobs", three, *arguments, "--json").stdout)
    assert [(s["disk"], s["name"], s["file"], s["accesses"], s["nbytes"]) for s in found["sections"]] == [
        ("h/0", "disk-h_0", f"{tmp_path}/x-h_0.data", 200, 64 << 20),
        ("h/1", "disk-h_1", "/dev/some:disk", 100, 64 << 20),
        ("h/2", "disk-h_2", f"{tmp_path}/x-h_2.data", 1, 64 << 20),
    ]
    assert "filename=/dev/some\\:disk" in sections(found["job"])["disk-h_1"]


def test_of_a_trace_of_one_disk_json_has_one_section(three: Path) -> None:
    found = json.loads(run("jobs", three, "--disk", "h/0", "--json").stdout)
    (section,) = found["sections"]
    assert (section["disk"], section["name"], section["file"]) == ("h/0", "workload", "cephfit-fio.data")
    assert section["notes"] == found["notes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--file", "/dev/null"), "3 disks cannot share this device"),
        (("--disk-file", "h/0", "a", "--disk-file", "h/1", "./a"), "would overwrite each other"),
        (("--disk-file", "h/7", "a"), "the disks are h/0, h/1, h/2"),
        (("--file", "a;b"), "cannot contain line ends, ; or #"),
        (("--file", "a#b.data"), "cannot contain line ends, ; or #"),
    ],
)
def test_files_that_would_belong_to_another_disk_are_refused(
    three: Path, arguments: tuple[str, ...], message: str
) -> None:
    """fio ends a line at ; and #: a.data-1;2 would be the file a.data-1."""
    refused = run("jobs", three, *arguments, check=False)
    assert refused.returncode == 2
    assert message in refused.stderr


def test_disks_with_similar_names_stay_distinct(tmp_path: Path) -> None:
    """No name can become fio's global section, end a comment or leave the folder."""
    names = ["a/b", "a:b", "a b", "global", '"../../etc, x"']
    rows = [f"{name},{i},R,{4096 * i},4096" for i in range(4) for name in names]
    (tmp_path / "t").write_text("\n".join(rows) + "\n")
    columns = ("--columns", "disk,time:ms,op,offset,length")
    found = json.loads(run("jobs", tmp_path / "t", *columns, "--file", tmp_path / "x", "--json").stdout)
    assert {s["disk"] for s in found["sections"]} == {*names[:4], "../../etc, x"}
    assert len({s["name"] for s in found["sections"]}) == len({s["file"] for s in found["sections"]}) == 5
    assert all(Path(s["file"]).parent == tmp_path and s["name"].startswith("disk-") for s in found["sections"])


def test_a_profile_of_several_disks_is_one_job_with_a_note(three: Path, tmp_path: Path) -> None:
    run("profile", three, "--describe", "full", "-o", tmp_path / "p.json")
    shown = json.loads(run("jobs", tmp_path / "p.json", "--json").stdout)
    assert list(sections(shown["job"])) == ["global", "workload"]
    assert any(note.startswith("the accesses of 3 disks are one job on one file") for note in shown["notes"])


def test_histograms_of_several_disks_are_sections_at_full_speed(tmp_path: Path) -> None:
    """One of the disks was not used."""
    file = tmp_path / "three.csv"
    used = histogram_csv(TWO) + histogram_csv(ONE, disk="8195 (scsi0:1)")
    file.write_text(used + histogram_csv([], disk="8196 (scsi0:2)"))
    found = sections(run("jobs", file, "--pace", "full-speed").stdout)
    assert list(found) == ["global", "disk-7_8194_scsi0_0", "disk-7_8195_scsi0_1"]
    for disk in ("7/8194/scsi0:0", "7/8195/scsi0:1"):
        alone = sections(run("jobs", file, "--pace", "full-speed", "--disk", disk).stdout)["workload"]
        mine = found[f"disk-{disk.replace('/', '_').replace(':', '_')}"]
        assert [line for line in mine if "filename=" not in line] == [
            line for line in alone if "filename=" not in line
        ]


def test_the_profiles_by_disk_are_those_of_each_disk_alone(three: Path) -> None:
    for full in (False, True):
        together = profiles_by_disk([three], full=full)
        alone = [profile_files([three], disks=[disk], full=full) for disk in ("h/0", "h/1", "h/2")]
        assert [p.to_json() for p in together] == [p.to_json() for p in alone]


@pytest.mark.fio
@needs_fio
def test_fio_runs_the_sections_at_once_and_reports_each_disk(three: Path, tmp_path: Path) -> None:
    """For 3 seconds: all start together, each issues its accesses on its own file."""
    job = tmp_path / "three.fio"
    run("jobs", three, "-o", job, "--file", tmp_path / "x.data", "--size", "16M", "--seconds", "3")
    subprocess.run(["fio", "--parse-only", str(job)], check=True, capture_output=True, timeout=60)
    done = subprocess.run(
        ["fio", "--output-format=json", str(job)],
        check=True, capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    found = {j["jobname"]: j for j in json.loads(done.stdout[done.stdout.index("{") :])["jobs"]}
    assert list(found) == ["disk-h_0", "disk-h_1", "disk-h_2"]
    assert all(2900 <= job["job_runtime"] < 6000 for job in found.values())
    assert max(job["elapsed"] for job in found.values()) < 9  # of the whole run; one after the other took 3 x 3 s
    reads, writes = found["disk-h_0"]["read"], found["disk-h_1"]["write"]
    assert found["disk-h_0"]["write"]["total_ios"] == found["disk-h_1"]["read"]["total_ios"] == 0
    assert reads["io_bytes"] == 4096 * reads["total_ios"]
    assert writes["io_bytes"] == 65536 * writes["total_ios"]
    # Each section has the pace of its disk: about 20 reads per second (40 ms plus the latency), and 10 writes.
    assert 30 <= reads["total_ios"] <= 80
    assert 10 <= writes["total_ios"] <= 60
    assert {f.name for f in tmp_path.glob("x*")} == {"x-h_0.data", "x-h_1.data", "x-h_2.data"}
