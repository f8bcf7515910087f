"""`cephfit serve` as a process of its own, and as an application in this process."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from cephfit.core.units import MIB
from cephfit.server.access_control import Access
from cephfit.server.application import create_application
from cephfit.server.service import Service, StoredRuns
from cephfit.server.worker_process import Limits
from cephfit.server.workloads import Workloads

TRACE = "\n".join(f"8,0 1 {i} {i / 100:.9f} 77 Q {'WR'[i % 2]} {i * 8} + 8 [postgres]" for i in range(1, 2001))
"""blkparse text: sequential reads and writes of 4K in turns."""


@dataclass(frozen=True)
class RunningServer:
    """A server: its address, its process, and the folder of its state."""

    url: str
    process: subprocess.Popen[str]
    state: Path
    printed: str

    @property
    def folders(self) -> list[Path]:
        """Folders of running or killed servers."""
        return sorted((self.state / "cephfit" / "serve").glob("server-*"))

    def rss_nbytes(self) -> int:
        """Largest resident memory so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


@contextmanager
def serving(store: Path, state: Path, *options: str, **environment: str) -> Iterator[RunningServer]:
    """Run `cephfit serve` on a free port; end it as Ctrl-C does."""
    import os

    process = subprocess.Popen(
        [sys.executable, "-m", "cephfit.cli.main", "serve", "--store", str(store), "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(state), "PYTHONUNBUFFERED": "1", **environment},
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        url = re.findall(r"http://\S+/", first)
        assert url, first
        second = process.stdout.readline() if "token" in options or "--listen" in options else ""
        yield RunningServer(url[0].replace("0.0.0.0", "127.0.0.1").rstrip("/;"), process, state, first + second)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
            assert process.returncode == 0, process.returncode
        process.stdout.close()


def application(store: Path, folder: Path, *, access: Access | None = None, most_nbytes: int = MIB) -> ASGIApp:
    """The application without a process, for requests in this one."""
    service = Service(StoredRuns(str(store)), Workloads(folder, Limits()), most_nbytes)
    return create_application(service, access or Access())


def settled(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """Wait until an uploaded workload has been read; return its state."""
    assert answer.status_code == 202, answer.text
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found: dict[str, Any] = client.get(f"/api/workloads/{answer.json()['id']}").json()
        if found["state"] in ("ready", "failed"):
            return found
        time.sleep(0.1)
    raise AssertionError(f"still not read: {found}")
