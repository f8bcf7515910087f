"""Create a lab, and remove a lab by its name or folder, in any state.

Creation checks the machine, reserves name and ports, creates Ceph and, on request, OpenStack. No step of the
removal relies on another part of the lab.
"""

import errno
import os
import shutil
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cephfit.ceph.environment.host_settings import HostSettings
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.options.option_history import RELEASES
from cephfit.core.errors import CephfitError, HostError, InputError
from cephfit.core.journal import Journal, TargetLock
from cephfit.core.protocols import Progress
from cephfit.lab import registry
from cephfit.lab.daemons import bootstrap, processes
from cephfit.lab.daemons.ceph_programs import CephPrograms, CephVersion, ensure_root
from cephfit.lab.daemons.osd_layout import require_store
from cephfit.lab.devices import disks
from cephfit.lab.devices.disks import (
    abandon,
    backing_file,
    detach_loop,
    device_number,
    is_mounted_elsewhere,
    loops_of,
    mounts,
    unmount_under,
)
from cephfit.lab.devices.throttle import Throttle, find_throttle
from cephfit.lab.lab_backend import require_servers
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.machine import require_aio, require_free_disk, require_programs
from cephfit.lab.openstack import infrastructure, layout
from cephfit.lab.openstack.components import require_packages
from cephfit.lab.openstack.infrastructure import require_links
from cephfit.lab.parts import LabParts
from cephfit.lab.registry import Record
from cephfit.lab.workloads.postgres import PostgresServer

if TYPE_CHECKING:
    from cephfit.lab.openstack.openstack_lab import LabCloud

_HELD_SECONDS = 2.0
"""Time to wait for a process that holds a former loop device, for instance while it attaches it."""
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
    """Remove limits from former loop devices of the lab, except those that another lab uses now."""
    for device in devices:
        until = time.monotonic() + _HELD_SECONDS
        while device.exists() and not _clear_if_no_labs(device, throttle) and time.monotonic() < until:
            time.sleep(0.05)


def _clear_if_no_labs(device: Path, throttle: Throttle) -> bool:
    """Remove the limit of a former device, unless a lab has the device; return False if a process holds it now."""
    if (file := backing_file(device)) is not None:
        # A file that is not visible may be that of a lab in another mount namespace.
        if _is_visible(file) and not any(registry.is_lab(folder) for folder in file.parents):
            throttle.clear(device_number(device))
        return True
    try:
        # While it is held, no other lab can attach it and set a limit before this one is removed.
        descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
    except OSError as error:
        return error.errno != errno.EBUSY
    try:
        if backing_file(device) is not None:
            return False
        throttle.clear(device_number(device))
        return True
    finally:
        os.close(descriptor)


def _is_visible(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # in a mount of FUSE whose server was killed
        return False


def what_is_left(folder: Path) -> list[str]:
    """Return the processes, loop devices and mounts below ``folder``, and its network interfaces, as text."""
    return [
        *(f"process {pid}" for pid in processes.of_folder(folder)),
        *(f"loop device {device}" for device in loops_of(folder)),
        *(f"mount {m.point}" for m in mounts() if m.point == folder or folder in m.point.parents),
        *(f"network interface {end}" for end in infrastructure.interfaces_there(folder)),
    ]


def anything_left(folder: Path) -> bool:
    """Return whether a process, loop device or mount below ``folder``, or a network interface of it, exists."""
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
        infrastructure.remove(folder)
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
            clear_forgotten([Path(device) for device in (*record.devices.values(), *record.former)], throttle)
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


@dataclass(frozen=True, slots=True)
class CloudNeeds:
    """Additional requirements of a lab with OpenStack; none by default.

    Attributes:
        n_ports: on 127.0.0.1.
        free_nbytes: on the disk of the lab's folder.
        n_steps: of the progress.
    """

    n_ports: int = 0
    free_nbytes: int = 0
    n_steps: int = 0


CLOUD_NEEDS = CloudNeeds(len(layout.PORT_NAMES), layout.FREE_NBYTES, layout.N_STEPS)


def make_cloud(folder: Path, conf: Path, record: Record, progress: Progress) -> None:
    """Create the OpenStack of a lab whose Ceph is healthy.

    Args:
        folder: the lab's.
        conf: its ceph.conf.
        record: with the OpenStack's ports.
        progress: advanced ``CLOUD_NEEDS.n_steps`` times.
    """
    from cephfit.lab.openstack.openstack_lab import CephAccess, LabCloud  # needs the extra `openstack`

    cloud = LabCloud.lay_out(record.name, folder, record.more_ports, tuple(record.spec.limits))
    cloud.make(CephAccess(conf, record.fsid, record.mon_port), progress)


def open_cloud(folder: Path, record: Record) -> "LabCloud | None":
    """Open the OpenStack of an existing lab; None if it has none."""
    if not record.more_ports:
        return None
    from cephfit.lab.openstack.openstack_lab import LabCloud

    return LabCloud.open(folder)


_OWN_PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "crushtool", "monmaptool")
"""Of the machine, for a lab of the machine's release."""


