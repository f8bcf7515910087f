"""Take a lab down by its name or folder, whatever state it is in.

Removing a lab, whatever state it is in: nothing here trusts that anything else still works.

Taking a lab down by its name or its folder, whatever is left of it.
"""

import os
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

from cephfit.ceph.environment.host_settings import HostSettings
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.core.errors import CephfitError, HostError
from cephfit.core.journal import Journal
from cephfit.core.target_lock import TargetLock
from cephfit.lab import processes, registry
from cephfit.lab.devices.disks import abandon, detach_loop, device_number, is_attached, loops_of
from cephfit.lab.devices.mounts import is_mounted_elsewhere, mounts, unmount_under
from cephfit.lab.devices.throttle import Throttle, find_throttle
from cephfit.lab.openstack import network
from cephfit.lab.registry import Record
from cephfit.lab.workloads.postgres import PostgresServer

_PASSES = 20
"""A killed `lab up` may have left programs that still attach or start something."""


def _clear_devices(folder: Path, throttle: Throttle | None) -> list[str]:
    """Detach all loop devices below ``folder``; what could not be, in words."""
    stuck = []
    if throttle is not None:
        for device in loops_of(folder):
            throttle.clear(device_number(device))
    for home in folder.glob("osd.*"):
        unmount_under(home)  # FileStore's file system; by its place, since btrfs has a device number of its own
    for device in loops_of(folder):
        try:
            if throttle is not None:
                throttle.clear(device_number(device))
            PostgresServer(device).remove()
            if is_mounted_elsewhere(device):
                abandon(device)
            else:
                detach_loop(device)
        except CephfitError as error:
            stuck.append(str(error))
    return stuck


def clear_forgotten(devices: list[Path], throttle: Throttle) -> None:
    """Take limits off loop devices that the lab had once and that are nobody's now."""
    for device in devices:
        if not device.exists() or is_attached(device):
            continue
        try:
            # Held so, it gets no file from anybody: another lab might set its own limit before ours is taken off.
            descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
        except OSError:
            continue
        try:
            if not is_attached(device):
                throttle.clear(device_number(device))
        finally:
            os.close(descriptor)


def what_is_left(folder: Path) -> list[str]:
    """The processes, loop devices and mounts below ``folder``, and its network interfaces, in words."""
    return [
        *(f"process {pid}" for pid in processes.of_folder(folder)),
        *(f"loop device {device}" for device in loops_of(folder)),
        *(f"mount {m.point}" for m in mounts() if m.point == folder or folder in m.point.parents),
        *(f"network interface {end}" for end in network.interfaces_there(folder)),
    ]


def anything_left(folder: Path) -> bool:
    """Whether a process, loop device or mount below ``folder``, or a network interface of it, exists."""
    return bool(what_is_left(folder))


def _left_for_sure(folder: Path) -> list[str]:
    """Look twice: a process in the middle of exec(2) has for an instant neither arguments nor environment."""
    if left := what_is_left(folder):
        return left
    time.sleep(0.05)
    return what_is_left(folder)


def remove_all(folder: Path, throttle: Throttle | None) -> None:
    """End all processes, mounts and loop devices of a folder and delete it.

    Raises:
        HostError: a device is held open by somebody else, a process cannot be ended or a mount not be taken off.
            All else is gone; the folder stays, so that the lab can be found and removed later.
    """
    left: list[str] = []
    refused: list[str] = []
    for _ in range(_PASSES):
        processes.kill(processes.of_folder(folder))
        network.remove(folder)
        stuck = _clear_devices(folder, throttle)
        try:
            unmount_under(folder)
            refused = []
        except HostError as error:
            refused = [error.what]
        left = _left_for_sure(folder)
        if not left:
            break
        if stuck:
            raise HostError(f"not all of the lab could be removed: {'; '.join(stuck)}", where=str(folder))
        time.sleep(0.1)
    else:
        raise HostError(
            f"not all of the lab could be removed: {'; '.join([*left, *refused])} is still there",
            where=str(folder),
            remedy="end what uses it, or wait (a process that waits for a disk, state D of ps, cannot end), then "
            "take the lab down again",
        )
    if throttle is not None:
        throttle.remove()
    shutil.rmtree(folder, ignore_errors=True)


def remove_lab(name: str, folder: Path | None) -> None:
    """Remove a lab, in whatever state it is: half made, half dead, or its folder half deleted.

    Args:
        name: of the lab; the journal's wins where there is one.
        folder: the lab's; None to find it by name.

    Raises:
        InputError: there is none of this name.
        HostError: another process is working on it, or holds one of its devices open; or a value of this machine's
            kernel that a sweep on it changed does not go back.
        ClusterError: a sweep or a workload is running on it.
    """
    place = folder.resolve() if folder else registry.folder_of(name)
    if place is None:
        place = registry.labs_root().resolve() / name
        if not anything_left(place):
            raise registry.no_such_lab(name)
    record = Record.read(place)
    if record is not None:
        name = record.name
    elif folder is not None and not anything_left(place):
        raise registry.no_such_lab(name)
    try:
        throttle = find_throttle(place)
    except HostError:
        throttle = None
    with ExitStack() as stack:
        if place.is_dir():
            stack.enter_context(registry.working_on(place))
        if (place / "target").is_dir():
            stack.callback(TargetLock(place / "target" / "lock", f"lab:{name}").release)
            _put_back_kernel_values(place / "target" / "journal.jsonl", name)
        if throttle is not None and record is not None:
            clear_forgotten([Path(device) for device in record.devices.values()], throttle)
        remove_all(place, throttle)
        registry.release(name)


def _put_back_kernel_values(file: Path, name: str) -> None:
    """What a killed sweep left on this machine outlives the lab, and its journal alone knows what was before."""
    if not file.exists():
        return
    try:
        settings = HostSettings(Hosts(all_local=True), Journal(file), osds=tuple, target=f"lab:{name}")
        settings.restore(with_disks=False)
    except CephfitError as error:
        which = f"{error.where}: {error.what}" if error.where else error.what
        remedy = f"{error.remedy}; then" if error.remedy else "look why; then"
        raise HostError(
            f"values of this machine's kernel that a sweep changed do not go back, so the lab stays: {which}",
            where=f"lab {name}",
            remedy=f"{remedy} take the lab down again. Without {file} it goes and the values stay",
        ) from None
