"""What a server leaves behind: nothing, or nothing that the next start does not remove."""

import fcntl
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from running_server import TRACE, serving, settled

from cephfit.server import application


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie, which waits only for its parent to notice."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
def test_a_server_that_ends_removes_its_uploads(simulated_store: Path, tmp_path: Path) -> None:
    with serving(simulated_store, tmp_path) as server, httpx.Client(base_url=server.url) as client:
        settled(client, client.post("/api/workloads", files={"file": ("a.trace", TRACE)}))
        assert len(server.folders) == 1
        folders = server.folders
    assert not any(folder.exists() for folder in folders)


@pytest.mark.slow
def test_a_server_that_is_terminated_removes_its_uploads(simulated_store: Path, tmp_path: Path) -> None:
    with serving(simulated_store, tmp_path) as server:
        server.process.terminate()
        assert server.process.wait(timeout=30) == 0
        assert server.folders == []


def test_two_that_start_at_the_same_time_do_not_remove_each_others_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, is_first = fcntl.flock, True

    def late(file: int, operation: int) -> None:
        nonlocal is_first
        if operation == fcntl.LOCK_EX and is_first:
            is_first = False
            application.remove_abandoned(tmp_path)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    folder = application.ServerFolder(tmp_path)
    assert not is_first
    assert list(tmp_path.iterdir()) == [folder.path]
    folder.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_next_start_removes_what_a_killed_server_left(simulated_store: Path, tmp_path: Path) -> None:
    with serving(simulated_store, tmp_path) as server, httpx.Client(base_url=server.url) as client:
        long = {"file": ("long.trace", "\n".join([TRACE] * 300)), "describe": (None, "full")}
        assert client.post("/api/workloads", files=long).status_code == 202
        deadline = time.monotonic() + 30
        while not (workers := children_of(server.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert workers
        server.process.kill()
        server.process.wait()
        time.sleep(1)
        assert not any(is_running(pid) for pid in workers), "the kernel ends workers with the server"
        (left,) = server.folders
    with serving(simulated_store, tmp_path) as second, serving(simulated_store, tmp_path) as third:
        assert not left.exists()
        assert len(third.folders) == 2, "folders of running servers stay"
        assert second.folders == third.folders