def make_lab(
    name: str, folder: Path | None, spec: LabSpec, *, openstack: bool, progress: Progress
) -> tuple[Path, Record]:
    """Create a lab; remove its parts again after a failure or an interrupt. Raises as ``Lab.up``.

    Args:
        name: not in use.
        folder: of the lab; None: in the default folder of labs.
        spec: its specification.
        openstack: also create an OpenStack.
        progress: shows the steps.

    Returns:
        Its folder and journal.
    """
    require_programs(*(() if spec.release else _OWN_PROGRAMS), "losetup", "cc")
    require_servers(spec.backends)
    if openstack and spec.release:
        raise InputError(
            "an OpenStack needs the machine's Ceph: its services use the machine's client",
            where="--release",
            remedy="omit --release, or --openstack",
        )
    if openstack:
        require_packages()
        require_links()
    more = CLOUD_NEEDS if openstack else CloudNeeds()
    disks.require_loop()
    require_aio(len(spec.osds))
    throttle = find_throttle(folder or registry.labs_root() / name)
    require_free_disk(folder or registry.labs_root() / name, spec.free_nbytes + more.free_nbytes)
    for store in spec.stores.values():  # before a root is made, which takes minutes
        require_store(store, partial(_version_of, spec.release))
    ensure_root(spec.release, progress)
    place = registry.claim(name, folder)
    try:
        with registry.working_on(place):
            with registry.port_choice(1 + more.n_ports) as (port, *ports):
                record = Record(
                    name, str(uuid.uuid4()), port, ready=False, devices={}, spec=spec, more_ports=tuple(ports)
                )
                record.write(place)
            parts = LabParts(place, record)
            progress.start(f"lab {name}", bootstrap.N_STEPS + 1 + bool(spec.backends) + more.n_steps)
            _make(parts, throttle, progress)
            progress.done()
            return place, parts.record
    except BaseException:
        remove_all(place, throttle)
        registry.release(name)
        raise


def _version_of(release: str) -> CephVersion:
    """Return the version of a release without patch level, or of the machine's programs."""
    return CephVersion(RELEASES[release], release) if release else CephPrograms(Path("/"), None).version()


def _make(parts: LabParts, throttle: Throttle, progress: Progress) -> None:
    parts.disks.make()
    parts.attach_disks(throttle)
    progress.advance(detail="disks")
    bootstrap.bootstrap(parts, throttle, progress)
    parts.slow_down(throttle)
    with parts.connection() as admin:
        parts.await_whole(admin)
    progress.advance(detail="all PGs active+clean")
    if parts.spec.backends:
        with parts.full_speed():
            parts.backends.start()
        parts.place(throttle)
        progress.advance(detail="back ends")
    if parts.client_network is not None:
        parts.client_network.start()
    if parts.record.more_ports:
        make_cloud(parts.folder, parts.conf, parts.record, progress)
        with parts.connection() as admin:
            parts.await_whole(admin)
    parts.journal.change(ready=True)
