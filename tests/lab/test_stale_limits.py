"""Stale limits: a former loop device of a lab may be reused by another lab at any time."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cephfit.core.units import MIB
from cephfit.lab import lab_lifecycle
from cephfit.lab.devices.disks import backing_file, device_number, make_sparse
from cephfit.lab.devices.fuse_devices import NODE, QemuExport
from cephfit.lab.devices.throttle import BlkioThrottle

pytestmark = pytest.mark.root


@pytest.fixture
def free_device() -> Path:
    """The last device, because running labs use the first free ones."""
    devices = sorted(Path("/dev").glob("loop[0-9]*"), key=lambda device: int(device.name[4:]), reverse=True)
    for device in devices:
        if backing_file(device) is None:
            return device
    pytest.skip("no loop device is free")


class Noting(BlkioThrottle):
    """Records what is cleared, after another event."""

    def __init__(self, root: Path, *, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(root)
        self.cleared: list[str] = []
        self._meanwhile = meanwhile

    def clear(self, device: str) -> None:
        self._meanwhile()
        self.cleared.append(device)


def test_a_free_devices_limit_is_removed_while_the_device_is_held(free_device: Path, tmp_path: Path) -> None:
    make_sparse(tmp_path / "theirs.img", 16 * MIB)
    tries: list[int] = []

    def another_lab_comes() -> None:
        attaching = ("losetup", str(free_device), str(tmp_path / "theirs.img"))
        tries.append(subprocess.run(attaching, capture_output=True, check=False).returncode)

    throttle = Noting(tmp_path, meanwhile=another_lab_comes)
    try:
        lab_lifecycle.clear_forgotten([free_device, Path("/dev/loop-that-is-gone")], throttle)
        assert throttle.cleared == [device_number(free_device)]
        assert tries != [0], "the limit that it sets would be taken off"
    finally:
        if tries == [0]:
            subprocess.run(("losetup", "--detach", str(free_device)), check=True)


@pytest.mark.parametrize(("journal", "is_cleared"), [("lab.json", False), ("notes.json", True)])
def test_another_labs_device_keeps_its_limit_and_no_other_device_does(
    free_device: Path, tmp_path: Path, journal: str, is_cleared: bool
) -> None:
    file = tmp_path / "osd.0" / "theirs.img"
    file.parent.mkdir()
    (tmp_path / journal).write_text("{}")
    make_sparse(file, 16 * MIB)
    subprocess.run(("losetup", str(free_device), str(file)), check=True)
    try:
        assert backing_file(free_device) == file
        throttle = Noting(tmp_path)
        lab_lifecycle.clear_forgotten([free_device], throttle)
        assert throttle.cleared == [device_number(free_device)] * is_cleared
    finally:
        subprocess.run(("losetup", "--detach", str(free_device)), check=True)


def test_a_device_that_is_held_briefly_is_waited_for(free_device: Path, tmp_path: Path) -> None:
    holder = os.open(free_device, os.O_RDONLY | os.O_EXCL)
    release = threading.Timer(0.3, os.close, (holder,))
    release.start()
    throttle = Noting(tmp_path)
    lab_lifecycle.clear_forgotten([free_device], throttle)
    release.join()
    assert throttle.cleared == [device_number(free_device)]


def test_a_device_over_a_file_of_a_killed_server_is_left(tmp_path: Path) -> None:
    """Nothing can be asked about that file, not even whether it exists."""
    make_sparse(tmp_path / "data", 16 * MIB)
    home = tmp_path / "export"
    home.mkdir()
    export = QemuExport(home)
    node = {"driver": "file", "filename": str(tmp_path / "data"), "node-name": NODE}
    device = export.attach([node], what="the file", where=str(tmp_path / "data"), remedy="")
    try:
        os.kill(int((home / "pid").read_text()), signal.SIGKILL)
        with pytest.raises(OSError, match="not connected"):
            while (file := backing_file(device)) is not None:
                file.stat()
        throttle = Noting(tmp_path)
        lab_lifecycle.clear_forgotten([device], throttle)
        assert throttle.cleared == []
    finally:
        export.detach()
    assert backing_file(device) is None
