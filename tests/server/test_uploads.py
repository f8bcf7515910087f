"""Uploads: every format, several files, hostile ones, large ones."""

import gzip
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from running_server import TRACE, RunningServer, serving, settled

import cephfit
from cephfit.core.errors import RefusedError
from cephfit.core.units import GIB, MIB
from cephfit.server.worker_process import Limits, Workers

SAMPLES = Path(os.environ.get("CEPHFIT_SAMPLES", "/nowhere"))


def files_in(server: RunningServer) -> list[Path]:
    # Unlike Path.rglob, os.walk bears folders that are removed meanwhile.
    return [Path(folder, name) for folder, _, names in os.walk(server.state) for name in names if name != "lock"]


def test_a_trace_becomes_the_profile_that_the_command_line_makes(client: httpx.Client, tmp_path: Path) -> None:
    found = settled(client, client.post("/api/workloads", files={"file": ("pg.blkparse", TRACE)}))
    assert (found["state"], found["name"], found["nbytes"]) == ("ready", "pg.blkparse", len(TRACE))
    uploaded = cephfit.Profile.from_json(client.get(f"/api/workloads/{found['id']}/profile").json(), where="")
    path = tmp_path / "pg.blkparse"
    path.write_text(TRACE)
    read = cephfit.profile_trace(path)
    assert (uploaded.n_accesses, uploaded.accesses) == (2000, read.accesses)
    assert (uploaded.random_by_bin, uploaded.demands) == (read.random_by_bin, read.demands)


def test_compressed_files_options_and_profiles(client: httpx.Client) -> None:
    rows = "".join(f"{i * 1000},r,{i * 4096},4096\n" for i in range(100))
    options = {"columns": "time:us,op,offset:bytes,length:bytes", "name": "<b>own</b>"}
    packed = {"file": ("own.csv.gz", gzip.compress(rows.encode()))}
    own = settled(client, client.post("/api/workloads", files=packed, data=options))
    assert (own["state"], own["name"]) == ("ready", "<b>own</b>"), own["error"]
    profile = client.get(f"/api/workloads/{own['id']}/profile").content
    again = settled(client, client.post("/api/workloads", files={"file": ("p.json", profile)}))
    assert (
        client.get(f"/api/workloads/{again['id']}/profile").json()
        == client.get(f"/api/workloads/{own['id']}/profile").json()
    )


def test_completions_are_counted_with_and_without_a_choice_of_the_event(client: httpx.Client) -> None:
    """The form of the page sends an empty choice; then a trace of completions only is counted by them."""
    completions = "".join(f"{line}\n" for line in TRACE.replace(" Q ", " C ").splitlines())
    ids = []
    for event in ("", "C"):
        form = {"files": {"file": ("c.blkparse", completions)}, "data": {"action": event}}
        found = settled(client, client.post("/api/workloads", **form))
        assert found["state"] == "ready", found["error"]
        ids.append(found["id"])
    counts = [client.get(f"/api/workloads/{one}/profile").json()["accesses"] for one in ids]
    assert counts[0] == counts[1]
    assert '<option value="">queued; completed' in client.get("/").text


def test_names_with_html_are_shown_as_text(client: httpx.Client) -> None:
    evil = "<script>alert(1)</script>'--.trace".replace("/", "_")
    found = settled(client, client.post("/api/workloads", files={"file": (evil, TRACE)}, data={"name": evil}))
    for path in ("/", f"/workloads/{found['id']}", f"/workloads/{found['id']}?baselines=store"):
        page = client.get(path).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page


def test_several_files_of_one_recording(client: httpx.Client) -> None:
    lines = TRACE.splitlines()
    halves = ["\n".join(half) + "\n" for half in (lines[:1000], lines[1000:])]
    files = [("file", (f"part{i}.txt", half)) for i, half in enumerate(halves)]
    found = settled(client, client.post("/api/workloads", files=files, data={"parts": "yes"}))
    profile = client.get(f"/api/workloads/{found['id']}/profile").json()
    assert cephfit.Profile.from_json(profile, where="").n_accesses == 2000


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="CEPHFIT_SAMPLES is not set")
@pytest.mark.parametrize(
    "name", ["vscsi/cloudPhysicsIO.vscsi", "other/mqsim-tpcc-small.trace", "blktrace/takeoverjp/sample.blktrace.0"]
)
def test_real_traces(client: httpx.Client, name: str) -> None:
    path = SAMPLES / name
    found = settled(client, client.post("/api/workloads", files={"file": (path.name, path.read_bytes())}))
    profile = cephfit.Profile.from_json(client.get(f"/api/workloads/{found['id']}/profile").json(), where="")
    assert profile.accesses == cephfit.profile_trace(path).accesses
    assert client.get(f"/workloads/{found['id']}").text.count("<svg") >= 2


def test_files_are_removed_once_they_have_been_read(client: httpx.Client, server: RunningServer) -> None:
    found = settled(client, client.post("/api/workloads", files={"file": ("gone.trace", TRACE)}))
    left = [path.name for path in files_in(server) if found["id"] in str(path)]
    assert sorted(left) == ["description.html", "profile.json"]
    assert client.delete(f"/api/workloads/{found['id']}").status_code == 204
    assert not [path for path in files_in(server) if found["id"] in str(path)]
    assert client.get(f"/api/workloads/{found['id']}").status_code == 404


