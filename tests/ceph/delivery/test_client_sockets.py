"""Clients are asked through their sockets what they run with, so their paths must be ones that Linux takes."""

import pwd
import re
import socket
import struct
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from cephfit.ceph.cluster_adapters import ClusterAdapters
from cephfit.ceph.delivery import client_conf
from cephfit.ceph.delivery.client_conf import ClientAccess, make_socket_folder, remove_socket_folder, socket_folder
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.targets.ceph.volume_clients import VolumeClients

LONGEST_PATH = 107  # sizeof(sockaddr_un.sun_path) less the zero, unix(7)
LONGEST = {"$pid": str(2**22), "$cctid": str(2**47 - 1)}  # PID_MAX_LIMIT; an address in user space


def longest_name() -> str:
    template = (files("cephfit.templates") / "client.conf.j2").read_text()
    (name,) = re.findall(r"^admin_socket = \{\{ socket_folder \}\}/(.*)$", template, re.MULTILINE)
    for word, longest in LONGEST.items():
        name = name.replace(word, longest)
    assert "$" not in name, "a word whose length this test does not know"
    return name


def test_roots_folder_for_a_cluster_has_room_for_a_clients_socket() -> None:
    folder = Path(pwd.getpwuid(0).pw_dir) / ".local/state/cephfit/clusters" / str(uuid.uuid4())
    sockets = socket_folder(folder)
    assert sockets.parent == folder
    assert len(f"{sockets}/{longest_name()}") <= LONGEST_PATH


def deep(folder: Path) -> Path:
    """A state folder in a home with a long path."""
    place = folder / ("d" * 60) / ("e" * 60)
    place.mkdir(parents=True)
    return place


@pytest.fixture(params=["XDG_RUNTIME_DIR", "TMPDIR"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cf", dir="/tmp") as place:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv(request.param, place)
        yield Path(place)


def test_sockets_of_a_deep_state_folder_lie_in_a_short_place_and_go_with_the_target(
    runtime: Path, tmp_path: Path
) -> None:
    folder = deep(tmp_path)
    sockets = make_socket_folder(folder)
    assert runtime in sockets.parents
    assert sockets == socket_folder(folder), "the next process must find it"
    assert sockets != socket_folder(folder / "other")
    assert (sockets.stat().st_mode & 0o777, sockets.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{sockets}/{longest_name()}")
        remove_socket_folder(folder, sockets)
        assert sockets.is_dir(), "a client still has a socket there"
    (sockets / longest_name()).unlink()
    remove_socket_folder(folder, sockets)
    assert list(runtime.iterdir()) == []


def test_sockets_of_killed_clients_go_with_the_target(runtime: Path, tmp_path: Path) -> None:
    folder = deep(tmp_path)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(f"{make_socket_folder(folder)}/1.2.asok")
    nothing: Any = None
    access = ClientAccess(client_id="cephfit", keyring="")
    clients = VolumeClients(
        "ceph", access=access, folder=folder, volumes=nothing, adapters=ClusterAdapters(nothing)
    )
    clients.remove_conf()
    assert list(runtime.iterdir()) == []


def test_a_folder_in_which_others_could_put_sockets_is_refused(runtime: Path, tmp_path: Path) -> None:
    folder = deep(tmp_path)
    place = make_socket_folder(folder)
    place.chmod(0o777)
    with pytest.raises(HostError, match="accessible to other users"):
        make_socket_folder(folder)


def test_the_lack_of_a_short_path_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = deep(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(HostError, match="short path") as caught:
        socket_folder(folder)
    assert "XDG_RUNTIME_DIR" in caught.value.remedy


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for clients' sockets; who does not answer there is not waited for long."""
    monkeypatch.setattr(client_conf, "_SOCKET_SECONDS", 0.2)
    with tempfile.TemporaryDirectory(prefix="cf", dir="/tmp") as place:
        yield Path(place)


def test_a_client_that_hangs_is_not_taken_for_one_that_is_gone(sockets: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hanging, socket.socket(socket.AF_UNIX) as killed:
        killed.bind(f"{sockets}/7.1.asok")
        hanging.bind(f"{sockets}/8.1.asok")
        hanging.listen()
        catalogue: Any = None
        cached = Configuration("cached", (Setting(Partition.CEPH, "client", "rbd_cache", True),))
        with pytest.raises(ClusterError, match="no answer to `version`: timed out") as caught:
            client_conf.drop_client_caches(sockets)
        assert (caught.value.where, caught.value.remedy[:23]) == (f"{sockets}/8.1.asok", "find out why process 8 ")
        with pytest.raises(ClusterError, match="no answer to `version`"):
            client_conf.read_back_clients(cached, catalogue, sockets)
        client_conf.remove_dead_sockets(sockets)
        assert [path.name for path in sockets.iterdir()] == ["8.1.asok"]


def test_a_client_that_answers_once_and_then_hangs_has_not_dropped_its_cache(sockets: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{sockets}/8.1.asok")
        listening.listen()

        def answer_once() -> None:
            with listening.accept()[0] as link:
                link.recv(4096)
                link.sendall(struct.pack(">I", 2) + b"{}")

        thread = threading.Thread(target=answer_once)
        thread.start()
        with pytest.raises(ClusterError, match="no answer to `help`: timed out"):
            client_conf.drop_client_caches(sockets)
        thread.join()


@contextmanager
def answering(path: Path, answers: Sequence[bytes]) -> Iterator[None]:
    """A client that gives these answers, one to each connection."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer_all() -> None:
            for answer in answers:
                with listening.accept()[0] as link:
                    link.recv(4096)
                    link.sendall(struct.pack(">I", len(answer)) + answer)

        thread = threading.Thread(target=answer_all)
        thread.start()
        yield
        thread.join()


def test_an_image_that_is_closed_meanwhile_has_no_cache_to_drop(sockets: Path) -> None:
    """Ceph answers a command on an image that the client has closed with words, not with JSON."""
    listed = b'{"rbd cache flush rbd/one": "", "rbd cache invalidate rbd/one": ""}'
    with answering(sockets / "8.1.asok", [b"{}", listed, *[b"ERROR: (2) No such file or directory\n\n"] * 2]):
        client_conf.drop_client_caches(sockets)


def test_a_client_that_refuses_to_drop_its_cache_is_an_error(sockets: Path) -> None:
    listed = b'{"rbd cache flush rbd/one": ""}'
    with (
        answering(sockets / "8.1.asok", [b"{}", listed, b"ERROR: (5) Input/output error\n"]),
        pytest.raises(ClusterError, match=r"no answer to `rbd cache flush rbd/one`: .*Input/output error"),
    ):
        client_conf.drop_client_caches(sockets)
