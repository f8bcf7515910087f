"""Remove a lab by its name or folder, in any state: no step relies on another part of the lab to work."""

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
"""Number of passes: programs of a killed `lab up` may still attach devices or start processes."""


def _clear_devices(folder: Path, throttle: Throttle | None) -> list[str]:
    """Detach all loop devices below ``folder``; return messages on those that could not be detached."""
    stuck = []
    if throttle is not None:
        for device in loops_of(folder):
            throttle.clear(device_number(device))
    for home in folder.glob("osd.*"):
        unmount_under(home)  # FileStore's file system; found by path, because btrfs has a separate device number
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
    """Remove limits from former loop devices of the lab that no lab uses now."""
    for device in devices:
        if not device.exists() or is_attached(device):
            continue
        try:
            # While it is held, no other lab can attach it and set a limit before this one is removed.
            descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
        except OSError:
            continue
        try:
            if not is_attached(device):
                throttle.clear(device_number(device))
        finally:
            os.close(descriptor)


def what_is_left(folder: Path) -> list[str]:
    """Return the processes, loop devices and mounts below ``folder``, and its network interfaces, as text."""
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
    """Check twice: during exec(2), a process briefly has neither arguments nor environment."""
    if left := what_is_left(folder):
        return left
    time.sleep(0.05)
    return what_is_left(folder)


def remove_all(folder: Path, throttle: Throttle | None) -> None:
    """End all processes, mounts and loop devices of a folder and delete it.

    Raises:
        HostError: a device is in use, a process cannot be killed, or a mount cannot be removed. Everything else is
            removed; the folder stays, so that the lab can be found and removed later.
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
            "remove the lab again",
        )
    if throttle is not None:
        throttle.remove()
    shutil.rmtree(folder, ignore_errors=True)


def remove_lab(name: str, folder: Path | None) -> None:
    """Remove a lab in any state, also one that is incomplete or whose folder is partly deleted.

    Args:
        name: of the lab; the name in its journal has priority.
        folder: of the lab; None: find it by name.

    Raises:
        InputError: there is none of this name.
        HostError: another process is changing it, or holds one of its devices open; or a kernel value that a sweep
            changed cannot be restored.
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
            _restore_kernel_values(place / "target" / "journal.jsonl", name)
        if throttle is not None and record is not None:
            clear_forgotten([Path(device) for device in record.devices.values()], throttle)
        remove_all(place, throttle)
        registry.release(name)


def _restore_kernel_values(file: Path, name: str) -> None:
    """Restore kernel values that a killed sweep changed: they outlive the lab, and only its journal has them."""
    if not file.exists():
        return
    try:
        settings = HostSettings(Hosts(all_local=True), Journal(file), osds=tuple, target=f"lab:{name}")
        settings.restore(with_disks=False)
    except CephfitError as error:
        which = f"{error.where}: {error.what}" if error.where else error.what
        remedy = f"{error.remedy}; then" if error.remedy else "find the cause; then"
        raise HostError(
            f"kernel values that a sweep changed cannot be restored, so the lab stays: {which}",
            where=f"lab {name}",
            remedy=f"{remedy} remove the lab again. If you delete {file}, the lab is removed and the values stay",
        ) from None
