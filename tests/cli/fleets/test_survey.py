"""`cephfit survey` on saved counters and URLs: classes, profiles for `map`, wrong inputs."""

import csv
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fleets import KINDS, fleet, scrape

from cephfit.cli.main import cephfit
from cephfit.core.errors import CephfitError
from cephfit.core.profile_files import read_profile
from cephfit.core.values.image_io import ImageName, IoCounts
from cephfit.core.values.supply import WorkloadDemand

SECONDS = 600.0
FLEET = fleet(seconds=SECONDS)
BASE = IoCounts(1e6, 2e6, 1e10, 2e10, 5e11, 4e12)
BEFORE = {image.name: BASE for image in FLEET.images}
AFTER = {image.name: BASE.plus(image.counts) for image in FLEET.images}
RATES = """configuration,size,pattern,client,run,iops
A,{size},{pattern},c,0,100
A,{size},{pattern},c,1,104
B,{size},{pattern},c,0,300
B,{size},{pattern},c,1,303
"""


def survey(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cephfit, ["survey", *map(str, arguments)])


def answer(*arguments: str | Path) -> dict[str, Any]:
    done = survey(*arguments, "--json")
    assert done.exit_code == 0, done.exception
    return dict(json.loads(done.output))


def error_of(*arguments: str | Path) -> CephfitError:
    found = survey(*arguments).exception
    assert isinstance(found, CephfitError), found
    assert found.remedy
    return found


@pytest.fixture
def scrapes(tmp_path: Path) -> list[Path]:
    """Two scrapes of ceph-mgr, the second saved ten minutes later."""
    files = [tmp_path / "1.prom", tmp_path / "2.prom"]
    for i, (file, images) in enumerate(zip(files, (BEFORE, AFTER), strict=True)):
        file.write_text(scrape(images))
        os.utime(file, (1e9 + i * SECONDS, 1e9 + i * SECONDS))
    return files


