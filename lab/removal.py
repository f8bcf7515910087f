"""Taking a lab down by its name or its folder, whatever is left of it."""

from contextlib import ExitStack
from pathlib import Path

from cephfit.errors import HostError
from cephfit.lab import registry, remains
from cephfit.lab.registry import Record
from cephfit.lab.throttle import find_throttle
from cephfit.sweep.target_lock import TargetLock


def remove_lab(name: str, folder: Path | None) -> None:
    """Remove a lab, in whatever state it is: half made, half dead, or its folder half deleted.

    Args:
        name: of the lab; the journal's wins where there is one.
        folder: the lab's; None to find it by name.

    Raises:
        InputError: there is none of this name.
        HostError: another process is working on it, or holds one of its devices open.
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
        if throttle is not None and record is not None:
            remains.clear_forgotten([Path(device) for device in record.devices.values()], throttle)
        remains.remove_all(place, throttle)
        registry.release(name)
