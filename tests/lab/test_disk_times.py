"""Disks that take time: the library that servers load, on loop devices."""

import ctypes
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cephfit.core.errors import LackingError
from cephfit.core.units import GIB, MIB, NS_PER_S
from cephfit.lab import machine
from cephfit.lab.devices import disks
from cephfit.lab.devices.disk_times import DiskTimes
from cephfit.lab.lab_spec import DiskLimits, LabSpec


def test_a_lab_without_such_disks_starts_its_servers_as_before(tmp_path: Path) -> None:
    times = DiskTimes(tmp_path)
    times.set("7:3", DiskLimits(iops=500, nbytes_per_s=MIB))
    assert times.limits("7:3") is None
    assert times.environment() == {}
    assert list(tmp_path.iterdir()) == []


def test_labs_of_earlier_versions_keep_their_disks() -> None:
    document = LabSpec().to_json()
    assert LabSpec.from_json(document).timed_disks
    del document["timed_disks"]
    assert not LabSpec.from_json(document).timed_disks


def test_a_missing_compiler_comes_with_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_program", lambda name: None)
    with pytest.raises(LackingError, match="cc: not found") as caught:
        DiskTimes(tmp_path).make()
    assert caught.value.remedy.endswith("apt install gcc libc6-dev")


class Disk:
    """A loop device, and programs that use it with the library."""

    def __init__(self, folder: Path) -> None:
        self.times = DiskTimes(folder)
        self.times.make()
        image = folder / "disk.img"
        disks.make_sparse(image, 64 * MIB)
        self.device = disks.attach_loop(image)
        self.number = disks.device_number(self.device)

    def limit(self, iops: int) -> None:
        """Let an I/O take time, and its bytes hardly any."""
        self.times.set(self.number, DiskLimits(iops=iops, nbytes_per_s=64 * GIB))

    def run(self, *argv: str) -> str:
        environment = {**os.environ, **self.times.environment()}
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout

    def fio(self, **options: object) -> dict[str, float]:
        """Run 4K accesses; return the shortest, mean and longest latency in seconds."""
        every = {"filename": self.device, "bs": "4k", "direct": 1, "ioengine": "libaio", "allow_file_create": 0}
        words = [f"--{name}={value}" for name, value in {**every, **options}.items()]
        job = json.loads(self.run("fio", "--name=x", "--output-format=json", *words))["jobs"][0]
        found = job["write" if "write" in str(options["rw"]) else "read"]["lat_ns"]
        return {name: found[name] / NS_PER_S for name in ("min", "mean", "max")}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    disks.detach_loop(made.device)


@pytest.mark.root
class TestOnALoopDevice:
    def test_the_limits_are_read_back_and_cleared(self, disk: Disk) -> None:
        limits = DiskLimits(iops=3000, nbytes_per_s=400 * MIB)
        disk.times.set(disk.number, limits)
        assert disk.times.limits(disk.number) == limits
        assert disk.times.limits("7:4095") is None
        disk.times.clear(disk.number)
        assert disk.times.limits(disk.number) is None

    @pytest.mark.parametrize("engine", ["psync", "pvsync", "libaio"])
    @pytest.mark.parametrize("rw", ["randread", "randwrite"])
    def test_an_io_takes_its_time_also_alone(self, disk: Disk, engine: str, rw: str) -> None:
        disk.limit(iops=50)
        assert disk.fio(rw=rw, ioengine=engine, number_ios=5, thinktime="30ms")["min"] >= 0.02

    def test_several_outstanding_are_done_one_after_the_other(self, disk: Disk) -> None:
        disk.limit(iops=50)
        found = disk.fio(rw="randread", number_ios=10, iodepth=10, iodepth_batch=10)
        assert found["max"] >= 10 * 0.02
        assert found["mean"] >= 5.5 * 0.02

    def test_bytes_take_time_too(self, disk: Disk) -> None:
        disk.times.set(disk.number, DiskLimits(iops=100_000, nbytes_per_s=10 * MIB))
        assert disk.fio(rw="read", bs="1m", number_ios=3)["min"] >= 0.1

    @pytest.mark.parametrize("rw", ["write", "randwrite"])
    def test_neighbours_that_are_submitted_together_are_one_io(self, disk: Disk, rw: str) -> None:
        """In any order, as the kernel sorts them: 64 I/Os would take 6.4 s, and one takes 0.1."""
        disk.limit(iops=10)
        assert disk.fio(rw=rw, size="256k", iodepth=64, iodepth_batch=64)["max"] < 3.2

    def test_a_cleared_disk_has_its_own_speed(self, disk: Disk) -> None:
        disk.limit(iops=1)
        disk.times.clear(disk.number)
        assert disk.fio(rw="randread", number_ios=10, iodepth=10, iodepth_batch=10)["max"] < 10

    def test_the_page_cache_answers_at_once_and_a_flush_waits(self, disk: Disk) -> None:
        """Four writes in as many places are four I/Os; ten reads of what was written are none."""
        disk.limit(iops=5)
        script = (
            "import os, sys, time\n"
            "disk = os.open(sys.argv[1], os.O_RDWR)\n"
            "started = time.monotonic()\n"
            "for i in range(4): os.pwrite(disk, b'x' * 4096, i << 20)\n"
            "os.fdatasync(disk)\n"
            "flushed = time.monotonic()\n"
            "for i in range(20): assert os.pread(disk, 4096, (i % 4) << 20) == b'x' * 4096\n"
            "print(flushed - started, time.monotonic() - flushed)\n"
        )
        to_flush, to_read = map(float, disk.run(sys.executable, "-c", script, str(disk.device)).split())
        assert to_flush >= 4 * 0.2
        assert to_read < 20 * 0.2

    def test_io_uring_is_reported_as_missing(self, disk: Disk) -> None:
        """Ceph then uses the calls that can be held back."""
        library = ctypes.CDLL(disk.times.environment()["LD_PRELOAD"])
        assert library.io_uring_queue_init(16, None, 0) == -errno.ENOSYS
