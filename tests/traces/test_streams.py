"""Sources of traces: compressed files, HTTP, any file system that fsspec supports."""

import bz2
import gzip
import http.server
import json
import lzma
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import zstandard

from cephfit.core.errors import HostError, InputError
from cephfit.traces import opening, profile_files
from cephfit.traces.recordings import Recording, consecutive_files, recordings_of

ROWS = "".join(f"{i},{'RW'[i % 2]},{4096 * i},4096,{1000 * i}\n" for i in range(5000)).encode()

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": zstandard.compress,
    # pzstd writes the length of each frame before it, in one that is skipped.
    "pzstd": lambda b: struct.pack("<III", 0x184D2A50, 4, len(b)) + zstandard.compress(b),
    "zstd-frames": lambda b: zstandard.compress(b[:999]) + zstandard.compress(b[999:]),
}


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_compressed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "no telling name"
    path.write_bytes(COMPRESSIONS[name](ROWS))
    assert profile_files([path]).n_accesses == 5000


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_compressed_and_cut_off(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(COMPRESSIONS[name](ROWS)[:-20])
    with pytest.raises(InputError, match="damaged") as caught:
        profile_files([path])
    assert "decompressed byte" in caught.value.where


def test_a_zstd_bomb_is_read_block_by_block(tmp_path: Path) -> None:
    """1 GiB of blanks in some 30 KB: rejected as no trace, without using that much memory."""
    import resource

    packer = zstandard.ZstdCompressor(level=1).compressobj()
    path = tmp_path / "t"
    with path.open("wb") as file:
        for _ in range(1 << 10):
            file.write(packer.compress(b" " * (1 << 20)))
        file.write(packer.flush())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError):
        profile_files([path])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_zstd_file_that_needs_more_memory_is_not_reported_as_damaged(tmp_path: Path) -> None:
    """As `zstd --long=28` writes it."""
    long = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=long).compressobj()
    path = tmp_path / "t"
    path.write_bytes(packer.compress(ROWS) + packer.flush())
    with pytest.raises(InputError, match="more than 128 MiB of memory") as caught:
        profile_files([path])
    assert "zstd -d --long=31" in caught.value.remedy


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    (tmp_path / "plain").write_bytes(ROWS)
    (tmp_path / "packed").write_bytes(zstandard.compress(ROWS))
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["plain", "packed"])
def test_through_http(server: str, name: str) -> None:
    found = profile_files([Path(f"{server}/{name}")])
    assert found.n_accesses == 5000
    assert found.name == name


def test_a_file_missing_on_the_server(server: str) -> None:
    with pytest.raises(InputError, match="cannot be read") as caught:
        profile_files([Path(f"{server}/none")])
    assert caught.value.where == f"{server}/none"
    assert caught.value.what == "the trace cannot be read: 404, message='File not found'"


def test_the_error_for_a_silent_server_states_the_reason() -> None:
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(InputError, match="Cannot connect") as caught:
        profile_files([Path(f"http://127.0.0.1:{port}/trace.csv")])
    assert "trace.csv" not in caught.value.what


def test_a_password_in_the_address_is_not_shown(server: str) -> None:
    with pytest.raises(InputError) as caught:
        profile_files([Path(f"{server.replace('//', '//me:secret@')}/none")])
    assert "secret" not in str(caught.value)


def test_possible_secrets_of_an_address_are_in_no_result(server: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(ROWS)
    signed = [f"{server}/{name}?X-Amz-Signature=secret{i}/a" for i, name in enumerate(["plain", "plain", "other"])]
    signed[2] = signed[2].replace("//", "//me:secret@")
    found = profile_files([opening.path_of(url) for url in signed])
    text = found.dumps()
    assert "secret" not in text and "Signature" not in text
    assert found.n_accesses == 15_000
    assert [source["files"] for source in found.description["sources"]] == [
        [f"{server}/plain"],
        [f"{server}/plain"],
        [f"{server}/other"],
    ]
    assert profile_files([Path(signed[0])]).name == "plain"
    with pytest.raises(InputError) as caught:
        profile_files([opening.path_of(signed[0])], disks=["none"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket//a//b.csv",
        "http://host/a/./b?next=http://other/c",
        "https://me:word@host:1/a?b=c//d/",
        "s3://bucket/a/",
        "memory://a/b",
    ],
)
def test_a_url_stays_as_it_was_written(url: str) -> None:
    assert opening.url_of(opening.path_of(url)) == url


@pytest.mark.parametrize("begin", ["file://", "file:", "FILE://localhost"])
def test_a_file_url_is_the_local_file(tmp_path: Path, begin: str) -> None:
    path = tmp_path / "two words.csv"
    path.write_bytes(ROWS)
    for text in (f"{begin}{path}", f"{begin}{path}".replace(" ", "%20")):
        assert opening.path_of(text) == path
        found = profile_files([Path(text)])
        assert found.n_accesses == 5000
        assert found.name == "two words.csv"


def test_the_command_line_takes_urls_as_they_are(server: str, tmp_path: Path) -> None:
    """A server that redirects or signs sees each slash."""
    program = [sys.executable, "-m", "cephfit.cli.main", "trace"]
    (tmp_path / "t.csv").write_bytes(ROWS)
    for words in (
        ["profile", f"{server}/plain?sig=a//b", "--json"],
        ["show", f"file://{tmp_path}/t.csv", "--json"],
    ):
        done = subprocess.run([*program, *words], capture_output=True, timeout=240, check=True)
        assert sum(json.loads(done.stdout)["accesses"]["read"].values()) == 2500
        assert b"sig=" not in done.stdout


def test_any_file_system_of_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://cephfit-test/trace.gz", "wb") as file:
        file.write(gzip.compress(ROWS))
    assert profile_files([Path("memory://cephfit-test/trace.gz")]).n_accesses == 5000


def test_without_fsspec_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(HostError, match="fsspec is not installed") as caught:
        profile_files([Path("s3://bucket/trace")])
    assert "cephfit[remote]" in caught.value.remedy


def test_standard_input_compressed_with_zstd() -> None:
    program = [sys.executable, "-m", "cephfit.cli.main", "trace", "profile", "-", "--json"]
    done = subprocess.run(program, input=zstandard.compress(ROWS), capture_output=True, timeout=120, check=True)
    assert sum(json.loads(done.stdout)["accesses"]["read"].values()) == 2500


def test_an_unknown_url_scheme() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match="cannot be read"):
        profile_files([Path("nosuchstore://bucket/trace")])


def test_a_binary_trace_through_http(server: str, tmp_path: Path) -> None:
    from trace_maker import mixed_workload, packed

    (tmp_path / "sda.blktrace.0").write_bytes(packed(mixed_workload(500)))
    assert profile_files([Path(f"{server}/sda.blktrace.0")]).n_accesses == 500


def test_the_query_of_a_url_does_not_affect_which_files_belong_together() -> None:
    """Signed addresses: each file of a recording has a different query."""
    first, second, other = (Path(f"https://h/x/sda.blktrace.{n}") for n in ("0?s=a/b", "1?s=2", "0?s=3"))
    (recording,) = recordings_of([first, second])
    assert (recording.name, recording.files) == ("sda", (first, second))
    assert consecutive_files([recording, Recording("sda", (other,))]) == [(first, other), (second,)]
    # The same file by two queries may be two versions of it, but never two CPUs.
    assert [r.files for r in recordings_of([first, other])] == [(first,), (other,)]
