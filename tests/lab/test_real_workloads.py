"""Real programs as ready workloads, on a loop device instead of a volume."""

import os
import runpy
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.lab.devices.disks import attach_loop, detach_loop
from cephfit.lab.workloads.program_workload import ProgramWorkload

PROGRAMS = Path(__file__).parents[2] / "lab" / "workloads" / "programs"
LINKS = sorted(path for path in PROGRAMS.iterdir() if path.is_symlink())


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("CEPHFIT_IMAGES", str(tmp_path))
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(384 * MIB)
    device = attach_loop(disk)
    yield Client("c0", {}, 384 * MIB, device)
    detach_loop(device)


@pytest.mark.usefixtures("programs_of_workloads")
def test_every_link_describes_a_workload_of_its_name() -> None:
    assert {ProgramWorkload(link).name for link in LINKS} == {link.name for link in LINKS}
    assert len(LINKS) >= 12


def test_a_missing_program_is_named_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "setpriv").symlink_to("/usr/bin/setpriv")  # starts each step
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="redis-benchmark not found: apt install redis-server redis-tools"):
        ProgramWorkload(PROGRAMS / "redis")


def test_the_newest_postgres_of_the_machine_is_used(tmp_path: Path) -> None:
    """Debian 13 has version 17, and no folder of version 15."""
    newest_postgres = runpy.run_path(str(PROGRAMS / "real_workloads.py"), run_name="programs")["newest_postgres"]
    for version in ("9.6", "15", "17"):
        (tmp_path / version / "bin").mkdir(parents=True)
    assert newest_postgres(tmp_path) == tmp_path / "17" / "bin"


@pytest.mark.root
@pytest.mark.parametrize(
    "name",
    [
        "log-append",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("backup", "git", "mariadb", "postmark", "redis", "rocksdb", "rsync")
        ),
    ],
)
def test_a_workload_runs_and_leaves_the_device_free(client: Client, name: str) -> None:
    workload = ProgramWorkload(PROGRAMS / name)
    workload.prepare(client)
    value, evidence = workload.run(client, 1, seed=1)
    assert value > 0.5
    assert evidence["operations"] >= 1
    assert client.device is not None
    os.close(os.open(client.device, os.O_RDWR | os.O_EXCL))  # refused while it is mounted anywhere


@pytest.mark.root
def test_runs_begin_with_the_same_bytes(client: Client) -> None:
    workload, device = ProgramWorkload(PROGRAMS / "log-append"), client.device
    assert device is not None
    workload.prepare(client)
    first = device.read_bytes()
    workload.run(client, 1, seed=1)
    changed = device.read_bytes()
    workload.prepare(client)
    assert changed != first == device.read_bytes()


@pytest.mark.root
def test_a_kill_ends_all_processes_and_frees_the_device(client: Client) -> None:
    workload = ProgramWorkload(PROGRAMS / "log-append")
    workload.prepare(client)
    environment = {
        **os.environ,
        "CEPHFIT_DEVICE": str(client.device),
        "CEPHFIT_SECONDS": "600",
        "CEPHFIT_SEED": "1",
    }
    running = subprocess.Popen([str(PROGRAMS / "log-append"), "run"], env=environment)
    time.sleep(2)
    with pytest.raises(OSError):
        os.open(str(client.device), os.O_RDWR | os.O_EXCL)
    running.send_signal(signal.SIGKILL)
    running.wait()
    workload.cleanup(client)
    os.close(os.open(str(client.device), os.O_RDWR | os.O_EXCL))
