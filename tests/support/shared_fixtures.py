"""Fixtures of several rooms: small sweeps, stores, loop devices, clouds, the lab as a target."""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loop_devices import loop_devices

from cephfit.lab.daemons.processes import command_line, is_marked, mentions
from cephfit.lab.devices.disks import loops_of, mounts
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.sweep_plan import Sweep

if TYPE_CHECKING:
    from openstack.connection import Connection
    from scripted_services import Services

    from cephfit.lab.cluster import Lab
    from cephfit.lab.lab_target import LabTarget

SMALL = """\
schema_version: 1
name: small
configurations:
  no-deferred:
    why: small writes go straight to the disk
    ceph: {osd: {bluestore_prefer_deferred_size_hdd: 0}}
  blob:
    ceph: {osd: {bluestore_max_blob_size_hdd: 512K}}
measurement:
  sizes: [4K, 1M]
  patterns: [read, randwrite]
  clients: 2
  volume_size: 4M
  repeats: 2
  ramp_seconds: 0.2
  run_seconds: 1
  iodepth: 4
  seed: 7
"""


@pytest.fixture
def small_text() -> str:
    return SMALL


@pytest.fixture
def small_sweep() -> Sweep:
    return parse_sweep(SMALL, file="small.yaml")


@pytest.fixture
def programs_of_workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready workloads find all their programs, also where these are not installed."""
    for name in (
        *("db_bench", "dbench", "gcc", "git", "initdb", "mariadbd", "postmark"),
        *("redis-benchmark", "redis-server", "rsync", "sysbench"),
    ):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "results.sqlite", create=True) as opened:
        yield opened


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes empty loop devices of a size, and takes them away again."""
    with loop_devices(tmp_path) as make:
        yield make


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for has happened already: in a recording, or in a script."""
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.fixture
def services() -> "Iterator[Services]":
    """The services of a cloud, which answer what the test scripts."""
    from scripted_services import Services, serving

    with serving(Services()) as server:
        yield server


@pytest.fixture
def scripted_cloud(services: "Services") -> "Iterator[Connection]":
    """The cloud whose services these are."""
    from scripted_services import connection_to

    connection = connection_to(services)
    yield connection
    connection.close()


@pytest.fixture(params=["zed", "2025.1"])
def recorded_release(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each release of OpenStack whose answers were recorded."""
    from recorded_cloud import released

    with released(request.param):
        yield request.param


@pytest.fixture
def played_cloud(request: pytest.FixtureRequest, recorded_release: str) -> "Iterator[Connection]":
    """A cloud that answers as one did when the scenario of the test's name was recorded."""
    from recorded_cloud import played, player

    with played(request.function.__name__.removeprefix("test_")):
        connection = player()
        yield connection
        connection.close()


@pytest.fixture
def own_run(cloud_user: "Connection") -> Iterator[str]:
    """The id of a run of which nothing is left in the end."""
    from cephfit.cloud.cloud_cleanup import clean
    from cephfit.core.protocols import NullProgress

    run_id = f"trouble-{secrets.token_hex(2)}"
    yield run_id
    _, left = clean(cloud_user, run_id, NullProgress())
    assert left == ()


@pytest.fixture
def cephfit() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command people run."""

    def run(
        *arguments: str, prefix: tuple[str, ...] = (), seconds: float = 180
    ) -> subprocess.CompletedProcess[str]:
        argv = [*prefix, sys.executable, "-m", "cephfit.cli.main", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)

    return run


@pytest.fixture
def traces_of() -> Callable[[Path], list[str]]:
    """All that this machine still has of a lab's folder, in words; asks the kernel, not cephfit's records."""

    def find(folder: Path) -> list[str]:
        processes = [
            f"process {entry.name}"
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit()
            and int(entry.name) != os.getpid()
            and (mentions(command_line(int(entry.name)), folder) or is_marked(int(entry.name), folder))
        ]
        left = [f"mount {m.point}" for m in mounts() if folder in (m.point, *m.point.parents)]
        files = [f"file {folder}"] if folder.exists() else []
        return processes + left + files + [f"loop {device}" for device in loops_of(folder)]

    return find


@pytest.fixture
def target(lab_cluster: "Lab") -> "Iterator[LabTarget]":
    from cephfit.lab.lab_target import LabTarget

    target = LabTarget(lab_cluster)
    try:
        yield target
        target.reset()
    finally:
        target.close()  # a lock that stays would fail every test after the one that failed
