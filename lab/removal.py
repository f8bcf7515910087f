"""Taking a lab down by its name or its folder, whatever is left of it."""

from contextlib import ExitStack
from pathlib import Path

from cephfit.errors import CephfitError, HostError
from cephfit.lab import registry, remains
from cephfit.lab.registry import Record
from cephfit.lab.throttle import find_throttle
from cephfit.sweep.greater.host_settings import HostSettings
from cephfit.sweep.hosts.access import Hosts
from cephfit.sweep.journal import Journal
from cephfit.sweep.target_lock import TargetLock


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
        if not remains.anything_left(place):
            raise registry.no_such_lab(name)
    record = Record.read(place)
    if record is not None:
        name = record.name
    elif folder is not None and not remains.anything_left(place):
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
            remains.clear_forgotten([Path(device) for device in record.devices.values()], throttle)
        remains.remove_all(place, throttle)
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
