"""FileStore disks of OSDs that another mount namespace has mounted as well."""

import subprocess
from pathlib import Path

import pytest

from cephfit.ceph.environment.scopes import OsdStore
from cephfit.core.errors import HostError
from cephfit.core.units import MIB
from cephfit.lab import lab_lifecycle
from cephfit.lab.daemons.osd_layout import filesystem_at, lay_out, take_off
from cephfit.lab.devices import disks
from cephfit.lab.devices.disks import is_mounted_elsewhere, mounts
from cephfit.lab.lab_lifecycle import remove_all

pytestmark = pytest.mark.root


def is_backed_by(device: Path, folder: Path) -> bool:
    """From the kernel; the device's number may be reused at any time."""
    file = Path(f"/sys/block/{device.name}/loop/backing_file")
    return file.exists() and file.read_text().startswith(str(folder))


@pytest.fixture
def lab_folder(tmp_path: Path) -> Path:
    """With one disk, ext4 on it, mounted as the OSD's folder."""
    folder = tmp_path / "lab"
    folder.mkdir()
    image = folder / "osd.0.img"
    disks.make_sparse(image, 64 * MIB)
    lay_out(folder / "osd.0", OsdStore("filestore", "ext4"), disks.attach_loop(image), {})
    return folder


def test_an_osds_folder_is_emptied_and_its_disk_replaced(lab_folder: Path) -> None:
    (device,) = disks.loops_of(lab_folder)
    home = lab_folder / "osd.0"
    (home / "current").mkdir()
    assert filesystem_at(home) == "ext4"
    assert take_off(home, device)
    assert (filesystem_at(home), list(home.iterdir())) == ("", [])
    assert disks.device_nbytes(device) == 64 * MIB
    remove_all(lab_folder, None)
    assert not is_backed_by(device, lab_folder)


def test_a_lab_is_removed_although_a_namespace_holds_its_disk(lab_folder: Path) -> None:
    (device,) = disks.loops_of(lab_folder)
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            assert is_mounted_elsewhere(device)
            assert not take_off(lab_folder / "osd.0", device), "it cannot be had any more"
            remove_all(lab_folder, None)
            assert not lab_folder.exists()
            assert disks.loops_of(lab_folder) == {}
            assert not any(lab_folder in m.point.parents for m in mounts())
        finally:
            holder.kill()
    for _ in range(100):
        if not is_backed_by(device, lab_folder):
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert not is_backed_by(device, lab_folder), "the kernel lets go of it with the namespace"


def test_a_lab_is_not_reported_as_removed_while_parts_of_it_exist(
    lab_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is needed to find the rest; a new lab of the same name would find its mount."""
    point = lab_folder / "exports"
    point.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "none", point), check=True)

    def busy(folder: Path) -> None:
        if folder == lab_folder:
            raise HostError("failed with code 32: umount: target is busy.", where="umount")

    monkeypatch.setattr(lab_lifecycle, "_PASSES", 2)
    with monkeypatch.context() as refusing:
        refusing.setattr(lab_lifecycle, "unmount_under", busy)
        with pytest.raises(
            HostError, match=f"mount {point}; failed with code 32: umount: target is busy. is still"
        ):
            remove_all(lab_folder, None)
    assert point.is_dir()
    remove_all(lab_folder, None)
    assert not lab_folder.exists()
    assert not any(lab_folder in m.point.parents for m in mounts())
