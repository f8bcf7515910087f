"""The REST server of the tests ignores clients that disconnect, and reports its faults."""

import socket
import struct
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("rados")

from rest_server import Endpoint, serving


class Cluster:
    """Answers when the client has gone."""

    def __init__(self, answer: bytes | Exception) -> None:
        self.handle = self
        self.endpoints = {"status": [Endpoint("GET", {})]}
        self.asked, self.gone = threading.Event(), threading.Event()
        self._answer = answer

    def mon_command(self, command: str, data: bytes) -> Any:
        self.asked.set()
        assert self.gone.wait(10)
        if isinstance(self._answer, Exception):
            raise self._answer
        return 0, self._answer, ""


def hang_up(cluster: Cluster) -> None:
    """Ask for the status and be killed before the answer comes; back when the server is done with it."""
    before = set(threading.enumerate())  # servers of other tests may still have threads
    with serving(cluster) as url:
        address = urlsplit(url)
        client = socket.create_connection((address.hostname, address.port))
        client.sendall(f"GET {address.path}status HTTP/1.1\r\n\r\n".encode())
        assert cluster.asked.wait(10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        cluster.gone.set()
        for thread in set(threading.enumerate()) - before:
            if "process_request_thread" in thread.name:
                thread.join(10)


def test_a_client_that_hangs_up_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    hang_up(Cluster(b"x" * (8 << 20)))
    assert capsys.readouterr().err == ""


def test_a_fault_of_the_server_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    hang_up(Cluster(ValueError("a mistake in the server")))
    assert "ValueError: a mistake in the server" in capsys.readouterr().err