@contextmanager
def serving(*texts: str) -> Iterator[str]:
    """Serve texts one after the other, the last one again and again."""
    with answering(*(b"HTTP/1.0 200 OK\r\n\r\n" + text.encode() for text in texts)) as url:
        yield url


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """Answer requests with these bytes, headers included, one after the other, the last one again and again."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_first_line_is_the_answer(scrapes: list[Path]) -> None:
    shown = survey(*scrapes).output
    counted = {
        kind: sum(i.counts.operations for i in FLEET.images if i.name.image.startswith(kind)) for kind in KINDS
    }
    databases, logs = counted["database"], counted["log"]
    covered = (databases + logs) / sum(counted.values())
    assert databases / sum(counted.values()) < 0.9 <= covered
    first = f"37 images in 4 classes; tracing these 2 covers {100 * covered:.0f} % of the operations"
    assert shown.splitlines()[0] == first
    assert "cephfit trace capture /dev/vdb --seconds 600 -o trace/" in shown


def test_scrapes_give_the_rates_of_every_image(scrapes: list[Path]) -> None:
    found = answer(*scrapes)
    assert found["seconds"] == SECONDS
    images = {row["image"]: row for one in found["classes"] for row in one["images"]}
    for image in FLEET.images:
        row, counts = images[image.name.image], image.counts
        assert row["operations_per_s"] == pytest.approx(counts.operations / SECONDS)
        assert row["nbytes_per_s"] == pytest.approx(counts.nbytes / SECONDS)
        assert row["write_latency_us"] == pytest.approx(2000, rel=1e-3)
    assert sum(row["share_of_operations"] for row in images.values()) == pytest.approx(1)


def test_the_interval_overrides_the_times_of_files(scrapes: list[Path]) -> None:
    assert "--interval" in survey(*scrapes).output
    found = answer(*scrapes, "--interval", "60")
    assert found["seconds"] == 60
    assert not [note for note in found["notes"] if "--interval" in note]


def test_the_times_of_a_federation_are_used(tmp_path: Path) -> None:
    files = [tmp_path / "new", tmp_path / "old"]
    files[0].write_text(scrape(AFTER, time_ms=1_700_000_300_000))
    files[1].write_text(scrape(BEFORE, time_ms=1_700_000_000_000))
    assert answer(*files)["seconds"] == pytest.approx(300)


def test_a_url_is_scraped_several_times() -> None:
    with serving(scrape(BEFORE), scrape(AFTER)) as url:
        found = answer(url, "--seconds", "1", "--interval", "0.5")
    total = sum(one["operations_per_s"] * found["seconds"] for one in found["classes"])
    assert found["seconds"] == pytest.approx(1, abs=0.5)
    assert total == pytest.approx(FLEET.counts.operations)


def test_the_profiles_have_the_rates_of_the_mean_image(scrapes: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "demand"
    found = answer(*scrapes, "-o", folder)
    assert sorted(map(Path, found["written"])) == sorted(folder.iterdir())
    for one in found["classes"]:
        profile = read_profile(folder / f"{one['name']}.json")
        demand = WorkloadDemand.of(profile)
        assert demand is not None
        n = len(one["images"])
        assert demand.accesses_per_s * n == pytest.approx(one["operations_per_s"], rel=1e-4)
        assert demand.nbytes_per_s * n == pytest.approx(one["nbytes_per_s"], rel=1e-4)


def test_map_and_show_accept_the_profiles(scrapes: list[Path], tmp_path: Path) -> None:
    """Databases read and write 8 KiB or a little more: the bins 4K and 32K."""
    survey(*scrapes, "-o", tmp_path / "demand")
    profile = str(tmp_path / "demand" / "class-1.json")
    rates = tmp_path / "rates.csv"
    text = [
        RATES.format(size=size, pattern=pattern).partition("\n")[2]
        for size in ("4K", "32K")
        for pattern in ("read", "write")
    ]
    rates.write_text("configuration,size,pattern,client,run,iops\n" + "".join(text))
    mapped = CliRunner().invoke(cephfit, ["map", profile, "--baselines", str(rates)])
    assert "Best: B" in mapped.output, mapped.exception
    assert "made from counters" in mapped.output
    assert "one of 12 images of its class" in " ".join(mapped.output.split())
    assert "all count as sequential" in mapped.output
    shown = CliRunner().invoke(cephfit, ["trace", "show", profile])
    assert shown.exit_code == 0, shown.exception
    assert "the trace does not contain: which accesses are random" in shown.output


def test_randomness_can_be_assumed(scrapes: list[Path], tmp_path: Path) -> None:
    survey(*scrapes, "-o", tmp_path, "--random", "80")
    profile = read_profile(tmp_path / "class-1.json")
    assert set(profile.random.values()) == {0.8}
    assert "assumption" in " ".join(profile.description["notes"])


def test_a_profile_and_a_row_of_each_image(scrapes: list[Path], tmp_path: Path) -> None:
    survey(*scrapes, "-o", tmp_path / "demand", "--images", "--csv", tmp_path / "images.csv")
    assert len(list((tmp_path / "demand").glob("image-*.json"))) == 37
    rows = list(csv.DictReader((tmp_path / "images.csv").open()))
    assert len(rows) == 37
    assert {row["class"] for row in rows} == {f"class-{n}" for n in range(1, 5)}
    image = next(i for i in FLEET.images if i.name.image == rows[0]["image"])
    assert float(rows[0]["operations_per_s"]) == pytest.approx(image.counts.operations / SECONDS, rel=1e-4)
    assert survey(*scrapes, "--images").exit_code == 2


def test_the_server_of_an_openstack_volume_is_named(tmp_path: Path) -> None:
    volume = "volume-0d6d4f3c-21cd-4ee1-a0d3-6d2ee8a1a1b2"
    rows = [{"pool": "volumes", "pool_namespace": "", "image": volume, "write_ops": 5, "read_ops": 1}]
    rows[0] |= {"write_bytes": 20480, "read_bytes": 4096, "write_latency": 2e6, "read_latency": 1e6}
    file = tmp_path / "iostat.json"
    file.write_text(json.dumps(rows))
    shown = survey(file).output
    assert "openstack volume show 0d6d4f3c-21cd-4ee1-a0d3-6d2ee8a1a1b2 -c attachments" in shown


def test_a_reset_between_scrapes_is_noted(tmp_path: Path) -> None:
    name = ImageName("vms", "", "a")
    files = [tmp_path / "1", tmp_path / "2"]
    files[0].write_text(scrape({name: BASE}))
    files[1].write_text(scrape({name: IoCounts(60, 60, 4096 * 60, 4096 * 60, 1, 1)}))
    found = answer(*files, "--interval", "60")
    assert found["classes"][0]["operations_per_s"] == 2
    assert "reset" in found["notes"][0]


def test_other_io_in_the_pool_is_noted(tmp_path: Path) -> None:
    name = ImageName("vms", "", "a")
    files = [tmp_path / "1", tmp_path / "2"]
    for i, file in enumerate(files):
        others = ['ceph_pool_metadata{pool_id="7",name="vms"} 1.0', f'ceph_pool_wr{{pool_id="7"}} {i * 400.0}']
        file.write_text(scrape({name: IoCounts(writes=i * 100.0, written_nbytes=i * 409600.0)}, others=others))
    found = answer(*files, "--interval", "60")
    assert "in pool vms, the images did 25 % of the clients' operations" in found["notes"][0]


def test_idle_images_are_counted_apart(tmp_path: Path) -> None:
    names = [ImageName("vms", "", word) for word in "ab"]
    files = [tmp_path / "1", tmp_path / "2"]
    files[0].write_text(scrape(dict.fromkeys(names, BASE)))
    files[1].write_text(scrape({names[0]: BASE, names[1]: BASE.plus(BASE)}))
    shown = survey(*files, "--interval", "60", "--csv", tmp_path / "t.csv").output
    assert shown.startswith("1 image in 1 class")
    assert "1 more image without I/O" in shown
    assert "vms,,a,idle" in (tmp_path / "t.csv").read_text()


def test_one_scrape_is_refused(scrapes: list[Path]) -> None:
    assert "read them twice" in error_of(scrapes[0]).remedy


def test_the_same_scrape_twice_has_no_rising_times(scrapes: list[Path]) -> None:
    assert "rising" in error_of(scrapes[0], scrapes[0]).what


def test_a_fleet_without_io_is_refused(scrapes: list[Path]) -> None:
    assert "no image did any I/O" in error_of(scrapes[0], scrapes[0], "--interval", "60").what


def test_a_manager_that_does_not_count_images_is_named(tmp_path: Path) -> None:
    file = tmp_path / "1"
    file.write_text("# TYPE ceph_health_status untyped\nceph_health_status 0.0\n")
    assert "ceph config set mgr mgr/prometheus/rbd_stats_pools" in error_of(file, file).remedy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<html><body>ceph-mgr</body></html>", "not the text format"),
        ("node_load1 0.5\n", "no metric of Ceph"),
        ("", "empty"),
        ('{"images": []}', "not the output of `rbd perf image iostat`"),
        ("[1, 2", "not JSON"),
        ('[{"image": "a", "pool": "p", "write_ops": "many"}]', "not the output of `rbd perf image iostat`"),
        ('[{"image": "a", "pool": "p", "write_ops": -1, "read_ops": 0, "write_bytes": 0, "read_bytes": 0,'
         ' "write_latency": 0, "read_latency": 0}]', "not the output of `rbd perf image iostat`"),
        ('ceph_rbd_write_ops{pool="p",namespace="",image="a"} 5\n', "no ceph_rbd_read_ops"),
        ("[]", "no image did any I/O"),
    ],
)  # fmt: skip
def test_other_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    assert words in error_of(file, file).what


def test_files_that_are_no_text_or_missing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01\xff" * 9)
    assert error_of(tmp_path / "binary").where.endswith("binary")
    assert "no such file" in error_of(tmp_path / "none").what


def test_kinds_of_sources_are_not_mixed(scrapes: list[Path], tmp_path: Path) -> None:
    (tmp_path / "iostat.json").write_text("[]")
    assert "together" in error_of(scrapes[0], tmp_path / "iostat.json").what
    assert "only source" in error_of("http://127.0.0.1:1/metrics", scrapes[0]).what
    assert "only source" in error_of("ceph", scrapes[0]).what


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@127.0.0.1:9/metrics",
        "http://user:secret@localhost/metrics",
        "HTTP://user:secret@localhost",
        "https://secret@localhost/metrics",
        "http://user:se/secret@localhost/metrics",
        "http://user:secret?x@localhost/metrics",
    ],
)
def test_a_url_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    done = survey(url, "--seconds", "1")
    for error in (error_of(url, "--seconds", "1"), error_of(url, "ceph")):
        assert "user or password" in error.what and "secret" not in str(error)
        assert "ceph mgr services" in error.remedy
    assert "secret" not in done.output


def test_an_address_that_does_not_answer_is_named_with_the_way_to_find_the_right_one() -> None:
    error = error_of("http://127.0.0.1:9/metrics", "--seconds", "1")
    assert "does not answer" in error.what and "ceph mgr services" in error.remedy


@pytest.mark.parametrize("url", ["http://127.0.0.1:nine/metrics", "http://[::1/metrics", "http://127.0.0.1/a b"])
def test_a_wrong_url_is_refused(url: str) -> None:
    assert "ceph mgr services" in error_of(url, "--seconds", "1").remedy


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nceph_rbd 1\n", "ended after 11 of 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nceph_rbd 1\n", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe\x00", "not text"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "Not Found"),
    ],
)
def test_an_answer_that_is_not_whole_or_not_http_is_refused(raw: bytes, what: str) -> None:
    with answering(raw) as url:
        assert what in error_of(url, "--seconds", "1").what


def test_a_missing_ceph_conf_is_named(tmp_path: Path) -> None:
    assert "does not exist" in error_of("ceph", "--conf", tmp_path / "ceph.conf").what


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_wrong_number_of_classes_is_refused(value: str, scrapes: list[Path]) -> None:
    assert survey(*scrapes, "--classes", value).exit_code == 2


def test_the_number_of_classes_can_be_given(scrapes: list[Path]) -> None:
    assert len(answer(*scrapes, "--classes", "2")["classes"]) == 2
    assert len(answer(*scrapes, "--classes", "auto")["classes"]) == 4


def test_files_saved_in_the_same_moment_need_an_interval(scrapes: list[Path]) -> None:
    """Counters that grew in ten minutes would be rates of milliseconds."""
    for file, seconds in zip(scrapes, (1e9, 1e9 + 0.004), strict=True):
        os.utime(file, (seconds, seconds))
    error = error_of(*scrapes)
    assert "0.004 s apart" in error.what
    assert "--interval" in error.remedy
    assert answer(*scrapes, "--interval", "600")["seconds"] == SECONDS


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1.0", "1e300"])
def test_a_value_that_is_no_counter_is_named_with_its_line(value: str, scrapes: list[Path]) -> None:
    lines = scrapes[1].read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if line.startswith("ceph_rbd_write_bytes{")) + 3
    lines[number] = f"{lines[number].rpartition(' ')[0]} {value}"
    scrapes[1].write_text("\n".join(lines) + "\n")
    error = error_of(*scrapes, "--interval", "60")
    assert error.where == f"{scrapes[1]}:{number + 1}"
    assert "ceph_rbd_write_bytes" in error.what


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_saved_counters_must_be_counters(value: float, tmp_path: Path) -> None:
    document = {
        "timestamp": 1.0,
        "pool_descriptors": {"0": "vms"},
        "counter_descriptors": [
            "write_ops",
            "read_ops",
            "write_bytes",
            "read_bytes",
            "write_latency",
            "read_latency",
        ],
        "counters": [{"0/a": [value, 1, 1, 1, 1, 1]}],
    }
    files = [tmp_path / "1.json", tmp_path / "2.json"]
    for i, file in enumerate(files):
        file.write_text(json.dumps(document | {"timestamp": 60.0 * i}))
    assert "a counter of image vms/a is not" in error_of(*files).what


def test_an_interval_of_more_than_a_year_is_refused(scrapes: list[Path]) -> None:
    assert survey(*scrapes, "--interval", "1e300").exit_code == 2
    assert survey(*scrapes, "--interval", str(400 * 86_400)).exit_code == 2


def test_the_next_step_judges_all_images_of_each_class(scrapes: list[Path], tmp_path: Path) -> None:
    """The classes are those of the fleet: 12 databases, 5 backups, 15 web servers, 5 logs."""
    printed = survey(*scrapes, "-o", tmp_path / "my demand").output
    line = next(line.strip() for line in printed.splitlines() if "cephfit capacity" in line)
    words = shlex.split(line)
    files, counts = words[2 : words.index("--baselines")], words[words.index("--clients-from") + 1]
    numbers = {name: int(n) for name, _, n in (pair.partition("=") for pair in counts.split(","))}
    profiles = [read_profile(Path(file)) for file in files]
    assert {p.name: p.description["images"]["n"] for p in profiles} == numbers
    assert sorted(numbers.values()) == [5, 5, 12, 15]


def test_swapped_files_hint_at_their_order(scrapes: list[Path]) -> None:
    swapped = " ".join(answer(*reversed(scrapes), "--interval", "600")["notes"])
    assert "of 37 images fell" in swapped and "give the older first" in swapped
    assert not answer(*scrapes, "--interval", "600")["notes"]


def test_a_folder_is_called_a_folder(tmp_path: Path) -> None:
    error = error_of(tmp_path)
    assert "folder" in error.what and "files" in error.remedy


@pytest.mark.parametrize("option", ["--seconds 60", "--conf x.conf", "--id x", "--admin ceph"])
def test_options_without_effect_on_files_are_refused(option: str, scrapes: list[Path]) -> None:
    error = error_of(*scrapes, *option.split())
    assert option.split()[0] in error.what and "saved files" in error.what
    assert survey(*scrapes, "--random", "80").exit_code == 2


def test_a_url_needs_no_connection_to_a_cluster() -> None:
    assert "--id has no effect on a URL" in error_of("http://127.0.0.1:1/metrics", "--id", "x").what


def test_options_of_the_environment_do_not_concern_files(
    scrapes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEPHFIT_ID", "survey")
    assert answer(*scrapes)["seconds"] == SECONDS