@pytest.mark.parametrize(
    "name",
    ["../../../etc/cron.d/x", "/etc/passwd", "..", "a/b", "..\\x", ".bashrc", "a\x00b", "a\nb", "x" * 400],
)
def test_names_with_paths_are_refused_and_write_nothing(
    client: httpx.Client, server: RunningServer, name: str
) -> None:
    before = files_in(server)
    body = f'--B\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\nx\r\n--B--\r\n'
    answer = client.post(
        "/api/workloads", content=body.encode(), headers={"Content-Type": "multipart/form-data; boundary=B"}
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["what"]
    assert files_in(server) == before


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data", b"", 415),
        ("multipart/form-data; boundary=B", b"", 400),
        ("multipart/form-data; boundary=B", b"garbage", 400),
        ("multipart/form-data; boundary=B", b"--B\r\nContent-Disp", 400),
        (
            "multipart/form-data; boundary=B",
            b'--B\r\nContent-Disposition: form-data; name="evil"\r\n\r\nx\r\n--B--',
            400,
        ),
        (
            "multipart/form-data; boundary=B",
            b'--B\r\nContent-Disposition: form-data; name="name"\r\n\r\n' + b"n" * 10_000 + b"\r\n--B--",
            400,
        ),
        (
            "multipart/form-data; boundary=B",
            b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n1\r\n'
            b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n2\r\n--B--\r\n',
            400,
        ),
        ("multipart/form-data; boundary=B", b"--B\r\n" + b"X: " + b"y" * 100_000, 400),
    ],
)
def test_forms_that_are_no_uploads_are_refused_in_words(
    client: httpx.Client, server: RunningServer, kind: str, body: bytes, status: int
) -> None:
    before = files_in(server)
    answer = client.post("/api/workloads", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["what"]
    assert files_in(server) == before


def test_an_announced_size_above_the_limit_is_refused_before_it_is_sent(server: RunningServer) -> None:
    """10 GB of zeros."""
    with socket.create_connection((urlsplit(server.url).hostname, urlsplit(server.url).port)) as connection:
        connection.sendall(
            b"POST /api/workloads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000000000\r\n"
            b"Content-Type: multipart/form-data; boundary=B\r\n\r\n--B\r\n"
        )
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413")


def chunks(n: int) -> Iterator[bytes]:
    yield b'--B\r\nContent-Disposition: form-data; name="file"; filename="zeros"\r\n\r\n'
    for _ in range(n):
        yield bytes(64 * 1024)
    yield b"\r\n--B--\r\n"


FORM = {"Content-Type": "multipart/form-data; boundary=B"}


def test_an_upload_that_grows_above_the_limit_is_refused_and_removed(
    client: httpx.Client, server: RunningServer
) -> None:
    before = files_in(server)
    try:
        answer = client.post("/api/workloads", content=chunks(1000), headers=FORM)
        assert answer.status_code == 413
        assert "larger than 8M" in answer.text
    except (httpx.WriteError, httpx.ReadError):
        pass  # the server closed the connection while the client was still sending
    assert files_in(server) == before
    assert client.get("/api/server").status_code == 200


def test_an_upload_that_ends_early_leaves_nothing(server: RunningServer) -> None:
    before = files_in(server)
    with socket.create_connection((urlsplit(server.url).hostname, urlsplit(server.url).port)) as connection:
        connection.sendall(
            b"POST /api/workloads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n"
            b"Content-Type: multipart/form-data; boundary=B\r\n\r\n--B\r\n"
            b'Content-Disposition: form-data; name="file"; filename="half"\r\n\r\nhalf'
        )
        deadline = time.monotonic() + 10
        while files_in(server) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert files_in(server) != before
    deadline = time.monotonic() + 10
    while files_in(server) != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert files_in(server) == before


def test_a_compressed_bomb_is_refused_in_words_and_the_server_goes_on(client: httpx.Client) -> None:
    """1 GB of zeros in 1 MB."""
    packed = gzip.compress(bytes(1 << 20)) * 1000
    found = settled(client, client.post("/api/workloads", files={"file": ("bomb.gz", packed)}))
    assert found["state"] == "failed"
    assert found["error"]
    assert client.get("/api/server").status_code == 200


def test_garbage_is_refused_in_words(client: httpx.Client) -> None:
    found = settled(client, client.post("/api/workloads", files={"file": ("noise", os.urandom(100_000))}))
    assert found["state"] == "failed"
    assert "Traceback" not in found["error"]
    assert str(Path.home()) not in found["error"]
    assert client.get(f"/api/workloads/{found['id']}/answer").status_code == 409


def test_a_worker_that_takes_too_long_or_too_much_is_ended(tmp_path: Path) -> None:
    """The limits hold for a real trace, which is read without them."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "pg.blkparse").write_text(TRACE)
    request = {"kind": "profile", "folder": str(files), "options": {}}
    assert Workers(Limits()).run(request, tmp_path)["profile"]["name"] == "pg.blkparse"
    with pytest.raises(RefusedError, match="it took longer than"):
        Workers(Limits(seconds=0.2)).run(request, tmp_path)
    with pytest.raises(RefusedError):
        Workers(Limits(memory_nbytes=400 * MIB)).run(request, tmp_path)


@pytest.mark.slow
def test_two_gigabytes_take_no_more_memory_than_two_megabytes(simulated_store: Path, tmp_path: Path) -> None:
    with (
        serving(simulated_store, tmp_path, "--max-upload", "3G") as server,
        httpx.Client(base_url=server.url, timeout=600) as client,
    ):
        client.post("/api/workloads", content=chunks(32), headers=FORM).raise_for_status()
        before = server.rss_nbytes()
        answer = client.post("/api/workloads", content=chunks(2 * GIB // (64 * 1024)), headers=FORM)
        assert (answer.status_code, answer.json()["nbytes"]) == (202, 2 * GIB)
        assert server.rss_nbytes() - before < 32 * MIB
